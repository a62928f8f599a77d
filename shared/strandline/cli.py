"""`python -m strandline.cli`: make, list, rotate and revoke API keys; fold chains again;
migrate a database."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from strandline import wire
from strandline.config import settings
from strandline.db import Access, Asker, Database
from strandline.errors import Invalid, NotFound, StrandlineError
from strandline.principals import RIGHTS
from strandline.services.keys import (
    MOST_DAYS,
    NewKey,
    list_keys,
    make_key,
    revoke_key,
    rotate_key,
)
from strandline.services.migrate import migrate_from_environment
from strandline.services.refold import refold
from strandline.store.audit import Act

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
    commands.add_parser("migrate", help="apply missing migrations as the owner")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 when it was done, 1 when it was refused, 2 for a wrong command line."""
    asked = _parser().parse_args(arguments)
    _use_running_service()
    try:
        if asked.command == "migrate":
            print("applied:", ", ".join(migrate_from_environment()) or "nothing, it is up to date")
            return 0
        database = Database(settings().database_url)
        try:
            access = database.access(Asker(asked.tenant, ()))
            if asked.command == "refold":
                dropped = refold(access, Act("console refold"), asked.scope)
                print(f"to be folded again by the next sweep: {dropped} scopes")
            else:
                _on_keys(asked, access)
        finally:
            database.close()
    except StrandlineError as error:
        print(f"strandline: {error.message}", file=sys.stderr)
        return 1
    return 0


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


def _all_keys(access: Access) -> Iterator[wire.KeyOut]:
    page = list_keys(access, _PAGE, None)
    yield from page.keys
    while page.next_cursor:
        page = list_keys(access, _PAGE, page.next_cursor)
        yield from page.keys


def _use_running_service() -> None:
    """Without settings in the environment: those of `make run`, where it runs in this directory."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if "STRANDLINE_DATABASE_URL" not in os.environ and file.exists():
        os.environ |= json.loads(file.read_text())["environment"]


if __name__ == "__main__":
    sys.exit(main())
