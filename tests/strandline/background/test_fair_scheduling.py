"""Nobody waits for a neighbour's whole backlog: each scope has a turn, then others have theirs."""

import importlib
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from strandline.background import queue_handler
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.lambda_context import LambdaContext
from tests.strandline.chains.fold_fixtures import ALICE, HELPER, append
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway, ScratchDatabase

TURN = 200


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder("words/64", 64)


class Queue:
    """The work queue, delivered one at a time in their order."""

    def __init__(
        self, patch: pytest.MonkeyPatch, base: ScratchDatabase, seconds: float = 600.0
    ) -> None:
        self.messages = deque[dict[str, Any]]()
        self.delivered = 0
        self._base = base
        self._handler = importlib.import_module("functions.worker.handler")
        queue = self._handler.resources.work_queue
        patch.setattr(queue, "send", self.send)
        patch.setattr(queue, "send_later", self.send_later)

        def short(*args: Any, **options: Any) -> WorkerResources:
            return replace(
                WorkerResources(*args, **options), slice_events=TURN, slice_seconds=seconds
            )

        patch.setattr(queue_handler, "WorkerResources", short)

    def send(self, tenant: str, scopes: Iterable[UUID | str]) -> None:
        self.messages.append({"tenant": tenant, "scopes": [str(scope) for scope in scopes]})

    def send_later(self, tenant: str, waits: Mapping[UUID, float]) -> None:
        for scope in (one for one, seconds in waits.items() if not seconds):
            self.send(tenant, [scope])

    def deliver(self) -> None:
        self.delivered += 1
        record = {"messageId": "m", "body": json.dumps(self.messages.popleft())}
        answer = self._handler.lambda_handler({"Records": [record]}, LambdaContext("worker", 120))
        assert answer["batchItemFailures"] == []

    def unfolded(self, scope: str) -> int:
        return self._base.rows(
            "select (last_seq - folded_seq)::int from scopes where scope_id = %s", UUID(scope)
        )[0][0]


def make_messages(count: int) -> list[dict[str, Any]]:
    who = [ALICE, HELPER]
    return [
        {"participants": who, "role": "user", "speaker": ALICE, "content": f"buoy no. {place}"}
        for place in range(count)
    ]


def test_fair_scheduling_backlog_yields_after_one_turn(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(monkeypatch, scratch_db)
    giant = ""
    for _ in range(3):
        (giant, *_) = append(gateway, gateway.key("giant"), make_messages(200))
    small = append(gateway, gateway.key("small"), make_messages(5))[0]
    queue.messages.clear()
    queue.send("giant", [giant])
    queue.send("small", [small])
    while queue.unfolded(small):
        queue.deliver()
    assert queue.delivered == 2
    assert queue.unfolded(giant) == 600 - TURN
    while queue.messages:
        queue.deliver()
    assert queue.unfolded(giant) == 0
    assert queue.delivered <= 2 + 600 // TURN + 1, "no turn is for nothing"
    assert scratch_db.rows("select count(*) from scope_work") == [(0,)]


def test_fair_scheduling_turn_of_long_texts_ends_by_clock(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few events it had: a neighbour waits for seconds, not for a thousand long texts."""
    queue = Queue(monkeypatch, scratch_db, seconds=0.0)
    (giant, *_) = append(gateway, gateway.key("giant"), make_messages(300))
    small = append(gateway, gateway.key("small"), make_messages(5))[0]
    queue.messages.clear()
    queue.send("giant", [giant])
    queue.send("small", [small])
    while queue.unfolded(small):
        queue.deliver()
    assert queue.delivered == 2
    assert queue.unfolded(giant) > 0
    while queue.messages:
        queue.deliver()
    assert queue.unfolded(giant) == 0
