"""Tenants, their limits and their audit trail: operators create, change and read them."""

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from strandline.admin.schemas import (
    AuditEntry,
    AuditPage,
    TenantDetails,
    TenantLimits,
    TenantOut,
    TenantPage,
    TuningOut,
)
from strandline.admin.schemas_embedding import (
    EmbeddingProgress,
    EmbeddingState,
    EmbeddingSwitch,
)
from strandline.admin.usage import read_tenant_usage
from strandline.auth import store_tenants_and_keys
from strandline.config import get_settings
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import Invalid, Malformed, NotFound, StateConflict
from strandline.schemas import TENANT_PATTERN
from strandline.sealing import UnsealError
from strandline.tenants import store_audit, store_quotas, store_spaces, store_tuning
from strandline.tenants.quotas import QuotaManager
from strandline.tenants.space_state import SpaceState, count_tokens, estimate_usd
from strandline.tenants.store_audit import AuditContext
from strandline.tenants.store_quotas import NO_LIMITS, Limits

_NAME = re.compile(TENANT_PATTERN)
_TENANT_LIST = "after_tenant"
"""The member of a cursor of the tenants' list, which no other list's has."""


class SwitchSetting(NamedTuple):
    """A tenant's own setting of when it comes to read a new embedding space."""

    setting: Literal["auto", "held"] | None
    """None: the deployment's."""


type SwitchChange = SwitchSetting | None
"""None leaves it as it is."""


def is_tenant_name(text: str) -> bool:
    """Whether this is a valid tenant name."""
    return _NAME.fullmatch(text) is not None


def require_tenant_name(tenant: str) -> None:
    """Raise Invalid unless this is a valid tenant name."""
    if not is_tenant_name(tenant):
        raise Invalid(
            "tenant: must be 1 to 63 of a-z, 0-9 and -, not beginning with -", field="tenant"
        )


def make_tenant(
    access: TenantDb,
    audit_context: AuditContext,
    limits: Mapping[str, Any],
    tuning: Mapping[str, object],
    *,
    agents_share: bool | None = None,
    time_zone: str | None = None,
    embedding_switch: SwitchChange = None,
) -> None:
    """Create the tenant of `access`, with limits and thresholds by name. Raises Invalid for
    contradictory thresholds and an unknown time zone; StateConflict where the tenant exists: then
    nothing is changed."""
    with access.transaction():
        if not store_tenants_and_keys.insert_tenant(access):
            raise StateConflict(
                "tenant_id: this tenant already exists; change its limits with PATCH",
                field="tenant_id",
            )
        if limits:
            store_quotas.set_quota_limits(access, limits)
        changes = _make_limit_audit_details(NO_LIMITS, limits)
        changes |= _set_agents_share(access, agents_share) | _set_time_zone(access, time_zone)
        changes |= _set_switch(access, embedding_switch)
        changes |= _set_tuning(access, tuning)
        store_audit.add_audit_entry(access, audit_context, {}, changes)


def change_tenant(
    access: TenantDb,
    audit_context: AuditContext,
    limits: Mapping[str, Any],
    tuning: Mapping[str, object],
    *,
    agents_share: bool | None = None,
    time_zone: str | None = None,
    embedding_switch: SwitchChange = None,
) -> None:
    """Set the given limits and thresholds of the tenant of `access`, and `agents_share`,
    `time_zone` and `embedding_switch` unless they are None; the others stay. Raises NotFound, or
    Invalid for contradictory thresholds and an unknown time zone."""
    with access.transaction():
        if not store_tenants_and_keys.lock_tenant(access):  # else concurrent changes could be lost
            raise NotFound
        old_limits = store_quotas.read_quota_limits(access)
        assert old_limits is not None, "the tenant is locked"
        store_quotas.set_quota_limits(access, {**old_limits, **limits})
        changes = _make_limit_audit_details(old_limits, limits)
        changes |= _set_agents_share(access, agents_share) | _set_time_zone(access, time_zone)
        changes |= _set_switch(access, embedding_switch)
        changes |= _set_tuning(access, tuning)
        store_audit.add_audit_entry(access, audit_context, {}, changes)


def _make_limit_audit_details(old_limits: Limits, limits: Mapping[str, Any]) -> dict[str, object]:
    """The audit details of changed limits: each given limit with its value before and after."""
    return {name: {"from": old_limits[name], "to": limit} for name, limit in limits.items()}


def _set_agents_share(access: TenantDb, agents_share: bool | None) -> dict[str, object]:
    """Set whether the tenant's agents share, unless it is None. Returns the audit details. Call it
    in a transaction, on a tenant that exists."""
    if agents_share is None:
        return {}
    tenant = store_tenants_and_keys.get_tenant(access)
    assert tenant is not None, "this transaction created or locked it"
    store_tenants_and_keys.set_agents_share(access, agents_share=agents_share)
    return {"agents_share": {"from": tenant.agents_share, "to": agents_share}}


def _set_time_zone(access: TenantDb, time_zone: str | None) -> dict[str, object]:
    """Set the tenant's time zone, unless it is None. Returns the audit details. Call it in a
    transaction, on a tenant that exists. Raises Invalid."""
    if time_zone is None:
        return {}
    if not store_tenants_and_keys.is_known_time_zone(access, time_zone):
        raise Invalid(
            "time_zone: no such time zone; send an IANA name such as Europe/Berlin or UTC",
            field="time_zone",
        )
    tenant = store_tenants_and_keys.get_tenant(access)
    assert tenant is not None, "this transaction created or locked it"
    store_tenants_and_keys.set_time_zone(access, time_zone)
    return {"time_zone": {"from": tenant.time_zone, "to": time_zone}}


