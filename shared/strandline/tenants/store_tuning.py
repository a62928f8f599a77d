"""SQL for a tenant's own thresholds."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.db.database import TenantDb
from strandline.tuning import Tuning, select_known_thresholds


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
