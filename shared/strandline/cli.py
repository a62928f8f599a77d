"""`python -m strandline.cli`: create, list, rotate and revoke API keys; register, list and revoke
client certificates; fold chains again; check the receipt of an erasure; migrate a database."""

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from strandline.admin import certificates
from strandline.admin.keys import (
    MAX_EXPIRY_DAYS,
    NewKey,
    list_keys,
    make_key,
    revoke_key,
    rotate_key,
)
from strandline.admin.prepare_release import prepare_release
from strandline.admin.schemas import CertificateOut, KeyOut
from strandline.auth import x509_names
from strandline.auth.principals import RIGHTS
from strandline.aws.run_requests import JobQueue, min_spacing_by_job
from strandline.chains.refold import refold
from strandline.config import get_settings
from strandline.db.database import Caller, Database, TenantDb
from strandline.erasure import receipts
from strandline.errors import Invalid, NotFound, StrandlineError
from strandline.schemas import parse_json
from strandline.tenants.store_audit import AuditContext

_MAX_OVERLAP_HOURS = 30 * 24
_PAGE_SIZE = 500


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="strandline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    key_parser = commands.add_parser(
        "key", help="create an API key; it is shown once and stored nowhere"
    )
    key_parser.add_argument(
        "--tenant", required=True, help="its tenant, created if it is new: a-z, 0-9, -"
    )
    key_parser.add_argument(
        "--user", help="bind it to user:NAME: it reads and writes as that user only"
    )
    key_parser.add_argument("--rights", default="read,write", help=f"of {', '.join(RIGHTS)}")
    key_parser.add_argument("--days", type=int, help="how long it is valid; for ever if absent")
    key_parser.add_argument("--label", default="", help="what it is for")
    list_parser = commands.add_parser("keys", help="list a tenant's keys, without their secrets")
    list_parser.add_argument("--tenant", required=True)
    rotate_parser = commands.add_parser(
        "rotate",
        help="create a key's successor, shown once; the key itself expires after the overlap",
    )
    rotate_parser.add_argument("--tenant", required=True)
    rotate_parser.add_argument("--key", required=True, help="its id, as `keys` lists it")
    rotate_parser.add_argument(
        "--overlap", type=int, default=24, help="hours for which both are valid; default 24"
    )
    rotate_parser.add_argument(
        "--days", type=int, help="how long the successor is valid; as long as the key if absent"
    )
    revoke_parser = commands.add_parser(
        "revoke", help="revoke a key; it is refused within 60 seconds"
    )
    revoke_parser.add_argument("--tenant", required=True)
    revoke_parser.add_argument("--key", required=True, help="its id, as `keys` lists it")
    refold_parser = commands.add_parser(
        "refold", help="delete a tenant's chains; the next sweep folds them again from the log"
    )
    refold_parser.add_argument("--tenant", required=True)
    refold_parser.add_argument("--scope", type=UUID, help="only the scope with this id")
    _add_certificate_parsers(commands.add_parser)
    receipt_parser = commands.add_parser(
        "receipt", help="check an erasure's receipt: a file with GET /api/v1/erasures/{id}'s answer"
    )
    receipt_parser.add_argument("file", type=Path)
    receipt_parser.add_argument(
        "--public-key", help="of the deployment, in hex; by default from its own secret"
    )
    commands.add_parser("migrate", help="bring the schema to this release, as its owner")
    return parser


