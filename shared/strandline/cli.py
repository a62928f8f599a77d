"""`python -m strandline.cli`: make, list and revoke API keys; bring a database up to date."""

import argparse
import json
import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from strandline.auth import make_key
from strandline.config import settings
from strandline.db import Access, Asker, Database
from strandline.errors import Invalid, NotFound, StrandlineError
from strandline.principals import RIGHTS
from strandline.services.migrate import migrate_from_environment
from strandline.store import keys

_MOST_DAYS = 3650


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
    revoke = commands.add_parser("revoke", help="revoke a key; it is refused within 60 seconds")
    revoke.add_argument("--tenant", required=True)
    revoke.add_argument("--key", required=True, help="its id, as `keys` lists it")
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
            _on_keys(asked, database.access(Asker(asked.tenant, ())))
        finally:
            database.close()
    except StrandlineError as error:
        print(f"strandline: {error.message}", file=sys.stderr)
        return 1
    return 0


def _on_keys(asked: argparse.Namespace, access: Access) -> None:
    if asked.command == "key":
        if asked.days is not None and not 1 <= asked.days <= _MOST_DAYS:
            raise Invalid(f"--days: from 1 to {_MOST_DAYS}")
        expires = None if asked.days is None else datetime.now(UTC) + timedelta(days=asked.days)
        made = make_key(
            access,
            settings().key_secret,
            user=asked.user,
            rights=[right.strip() for right in asked.rights.split(",")],
            label=asked.label,
            expires_at=expires,
        )
        print(made.token)
    elif asked.command == "keys":
        for row in keys.listing(access):
            print(json.dumps(vars(row), default=str))
    else:
        with access.transaction():
            if not keys.revoke(access, asked.key):
                raise NotFound(f"Tenant {asked.tenant} has no key {asked.key}.")
        print(f"revoked: {asked.key}")


def _use_running_service() -> None:
    """Without settings in the environment: those of `make run`, where it runs in this directory."""
    file = Path(os.environ.get("STRANDLINE_DATA_DIR") or ".strandline") / "local.json"
    if "STRANDLINE_DATABASE_URL" not in os.environ and file.exists():
        os.environ |= json.loads(file.read_text())["environment"]


if __name__ == "__main__":
    sys.exit(main())
