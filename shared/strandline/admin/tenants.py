"""Tenants, their limits and their audit trail, as operators make, change and read them."""

import re
from collections.abc import Mapping
from typing import Any

from strandline.admin.schemas_audit import AuditEntry, AuditPage
from strandline.admin.schemas_tenants import (
    TenantDetails,
    TenantLimits,
    TenantOut,
    TenantPage,
    TuningOut,
)
from strandline.admin.usage import usage
from strandline.auth import store_keys
from strandline.config import settings
from strandline.cursors import Cursors, Position
from strandline.db.database import Access
from strandline.errors import Invalid, Malformed, NotFound, StateConflict
from strandline.schemas import TENANT_PATTERN
from strandline.tenants import store as tenants_store
from strandline.tenants import store_audit, store_quotas
from strandline.tenants.quotas import Quotas
from strandline.tenants.store_audit import Act
from strandline.tenants.store_quotas import Limits

_NAME = re.compile(TENANT_PATTERN)


def is_name(text: str) -> bool:
    """Whether a tenant may be called so."""
    return _NAME.fullmatch(text) is not None


def require_name(tenant: str) -> None:
    """Raises Invalid for what is no tenant's name."""
    if not is_name(tenant):
        raise Invalid("tenant: 1 to 63 of a-z, 0-9 and -, not beginning with -", field="tenant")


def make_tenant(
    access: Access, act: Act, limits: Mapping[str, Any], tuning: Mapping[str, object]
) -> None:
    """Make the asker's tenant, with `limits` and thresholds by their names. Raises StateConflict
    where there is one: nothing of it is changed."""
    with access.transaction():
        if not store_keys.add_tenant(access):
            raise StateConflict(
                "tenant_id: this tenant is there already; its limits change by PATCH",
                field="tenant_id",
            )
        if limits:
            store_quotas.set_limits(access, Limits(**limits))
        tuned = _tune(access, tuning)
        store_audit.add(access, act, {}, _changes(Limits(), limits) | tuned)


def change_tenant(
    access: Access, act: Act, limits: Mapping[str, Any], tuning: Mapping[str, object]
) -> None:
    """Set the limits and thresholds named, of the asker's tenant; the others stay. Raises
    NotFound."""
    with access.transaction():
        if not store_keys.hold_tenant(access):  # or of two callers at once one would undo the other
            raise NotFound
        before = store_quotas.limits(access)
        assert before is not None, "the tenant is held"
        store_quotas.set_limits(access, Limits(**{**vars(before), **limits}))
        store_audit.add(access, act, {}, _changes(before, limits) | _tune(access, tuning))


def _changes(before: Limits, limits: Mapping[str, Any]) -> dict[str, object]:
    """What the trail says of limits: each that was named, its number before and after."""
    return {name: {"from": vars(before)[name], "to": limit} for name, limit in limits.items()}


def _tune(access: Access, tuning: Mapping[str, object]) -> dict[str, object]:
    """Set the thresholds named, null for the deployment's; inside of `transaction`. Gives what the
    trail says of those that changed. Raises Invalid."""
    if not tuning:
        return {}
    before = tenants_store.tuned(access)
    after = {n: value for n, value in {**before, **tuning}.items() if value is not None}
    _require_no_contradiction(after, tuning)
    tenants_store.set_tuned(access, after)
    return {
        f"tuning.{name}": {"from": before.get(name), "to": after.get(name)}
        for name in tuning
        if before.get(name) != after.get(name)
    }


def _require_no_contradiction(after: Mapping[str, object], named: Mapping[str, object]) -> None:
    """Raises Invalid where a threshold that was named contradicts another, the tenant's own or the
    deployment's."""
    for one in settings().tuning.with_overrides(after).contradictions():
        for name in one.fields:
            if name in named:
                raise Invalid(
                    f"tuning.{name}: {one.said}. What the tenant does not set is the deployment's.",
                    field=f"tuning.{name}",
                    thresholds=one.fields,
                )


def require_tenant(access: Access) -> None:
    """Raises NotFound unless the asker's tenant is there."""
    if store_keys.get_tenant(access) is None:
        raise NotFound


def get_tenant(access: Access, used: Quotas) -> TenantDetails:
    """The asker's tenant, what it may use and what it uses. Raises NotFound."""
    tenant, limits = store_keys.get_tenant(access), store_quotas.limits(access)
    if tenant is None or limits is None:
        raise NotFound
    return TenantDetails(
        tenant_id=tenant.tenant_id,
        created_at=tenant.created_at,
        limits=TenantLimits(**vars(limits)),
        tuning=TuningOut(**tenants_store.tuned(access)),
        usage=usage(access, used),
    )


def list_tenants(access: Access, limit: int, cursor: str | None) -> TenantPage:
    """All tenants, by name; a cursor is the last name of the page before."""
    if cursor is not None and not is_name(cursor):
        raise Malformed("cursor: send back next_cursor as it was given", field="cursor")
    rows = store_keys.tenants(access, cursor or "", limit)
    return TenantPage(
        tenants=[TenantOut(**vars(row)) for row in rows],
        next_cursor=rows[-1].tenant_id if len(rows) == limit else None,
    )


def list_trail(access: Access, limit: int, cursor: str | None) -> AuditPage:
    """What admins and operators did in the asker's tenant, newest first."""
    of = Cursors(access.sealer, access.asker.tenant, "audit")
    rows = store_audit.newest(access, of.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.mark, last.at, last.audit_id)
    return AuditPage(
        entries=[AuditEntry.model_validate(vars(row)) for row in rows],
        next_cursor=after and of.encode(after),
    )