def _add_certificate_parsers(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    enter_parser = add_parser(
        "certificate", help="register a certificate subject, which then authenticates a tenant"
    )
    enter_parser.add_argument("--tenant", required=True, help="created if it is new: a-z, 0-9, -")
    name_group = enter_parser.add_mutually_exclusive_group(required=True)
    name_group.add_argument("--subject", help="as `openssl x509 -noout -subject -nameopt RFC2253`")
    name_group.add_argument(
        "--pem", type=Path, help="a certificate file to read subject and issuer from"
    )
    enter_parser.add_argument("--issuer", help="its authority's name; any authority if absent")
    enter_parser.add_argument("--user", help="bind it to user:NAME")
    enter_parser.add_argument("--rights", default="read,write", help=f"of {', '.join(RIGHTS)}")
    enter_parser.add_argument("--days", type=int, help="how long it is valid; for ever if absent")
    enter_parser.add_argument("--label", default="", help="what it is for")
    list_parser = add_parser("certificates", help="list a tenant's subjects")
    list_parser.add_argument("--tenant", required=True)
    revoke_parser = add_parser(
        "revoke-certificate", help="revoke a subject; it is refused within 60 seconds"
    )
    revoke_parser.add_argument("--tenant", required=True)
    revoke_parser.add_argument("--certificate", type=UUID, required=True, help="its id in the list")


def main(arguments: list[str] | None = None) -> int:
    """Run one command. Returns 0 when it succeeded, 1 when it was refused; exits with 2 for a wrong
    command line."""
    args = _build_parser().parse_args(arguments)
    _load_local_environment()
    try:
        if args.command == "migrate":
            result = prepare_release(os.environ, math.inf)
            print(
                "applied:",
                ", ".join(result.applied) or "nothing, the schema is up to date",
            )
            return 0
        if args.command == "receipt":
            return _check_receipt(args.file, args.public_key)
        database = Database(get_settings().database_url, get_settings().database_auth)
        try:
            access = database.connect_as(Caller.background(args.tenant))
            if args.command == "refold":
                scope_count = refold(access, AuditContext("console refold"), args.scope)
                _request_sweep()
                print(f"to be folded again by the next sweep: {scope_count} scopes")
            elif "certificate" in args.command:
                _run_certificate_command(args, access)
            else:
                _run_key_command(args, access)
        finally:
            database.close()
    except StrandlineError as error:
        print(f"strandline: {error.message}", file=sys.stderr)
        return 1
    return 0


def _check_receipt(file: Path, public_key: str | None) -> int:
    """Verify the signature of a receipt with the deployment's public key, and print the result.
    Returns 0 if the receipt is valid, else 1."""
    try:
        answer = parse_json(file.read_bytes())  # refuses duplicate names
        receipt, signature = answer["receipt"], answer["signature"]
    except (OSError, StrandlineError, KeyError, TypeError):
        raise Invalid(f"{file}: is not the answer of GET /api/v1/erasures/{{id}}") from None
    if receipt is None:
        raise Invalid(f"{file}: the erasure is not complete and has no receipt yet")
    key = public_key or receipts.public_key(get_settings().sealing_secret)
    if not receipts.verify(key, receipt, str(signature)):
        print(f"strandline: {file}: is not a receipt of the deployment with the key {key}")
        return 1
    print(f"valid: {receipt['event_count']} events, complete at {receipt['complete_at']}")
    return 0


def _request_sweep() -> None:
    """Request a sweep soon. If the request cannot be sent, a later sweep or the daily one does the
    work."""
    config, now = get_settings(), datetime.now(UTC)
    JobQueue(config.job_queue_url, min_spacing_by_job(config.sweep_seconds)).request_run(
        "sweeper", now, now
    )


def _run_key_command(args: argparse.Namespace, access: TenantDb) -> None:
    context = AuditContext(f"console {args.command}")
    if args.command == "keys":
        for key in _all_keys(access):
            print(key.model_dump_json())
        return
    if args.command == "key":
        new_key = make_key(
            access,
            get_settings().key_secret,
            context,
            user=args.user,
            rights=[right.strip() for right in args.rights.split(",")],
            label=args.label,
            expires_at=_expiry_in(args.days),
        )
        print(new_key.token)
        return
    try:
        if args.command == "revoke":
            revoke_key(access, context, args.key)
            print(f"revoked: {args.key}")
        else:
            print(_make_successor_key(args, access, context).token)
    except NotFound:
        raise NotFound(f"Tenant {args.tenant} has no key {args.key}.") from None


def _run_certificate_command(args: argparse.Namespace, access: TenantDb) -> None:
    context = AuditContext(f"console {args.command}")
    if args.command == "certificates":
        for entry in _all_certificates(access):
            print(entry.model_dump_json())
    elif args.command == "certificate":
        subject, issuer = _certificate_names(args)
        certificate = certificates.add_certificate(
            access,
            context,
            subject=subject,
            issuer=issuer,
            user=args.user,
            rights=[right.strip() for right in args.rights.split(",")],
            label=args.label,
            expires_at=_expiry_in(args.days),
        )
        print(certificate.model_dump_json())
    else:
        try:
            certificates.revoke_certificate(access, context, args.certificate)
        except NotFound:
            message = f"Tenant {args.tenant} has no certificate {args.certificate}."
            raise NotFound(message) from None
        print(f"revoked: {args.certificate}")


def _certificate_names(args: argparse.Namespace) -> tuple[str, str | None]:
    if args.pem is None:
        return args.subject, args.issuer
    try:
        info = x509_names.read_certificate(args.pem.read_text())
    except (OSError, ValueError):
        raise Invalid(f"--pem: {args.pem} is not a PEM certificate") from None
    return info.subject, args.issuer or info.issuer


def _make_successor_key(
    args: argparse.Namespace, access: TenantDb, context: AuditContext
) -> NewKey:
    if not 0 <= args.overlap <= _MAX_OVERLAP_HOURS:
        raise Invalid(f"--overlap: must be from 0 to {_MAX_OVERLAP_HOURS} hours")
    return rotate_key(
        access,
        get_settings().key_secret,
        context,
        args.key,
        overlap=timedelta(hours=args.overlap),
        expires_at=_expiry_in(args.days),
    ).successor


def _expiry_in(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 1 <= days <= MAX_EXPIRY_DAYS:
        raise Invalid(f"--days: must be from 1 to {MAX_EXPIRY_DAYS}")
    return datetime.now(UTC) + timedelta(days=days)


def _all_keys(access: TenantDb) -> Iterator[KeyOut]:
    page = list_keys(access, _PAGE_SIZE, None)
    yield from page.keys
    while page.next_cursor:
        page = list_keys(access, _PAGE_SIZE, page.next_cursor)
        yield from page.keys


def _all_certificates(access: TenantDb) -> Iterator[CertificateOut]:
    page = certificates.list_certificates(access, _PAGE_SIZE, None)
    yield from page.certificates
    while page.next_cursor:
        page = certificates.list_certificates(access, _PAGE_SIZE, page.next_cursor)
        yield from page.certificates


def _load_local_environment() -> None:
    """If the environment has no settings, use those that `make run` stored in this directory."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if "STRANDLINE_DATABASE_URL" not in os.environ and file.exists():
        os.environ |= json.loads(file.read_text())["environment"]


if __name__ == "__main__":
    sys.exit(main())
