"""Promise: what an event costs the fold does not grow with what the scope's log holds already.

One session takes thousands of events whose vectors are stored. What is counted is statements and
rows that the server touched; how fast it went is printed, and fails nothing.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from strandline.aws.blobs import BlobStore
from strandline.background import process_events
from strandline.chains import model_questions, store_fold_progress
from strandline.chains.fold_scope import fold_scope
from strandline.chains.fold_state import FoldOutcome
from strandline.db.database import Caller, Database, TenantDb
from strandline.jobs.worker_resources import Deferral, WorkerResources
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import TopicContinuation
from strandline.local.aws import LocalAws
from tests.strandline.chains.fold_fixtures import ALICE, HELPER, START, append, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder, make_worker
from tests.support import Gateway, ScratchDatabase

pytestmark = pytest.mark.own_database
DIMENSIONS = 384
"""As many as the model that ships has."""
STEP = 1000
"""Events between two looks at what the fold has cost."""
MOST_STATEMENTS = 4.0
MOST_ROWS = 400.0
"""Of an event. A chain, which some five events make, is compared with 500 others at most."""
MOST_FIRST_ROWS = 1000.0
"""Of an event in the first thousand of a database, whose tables are small and are read whole."""
APPENDED = 200
LATER = datetime(2030, 1, 1, tzinfo=UTC)
WORDS = [f"{one}{two}" for one in "bdfklmnprst" for two in ("ara", "eno", "ilu", "oma", "uve")]


class Cost(NamedTuple):
    """What the fold had cost when it began one of its batches."""

    folded: int
    seconds: float
    cpu_seconds: float
    """Of this process and of the server's that served it."""
    statements: int
    rows: int
    """That the server read, of tables and by indexes."""


@dataclass
class Ledger:
    """Looks at the costs when the fold begins a batch, every STEP events."""

    base: ScratchDatabase
    access: TenantDb
    costs: list[Cost] = field(default_factory=list[Cost])
    statements: int = 0
    unread: int = 0
    """Texts read to ask by."""
    looking: float = 0.0
    """Seconds that the looks themselves took."""

    def listen(self, patch: pytest.MonkeyPatch) -> None:
        """Count from now on."""
        self.server = self.flush_counts()
        for name in ("fetch", "execute"):
            original: Callable[..., Any] = getattr(TenantDb, name)

            def call(access: TenantDb, *args: Any, original: Any = original) -> Any:
                self.statements += 1
                return original(access, *args)

            patch.setattr(TenantDb, name, call)
        turns, spoken = store_fold_progress.read_next_events, model_questions.read_prompt_events

        def look_at(access: TenantDb, scope: UUID, space: str, after: int, limit: int) -> Any:
            if not self.costs or after // STEP > self.costs[-1].folded // STEP:
                self.look(after)
            return turns(access, scope, space, after, limit)

        def count(access: TenantDb, unread: Sequence[UUID], known_ids: Sequence[UUID]) -> Any:
            self.unread += len(unread)
            return spoken(access, unread, known_ids)

        patch.setattr(store_fold_progress, "read_next_events", look_at)
        patch.setattr(model_questions, "read_prompt_events", count)

    def flush_counts(self) -> int:
        """The server's process behind the fold's connection, once it has reported what it has read.
        By itself it reports up to ten seconds later, in another step."""
        query = "select pg_backend_pid() as pid from pg_stat_force_next_flush()"
        (row,) = self.access.fetch(_Pid, query, {})
        return row.pid

    def look(self, fold_count: int) -> None:
        """As it is now."""
        now, cpu = time.monotonic(), time.process_time() + _cpu_seconds(self.server)
        statements = self.statements
        assert self.flush_counts() == self.server
        self.statements = statements  # the look itself does not count
        with psycopg.connect(self.base.admin_url, autocommit=True) as owner:
            owner.execute("analyze")  # as the server does by itself, a minute later
        rows = self.base.count_rows_read()
        self.costs.append(Cost(fold_count, now - self.looking, cpu, self.statements, rows))
        self.looking += time.monotonic() - now

    def steps(self) -> Iterator[tuple[int, float, float, float, float]]:
        """Of each STEP: where it ended, events a second, and of an event CPU ms, statements and
        rows. What is left behind the last is too short: a batch's costs would be a dozen's."""
        for one, two in pairwise(self.costs):
            events = two.folded - one.folded
            if events < STEP / 2:
                continue
            cost = [float(after - before) for before, after in zip(one, two, strict=True)][1:]
            yield (
                two.folded,
                events / cost[0],
                1000 * cost[1] / events,
                cost[2] / events,
                cost[3] / events,
            )


@dataclass(frozen=True)
class _Pid:
    pid: int


