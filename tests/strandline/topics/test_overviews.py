"""The summaries of a level are asked for at once, and wait for the model's next minute."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from strandline.llm import parallel
from strandline.llm.parallel import MAX_PARALLEL
from strandline.llm.tasks import LlmTasks
from strandline.llm.types import ModelResult, TaskContext, TopicTreePart, TopicTreePartsSummary
from strandline.topics import slot_contents
from tests.strandline.topics.outline import build, read_tree
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

AT = datetime(2026, 5, 8, tzinfo=UTC)
TASK = TaskContext(tenant="acme", subject="s", participants=())


@dataclass
class Tasks:
    """A model that names the parts; it grants so many calls a minute."""

    calls_per_minute: int = 1000
    has_model: bool = True
    barrier: threading.Barrier | None = None
    calls: list[str] = field(default_factory=list[str])
    threads: set[int] = field(default_factory=set[int])
    counts: Counter[str] = field(default_factory=Counter[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    def overview(
        self, task: TaskContext, parts: Sequence[TopicTreePart]
    ) -> ModelResult[TopicTreePartsSummary]:
        """The parts' names, or the heuristic model's answer where the minute is over."""
        del task
        if self.barrier:
            self.barrier.wait()
        name = " ".join(part.topic or "" for part in parts)
        with self.lock:
            self.threads.add(threading.get_ident())
            if self.calls_per_minute == 0:
                return ModelResult(
                    TopicTreePartsSummary(summary="?", topic=None),
                    "heuristic",
                    "overview",
                    "rate_limited",
                    30.0,
                )
            self.calls_per_minute -= 1
            self.calls.append(name)
        return ModelResult(TopicTreePartsSummary(summary=name, topic=name), "model", "overview/1")

    def take_metrics(self) -> Mapping[str, int]:
        """One call."""
        return {"ModelCalls": 1}

    def add_metrics(self, counts: Mapping[str, int]) -> None:
        """Those of other threads."""
        self.counts.update(counts)


def parts(*names: str) -> list[list[TopicTreePart]]:
    return [[TopicTreePart(name, None, AT, AT, 1)] for name in names]


def describe(
    tasks: Tasks, *names: str, seconds: float = 600.0
) -> list[ModelResult[TopicTreePartsSummary]]:
    end = time.monotonic() + seconds
    return slot_contents.summarise_slots(cast("LlmTasks", tasks), TASK, parts(*names), end)


def test_overviews_of_level_are_asked_in_parallel() -> None:
    """None is answered before as many as run at once are asked."""
    tasks = Tasks(barrier=threading.Barrier(MAX_PARALLEL, timeout=60))
    result = describe(tasks, "a", "b", "c", "d", "e", "f")
    assert [one.value.topic for one in result] == ["a", "b", "c", "d", "e", "f"]
    assert len(tasks.threads) == MAX_PARALLEL
    assert tasks.counts == {"ModelCalls": 6}


def test_overviews_test_detects_serial_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted."""

    def run_each(llm: LlmTasks, calls: Sequence[Callable[[], object]]) -> list[object]:
        del llm
        return [call() for call in calls]

    monkeypatch.setattr(slot_contents, "run_all_in_parallel", run_each)
    with pytest.raises(threading.BrokenBarrierError):
        describe(Tasks(barrier=threading.Barrier(MAX_PARALLEL, timeout=0.2)), "a", "b", "c")


def test_overviews_error_is_raised_when_all_have_ended() -> None:
    tasks, ends = Tasks(), list[int]()

    def fail() -> int:
        raise KeyError

    def end() -> int:
        time.sleep(0.1)
        ends.append(1)
        return 1

    with pytest.raises(KeyError):
        parallel.run_all_in_parallel(cast("LlmTasks", tasks), [fail, end, end])
    assert ends == [1, 1]


def test_overviews_over_rate_wait_for_next_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only that is asked for again."""
    tasks, pauses = Tasks(calls_per_minute=2), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        tasks.calls_per_minute = 2

    monkeypatch.setattr(slot_contents.time, "sleep", sleep)
    result = describe(tasks, "a", "b", "c", "d", "e")
    assert [one.value.topic for one in result] == ["a", "b", "c", "d", "e"]
    assert sorted(tasks.calls) == ["a", "b", "c", "d", "e"]
    assert pauses == [30.0, 30.0]


def test_overviews_past_deadline_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(seconds: float) -> None:
        raise AssertionError(seconds)

    monkeypatch.setattr(slot_contents.time, "sleep", sleep)
    result = describe(Tasks(calls_per_minute=1), "a", "b", "c", seconds=20.0)
    reasons = sorted(str(one.fallback_reason) for one in result)
    assert reasons == ["None", "rate_limited", "rate_limited"]


def test_overviews_without_model_run_in_one_thread() -> None:
    tasks = Tasks(has_model=False)
    describe(tasks, "a", "b")
    assert tasks.threads == {threading.get_ident()}


def test_overviews_build_on_level_below(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a tree of several levels, every overview is asked for with the topics right below it."""
    widths: list[int] = []
    run_all = slot_contents.run_all_in_parallel

    def count(llm: LlmTasks, calls: Sequence[Any]) -> list[Any]:
        widths.append(len(calls))
        return run_all(llm, calls)

    monkeypatch.setattr(slot_contents, "run_all_in_parallel", count)
    ScopeWorld(scratch_db).add(150)
    totals = build(gateway)
    assert sum(widths) == totals["summaries"]
    assert len(widths) >= 2
    assert max(widths) > 1
    assert widths[-1] == 1  # the root
    inner = [row for row in read_tree(scratch_db) if not row[5]]
    assert len(inner) == totals["summaries"]
