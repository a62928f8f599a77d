"""What a closed run asks of a model is asked side by side: the requests wait for the model, not for
each other. Held by a barrier, not by a clock."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.chains import parallel_model_calls
from strandline.chains.fold_scope import close_idle_lanes
from strandline.db.database import Database
from strandline.llm.types import (
    Entities,
    ModelResult,
    PromptEvent,
    RunSummary,
    RunTopic,
    TaskContext,
)
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import LATER, EchoTasks, append, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker, process_due
from tests.support import Gateway, ScratchDatabase

MET_WITHIN_SECONDS = 60.0


class Meeting(EchoTasks):
    """A model that answers none of a run's three questions before it has been asked all three."""

    def __init__(self, seconds: float = MET_WITHIN_SECONDS) -> None:
        super().__init__()
        self.barrier = threading.Barrier(3, timeout=seconds)
        self.threads = set[int]()

    def summarise(
        self, task: TaskContext, events: Sequence[PromptEvent]
    ) -> ModelResult[RunSummary]:
        """Once the others are asked too."""
        self._meet()
        return super().summarise(task, events)

    def topic(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[RunTopic]:
        """Likewise."""
        self._meet()
        return super().topic(task, events)

    def entities(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Entities]:
        """Likewise."""
        self._meet()
        return super().entities(task, events)

    def _meet(self) -> None:
        self.threads.add(threading.get_ident())
        self.barrier.wait()


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    database = Database(scratch_db.url)
    yield database
    database.close()


def form_chain(
    gateway: Gateway, base: ScratchDatabase, database: Database, aws: LocalAws, model: Meeting
) -> list[Any]:
    """The topics of the chains that one closed run became."""
    message = {
        "participants": ["user:alice", "agent:a"],
        "role": "user",
        "content": "harbour mooring",
    }
    append(gateway, gateway.key(), [message])
    set_tuning(base)
    worker = make_worker(database, BlobStore(aws.bucket), WordEmbedder("words/64", 64), model)
    process_due(worker)
    close_idle_lanes(worker, "acme", LATER)
    return base.rows("select models -> 'summarise' ->> 'model' from chain_versions")


def test_parallel_model_calls_of_closed_run_overlap(
    gateway: Gateway, scratch_db: ScratchDatabase, database: Database, aws: LocalAws
) -> None:
    model = Meeting()
    assert form_chain(gateway, scratch_db, database, aws, model) == [("scripted:1",)]
    assert len(model.threads) == 3
    assert not model.barrier.broken


def test_parallel_model_calls_in_sequence_are_noticed(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    database: Database,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: each is answered before the next is asked."""

    def in_turn(_: object, *questions: Any) -> tuple[Any, ...]:
        return tuple(ask() for ask in questions)

    monkeypatch.setattr(parallel_model_calls, "run_three_calls_in_parallel", in_turn)
    model = Meeting(seconds=0.5)
    assert form_chain(gateway, scratch_db, database, aws, model) != [("scripted:1",)]
    assert model.barrier.broken
