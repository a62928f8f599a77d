"""List the tenants with due work, for sweeps, which run before any tenant is known; and read a
tenant's own thresholds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg.rows import class_row

from strandline.db.connection import Connection, translate_errors
from strandline.db.database import TenantDb
from strandline.tuning import Tuning, select_known_thresholds


@dataclass(frozen=True)
class _TenantIdRow:
    tenant_id: str


def fetch_tenant_ids(
    connection: Connection, statement: LiteralString, params: Sequence[object]
) -> list[str]:
    """List the tenants that a statement returns. It returns only their ids."""
    with translate_errors(), connection.cursor(row_factory=class_row(_TenantIdRow)) as cursor:
        return [row.tenant_id for row in cursor.execute(statement, params).fetchall()]


@dataclass(frozen=True)
class _TuningRow:
    tuning: dict[str, Any]


def read_tuning_overrides(access: TenantDb) -> dict[str, Any]:
    """The own thresholds of the caller's tenant, by name: only those that differ from the
    deployment's. Also empty if the tenant does not exist."""
    rows = access.fetch(
        _TuningRow, "select tuning from tenants where tenant_id = current_tenant()", {}
    )
    return select_known_thresholds(rows[0].tuning) if rows else {}


def read_tuning(access: TenantDb, deployment: Tuning) -> Tuning:
    """The thresholds in force for the caller's tenant: the deployment's (`get_settings().tuning`),
    overridden by the tenant's own."""
    return deployment.with_overrides(read_tuning_overrides(access))


def set_tuning_overrides(access: TenantDb, overrides: Mapping[str, object]) -> None:
    """Replace all own thresholds of the caller's tenant; needs a `transaction`. The caller must
    have validated them: see `Tuning`."""
    access.execute(
        "update tenants set tuning = %(tuning)s::jsonb where tenant_id = current_tenant()",
        {"tuning": json.dumps(overrides)},
    )
