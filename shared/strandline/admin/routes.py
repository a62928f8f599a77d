"""Tenants, keys and the audit trail over HTTP: for operators, whose right reads no memory."""

from collections.abc import Mapping
from datetime import timedelta

from strandline.admin import keys, tenants
from strandline.admin.schemas_audit import AuditPage
from strandline.admin.schemas_keys import KeyIn, KeyOut, KeyPage, NewKeyOut, RotatedOut, RotateIn
from strandline.admin.schemas_tenants import (
    LimitsIn,
    TenantChange,
    TenantDetails,
    TenantIn,
    TenantPage,
    TuningIn,
)
from strandline.config import settings
from strandline.db.database import Access
from strandline.errors import NotFound, StateConflict
from strandline.http.app import Answer, Request, Route, answer
from strandline.schemas import ListQuery


def create_tenant(request: Request) -> Answer:
    """Make a tenant. One that is there already is a 409 and stays as it is."""
    wanted = request.body(TenantIn)
    access = request.operator(wanted.tenant_id)
    tenants.make_tenant(access, request.act, _limits(wanted), _tuning(wanted))
    return answer(tenants.get_tenant(access, request.service.quotas), 201)


def list_tenants(request: Request) -> Answer:
    """All tenants, by name."""
    page = request.query(ListQuery)
    return answer(tenants.list_tenants(request.operator(), page.limit, page.cursor))


def get_tenant(request: Request) -> Answer:
    """One tenant, what it may use and what it uses."""
    return answer(tenants.get_tenant(tenant_of(request), request.service.quotas))


def change_tenant(request: Request) -> Answer:
    """Change a tenant's limits and thresholds: those named, the others stay."""
    wanted = request.body(TenantChange)
    access = tenant_of(request)
    tenants.change_tenant(access, request.act, _limits(wanted), _tuning(wanted))
    return answer(tenants.get_tenant(access, request.service.quotas))


def create_key(request: Request) -> Answer:
    """Make a key of a tenant that is there. Its token is in this answer and nowhere else, so that
    there is no replay: where the answer was lost, list the keys, revoke the one and make another.
    Where API keys are no way in it is a 409."""
    wanted = request.body(KeyIn)
    access = tenant_of(request)
    made = keys.make_key(
        access,
        settings().key_secret,
        request.act,
        user=wanted.user,
        rights=wanted.rights,
        label=wanted.label,
        expires_at=wanted.expires_at,
    )
    return answer(keys.shown_once(made), 201)


def list_keys(request: Request) -> Answer:
    """A tenant's keys, ended ones too, newest first: nothing secret."""
    page = request.query(ListQuery)
    return answer(keys.list_keys(tenant_of(request), page.limit, page.cursor))


def get_key(request: Request) -> Answer:
    """One key: nothing secret."""
    return answer(keys.get_key(tenant_of(request), request.path_id("key_id").hex))


def rotate_key(request: Request) -> Answer:
    """Make a key's successor, of the same user, rights and label; the key itself ends after the
    overlap. The token is in this answer and nowhere else. A key is rotated once: where the answer
    was lost, rotate its successor, which the 409 and the list name."""
    wanted = request.body(RotateIn)
    access, key_id = tenant_of(request), request.path_id("key_id").hex
    rotated = keys.rotate_key(
        access,
        settings().key_secret,
        request.act,
        key_id,
        overlap=timedelta(seconds=wanted.overlap_seconds),
        expires_at=wanted.expires_at,
    )
    request.service.authenticator.forget_key(key_id)
    made, old = keys.shown_once(rotated.made), keys.shown(rotated.old)
    return answer(RotatedOut(key=made, old=old), 201)


def revoke_key(request: Request) -> Answer:
    """Revoke a key for good: it is refused within 60 seconds. Again changes nothing."""
    access, key_id = tenant_of(request), request.path_id("key_id").hex
    revoked = keys.revoke_key(access, request.act, key_id)
    request.service.authenticator.forget_key(key_id)
    return answer(keys.shown(revoked))


def list_trail(request: Request) -> Answer:
    """What admins and operators did in a tenant, newest first: ids, rights and numbers, no words.
    What was refused lies with the tenant of whoever asked. This call is in the next answer."""
    page = request.query(ListQuery)
    return answer(tenants.list_trail(tenant_of(request), page.limit, page.cursor))


def tenant_of(request: Request) -> Access:
    """The database in the tenant that the path names. Raises NotFound."""
    name = request.path("tenant")
    if not tenants.is_name(name):
        raise NotFound
    access = request.operator(name)
    tenants.require_tenant(access)
    return access


def _limits(wanted: LimitsIn) -> dict[str, int | float | None]:
    """The limits that a body names."""
    return wanted.model_dump(include=set(LimitsIn.model_fields), exclude_unset=True)


def _tuning(wanted: TenantChange) -> Mapping[str, object]:
    """The thresholds that a body names; null for all of them is null for each."""
    if wanted.tuning is not None:
        return wanted.tuning.model_dump(exclude_unset=True)
    return dict.fromkeys(TuningIn.model_fields) if "tuning" in wanted.model_fields_set else {}


TENANT = "/api/v1/admin/tenants/{tenant}"
"""The resource of one tenant."""
_KEY = f"{TENANT}/keys/{{key_id}}"

ROUTES = {
    "POST /api/v1/admin/tenants": Route(
        create_tenant,
        "operator",
        {201: TenantDetails},
        body=TenantIn,
        errors=(StateConflict,),
        records=True,
    ),
    "GET /api/v1/admin/tenants": Route(
        list_tenants, "operator", {200: TenantPage}, query=ListQuery
    ),
    f"GET {TENANT}": Route(get_tenant, "operator", {200: TenantDetails}),
    f"PATCH {TENANT}": Route(
        change_tenant, "operator", {200: TenantDetails}, body=TenantChange, records=True
    ),
    f"POST {TENANT}/keys": Route(
        create_key,
        "operator",
        {201: NewKeyOut},
        body=KeyIn,
        errors=(StateConflict,),
        records=True,
    ),
    f"GET {TENANT}/keys": Route(list_keys, "operator", {200: KeyPage}, query=ListQuery),
    f"GET {_KEY}": Route(get_key, "operator", {200: KeyOut}),
    f"POST {_KEY}/rotate": Route(
        rotate_key,
        "operator",
        {201: RotatedOut},
        body=RotateIn,
        errors=(StateConflict,),
        records=True,
    ),
    f"DELETE {_KEY}": Route(revoke_key, "operator", {200: KeyOut}, records=True),
    f"GET {TENANT}/audit": Route(list_trail, "operator", {200: AuditPage}, query=ListQuery),
}
