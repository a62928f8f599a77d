"""Which tenants have something due, asked by whoever sweeps before any tenant is known; and what
a tenant tunes."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

from psycopg.rows import class_row

from strandline.db.database import Connection, TenantDb, translate_errors
from strandline.tuning import Tuning, select_known


@dataclass(frozen=True)
class _TenantId:
    tenant_id: str


def list_tenant_ids(
    connection: Connection, statement: LiteralString, params: Sequence[object]
) -> list[str]:
    """The tenants that a statement names, which gives their ids and nothing else about them."""
    with translate_errors(), connection.cursor(row_factory=class_row(_TenantId)) as cursor:
        return [row.tenant_id for row in cursor.execute(statement, params).fetchall()]


@dataclass(frozen=True)
class _TuningRow:
    tuning: dict[str, Any]


def read_overrides(access: TenantDb) -> dict[str, Any]:
    """What is set for the asker's tenant: thresholds by name, only those that differ from the
    deployment's. Empty also where there is no such tenant."""
    rows = access.fetch(
        _TuningRow, "select tuning from tenants where tenant_id = current_tenant()", {}
    )
    return select_known(rows[0].tuning) if rows else {}


def read_tuning(access: TenantDb, deployment: Tuning) -> Tuning:
    """The thresholds that hold for the asker's tenant: the deployment's (`settings().tuning`), but
    for what is set for it."""
    return deployment.with_overrides(read_overrides(access))


def set_overrides(access: TenantDb, overrides: Mapping[str, object]) -> None:
    """Set all of the asker's tenant's own thresholds; inside of `transaction`. They were checked:
    see `Tuning`."""
    access.execute(
        "update tenants set tuning = %(tuning)s::jsonb where tenant_id = current_tenant()",
        {"tuning": json.dumps(overrides)},
    )
