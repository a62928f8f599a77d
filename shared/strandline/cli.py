"""`python -m strandline.cli`: make, list, rotate and revoke API keys; enter, list and revoke client
certificates; fold chains again; migrate a database."""

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
from strandline.admin.keys import MOST_DAYS, NewKey, list_keys, make_key, revoke_key, rotate_key
from strandline.admin.release import release
from strandline.admin.schemas_certificates import CertificateOut
from strandline.admin.schemas_keys import KeyOut
from strandline.auth import x509_names
from strandline.auth.principals import RIGHTS
from strandline.aws.run_requests import SPACING, Runs
from strandline.chains.refold import refold
from strandline.config import settings
from strandline.db.database import Access, Asker, Database
from strandline.errors import Invalid, NotFound, StrandlineError
from strandline.tenants.store_audit import Act

_MOST_OVERLAP = 30 * 24
_PAGE = 500


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="strandline", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    key = commands.add_parser("key", help="make an API key; it is shown once and stored nowhere")
    key.add_argument("--tenant", required=True, help="its tenant, made if it is new: a-z, 0-9, -")
    key.add_argument("--user", help="bind it to user:NAME: it reads and writes as that user only")
    key.add_argument("--rights", default="read,write", help=f"of {', '.join(RIGHTS)}")
    key.add_argument("--days", type=int, help="how long it holds; for ever if absent")
    key.add_argument("--label", default="", help="what it is for")
    listing = commands.add_parser("keys", help="list a tenant's keys, without anything secret")
    listing.add_argument("--tenant", required=True)
    rotate = commands.add_parser(
        "rotate", help="make a key's successor, shown once; the key itself ends after the overlap"
    )
    rotate.add_argument("--tenant", required=True)
    rotate.add_argument("--key", required=True, help="its id, as `keys` lists it")
    rotate.add_argument("--overlap", type=int, default=24, help="hours for which both hold: 24")
    rotate.add_argument(
        "--days", type=int, help="how long the successor holds; as its key if absent"
    )
    revoke = commands.add_parser("revoke", help="revoke a key; it is refused within 60 seconds")
    revoke.add_argument("--tenant", required=True)
    revoke.add_argument("--key", required=True, help="its id, as `keys` lists it")
    refolding = commands.add_parser(
        "refold", help="forget a tenant's chains and have the sweep fold them again from the log"
    )
    refolding.add_argument("--tenant", required=True)
    refolding.add_argument("--scope", type=UUID, help="this scope's only, by its id")
    _add_certificates(commands.add_parser)
    commands.add_parser("migrate", help="apply missing migrations as the owner")
    return parser


