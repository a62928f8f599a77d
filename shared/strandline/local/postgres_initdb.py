"""Creates the files of a database cluster: all or nothing, with a random password."""

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

from strandline.local import postgres_installation, postgres_lock
from strandline.local.postgres_installation import PostgresUnusable, ServerAccount

SUPERUSER = "postgres"
# Not all versions of macOS have C.UTF-8; the sort order is C there too.
LOCALE = (
    ["--locale=C", "--lc-ctype=en_US.UTF-8"] if sys.platform == "darwin" else ["--locale=C.UTF-8"]
)


def create_cluster_if_missing(
    directory: Path, account: ServerAccount | None, lock: int, *, durable: bool
) -> str:
    """The superuser's password of the cluster in `directory`/pgdata, which is created if it is
    missing. `lock` is the held lock of the directory.

    The password is written before the cluster, and the cluster is created beside its final path and
    renamed: after a crash at any point the next start continues. Raises PostgresUnusable.
    """
    data, secret = directory / "pgdata", directory / "password"
    if data.exists():
        try:
            return secret.read_text()
        except FileNotFoundError as error:
            raise PostgresUnusable(
                f"{data} is there but its password, {secret}, is not: restore it, or move the "
                "data away to start empty."
            ) from error
    password = secrets.token_urlsafe(24)
    fresh = directory / "pgdata.new"
    if fresh.exists():
        shutil.rmtree(fresh)
    postgres_installation.make_private_directory(fresh, account)
    _write_private_file(secret, password)
    _run_initdb(fresh, password, account, lock)
    if durable:
        os.sync()  # one call, where initdb would sync a thousand files singly
    fresh.rename(data)
    return password


def _run_initdb(data: Path, password: str, account: ServerAccount | None, lock: int) -> None:
    password_file = data.with_name("password.initdb")
    _write_private_file(password_file, password)
    options = ["--auth=scram-sha-256", f"--pwfile={password_file}", f"--username={SUPERUSER}"]
    options += ["--encoding=UTF8", *LOCALE, "--no-sync", "--no-instructions"]
    try:
        if account is not None:
            account.chown(password_file)
        # Under a guard, like the server: if this start is killed, nothing keeps writing here.
        command = [
            postgres_installation.find_or_copy_binaries(account) / "initdb",
            "-D",
            data,
            *options,
        ]
        with postgres_lock.launch_under_guard(lock, account, command, subprocess.PIPE) as guard:
            assert guard.stderr is not None
            output = guard.stderr.read().decode(errors="replace")
            exit_code = guard.wait()
    finally:
        password_file.unlink()
    if exit_code:
        raise PostgresUnusable(f"initdb failed in {data}: {output.strip()[-2000:]}")


def _write_private_file(path: Path, text: str) -> None:
    """Write a secret to a file that nobody else can read at any moment."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
