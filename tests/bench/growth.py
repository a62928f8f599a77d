"""How recall and the topic index grow with a tenant, at a thousand events and at many: what a call
of recall takes and how well its vector leg finds the nearest, in one scope and spread over ten
thousand; what builds take, and a references query.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.growth 1000 10000 100000 [--only topics]

A million events take several minutes to load and 8 GB of disk and memory; what does not fit into
`--minutes` or on the disk is left out, and said.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector

from strandline.db.database import Caller, Database, TenantDb
from strandline.local.postgres import EmbeddedPostgres
from strandline.recall import store
from tests.bench import growth_topics, strandline_system
from tests.bench.cost import Call, interleave
from tests.bench.cost_sides import handler_call, log_to_nowhere
from tests.bench.growth_data import (
    AGENT,
    SPACE,
    Asking,
    Row,
    StoredVectors,
    View,
    list_questions,
    load_tenant,
    make_tenant,
)
from tests.bench.strandline_system import Strandline
from tests.support import ScratchDatabase

SIZES = (1_000, 10_000, 100_000)
SCOPES = 10_000
PARTS = ("recall", "topics")
_LAYOUTS = ("one", "many")
_BYTES_PER_EVENT = 4_000
"""Of the database, indexes included."""
_SPARE_BYTES = 5 * 10**9
"""What a disk keeps free, beside the database: its log."""
_SECONDS_PER_EVENT = 0.0004
"""What loading takes, before a size was loaded."""
_DEPTH = 10
_NEAREST = """
select event_id from event_vectors
where tenant_id = %(tenant)s and space = %(space)s
    and (%(scope)s::uuid is null or scope_id = %(scope)s)
order by embedding <=> %(vector)s::halfvec limit %(limit)s
"""


@dataclass(frozen=True)
class Figures:
    """What was measured of a view. Times are milliseconds of a call."""

    layout: str
    events: int
    in_view: int
    p50_ms: float
    p95_ms: float
    bare_p50_ms: float
    recall: float
    """Recall@10 of the vector leg against numpy's exact search."""
    recall_elsewhere: float
    """The same, of questions near another tenant's vectors."""


def main() -> None:
    """Measure every size, print the table, write the file."""
    arguments = _arguments()
    embedder = StoredVectors()
    figures: list[Figures] = []
    topics: list[growth_topics.TopicFigures] = []
    deadline = time.monotonic() + 60 * arguments.minutes
    settings = server_settings(max(arguments.sizes) * len(arguments.layouts))
    with (
        TemporaryDirectory(prefix="strandline-growth-") as name,
        EmbeddedPostgres(_passable(Path(name)) / "postgres", settings=settings) as server,
    ):
        for size in arguments.sizes if "topics" in arguments.only else ():
            topics.append(growth_topics.measure(server, Path(name), size, arguments.asks))
            print(growth_topics.table(topics[-1:])[2:], file=sys.stderr)
        for size in arguments.sizes if "recall" in arguments.only else ():
            events = size * len(arguments.layouts)
            free = shutil.disk_usage(name).free
            if why := what_does_not_fit(events, deadline - time.monotonic(), free):
                print(f"{size:,} events are left out: {why}", file=sys.stderr)
                continue
            database = f"growth_{size}"
            with strandline_system.open_strandline(
                server, embedder, Path(name), database
            ) as system:
                views = list(_load(system.base, size, arguments.layouts))
                with log_to_nowhere():
                    for view in views:
                        figures.append(_measure(system, embedder, view, arguments.asks))
                        print(_line(figures[-1], figures), file=sys.stderr)
            server.drop_database(database)
    for line in [*table(figures), "", *growth_topics.table(topics)]:
        print(line)
    _write(arguments.out, figures, topics, settings)


def server_settings(events: int) -> dict[str, str]:
    """Of the server: a database of so many events that fits into its memory."""
    return {"shared_buffers": f"{max(1, -(-events * _BYTES_PER_EVENT // 10**9))}GB"}


def what_does_not_fit(events: int, seconds: float, free_bytes: int) -> str | None:
    """Why so many events cannot be loaded in so many seconds and bytes; None if they can."""
    if events * _SECONDS_PER_EVENT > seconds:
        return f"loading takes {events * _SECONDS_PER_EVENT:.0f} s, {seconds:.0f} s are left"
    needed = events * _BYTES_PER_EVENT + _SPARE_BYTES
    if needed > free_bytes:
        return f"they need {needed:,} bytes of disk, {free_bytes:,} are free"
    return None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.growth", description=__doc__)
    parser.add_argument("sizes", type=int, nargs="*", default=list(SIZES), metavar="EVENTS")
    parser.add_argument("--asks", type=int, default=100, help="questions for each view")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--layouts", nargs="+", choices=_LAYOUTS, default=list(_LAYOUTS))
    parser.add_argument("--minutes", type=float, default=15.0, help="for everything")
    parser.add_argument("--out", type=Path, default=Path("build/growth.json"), metavar="JSON")
    return parser.parse_args()


def _passable(directory: Path) -> Path:
    directory.chmod(0o711)  # the database runs as another account
    return directory


