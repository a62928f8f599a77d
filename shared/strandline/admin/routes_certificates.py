"""HTTP routes for operators: client certificates."""

from strandline.admin import certificates
from strandline.admin.routes import TENANT, connect_tenant
from strandline.admin.schemas_certificates import CertificateIn, CertificateOut, CertificatePage
from strandline.errors import StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import PagingQuery


def create_certificate(request: Request) -> Response:
    """Add the subject of a client certificate. Certificates with this subject authenticate this
    principal, where mutual TLS is enabled. A subject (of an issuer) belongs to one principal in the
    whole deployment; if it is taken, the answer is 409."""
    body = request.parse_body(CertificateIn)
    access = connect_tenant(request)
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
        certificates.list_certificates(connect_tenant(request), page.limit, page.cursor)
    )


def get_certificate(request: Request) -> Response:
    """Get one subject and its principal."""
    return json_response(
        certificates.get_certificate(connect_tenant(request), request.path_id("certificate_id"))
    )


def revoke_certificate(request: Request) -> Response:
    """Revoke a subject for good. Its certificates are refused within 60 seconds. Repeating it
    changes nothing."""
    access, certificate_id = connect_tenant(request), request.path_id("certificate_id")
    certificate = certificates.revoke_certificate(access, request.audit_context, certificate_id)
    request.resources.authenticator.forget_certificates()
    return json_response(certificate)


_CERTIFICATES = f"{TENANT}/certificates"
_CERTIFICATE = f"{_CERTIFICATES}/{{certificate_id}}"

ROUTES = {
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
