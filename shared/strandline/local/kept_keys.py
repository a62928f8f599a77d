"""The API keys for this machine, the same at each start."""

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from strandline.admin.keys import make_key
from strandline.auth import store_tenants_and_keys
from strandline.auth.api_keys import verify_token
from strandline.auth.principals import Right
from strandline.db.database import Caller, Database
from strandline.errors import Unauthorized

ADMIN: Sequence[Right] = ("read", "write", "admin")
AGENTS: Sequence[Right] = ("read", "write")
"""Agents read on behalf of somebody whom they name: one that forgets it gets an error."""


class StoredApiKey(NamedTuple):
    """A key of one tenant, and the file that keeps it."""

    token: str
    notice: str
    """Where the key comes from, for the greeting."""
    file: Path


class ApiKeyFiles(NamedTuple):
    """Keeps keys of one tenant in files, so that they are the same at each start."""

    database: Database
    tenant: str
    deployment_secret: str

    def load_or_create(self, file: Path, rights: Sequence[Right]) -> StoredApiKey:
        """The key in `file`. If there is none, or it is not usable any more, creates a key and
        stores it there, readable only by the file's owner."""
        token = file.read_text().strip() if file.exists() else ""
        problem = self._find_reason_token_is_unusable(token, rights) if token else ""
        if token and not problem:
            file.chmod(0o600)
            return StoredApiKey(token, "the same at each start", file)
        access = self.database.connect_as(Caller(self.tenant, ()))
        label = "made by make run"
        new_key = make_key(access, self.deployment_secret, rights=rights, label=label)
        write_private_file(file, f"{new_key.token}\n")
        notice = f"new: {problem}" if problem else "created just now, the same from now on"
        return StoredApiKey(new_key.token, notice, file)

    def _find_reason_token_is_unusable(self, token: str, rights: Sequence[Right]) -> str:
        """Why the token cannot be used; empty if it can."""
        try:
            parts = verify_token(self.deployment_secret, token)
        except Unauthorized:
            return "the stored one is not from this data directory"
        row = store_tenants_and_keys.find_key_principal(
            self.database.connection(None), parts.key_id, parts.secret_hash
        )
        if row is None:
            return "the stored one was revoked, or is not in this database"
        if row.expires_at is not None and row.expires_at <= datetime.now(UTC):
            return "the stored one has expired"
        lacks = set(rights) - set(row.scopes)
        reads_more = "admin" in row.scopes and "admin" not in rights
        if row.tenant_id != self.tenant or row.user_name or lacks or reads_more:
            return "the stored one has other rights"
        return ""


def write_private_file(file: Path, text: str) -> None:
    """Write a file that only its owner can read; it is there whole or not at all."""
    temporary_file = file.with_suffix(".draft")
    temporary_file.unlink(missing_ok=True)
    with open(os.open(temporary_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    temporary_file.replace(file)
