"""HTTP routes for operators: tenants, keys, client certificates and the audit trail. The right
`operator` cannot read memory."""

from collections.abc import Mapping
from datetime import timedelta

from strandline.admin import certificates, keys, tenants
from strandline.admin.schemas import (
    AuditPage,
    CertificateIn,
    CertificateOut,
    CertificatePage,
    KeyIn,
    KeyOut,
    KeyPage,
    KeyRotationIn,
    LimitsIn,
    NewKeyOut,
    RotatedKeys,
    TenantChange,
    TenantDetails,
    TenantIn,
    TenantPage,
    TuningIn,
)
from strandline.config import get_settings
from strandline.db.database import Caller, TenantDb
from strandline.errors import StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import PagingQuery
from strandline.tenants.space_state import read_space_state


def create_tenant(request: Request) -> Response:
    """Create a tenant. If the tenant already exists, the answer is 409 and the tenant is
    unchanged."""
    body = request.parse_body(TenantIn)
    access = request.connect_operator(body.tenant_id)
    tenants.make_tenant(
        access,
        request.audit_context,
        _get_limit_changes(body),
        _get_threshold_changes(body),
        agents_share=_get_agents_share_change(body),
        time_zone=_get_time_zone_change(body),
        embedding_switch=_embedding_switch(body),
    )
    return json_response(_describe_tenant(request, access), 201)


def list_tenants(request: Request) -> Response:
    """List all tenants, by name."""
    page = request.parse_query(PagingQuery)
    return json_response(tenants.list_tenants(request.connect_operator(), page.limit, page.cursor))


def get_tenant(request: Request) -> Response:
    """Get one tenant with its limits, thresholds, usage and embedding space."""
    return json_response(_describe_tenant(request, connect_path_tenant(request)))


def change_tenant(request: Request) -> Response:
    """Change a tenant's limits, thresholds and settings. Fields that the request does not name stay
    unchanged."""
    body = request.parse_body(TenantChange)
    access = connect_path_tenant(request)
    tenants.change_tenant(
        access,
        request.audit_context,
        _get_limit_changes(body),
        _get_threshold_changes(body),
        agents_share=_get_agents_share_change(body),
        time_zone=_get_time_zone_change(body),
        embedding_switch=_embedding_switch(body),
    )
    return json_response(_describe_tenant(request, access))


def create_key(request: Request) -> Response:
    """Make a key of an existing tenant. Only this response contains its token, and it cannot be
    replayed: if the response was lost, list the keys, revoke that one and make another. Where API
    keys are not enabled the answer is 409."""
    body = request.parse_body(KeyIn)
    access = connect_path_tenant(request)
    new_key = keys.make_key(
        access,
        get_settings().key_secret,
        request.audit_context,
        user=body.user,
        rights=body.rights,
        label=body.label,
        expires_at=body.expires_at,
    )
    return json_response(keys.to_new_key_out(new_key), 201)


def list_keys(request: Request) -> Response:
    """List a tenant's keys, including ended ones, newest first, without secrets."""
    page = request.parse_query(PagingQuery)
    return json_response(keys.list_keys(connect_path_tenant(request), page.limit, page.cursor))


def get_key(request: Request) -> Response:
    """Get one key, without its secret."""
    return json_response(keys.get_key(connect_path_tenant(request), request.path_id("key_id").hex))


def rotate_key(request: Request) -> Response:
    """Rotate a key. Its successor has the same user, rights and label; the key itself ends after
    the overlap. Only this response contains the new token. A key can be rotated once: if the
    response was lost, rotate the successor, which the 409 and the list name."""
    body = request.parse_body(KeyRotationIn)
    access, key_id = connect_path_tenant(request), request.path_id("key_id").hex
    rotation = keys.rotate_key(
        access,
        get_settings().key_secret,
        request.audit_context,
        key_id,
        overlap=timedelta(seconds=body.overlap_seconds),
        expires_at=body.expires_at,
    )
    request.resources.authenticator.forget_key(key_id)
    new_key, old_key = (
        keys.to_new_key_out(rotation.successor),
        keys.to_key_out(rotation.predecessor),
    )
    return json_response(RotatedKeys(key=new_key, old=old_key), 201)


def revoke_key(request: Request) -> Response:
    """Revoke a key for good. It is refused within 60 seconds. Repeating it changes nothing."""
    access, key_id = connect_path_tenant(request), request.path_id("key_id").hex
    key = keys.revoke_key(access, request.audit_context, key_id)
    request.resources.authenticator.forget_key(key_id)
    return json_response(keys.to_key_out(key))


def list_trail(request: Request) -> Response:
    """List what admins and operators did in a tenant, newest first: ids, rights and numbers, no
    text. Refused requests are in the audit trail of the requester's own tenant. The next response
    includes this request."""
    page = request.parse_query(PagingQuery)
    return json_response(
        tenants.list_audit_entries(connect_path_tenant(request), page.limit, page.cursor)
    )


def connect_path_tenant(request: Request) -> TenantDb:
    """Open the database for the tenant that the path names. Raises NotFound."""
    name = request.path_parameter("tenant")
    if not tenants.is_tenant_name(name):
        raise tenants.explain_missing_tenant(name)
    access = request.connect_operator(name)
    tenants.require_existing_tenant(access)
    return access


