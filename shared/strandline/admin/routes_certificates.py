"""Client certificates over HTTP: for operators."""

from strandline.admin import certificates
from strandline.admin.routes import TENANT, tenant_of
from strandline.admin.schemas_certificates import CertificateIn, CertificateOut, CertificatePage
from strandline.errors import StateConflict
from strandline.http.app import Answer, Request, Route, answer
from strandline.schemas import ListQuery


def create_certificate(request: Request) -> Answer:
    """Enter the subject of a client certificate: who shows one that bears it is this principal.
    Asked for where mutual TLS is a way in. A subject (of an issuer) stands for one principal in the
    whole deployment; one that is taken is a 409."""
    wanted = request.body(CertificateIn)
    access = tenant_of(request)
    made = certificates.enter(
        access,
        request.act,
        subject=wanted.subject,
        issuer=wanted.issuer,
        user=wanted.user,
        rights=wanted.rights,
        label=wanted.label,
        expires_at=wanted.expires_at,
    )
    request.service.authenticator.forget_certificates()
    return answer(made, 201)


def list_certificates(request: Request) -> Answer:
    """A tenant's subjects, ended ones too, newest first."""
    page = request.query(ListQuery)
    return answer(certificates.listed(tenant_of(request), page.limit, page.cursor))


def get_certificate(request: Request) -> Answer:
    """One subject, and for whom it stands."""
    return answer(certificates.get(tenant_of(request), request.path_id("certificate_id")))


def revoke_certificate(request: Request) -> Answer:
    """Revoke a subject for good: certificates that bear it are refused within 60 seconds. Again
    changes nothing."""
    access, certificate_id = tenant_of(request), request.path_id("certificate_id")
    revoked = certificates.revoke(access, request.act, certificate_id)
    request.service.authenticator.forget_certificates()
    return answer(revoked)


_CERTIFICATES = f"{TENANT}/certificates"
_CERTIFICATE = f"{_CERTIFICATES}/{{certificate_id}}"

ROUTES = {
    f"POST {_CERTIFICATES}": Route(
        create_certificate,
        "operator",
        {201: CertificateOut},
        body=CertificateIn,
        errors=(StateConflict,),
        records=True,
    ),
    f"GET {_CERTIFICATES}": Route(
        list_certificates, "operator", {200: CertificatePage}, query=ListQuery
    ),
    f"GET {_CERTIFICATE}": Route(get_certificate, "operator", {200: CertificateOut}),
    f"DELETE {_CERTIFICATE}": Route(
        revoke_certificate, "operator", {200: CertificateOut}, records=True
    ),
}
