"""The cluster that the tests copy is of the schema as it is."""

from pathlib import Path

import pytest

from tests.seed_cluster import ROOT, hash_schema


@pytest.mark.parametrize(
    "source",
    [
        *("shared/strandline/db/schema/01_tenants.sql", "tests/support.py"),
        *("shared/strandline/db/schema/roles.sql", "shared/strandline/db/migrate.py"),
        *("shared/strandline/log/functions.sql", "shared/strandline/db/schema_files.py"),
    ],
)
def test_seed_cluster_differs_by_schema(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, read = hash_schema(), Path.read_bytes
    assert hash_schema() == before
    assert (ROOT / source).exists()

    def edit(path: Path) -> bytes:
        return read(path) + (b"-" if path == ROOT / source else b"")

    monkeypatch.setattr(Path, "read_bytes", edit)
    assert hash_schema() != before
