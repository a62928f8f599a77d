"""What an operator does on the database, with the deployment's own secrets: keys and client
certificates, embedding spaces, chains that are folded again, receipts of erasures, migrations.
`strandline operate` has a command for each."""

import json
import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from strandline.admin import certificates, keys, tenants
from strandline.admin.prepare_release import prepare_release
from strandline.admin.schemas import CertificateOut, KeyOut
from strandline.admin.schemas_embedding import TenantSpace
from strandline.auth import x509_names
from strandline.auth.store_tenants_and_keys import get_tenant
from strandline.aws.run_requests import JobQueue, min_spacing_by_job
from strandline.chains import refold
from strandline.config import get_settings
from strandline.db.database import NOBODY, Caller, Database, TenantDb
from strandline.embeddings.factory import make_embedder
from strandline.embeddings.reachable import ReachableEmbedders
from strandline.erasure import receipts
from strandline.errors import Invalid, NotFound, StrandlineError
from strandline.schemas import parse_json
from strandline.tenants.space_state import read_space_state
from strandline.tenants.store_audit import AuditContext

MAX_GRACE_HOURS = 30 * 24
_PAGE_SIZE = 500
_READ_AND_WRITE = ("read", "write")


def create_key(
    tenant: str,
    *,
    user: str | None = None,
    rights: Sequence[str] = (),
    days: int | None = None,
    label: str = "",
) -> str:
    """Make a key of a tenant, which is created if it is new. Returns its token, which is stored
    nowhere. Without rights it reads and writes; without days it does not expire. Raises Invalid and
    StateConflict as `admin.keys.make_key`."""
    with _open_tenant_db(tenant) as access:
        return keys.make_key(
            access,
            get_settings().key_secret,
            AuditContext("console key"),
            user=user,
            rights=rights or _READ_AND_WRITE,
            label=label,
            expires_at=_compute_expiry(days),
        ).token


def list_keys(tenant: str) -> list[KeyOut]:
    """A tenant's keys, newest first, without their secrets."""
    with _open_tenant_db(tenant) as access:
        page = keys.list_keys(access, _PAGE_SIZE, None)
        rows = [*page.keys]
        while page.next_cursor:
            page = keys.list_keys(access, _PAGE_SIZE, page.next_cursor)
            rows += page.keys
    return rows


def rotate_key(tenant: str, key_id: str, *, grace_hours: float, days: int | None = None) -> str:
    """Make a key's successor and return its token; the key itself is valid for `grace_hours` more.
    Raises NotFound, Invalid and StateConflict as `admin.keys.rotate_key`."""
    if not 0 <= grace_hours <= MAX_GRACE_HOURS:
        raise Invalid(f"--grace: must be from 0 to {MAX_GRACE_HOURS} hours")
    with _open_tenant_db(tenant) as access, _reword_not_found(tenant, "key", key_id):
        return keys.rotate_key(
            access,
            get_settings().key_secret,
            AuditContext("console rotate"),
            key_id,
            overlap=timedelta(hours=grace_hours),
            expires_at=_compute_expiry(days),
        ).successor.token


def revoke_key(tenant: str, key_id: str) -> None:
    """Revoke a key; it is refused within 60 seconds. Raises NotFound."""
    with _open_tenant_db(tenant) as access, _reword_not_found(tenant, "key", key_id):
        keys.revoke_key(access, AuditContext("console revoke"), key_id)


def create_certificate(
    tenant: str,
    *,
    subject: str | None = None,
    pem: Path | None = None,
    issuer: str | None = None,
    user: str | None = None,
    rights: Sequence[str] = (),
    days: int | None = None,
    label: str = "",
) -> CertificateOut:
    """Register a certificate subject, or that of a PEM file, with its issuer; from then on it
    authenticates the tenant, which is created if it is new. Raises Invalid and StateConflict as
    `admin.certificates.add_certificate`."""
    with _open_tenant_db(tenant) as access:
        if pem is not None:
            subject, issuer_of_file = _read_subject_and_issuer(pem)
            issuer = issuer or issuer_of_file
        return certificates.add_certificate(
            access,
            AuditContext("console certificate"),
            subject=subject or "",
            issuer=issuer,
            user=user,
            rights=rights or _READ_AND_WRITE,
            label=label,
            expires_at=_compute_expiry(days),
        )


def list_client_certificates(tenant: str) -> list[CertificateOut]:
    """A tenant's certificate subjects, newest first."""
    with _open_tenant_db(tenant) as access:
        page = certificates.list_client_certificates(access, _PAGE_SIZE, None)
        rows = [*page.certificates]
        while page.next_cursor:
            page = certificates.list_client_certificates(access, _PAGE_SIZE, page.next_cursor)
            rows += page.certificates
    return rows


