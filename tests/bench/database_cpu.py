"""What the database's processor and pages cost: a recall by how many events its caller sees, an
append, and what follows an event (embedding, folding, jobs).

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.database_cpu [--write]

CPU is what the server's processes and this one ran, as the kernel counts it: other load on the
machine makes it only somewhat larger. Recalls are asked of synthetic tenants in one scope each
(`growth_data`); the vectors of their questions are known. Appended are conversations of the corpus,
embedded by the included models. `--write` keeps the figures in infra/database_figures.json, from
which `make prices` and `make scale` compute.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import batched
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import psycopg

from infra.database_figures import FIGURES, DatabaseFigures, EventFigures, RecallFigures
from strandline.background import process_events
from strandline.embeddings.embedder import Purpose
from strandline.embeddings.local import LocalEmbedder
from strandline.local.postgres import EmbeddedPostgres
from tests.bench import conversations, strandline_system
from tests.bench.cost_sides import handler_call, log_to_nowhere
from tests.bench.growth_data import StoredVectors, View, list_questions, load_tenant, make_tenant
from tests.bench.strandline_system import Strandline

CORPUS = Path(__file__).parent / "corpus"
VIEWS = (1, 1_000, 5_000, 50_000)
"""Events that a caller of recall sees."""
ASKS = 100
SPOKEN = ("budgeting", "vans", "payments", "library", "cluster")
"""Conversations of the corpus that are appended, some 185 events each."""
JOBS = ("builder", "promoter", "archiver", "analytics")
SETTINGS = {"shared_buffers": "2GB", "autovacuum": "off"}
"""Of the server: everything fits into its memory, and nothing runs by itself."""


class Spent(NamedTuple):
    """Seconds of CPU."""

    database: float
    function: float

    def since(self, before: "Spent") -> "Spent":
        """What was used since then."""
        return Spent(self.database - before.database, self.function - before.function)

    def per(self, count: int) -> tuple[float, float]:
        """Milliseconds of each, of one of `count`."""
        return round(1000 * self.database / count, 2), round(1000 * self.function / count, 2)


@dataclass(frozen=True)
class Meter:
    """Reads what the server and this process have used."""

    postmaster: int

    def read(self) -> Spent:
        """As it is now: of the server's processes, and of those that have ended."""
        process = Path(f"/proc/{self.postmaster}")
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        seconds = (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
        children = (process / "task" / str(self.postmaster) / "children").read_text()
        for child in children.split():
            with suppress(FileNotFoundError, ProcessLookupError):  # it ends just now
                seconds += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9
        return Spent(seconds, time.process_time())

    def measure(self, call: Callable[[], object]) -> Spent:
        """What a call used."""
        before = self.read()
        call()
        return self.read().since(before)


class KnownOrEmbedded(StoredVectors):
    """Questions have stored vectors; what is appended is embedded by the included models."""

    def __init__(self) -> None:
        super().__init__()
        self._models = LocalEmbedder()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """The vectors of these texts, in order."""
        if all(text in self.vectors for text in texts):
            return super().embed(texts, timeout=timeout, purpose=purpose)
        return self._models.embed(texts, timeout=timeout, purpose=purpose)


@dataclass
class Bench:
    """The service, its server's meter, and who asks and appends."""

    system: Strandline
    embedder: KnownOrEmbedded
    meter: Meter
    administrator: psycopg.Connection
    views: Mapping[int, View] = field(default_factory=dict[int, View])

    def measure_recalls(self, in_view: int, asks: int) -> RecallFigures:
        """Recalls of one view: first with nothing cached, then warm."""
        view = self.views[in_view]
        questions = list(list_questions(view, asks, view.tenant))
        self.embedder.vectors |= {asked.text: asked.vector.tolist() for asked in questions}
        key = self.system.gateway.key(view.tenant.name)
        calls = [
            handler_call(
                "/api/v1/recall",
                {"query": asked.text, "participants": [view.participant], "limit": 10},
                key,
            )
            for asked in questions
        ]
        first, *rest = calls
        first()
        self.administrator.execute("select pg_buffercache_evict_all()")
        self._read_catalogues()
        before = self._count_cached(view)
        first()
        cold = self._count_cached(view) - before
        for call in rest:
            call()
        hot = self._count_cached(view) - before
        spent = self.meter.measure(lambda: [call() for call in calls])
        database_ms, function_ms = spent.per(len(calls))
        return RecallFigures(in_view, database_ms, function_ms, cold, hot)

    def _read_catalogues(self) -> None:
        """Let another tenant ask, so that what all share is cached."""
        key = self.system.gateway.key("bystander")
        question = next(iter(self.embedder.vectors))
        handler_call("/api/v1/recall", {"query": question, "participants": ["user:x"]}, key)()

    def _count_cached(self, view: View) -> int:
        """Pages of the tables that hold events which lie in the server's memory."""
        row = self.administrator.execute(
            """
            select count(*) from pg_buffercache
            where reldatabase = (select oid from pg_database where datname = current_database())
            """
        ).fetchone()
        assert row is not None, view.layout
        return int(row[0])

    def measure_events(self) -> EventFigures:
        """Appends one by one and in batches, and the worker and the jobs after them."""
        key = self.system.gateway.key("speakers")
        single, batch = self._spoken(SPOKEN), self._spoken(SPOKEN, suffix="-again")
        calls = [handler_call("/api/v1/events", event, key) for event in single]
        batches = [
            handler_call("/api/v1/events/batch", {"events": list(events)}, key)
            for events in batched(batch, 100, strict=False)
        ]
        calls[0]()  # connects
        append = self.meter.measure(lambda: [call() for call in calls[1:]])
        in_batch = self.meter.measure(lambda: [call() for call in batches])
        count = len(single) + len(batch)
        embedding = self._measure_within(process_events, "index_and_embed_leased_scopes")
        work = self.meter.measure(self.system.fold)
        jobs = self.meter.measure(lambda: [self.system.gateway.run_job(job) for job in JOBS])
        append_ms, append_function_ms = append.per(len(calls) - 1)
        work_ms, worker_ms = work.per(count)
        embedding_ms, _ = embedding().per(count)
        return EventFigures(
            append_ms=append_ms,
            append_in_batch_ms=in_batch.per(len(batch))[0],
            embedding_ms=embedding_ms,
            fold_ms=round(work_ms - embedding_ms, 2),
            jobs_ms=jobs.per(count)[0],
            append_function_ms=append_function_ms,
            worker_ms=worker_ms,
        )

    def _measure_within(self, module: Any, name: str) -> Callable[[], Spent]:
        """What the calls of a function use from now on."""
        original, used = getattr(module, name), [Spent(0.0, 0.0)]

        def call(*args: Any, **more: Any) -> Any:
            before = self.meter.read()
            try:
                return original(*args, **more)
            finally:
                spent = self.meter.read().since(before)
                used[0] = Spent(*(a + b for a, b in zip(used[0], spent, strict=True)))

        setattr(module, name, call)
        return lambda: used[0]

    def _spoken(self, names: Sequence[str], suffix: str = "") -> list[dict[str, Any]]:
        """The events of conversations as the API takes them; those with a suffix are others."""
        return [
            event
            | {
                "source_event_key": event["source_event_key"] + suffix,
                "session_id": event["session_id"] + suffix,
            }
            for name in names
            for event in conversations.read(CORPUS / f"{name}.jsonl").events
        ]


def main() -> None:
    """Measure, print the figures, and keep them where asked to."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.database_cpu", description=__doc__)
    parser.add_argument("--views", type=int, nargs="+", default=list(VIEWS), metavar="EVENTS")
    parser.add_argument("--asks", type=int, default=ASKS, help="questions for each view")
    parser.add_argument("--write", action="store_true", help=f"keep them in infra/{FIGURES.name}")
    arguments = parser.parse_args()
    figures = measure(arguments.views, arguments.asks)
    recalls = [asdict(one) for one in figures.recall.values()]
    text = json.dumps({"recall": recalls, "event": asdict(figures.event)}, indent=2) + "\n"
    sys.stdout.write(text)
    if arguments.write:
        FIGURES.write_text(text)


def measure(views: Sequence[int], asks: int) -> DatabaseFigures:
    """All figures of a fresh service."""
    with (
        TemporaryDirectory(prefix="strandline-cpu-") as name,
        EmbeddedPostgres(_make_passable(Path(name)) / "postgres", settings=SETTINGS) as server,
    ):
        embedder = KnownOrEmbedded()
        with (
            strandline_system.open_strandline(server, embedder, Path(name)) as system,
            psycopg.connect(system.base.admin_url, autocommit=True) as administrator,
            log_to_nowhere(),
        ):
            administrator.execute("create extension if not exists pg_buffercache")
            meter = Meter(int((server.data / "postmaster.pid").read_text().split()[0]))
            bench = Bench(system, embedder, meter, administrator, dict(_load(system, views)))
            events = bench.measure_events()
            recalls = {in_view: bench.measure_recalls(in_view, asks) for in_view in views}
    return DatabaseFigures(recalls, events)


def _load(system: Strandline, views: Sequence[int]) -> list[tuple[int, View]]:
    """A tenant of each size, all of it in one scope."""
    loaded: list[tuple[int, View]] = []
    for in_view in views:
        tenant = make_tenant(f"view-{in_view}", in_view, 1, seed=in_view)
        load_tenant(system.base, tenant)
        loaded.append((in_view, View("one scope", tenant, tenant.user(0), None)))
    return loaded


def _make_passable(directory: Path) -> Path:
    directory.chmod(0o711)  # the database runs as another account
    return directory


if __name__ == "__main__":
    main()