def _cpu_seconds(pid: int) -> float:
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / os.sysconf(
        "SC_CLK_TCK"
    )


def talk(count: int, length: int) -> list[dict[str, Any]]:
    """One session's events, half a minute apart: topics that change, questions and answers."""
    dice = random.Random(count)
    events: list[dict[str, Any]] = []
    words = dice.sample(WORDS, 6)
    for place in range(count):
        if dice.random() < 0.12:
            words = dice.sample(WORDS, 6)
        role = "agent" if place % 2 else "user"
        text = " ".join(dice.choices(words, k=length))
        events.append(
            {
                "participants": [ALICE, HELPER, f"agent:{count}"],
                "session_id": f"all of {count}",
                "role": role,
                "speaker": HELPER if place % 2 else ALICE,
                "content": f"{text} {place % 7}",
                "occurred_at": (START + timedelta(seconds=30 * place)).isoformat(),
            }
        )
    return events


@pytest.fixture
def worker(scratch_db: ScratchDatabase, aws: LocalAws) -> Iterator[WorkerResources]:
    database = Database(scratch_db.url)
    embedder = WordEmbedder(f"words/{DIMENSIONS}", DIMENSIONS)
    yield make_worker(database, BlobStore(aws.bucket), embedder, seconds=3600.0, slice_events=10**9)
    database.close()


def prepare_run(
    gateway: Gateway, worker: WorkerResources, events: list[dict[str, Any]]
) -> tuple[TenantDb, UUID]:
    """The events appended, and their vectors stored; nothing folded."""
    key = gateway.key()
    scope = UUID(int=0)
    for start in range(0, len(events), APPENDED):
        scope = UUID(append(gateway, key, events[start : start + APPENDED])[0])
    access = worker.database.connect_as(Caller.background("acme"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_events, "fold_scope", _put_off)
        process_events.embed_and_fold_scopes(worker, "acme", [scope])
    return access, scope


def _put_off(*_: object) -> FoldOutcome:
    """No fold: it waits for something."""
    return FoldOutcome("deferred", Deferral("later", 0.0))


def fold(
    access: TenantDb, scope: UUID, base: ScratchDatabase, worker: WorkerResources, events: int
) -> Ledger:
    """Fold it to its end."""
    ledger = Ledger(base, access)
    with pytest.MonkeyPatch.context() as patch:
        ledger.listen(patch)
        assert fold_scope(worker, access, scope, LATER).is_finished
        ledger.look(events)
    print(f"\n{events} events in one session; {dict(worker.tally.counters)}")
    for fold_count, rate, cpu, statements, rows in ledger.steps():
        print(
            f"up to {fold_count:6}: {rate:5.0f} events/s; of an event {cpu:.2f} ms of CPU,"
            f" {statements:.2f} statements, {rows:.0f} rows"
        )
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return ledger


def scans_of_the_log(scratch_db: ScratchDatabase) -> int:
    """How often the server has read the table of events from its start to its end."""
    ((scans,),) = scratch_db.rows(
        "select seq_scan from pg_stat_user_tables where relname = 'events'"
    )
    return scans


def test_fold_rate_is_independent_of_log_size(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    request: pytest.FixtureRequest,
) -> None:
    for count in (2000, 5000, 20012) if request.config.getoption("--full") else (600,):
        access, scope = prepare_run(plenty, worker, talk(count, 12))
        set_tuning(scratch_db, ahead_events=3)
        scans = scans_of_the_log(scratch_db)
        for fold_count, *_, statements, rows in fold(
            access, scope, scratch_db, worker, count
        ).steps():
            assert statements < MOST_STATEMENTS
            assert rows < (MOST_FIRST_ROWS if fold_count <= STEP else MOST_ROWS)
        # A table of a few rows is read whole, as it should be: not one of thousands, again and
        # again.
        assert scans_of_the_log(scratch_db) - scans < count / 50


@pytest.mark.proof
def test_fold_rate_reads_open_messages_once_per_batch(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    worker: WorkerResources,
    request: pytest.FixtureRequest,
) -> None:
    """However much of a lane stays open: a message is judged by all of it."""
    count = 3000 if request.config.getoption("--full") else 300
    access, scope = prepare_run(plenty, worker, talk(count, 300))
    set_tuning(
        scratch_db, ahead_events=3, flush_events=500, similarity_low=-1.0, similarity_high=1.0
    )

    def goes_on(*_: object) -> TopicContinuation:
        return TopicContinuation(continues=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HeuristicModel, "continues", goes_on)
        ledger = fold(access, scope, scratch_db, worker, count)
    batches = count / 200 + 1
    assert worker.tally.counters["TopicUndecided"] > 0.4 * count
    assert 0 < ledger.unread < count + 500 * batches