def _set_switch(access: TenantDb, change: SwitchChange) -> dict[str, object]:
    """Set when the tenant comes to read a new embedding space, unless it is None. Returns the audit
    details. Call it in a transaction, on a tenant that exists."""
    if change is None:
        return {}
    former, new = store_spaces.read_space(access).embedding_switch, change.setting
    store_spaces.set_switch(access, new)
    return {"embedding_switch": {"from": former, "to": new}}


def _set_tuning(access: TenantDb, tuning: Mapping[str, object]) -> dict[str, object]:
    """Set the given thresholds; null restores the deployment's value. Returns the audit details of
    those that changed. Call it in a transaction. Raises Invalid."""
    if not tuning:
        return {}
    old_overrides = store_tuning.read_tuning_overrides(access)
    new_overrides = {
        n: value for n, value in {**old_overrides, **tuning}.items() if value is not None
    }
    _require_consistent_tuning(new_overrides, tuning)
    store_tuning.set_tuning_overrides(access, new_overrides)
    return {
        f"tuning.{name}": {"from": old_overrides.get(name), "to": new_overrides.get(name)}
        for name in tuning
        if old_overrides.get(name) != new_overrides.get(name)
    }


def _require_consistent_tuning(
    overrides: Mapping[str, object], new_values: Mapping[str, object]
) -> None:
    """Raise Invalid where a given threshold contradicts another one, the tenant's own or the
    deployment's."""
    for contradiction in get_settings().tuning.with_overrides(overrides).find_contradictions():
        for name in contradiction.fields:
            if name in new_values:
                raise Invalid(
                    f"tuning.{name}: {contradiction.message}. Thresholds that the tenant does not "
                    "set have the deployment's values.",
                    field=f"tuning.{name}",
                    thresholds=contradiction.fields,
                )


def require_existing_tenant(access: TenantDb) -> None:
    """Raise NotFound unless the tenant of `access` exists."""
    if store_tenants_and_keys.get_tenant(access) is None:
        raise explain_missing_tenant(access.caller.tenant)


def explain_missing_tenant(name: str) -> NotFound:
    """The error of an operator's call on a tenant that does not exist. It quotes only what could be
    a tenant's name: in the name's place may stand a key."""
    what = f"no tenant {name!r}" if is_tenant_name(name) else "no tenant of this name"
    return NotFound(
        f"There is {what}: create it first (POST /api/v1/admin/tenants, strandline "
        "tenants create NAME), or check the name (strandline tenants list).",
        field="tenant",
    )


def get_tenant(
    access: TenantDb, quota_service: QuotaManager, space_state: SpaceState
) -> TenantDetails:
    """The tenant of `access` with its limits, thresholds and usage. Raises NotFound."""
    tenant, limits = (
        store_tenants_and_keys.get_tenant(access),
        store_quotas.read_quota_limits(access),
    )
    if tenant is None or limits is None:
        raise NotFound
    return TenantDetails(
        tenant_id=tenant.tenant_id,
        created_at=tenant.created_at,
        agents_share=tenant.agents_share,
        time_zone=tenant.time_zone,
        embedding_switch=tenant.embedding_switch,
        embedding=to_embedding_state(space_state),
        limits=TenantLimits.model_validate(limits),
        tuning=TuningOut(**store_tuning.read_tuning_overrides(access)),
        usage=read_tenant_usage(access, quota_service),
    )


def to_embedding_state(state: SpaceState) -> EmbeddingState:
    """A tenant's embedding space as it is shown."""
    progress = state.filled and EmbeddingProgress(**vars(state.filled), missing=state.missing)
    latest = state.latest
    usd_spent, usd_remaining = estimate_usd(state)
    return EmbeddingState(
        reads=state.reads,
        configured=state.configured,
        model_reachable=state.is_reachable,
        held=state.is_held,
        progress=progress,
        latest=latest
        and EmbeddingSwitch(
            **vars(latest),
            tokens=count_tokens(latest.characters),
            usd=usd_spent,
            usd_left=usd_remaining,
        ),
    )


def list_tenants(access: TenantDb, limit: int, cursor: str | None) -> TenantPage:
    """List all tenants by name. Raises Malformed for an invalid cursor."""
    after = "" if cursor is None else _read_last_name(access, cursor)
    rows = store_tenants_and_keys.list_tenants(access, after, limit)
    last = rows[-1].tenant_id if len(rows) == limit else None
    return TenantPage(
        tenants=[TenantOut(**vars(row)) for row in rows],
        next_cursor=last
        and access.sealer.seal("cursor", access.caller.tenant, {_TENANT_LIST: last}),
    )


def _read_last_name(access: TenantDb, cursor: str) -> str:
    """The last name of the page before. Raises Malformed for a cursor of anything else."""
    try:
        return str(access.sealer.unseal("cursor", access.caller.tenant, cursor)[_TENANT_LIST])
    except (UnsealError, LookupError, TypeError):
        raise Malformed(
            "cursor: is not one of this list: send next_cursor unchanged, with the same credential,"
            " or restart the list without one",
            field="cursor",
        ) from None


def list_audit_entries(access: TenantDb, limit: int, cursor: str | None) -> AuditPage:
    """List what admins and operators did in the tenant of `access`, newest first. Raises Malformed
    for an invalid cursor."""
    cursors = Cursors(access.sealer, access.caller.tenant, "audit")
    rows = store_audit.list_newest(access, cursors.decode(cursor), limit)
    last = rows[-1] if len(rows) == limit else None
    after = last and Position(last.pg_snapshot, last.at, last.audit_id)
    return AuditPage(
        entries=[AuditEntry.model_validate(vars(row)) for row in rows],
        next_cursor=after and cursors.encode(after),
    )
