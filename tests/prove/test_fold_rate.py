"""Promise: what an event costs the fold does not grow with what the scope's log holds already.

One session takes thousands of events whose vectors are stored. What is counted is statements and
rows that the server touched; how fast it went is printed, and fails nothing.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline.blobs import Blobs
from strandline.db import Access, Asker, Database
from strandline.local.aws import LocalAws
from strandline.services import embed, form_chains
from strandline.services.form_chains import form
from strandline.services.worker import Worker
from strandline.store import chains, lanes
from tests.strandline.services.folds import ALICE, HELPER, START, append, tune
from tests.strandline.services.stand_ins import WordEmbedder, work_for
from tests.support import Base, Gateway

DIMENSIONS = 384
"""As many as the model that ships has."""
STEP = 1000
"""Events between two looks at what the fold has cost."""
APPENDED = 200
WORDS = [f"{one}{two}" for one in "bdfklmnprst" for two in ("ara", "eno", "ilu", "oma", "uve")]


@dataclass
class Cost:
    """What the fold had cost at one of its batches."""

    folded: int
    seconds: float
    statements: int
    rows: int
    """That the server read, of tables and by indexes."""


@dataclass
class Ledger:
    """Looks at the costs whenever the fold reads on."""

    base: Base
    monkeypatch: pytest.MonkeyPatch
    costs: list[Cost] = field(default_factory=list[Cost])
    statements: int = 0

    def __post_init__(self) -> None:
        for name in ("fetch", "execute"):
            original: Callable[..., Any] = getattr(Access, name)

            def call(access: Access, *args: Any, original: Any = original) -> Any:
                self.statements += 1
                return original(access, *args)

            self.monkeypatch.setattr(Access, name, call)
        turns = lanes.turns

        def looked(access: Access, scope: UUID, space: str, after: int, limit: int) -> Any:
            if after // STEP > (self.costs[-1].folded // STEP if self.costs else -1):
                self.look(after)
            return turns(access, scope, space, after, limit)

        self.monkeypatch.setattr(form_chains.lanes, "turns", looked)

    def look(self, folded: int) -> None:
        """As it is now; the server tells what it has read a moment later."""
        now = time.monotonic()
        with base_owner(self.base) as owner:
            owner.execute("analyze")  # as the server does by itself, a minute later
        time.sleep(1.1)
        (rows,) = self.base.rows(
            "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint"
            " from pg_stat_user_tables"
        )[0]
        paused = self.costs[-1].seconds if self.costs else 0.0
        self.costs.append(Cost(folded, now - 1.1 * len(self.costs), self.statements, rows))
        del paused


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
                "participants": [ALICE, HELPER],
                "session_id": "all of it",
                "role": role,
                "speaker": HELPER if place % 2 else ALICE,
                "content": f"{text} {place % 7}",
                "occurred_at": (START + timedelta(seconds=30 * place)).isoformat(),
            }
        )
    return events


@pytest.fixture
def worker(base: Base, aws: LocalAws) -> Any:
    database = Database(base.url)
    words = WordEmbedder(f"words/{DIMENSIONS}", DIMENSIONS)
    yield work_for(database, Blobs(aws.bucket), words, seconds=3600.0)
    database.close()


def prepared(
    gateway: Gateway, base: Base, worker: Worker, events: list[dict[str, Any]]
) -> tuple[Access, UUID]:
    """The events appended, and their vectors stored; nothing folded."""
    key = gateway.key()
    scope = UUID(int=0)
    for start in range(0, len(events), APPENDED):
        scope = UUID(append(gateway, key, events[start : start + APPENDED])[0])
    access = worker.database.access(Asker.background("acme"))
    embed._embed_together(worker, access, [scope])
    with base_owner(base) as owner:
        owner.execute("vacuum analyze")
    return access, scope


def base_owner(base: Base) -> Any:
    import psycopg

    return psycopg.connect(base.admin_url, autocommit=True)


def test_explore(
    gateway: Gateway, base: Base, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    count, length, flush = (int(os.environ.get(n, d)) for n, d in (("COUNT", "2000"), ("LENGTH", "12"), ("FLUSH", "20")))
    events = talk(count, length)
    access, scope = prepared(gateway, base, worker, events)
    tune(base, ahead_events=3, flush_events=flush)
    ledger = Ledger(base, monkeypatch)
    prof = None
    if os.environ.get("PROF"):
        import cProfile
        prof = cProfile.Profile(); prof.enable()
    from datetime import UTC, datetime
    assert form(worker, access, scope, datetime(2030, 1, 1, tzinfo=UTC))
    ledger.look(count)
    if prof:
        import pstats
        prof.disable(); pstats.Stats(prof).sort_stats("tottime").print_stats(25)
        pstats.Stats(prof).sort_stats("cumtime").print_stats(40)
    print()
    for one, two in zip(ledger.costs, ledger.costs[1:]):
        n = two.folded - one.folded
        print(f"{two.folded:6} {n / (two.seconds - one.seconds):7.0f} events/s {(two.statements - one.statements) / n:6.2f} statements {(two.rows - one.rows) / n:8.1f} rows")
    print(worker.tally.counts)
    for row in base.rows("select relname, seq_scan, seq_tup_read, idx_scan, idx_tup_fetch from pg_stat_user_tables where coalesce(seq_tup_read,0)+coalesce(idx_tup_fetch,0) > 1000 order by coalesce(seq_tup_read,0)+coalesce(idx_tup_fetch,0) desc"):
        print(row)