def _add_certificates(add_parser: Callable[..., argparse.ArgumentParser]) -> None:
    entering = add_parser(
        "certificate", help="let client certificates of a subject stand for a tenant"
    )
    entering.add_argument("--tenant", required=True, help="made if it is new: a-z, 0-9, -")
    names = entering.add_mutually_exclusive_group(required=True)
    names.add_argument("--subject", help="as `openssl x509 -noout -subject -nameopt RFC2253`")
    names.add_argument("--pem", type=Path, help="a certificate: its subject and its issuer")
    entering.add_argument("--issuer", help="its authority's name; any authority's if absent")
    entering.add_argument("--user", help="bind it to user:NAME")
    entering.add_argument("--rights", default="read,write", help=f"of {', '.join(RIGHTS)}")
    entering.add_argument("--days", type=int, help="how long it stands for the tenant")
    entering.add_argument("--label", default="", help="what it is for")
    listing = add_parser("certificates", help="list a tenant's subjects")
    listing.add_argument("--tenant", required=True)
    revoking = add_parser(
        "revoke-certificate", help="revoke a subject; it is refused within 60 seconds"
    )
    revoking.add_argument("--tenant", required=True)
    revoking.add_argument("--certificate", type=UUID, required=True, help="its id in the list")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it was done, 1 when it was refused, 2 for a wrong command line."""
    asked = _parser().parse_args(arguments)
    _use_running_service()
    try:
        if asked.command == "migrate":
            done = release(os.environ, math.inf)
            print("applied:", ", ".join(done.applied) or "nothing, it is up to date")
            return 0
        database = Database(settings().database_url, settings().database_auth)
        try:
            access = database.access(Asker(asked.tenant, ()))
            if asked.command == "refold":
                dropped = refold(access, Act("console refold"), asked.scope)
                _begin_sweep()
                print(f"to be folded again by the next sweep: {dropped} scopes")
            elif "certificate" in asked.command:
                _on_certificates(asked, access)
            else:
                _on_keys(asked, access)
        finally:
            database.close()
    except StrandlineError as error:
        print(f"strandline: {error.message}", file=sys.stderr)
        return 1
    return 0


def _begin_sweep() -> None:
    """Have a sweep begin soon. Where nobody can be told, a later one or the daily one comes."""
    known, now = settings(), datetime.now(UTC)
    spacing = {**SPACING, "sweeper": timedelta(seconds=known.sweep_seconds)}
    Runs(known.runs_url, spacing).wish("sweeper", now, now)


def _on_keys(asked: argparse.Namespace, access: Access) -> None:
    act = Act(f"console {asked.command}")
    if asked.command == "keys":
        for key in _all_keys(access):
            print(key.model_dump_json())
        return
    if asked.command == "key":
        made = make_key(
            access,
            settings().key_secret,
            act,
            user=asked.user,
            rights=[right.strip() for right in asked.rights.split(",")],
            label=asked.label,
            expires_at=_after(asked.days),
        )
        print(made.token)
        return
    try:
        if asked.command == "revoke":
            revoke_key(access, act, asked.key)
            print(f"revoked: {asked.key}")
        else:
            print(_rotate(asked, access, act).token)
    except NotFound:
        raise NotFound(f"Tenant {asked.tenant} has no key {asked.key}.") from None


def _on_certificates(asked: argparse.Namespace, access: Access) -> None:
    act = Act(f"console {asked.command}")
    if asked.command == "certificates":
        for one in _all_certificates(access):
            print(one.model_dump_json())
    elif asked.command == "certificate":
        subject, issuer = _names(asked)
        made = certificates.enter(
            access,
            act,
            subject=subject,
            issuer=issuer,
            user=asked.user,
            rights=[right.strip() for right in asked.rights.split(",")],
            label=asked.label,
            expires_at=_after(asked.days),
        )
        print(made.model_dump_json())
    else:
        try:
            certificates.revoke(access, act, asked.certificate)
        except NotFound:
            message = f"Tenant {asked.tenant} has no certificate {asked.certificate}."
            raise NotFound(message) from None
        print(f"revoked: {asked.certificate}")


def _names(asked: argparse.Namespace) -> tuple[str, str | None]:
    if asked.pem is None:
        return asked.subject, asked.issuer
    try:
        named = x509_names.read(asked.pem.read_text())
    except (OSError, ValueError):
        raise Invalid(f"--pem: {asked.pem} is no certificate in PEM") from None
    return named.subject, asked.issuer or named.issuer


def _rotate(asked: argparse.Namespace, access: Access, act: Act) -> NewKey:
    if not 0 <= asked.overlap <= _MOST_OVERLAP:
        raise Invalid(f"--overlap: from 0 to {_MOST_OVERLAP} hours")
    return rotate_key(
        access,
        settings().key_secret,
        act,
        asked.key,
        overlap=timedelta(hours=asked.overlap),
        expires_at=_after(asked.days),
    ).made


def _after(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 1 <= days <= MOST_DAYS:
        raise Invalid(f"--days: from 1 to {MOST_DAYS}")
    return datetime.now(UTC) + timedelta(days=days)


def _all_keys(access: Access) -> Iterator[KeyOut]:
    page = list_keys(access, _PAGE, None)
    yield from page.keys
    while page.next_cursor:
        page = list_keys(access, _PAGE, page.next_cursor)
        yield from page.keys


def _all_certificates(access: Access) -> Iterator[CertificateOut]:
    page = certificates.listed(access, _PAGE, None)
    yield from page.certificates
    while page.next_cursor:
        page = certificates.listed(access, _PAGE, page.next_cursor)
        yield from page.certificates


def _use_running_service() -> None:
    """Without settings in the environment: those of `make run`, where it runs in this directory."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if "STRANDLINE_DATABASE_URL" not in os.environ and file.exists():
        os.environ |= json.loads(file.read_text())["environment"]


if __name__ == "__main__":
    sys.exit(main())
