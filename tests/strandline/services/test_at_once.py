"""What a closed run asks of a model is asked side by side: the requests wait for the model, not for
each other. Held by a barrier, not by a clock."""

import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from strandline.aws.blobs import Blobs
from strandline.chains import enrichment, parallel
from strandline.chains.form import close_idle
from strandline.db.database import Database
from strandline.llm.types import Done, Entities, Said, Summary, Task, Topic
from strandline.local.aws import LocalAws
from tests.strandline.services.folds import Plain, append, tune
from tests.strandline.services.stand_ins import WordEmbedder, embed_due, work_for
from tests.strandline.services.test_refold import LATER
from tests.support import Base, Gateway

MET_WITHIN_SECONDS = 60.0


class Meeting(Plain):
    """A model that answers none of a run's three questions before it has been asked all three."""

    def __init__(self, seconds: float = MET_WITHIN_SECONDS) -> None:
        super().__init__()
        self.barrier = threading.Barrier(3, timeout=seconds)
        self.threads = set[int]()

    def summarise(self, task: Task, said: Sequence[Said]) -> Done[Summary]:
        """Once the others are asked too."""
        self._meet()
        return super().summarise(task, said)

    def topic(self, task: Task, said: Sequence[Said]) -> Done[Topic]:
        """Likewise."""
        self._meet()
        return super().topic(task, said)

    def entities(self, task: Task, said: Sequence[Said]) -> Done[Entities]:
        """Likewise."""
        self._meet()
        return super().entities(task, said)

    def _meet(self) -> None:
        self.threads.add(threading.get_ident())
        self.barrier.wait()


@pytest.fixture
def database(base: Base) -> Iterator[Database]:
    database = Database(base.url)
    yield database
    database.close()


def formed(
    gateway: Gateway, base: Base, database: Database, aws: LocalAws, model: Meeting
) -> list[Any]:
    """The topics of the chains that one closed run became."""
    said = {"participants": ["user:alice", "agent:a"], "role": "user", "content": "harbour mooring"}
    append(gateway, gateway.key(), [said])
    tune(base)
    worker = work_for(database, Blobs(aws.bucket), WordEmbedder("words/64", 64), model)
    embed_due(worker)
    close_idle(worker, "acme", LATER)
    return base.rows("select models -> 'summarise' ->> 'model' from chain_versions")


def test_three_requests_of_a_closed_run_are_in_flight_at_once(
    gateway: Gateway, base: Base, database: Database, aws: LocalAws
) -> None:
    model = Meeting()
    assert formed(gateway, base, database, aws, model) == [("scripted:1",)]
    assert len(model.threads) == 3
    assert not model.barrier.broken


def test_requests_one_after_the_other_are_noticed(
    gateway: Gateway,
    base: Base,
    database: Database,
    aws: LocalAws,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The planted fault: each is answered before the next is asked."""

    def in_turn(_: object, *questions: Any) -> tuple[Any, ...]:
        return tuple(ask() for ask in questions)

    assert enrichment.at_once is parallel.at_once
    monkeypatch.setattr(enrichment, "at_once", in_turn)
    model = Meeting(seconds=0.5)
    assert formed(gateway, base, database, aws, model) != [("scripted:1",)]
    assert model.barrier.broken
