"""The API key for a person on this machine, the same at each start."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from strandline.admin.keys import make_key
from strandline.auth import store_tenants_and_keys
from strandline.auth.api_keys import verify_token
from strandline.db.database import Caller, Database
from strandline.errors import Unauthorized

RIGHTS = ("read", "write", "admin")


class AdminKey(NamedTuple):
    """A key of one tenant with all rights but `operator`."""

    token: str
    notice: str
    """Where the key comes from, for the greeting."""


def load_or_create_admin_key(
    database: Database, tenant: str, deployment_secret: str, file: Path
) -> AdminKey:
    """The key in `file`. If there is none, or it is not usable any more, creates a key and stores
    it there, readable only by the file's owner."""
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
        new_key.token, f"new: {problem}" if problem else "created just now, the same from now on"
    )


def _find_problem(database: Database, tenant: str, deployment_secret: str, token: str) -> str:
    """Why the token cannot be used; empty if it can."""
    try:
        parts = verify_token(deployment_secret, token)
    except Unauthorized:
        return "the stored one is not from this data directory"
    row = store_tenants_and_keys.find_principal(
        database.connection(None), parts.key_id, parts.secret_hash
    )
    if row is None:
        return "the stored one was revoked, or is not in this database"
    if row.expires_at is not None and row.expires_at <= datetime.now(UTC):
        return "the stored one has expired"
    if row.tenant_id != tenant or row.user_name or not set(RIGHTS) <= set(row.scopes):
        return "the stored one has other rights"
    return ""