def _load(base: ScratchDatabase, size: int, layouts: Sequence[str]) -> Iterator[View]:
    """A tenant of a size for each layout, in one database, and who asks in them."""
    began = time.monotonic()
    tenants = {
        name: make_tenant(name, size, scopes, seed=seed)
        for seed, (name, scopes) in enumerate((("one", 1), ("many", SCOPES)), 1)
        if name in layouts
    }
    for tenant in tenants.values():
        load_tenant(base, tenant)
    took = time.monotonic() - began
    print(f"{size:,} events each in {', '.join(tenants)}: loaded in {took:.0f} s", file=sys.stderr)
    if one := tenants.get("one"):
        yield View("one scope", one, one.user(0), None)
    if many := tenants.get("many"):
        yield View("many scopes, all seen", many, AGENT, None)
        yield View("many scopes, one seen", many, many.user(7), 7)


def _measure(system: Strandline, embedder: StoredVectors, view: View, asks: int) -> Figures:
    """Times and recall of one view; both sides of the times take turns."""
    questions = list(list_questions(view, asks, view.tenant))
    embedder.vectors = {asking.text: asking.vector.tolist() for asking in questions}
    key = system.gateway.key(view.tenant.name)
    handler: list[Call] = [
        handler_call(
            "/api/v1/recall",
            {"query": asking.text, "participants": [view.participant], "limit": _DEPTH},
            key,
        )
        for asking in questions
    ]
    with psycopg.connect(system.base.admin_url, autocommit=True) as administrator:
        bare = [_bare_call(administrator, view, asking) for asking in questions]
        for call in [*handler[:20], *bare[:20]]:
            call()
        took = interleave({"handler": handler, "bare": bare}, 10)
    elsewhere = make_tenant("elsewhere", 1_000, 1, seed=3)
    return Figures(
        layout=view.layout,
        events=len(view.tenant.event_ids),
        in_view=len(view.tenant.events_in(view.scope)),
        p50_ms=round(median(took["handler"]) * 1000, 2),
        p95_ms=round(quantiles(took["handler"], n=20)[-1] * 1000, 2),
        bare_p50_ms=round(median(took["bare"]) * 1000, 2),
        recall=_recall(system, view, questions),
        recall_elsewhere=_recall(system, view, list(list_questions(view, asks, elsewhere))),
    )


def _bare_call(administrator: psycopg.Connection, view: View, asking: Asking) -> Call:
    """The nearest by plain SQL, past row-level security."""
    params = {
        "tenant": view.tenant.name,
        "space": SPACE,
        "scope": None if view.scope is None else view.tenant.scope_ids[view.scope],
        "vector": HalfVector(asking.vector).to_text(),
        "limit": _DEPTH,
    }
    return lambda: administrator.execute(_NEAREST, params).fetchall()


def _recall(system: Strandline, view: View, questions: Sequence[Asking]) -> float:
    """How many of the ten nearest in view the vector leg gives, of questions without words."""
    in_view = view.tenant.events_in(view.scope)
    vectors = view.tenant.vectors[in_view]
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    viewer = (view.participant,)
    count = total = 0
    database = Database(system.base.url)
    try:
        access = database.connect_as(Caller(view.tenant.name, viewer))
        for asking in questions:
            nearest = np.argsort(-(vectors @ asking.vector), kind="stable")[:_DEPTH]
            numbers: list[int] = in_view[nearest].tolist()
            exact = {view.tenant.event_ids[n] for n in numbers}
            count += len(exact & _nearest_of_leg(access, asking.vector))
            total += len(exact)
    finally:
        database.close()
    return round(count / total, 4)


def _nearest_of_leg(access: TenantDb, vector: Row) -> set[UUID]:
    """The ten nearest of recall's candidates for a question without words."""
    rows = store.search_candidate_events(
        access,
        question="",
        vector=vector.tolist(),
        space=SPACE,
        filters={},
        now=datetime.now(UTC),
    ).rows
    nearest = sorted(rows, key=lambda row: row.cosine or 0.0, reverse=True)[:_DEPTH]
    return {row.event_id for row in nearest}


def table(figures: Sequence[Figures]) -> list[str]:
    """Lines of Markdown, by layout."""
    columns = "p50 ms | p95 ms | p50 to first | bare SQL p50 ms | recall@10 | near another tenant's"
    lines = [f"| layout | events | in view | {columns} |", "|---" * 9 + "|"]
    for layout in dict.fromkeys(one.layout for one in figures):
        lines += [_line(one, figures) for one in figures if one.layout == layout]
    return lines


def _line(one: Figures, figures: Sequence[Figures]) -> str:
    first = next(other for other in figures if other.layout == one.layout)
    return (
        f"| {one.layout} | {one.events:,} | {one.in_view:,} | {one.p50_ms:.1f} | {one.p95_ms:.1f} "
        f"| {one.p50_ms / first.p50_ms:.2f} | {one.bare_p50_ms:.1f} | {one.recall:.3f} "
        f"| {one.recall_elsewhere:.3f} |"
    )


def _write(
    path: Path,
    figures: Sequence[Figures],
    topics: Sequence[growth_topics.TopicFigures],
    settings: Mapping[str, str],
) -> None:
    document = {
        "environment": {
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.platform(),
            "cpus": os.process_cpu_count(),
            **settings,
        },
        "figures": [asdict(one) for one in figures],
        "topics": [asdict(one) for one in topics],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