def revoke_certificate(tenant: str, certificate_id: UUID) -> None:
    """Revoke a subject; its certificates are refused within 60 seconds. Raises NotFound."""
    with (
        _open_tenant_db(tenant) as access,
        _reword_not_found(tenant, "certificate", certificate_id),
    ):
        context = AuditContext("console revoke-certificate")
        certificates.revoke_certificate(access, context, certificate_id)


def refold_chains(tenant: str, scope_id: UUID | None) -> int:
    """Delete the chains of a tenant, or of one of its scopes, and request a sweep, which folds them
    again from the log. Returns the number of scopes. Raises NotFound."""
    with _open_tenant_db(tenant) as access:
        scope_count = refold.drop_chains_to_refold(access, AuditContext("console refold"), scope_id)
    config, now = get_settings(), datetime.now(UTC)
    # If the request cannot be sent, a later sweep or the daily one does the work.
    JobQueue(config.job_queue_url, min_spacing_by_job(config.sweep_seconds)).request_run(
        "sweeper", now, now
    )
    return scope_count


def list_spaces(tenant: str | None) -> Generator[TenantSpace]:
    """The embedding space of a tenant, or of every tenant by name: which it reads, and how far it
    is on its way to the configured one. Calls no model. Raises NotFound."""
    _load_local_environment()
    settings = get_settings()
    embedder, embedders = make_embedder(settings), ReachableEmbedders(settings)
    with closing(Database(settings.database_url, settings.database_auth)) as database:
        for name in [tenant] if tenant else _iter_tenants(database):
            access = database.connect_as(Caller.background(name))
            if get_tenant(access) is None:
                raise NotFound(f"There is no tenant {name}.")
            state = read_space_state(access, embedder, embedders, settings)
            yield TenantSpace(tenant_id=name, **vars(tenants.to_embedding_state(state)))


def _iter_tenants(database: Database) -> Iterator[str]:
    access = database.connect_as(Caller("-", (NOBODY,)))
    page = tenants.list_tenants(access, _PAGE_SIZE, None)
    while True:
        yield from (row.tenant_id for row in page.tenants)
        if page.next_cursor is None:
            return
        page = tenants.list_tenants(access, _PAGE_SIZE, page.next_cursor)


def check_receipt(file: Path, public_key: str | None) -> tuple[bool, str]:
    """Whether a file's receipt of an erasure is one of the deployment, and a sentence that says so.
    Without a public key (hex) it is the one of the deployment's own secret. Raises Invalid."""
    _load_local_environment()
    try:
        answer = parse_json(file.read_bytes())  # refuses duplicate names
        receipt, signature = answer["receipt"], answer["signature"]
    except (OSError, StrandlineError, KeyError, TypeError):
        raise Invalid(f"{file}: is not the answer of GET /api/v1/erasures/{{id}}") from None
    if receipt is None:
        raise Invalid(f"{file}: the erasure is not complete and has no receipt yet")
    key = public_key or receipts.derive_public_key(get_settings().sealing_secret)
    if not receipts.verify_receipt(key, receipt, str(signature)):
        return False, f"strandline: {file}: is not a receipt of the deployment with the key {key}"
    return True, f"valid: {receipt['event_count']} events, complete at {receipt['complete_at']}"


def migrate() -> list[str]:
    """Bring the schema to this release, as its owner. Returns the names of the applied files.
    Raises as `prepare_release`."""
    _load_local_environment()
    return prepare_release(os.environ, math.inf).applied


@contextmanager
def _open_tenant_db(tenant: str) -> Generator[TenantDb]:
    """The database, as background work of the tenant."""
    _load_local_environment()
    with closing(Database(get_settings().database_url, get_settings().database_auth)) as database:
        yield database.connect_as(Caller.background(tenant))


@contextmanager
def _reword_not_found(tenant: str, what: str, row_id: object) -> Generator[None]:
    try:
        yield
    except NotFound:
        raise NotFound(f"Tenant {tenant} has no {what} {row_id}.") from None


def _read_subject_and_issuer(pem: Path) -> tuple[str, str]:
    try:
        info = x509_names.parse_certificate_names(pem.read_text())
    except (OSError, ValueError):
        raise Invalid(f"--pem: {pem} is not a PEM certificate") from None
    return info.subject, info.issuer


def _compute_expiry(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 1 <= days <= keys.MAX_EXPIRY_DAYS:
        raise Invalid(f"--days: must be from 1 to {keys.MAX_EXPIRY_DAYS}")
    return datetime.now(UTC) + timedelta(days=days)


def _load_local_environment() -> None:
    """If the environment has no settings, use those that `make run` stored in this directory."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if "STRANDLINE_DATABASE_URL" not in os.environ and file.exists():
        os.environ |= json.loads(file.read_text())["environment"]