def create_certificate(request: Request) -> Response:
    """Add the subject of a client certificate. Certificates with this subject authenticate this
    principal, where mutual TLS is enabled. A subject (of an issuer) belongs to one principal in the
    whole deployment; if it is taken, the answer is 409."""
    body = request.parse_body(CertificateIn)
    access = connect_path_tenant(request)
    certificate = certificates.add_certificate(
        access,
        request.audit_context,
        subject=body.subject,
        issuer=body.issuer,
        user=body.user,
        rights=body.rights,
        label=body.label,
        expires_at=body.expires_at,
    )
    request.resources.authenticator.forget_certificates()
    return json_response(certificate, 201)


def list_certificates(request: Request) -> Response:
    """List a tenant's subjects, including ended ones, newest first."""
    page = request.parse_query(PagingQuery)
    return json_response(
        certificates.list_client_certificates(connect_path_tenant(request), page.limit, page.cursor)
    )


def get_certificate(request: Request) -> Response:
    """Get one subject and its principal."""
    return json_response(
        certificates.get_certificate(
            connect_path_tenant(request), request.path_id("certificate_id")
        )
    )


def revoke_certificate(request: Request) -> Response:
    """Revoke a subject for good. Its certificates are refused within 60 seconds. Repeating it
    changes nothing."""
    access, certificate_id = connect_path_tenant(request), request.path_id("certificate_id")
    certificate = certificates.revoke_certificate(access, request.audit_context, certificate_id)
    request.resources.authenticator.forget_certificates()
    return json_response(certificate)


def _get_limit_changes(body: LimitsIn) -> dict[str, int | float | None]:
    """The limits in a request body, by name."""
    return body.model_dump(include=set(LimitsIn.model_fields), exclude_unset=True)


def _get_agents_share_change(body: TenantChange) -> bool | None:
    """Whether the tenant's agents share; None if the request body does not name it."""
    return bool(body.agents_share) if "agents_share" in body.model_fields_set else None


def _get_time_zone_change(body: TenantChange) -> str | None:
    """The tenant's time zone; None if the request body does not name it."""
    return (body.time_zone or "UTC") if "time_zone" in body.model_fields_set else None


def _embedding_switch(body: TenantChange) -> tenants.SwitchChange:
    """When the tenant comes to read a new embedding space; None if the request body does not name
    it."""
    is_named = "embedding_switch" in body.model_fields_set
    return tenants.SwitchSetting(body.embedding_switch) if is_named else None


def _describe_tenant(request: Request, access: TenantDb) -> TenantDetails:
    resources = request.resources
    # Counted as background work: an operator sees no scope.
    counting = resources.database.connect_as(
        Caller.background(access.caller.tenant), request.deadline
    )
    state = read_space_state(counting, resources.embedder, resources.embedders, get_settings())
    return tenants.get_tenant(access, resources.quotas, state)


def _get_threshold_changes(body: TenantChange) -> Mapping[str, object]:
    """The thresholds in a request body, by name. If `tuning` itself is null, every threshold is
    null."""
    if body.tuning is not None:
        return body.tuning.model_dump(exclude_unset=True)
    return dict.fromkeys(TuningIn.model_fields) if "tuning" in body.model_fields_set else {}


TENANT = "/api/v1/admin/tenants/{tenant}"
"""The path of one tenant."""
_KEY = f"{TENANT}/keys/{{key_id}}"
_CERTIFICATES = f"{TENANT}/certificates"
_CERTIFICATE = f"{_CERTIFICATES}/{{certificate_id}}"

ROUTES = {
    "POST /api/v1/admin/tenants": Route(
        create_tenant,
        "operator",
        {201: TenantDetails},
        body=TenantIn,
        errors=(StateConflict,),
        audits_in_transaction=True,
    ),
    "GET /api/v1/admin/tenants": Route(
        list_tenants, "operator", {200: TenantPage}, query=PagingQuery
    ),
    f"GET {TENANT}": Route(get_tenant, "operator", {200: TenantDetails}),
    f"PATCH {TENANT}": Route(
        change_tenant,
        "operator",
        {200: TenantDetails},
        body=TenantChange,
        audits_in_transaction=True,
    ),
    f"POST {TENANT}/keys": Route(
        create_key,
        "operator",
        {201: NewKeyOut},
        body=KeyIn,
        errors=(StateConflict,),
        audits_in_transaction=True,
    ),
    f"GET {TENANT}/keys": Route(list_keys, "operator", {200: KeyPage}, query=PagingQuery),
    f"GET {_KEY}": Route(get_key, "operator", {200: KeyOut}),
    f"POST {_KEY}/rotate": Route(
        rotate_key,
        "operator",
        {201: RotatedKeys},
        body=KeyRotationIn,
        errors=(StateConflict,),
        audits_in_transaction=True,
    ),
    f"DELETE {_KEY}": Route(revoke_key, "operator", {200: KeyOut}, audits_in_transaction=True),
    f"GET {TENANT}/audit": Route(list_trail, "operator", {200: AuditPage}, query=PagingQuery),
    f"POST {_CERTIFICATES}": Route(
        create_certificate,
        "operator",
        {201: CertificateOut},
        body=CertificateIn,
        errors=(StateConflict,),
        audits_in_transaction=True,
    ),
    f"GET {_CERTIFICATES}": Route(
        list_certificates, "operator", {200: CertificatePage}, query=PagingQuery
    ),
    f"GET {_CERTIFICATE}": Route(get_certificate, "operator", {200: CertificateOut}),
    f"DELETE {_CERTIFICATE}": Route(
        revoke_certificate, "operator", {200: CertificateOut}, audits_in_transaction=True
    ),
}
