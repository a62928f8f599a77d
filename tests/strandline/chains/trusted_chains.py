"""Chains of events of several origins."""

from collections.abc import Iterator
from datetime import UTC, datetime
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains.fold_scope import close_idle_lanes
from strandline.db.database import Database
from strandline.embeddings.embedder import Embedder
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import ALICE, EchoTasks, append, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase

LATER = datetime(2040, 1, 1, tzinfo=UTC)
ORIGINS: dict[str, dict[str, str]] = {
    "user": {"role": "user"},
    "agent": {"role": "agent"},
    "tool": {"role": "agent", "type": "observation"},
    "document": {"role": "user", "type": "upload"},
    "system": {"role": "system"},
}
"""What an unbound credential says, by the origin that the server gives it."""


@pytest.fixture
def embedder() -> Embedder:
    """Of the functions too: a context is asked in the space that the chains are found by."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, embedder: Embedder
) -> Iterator[WorkerResources]:
    """With a minute to work."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), embedder, EchoTasks())
    database.close()


def say(gateway: Gateway, session: str, text: str, *origins: str) -> UUID:
    """An event of each of these origins; gives their scope."""
    key, who = gateway.key(), {"participants": [ALICE, "agent:a"]}
    message = {**who, "content": text, "session_id": session}
    return UUID(append(gateway, key, [{**message, **ORIGINS[origin]} for origin in origins])[0])


def fold(base: ScratchDatabase, worker: WorkerResources) -> None:
    set_tuning(base)
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
