"""Promise: a stage that nobody calls leaves its database alone but for the daily sweep; one append
wakes everything that comes due, at its time, and then it is silent again.

Aurora pauses where nobody is connected. So what counts is a connection, or a byte on one, at a
moment at which nothing is due.
"""

import importlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from strandline.aws.run_requests import JobQueue
from strandline.chains import store_archiving
from strandline.db.database import Caller
from strandline.function_specs import DAILY_SWEEP_SCHEDULE, JOBS
from strandline.jobs import next_runs
from strandline.jobs.next_runs import GARBAGE_PERIOD
from strandline.llm import store_calls
from strandline.local.event_sources import create_daily_schedule
from strandline.resources import Resources
from tests.prove.fast_clock import ProofService, next_daily_sweep, run_service
from tests.strandline.local.service_calls import call

DAYS = 30
MINUTE = timedelta(minutes=1)
EPOCH = datetime.fromtimestamp(0, UTC)
SLOT = {job.name: job.min_spacing + MINUTE for job in JOBS}
"""A spacing, and what a requested run may take."""
TALK = (
    ("user", "The harbour crane at Ostend needs a new gearbox before the winter storms arrive."),
    ("agent", "I have asked Peeters Marine in Antwerp for an offer; they want the crane's papers."),
    ("user", "The crane's papers lie in the harbour office, Marijke Claes keeps them in order."),
    ("agent", "Marijke Claes sent the papers; Peeters Marine offers the gearbox for 41,000 euros."),
)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProofService]:
    """A stage of one tenant, after its first morning."""
    place = Path(tempfile.mkdtemp(prefix="strandline-idle-"))
    place.chmod(0o711)
    try:
        with run_service(place / "data", monkeypatch, idle_session_timeout="2s") as running:
            running.advance_to(next_daily_sweep(running.clock()) + 10 * MINUTE)
            yield running
    finally:
        shutil.rmtree(place)


def converse(stage: ProofService) -> datetime:
    """A conversation now; gives when it was over."""
    for role, text in TALK:
        event = {"participants": ["user:alice", "agent:helper"], "session_id": "s-1"}
        call(stage.local_service, "/api/v1/events", event | {"role": role, "content": text})
    stage.settle()
    return stage.clock()


def mornings(start: datetime, end: datetime) -> list[datetime]:
    results = [next_daily_sweep(start)]
    while (following := results[-1] + timedelta(days=1)) < end:
        results.append(following)
    return [morning for morning in results if morning < end]


def find_unexplained(
    stage: ProofService, start: datetime, dues: Sequence[tuple[datetime, timedelta]]
) -> list[str]:
    """Touches of the database since `begun` at which nothing was due, and dues at which nobody
    came. A due is a moment, and how late it may be."""
    end = stage.clock()
    expectations = [(moment, MINUTE) for moment in mornings(start, end)]
    expectations += [(moment, late) for moment, late in dues if moment < end]
    touches = [touch for touch in stage.proxy.contact_times if touch >= start]
    idle = [t for t in touches if not any(m <= t <= m + late for m, late in expectations)]
    lonely = [m for m, late in expectations if not any(m <= t <= m + late for t in touches)]
    return [f"touched at {t:%m-%d %H:%M}" for t in idle] + [
        f"nobody came at {m:%m-%d %H:%M}" for m in lonely
    ]


def half_hour_after(at: datetime) -> datetime:
    """When a chain is promoted that is formed at this time."""
    return at + -(at - EPOCH) % (30 * MINUTE) + 2 * MINUTE


def next_analysis_after(at: datetime) -> datetime:
    """When a graph that changed at this time is analysed: at the next 03:00 UTC."""
    return at + -(at - 180 * MINUTE - EPOCH) % timedelta(days=1)


def dues_of(stage: ProofService, moment: datetime) -> list[tuple[datetime, timedelta]]:
    """What one conversation makes due, and how late it may be."""
    ((idle,),) = stage.rows("select max(recorded_at) + interval '30 minutes' from events")
    ((cold,),) = stage.rows("select min(cold_at) from chains where status <> 'rejected'")
    ripe = moment + timedelta(days=1, minutes=5)
    promoted, last = (half_hour_after(at) for at in (idle, idle + SLOT["sweeper"]))
    embedding = last - promoted + SLOT["promoter"] + SLOT["sweeper"] + MINUTE
    return [
        (moment + 10 * MINUTE, SLOT["sweeper"] + MINUTE),  # bytes are counted
        (idle, SLOT["sweeper"]),
        (idle + 15 * MINUTE, SLOT["sweeper"] + SLOT["builder"]),  # its chain has waited
        # Its chain is warm, the nodes of its graph are embedded, their bytes are counted.
        (promoted, embedding + 10 * MINUTE),
        (next_analysis_after(last), MINUTE),
        (ripe + -(ripe - EPOCH) % GARBAGE_PERIOD, SLOT["archiver"]),  # payloads are looked at
        *([(cold, SLOT["archiver"])] if cold else []),
    ]


