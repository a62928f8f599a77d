"""While events are being erased, no model gets their texts."""

import importlib
from typing import Any

import pytest

from strandline.erasure import erase_events as erasing
from strandline.llm import budget
from strandline.llm.types import TaskContext, TopicTreePart
from tests.model_server import ModelServer
from tests.strandline.erasure.erasure_calls import ERASURES, traces
from tests.strandline.llm.model_path import (
    START,
    deliver,
    embedder,
    front,
    provider,
    talk,
    versions,
)
from tests.support import Gateway, ScratchDatabase, Tell

__all__ = ["embedder", "front", "provider"]


@pytest.fixture(autouse=True)
def not_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being erased is seen at once, and not within five seconds."""
    monkeypatch.setattr(budget, "CACHE_SECONDS", 0.0)


def test_erasure_sends_no_erased_text_to_models(
    scratch_db: ScratchDatabase,
    front: Gateway,
    provider: ModelServer,
    tell: Tell,
    eraser: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither by the worker, nor by a job that read it before; and afterwards from what is left."""
    scope = talk(tell, eraser)
    receipt = tell(eraser, "zyxcanary is late", session_id="s-2", occurred_at=START.isoformat())
    llm = importlib.import_module("functions.worker.handler").resources.llm
    participants = ("agent:helper", "user:alice")
    task = TaskContext("acme", scope, participants, scope_id=scope, job="fold")
    part = TopicTreePart("zyxcanary", "zyxcanary is late", START, START, 1)
    assert llm.overview(task, [part]).fallback_reason is None
    request_count = len(provider.requests)
    with monkeypatch.context() as few:
        few.setattr(erasing, "EVENTS_AT_ONCE", 0)
        body: dict[str, Any] = {"session_id": "s-2"}
        assert front.call("POST", ERASURES, body, key=eraser).status == 202
    deliver(scope)
    overview = llm.overview(task, [part])
    assert (overview.fallback_reason, overview.retry_after) == ("erasing", 60.0)
    assert len(provider.requests) == request_count, "neither the worker nor the job"
    waiting = "select last_error from scope_work where scope_id = %s"
    assert scratch_db.rows(waiting, scope) == [("erasing",)]
    other = TaskContext("acme", "other", participants, job="fold")
    assert llm.overview(other, [part]).fallback_reason is None, "others are served"

    front.run_job("eraser", "acme")
    scratch_db.rows("update scope_work set due_at = now()")
    deliver(scope)
    assert len(versions(scratch_db)) == 1
    assert len(provider.requests) > request_count + 1
    assert not any("zyxcanary" in str(one) for one in provider.requests[request_count + 1 :])
    assert traces(scratch_db) == []
    query = "select erased_at is not null from events where event_id = %s"
    assert scratch_db.rows(query, receipt["event_id"]) == [(True,)]
