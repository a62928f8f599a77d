"""The one API key that a person on this machine uses, the same at each start."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from strandline.admin.keys import make_key
from strandline.auth import store_keys
from strandline.auth.api_keys import verify_token
from strandline.db.database import Caller, Database
from strandline.errors import Unauthorized

RIGHTS = ("read", "write", "admin")


class AdminKey(NamedTuple):
    """A key of one tenant with every right but operator's."""

    token: str
    notice: str
    """Whence it is, for a person to read."""


def load_or_create_admin_key(
    database: Database, tenant: str, deployment_secret: str, file: Path
) -> AdminKey:
    """The key that `file` holds, or a new one, kept there for its owner's eyes alone, where there
    is none or the one that is there is good for nothing any more."""
    token = file.read_text().strip() if file.exists() else ""
    problem = _find_problem(database, tenant, deployment_secret, token) if token else ""
    if token and not problem:
        file.chmod(0o600)
        return AdminKey(token, "the same at each start")
    access = database.connect_as(Caller(tenant, ()))
    new_key = make_key(access, deployment_secret, rights=RIGHTS, label="made by make run")
    temporary_file = file.with_suffix(".draft")
    temporary_file.unlink(missing_ok=True)
    with open(os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(f"{new_key.token}\n")
    temporary_file.replace(file)
    return AdminKey(
        new_key.token, f"made anew: {problem}" if problem else "made just now, the same from now on"
    )


def _find_problem(database: Database, tenant: str, deployment_secret: str, token: str) -> str:
    """Why the token cannot be used, empty where it can."""
    try:
        parts = verify_token(deployment_secret, token)
    except Unauthorized:
        return "the one that was kept is not one of this data directory"
    row = store_keys.find_principal(database.connection(None), parts.key_id, parts.secret_hash)
    if row is None:
        return "the one that was kept was revoked, or is not in this database"
    if row.expires_at is not None and row.expires_at <= datetime.now(UTC):
        return "the one that was kept has expired"
    if row.tenant_id != tenant or row.user_name or not set(RIGHTS) <= set(row.scopes):
        return "the one that was kept has other rights"
    return ""