@pytest.mark.proof
def test_idle_stage_is_silent_but_for_daily_sweep(
    stage: ProofService, proof_size: Callable[[int], int]
) -> None:
    start, days = stage.clock(), proof_size(DAYS)
    before = len(stage.proxy.contact_times)
    stage.advance_to(start + timedelta(days=days))
    assert find_unexplained(stage, start, []) == []
    touches = len(stage.proxy.contact_times) - before
    print(f"\n{days} days: the database was touched on {days} mornings, {touches} times in all")

    said = converse(stage)
    stage.advance_to(said + 40 * MINUTE)
    assert stage.rows("select count(*) from lanes") == [(0,)]
    ((decided, idle),) = stage.rows(
        "select max(decided_at), (select max(recorded_at) + interval '30 minutes' from events)"
        " from decisions where kind = 'idle'"
    )
    assert idle <= decided <= idle + SLOT["sweeper"]
    stage.advance_to(said + timedelta(days=9))
    ((status, archived, cold),) = stage.rows("select status, archived_at, cold_at from chains")
    assert status == "archived"
    assert cold <= archived <= cold + SLOT["archiver"]
    assert find_unexplained(stage, said + MINUTE, dues_of(stage, said)) == []
    print(
        f"one append: its lane closed {decided - idle} after its time, archived {archived - cold}"
    )

    again = stage.clock()
    stage.advance_to(again + timedelta(days=max(2, days // 3)))
    assert find_unexplained(stage, again, []) == []
    wait_until_nobody_is_connected(stage)
    assert call(stage.local_service, "/api/v1/scopes?participants=user:alice")["scopes"], (
        "it opens again"
    )
    wait_until_nobody_is_connected(stage)
    query = {"query": "crane", "participants": ["user:alice", "agent:helper"]}
    call(stage.local_service, "/api/v1/recall", query)
    service: Resources = importlib.import_module("functions.sweeper.handler").resources
    access = service.database.connect_as(Caller.background("local"))
    store_calls.lease_calls_and_read_limits(
        access, "m", "s", max_calls=1, limit=1, failures=1, may_probe=True, probe_seconds=1
    )
    assert stage.session_count()
    wait_until_nobody_is_connected(stage)


def wait_until_nobody_is_connected(stage: ProofService) -> None:
    until = time.monotonic() + 20
    while stage.session_count():
        assert time.monotonic() < until, "a session that says nothing is not ended"
        time.sleep(0.05)


@pytest.mark.proof
def test_idle_archiver_wakes_no_more_than_it_looks(
    stage: ProofService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Talks all an hour and more apart: what they leave is looked for once in six hours."""
    start = end = stage.clock()
    dues = list[tuple[datetime, timedelta]]()
    for _ in range(4):
        dues.append((stage.clock(), 20 * MINUTE))  # and its bytes are counted
        end = converse(stage)
        # Its first event alone would have its lane be idle a moment earlier.
        dues += [(at - MINUTE, late + MINUTE) for at, late in dues_of(stage, end)[1:]]
        stage.advance_to(end + 100 * MINUTE)
    looked = list[tuple[datetime, list[str]]]()
    real = store_archiving.list_due_tenants

    def look(*args: Any) -> list[str]:
        looked.append((stage.clock(), real(*args)))
        return looked[-1][1]

    monkeypatch.setattr(store_archiving, "list_due_tenants", look)
    stage.advance_to(end + timedelta(days=2))
    periods = {
        at
        for at, late in dues
        if late == SLOT["archiver"] + MINUTE and not (at + MINUTE - EPOCH) % GARBAGE_PERIOD
    }
    assert len(periods) in (1, 2)
    assert len(looked) == len(periods), looked
    assert all(result for _, result in looked), looked
    assert find_unexplained(stage, start, dues) == []


@pytest.mark.proof
def test_idle_stage_loses_minutes_by_lost_work_message(
    stage: ProofService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work queue is away all the time: a sweep is requested instead."""
    queue = importlib.import_module("functions.ingest.handler").resources.work_queue
    monkeypatch.setattr(queue, "_url", queue._url + "-gone")
    moment = converse(stage)
    stage.advance_to(moment + SLOT["sweeper"])
    assert stage.rows("select count(*) from event_vectors") == [(len(TALK),)]


@pytest.mark.proof
def test_idle_test_detects_waking_and_forgetting(
    stage: ProofService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted faults: a run request that is never sent, a planner to whom something is always
    due, a schedule at a fixed rate."""

    def forget(*_: object) -> None:
        return None

    def always(*_: Any, now: datetime, **__: Any) -> dict[str, datetime]:
        return {"sweeper": now}

    start = stage.clock()
    with monkeypatch.context() as patch:
        patch.setattr(next_runs, "find_next_run_times", always)
        stage.advance_to(next_daily_sweep(start) + 20 * MINUTE)
        assert any("touched" in one for one in find_unexplained(stage, start, []))
    stage.advance_to(stage.clock() + timedelta(hours=1))

    start = stage.clock()
    stage.advance_to(start + timedelta(days=1))
    assert find_unexplained(stage, start, []) == []
    create_daily_schedule(
        "fixed", DAILY_SWEEP_SCHEDULE.replace("30 3", "0 12"), stage.machine, '{"job": "sweeper"}'
    )
    stage.advance_to(start + timedelta(days=2))
    assert any("touched" in one for one in find_unexplained(stage, start, []))

    monkeypatch.setattr(JobQueue, "request_run", forget)
    moment = converse(stage)
    stage.advance_to(moment + 50 * MINUTE)
    result = find_unexplained(stage, moment + MINUTE, [(moment + 30 * MINUTE, SLOT["sweeper"])])
    assert any("nobody came" in one for one in result)
    assert stage.rows("select count(*) from lanes") == [(1,)]
