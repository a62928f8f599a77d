"""Promise: prices and capacities rest on what the database really does for a call.

CPU and pages are measured again, and printed beside the figures that `make prices` and `make scale`
use. Pages are the same on every machine, so they are compared; CPU fails nothing.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest

from infra.database_figures import DatabaseFigures, RecallFigures, read_database_figures
from tests.bench import database_cpu

ROOM = 1.25
"""By how much pages may be more than those that were kept: which ones a question reads varies."""


def find_stale(kept: Mapping[int, RecallFigures], found: Mapping[int, RecallFigures]) -> list[str]:
    """Views of which a recall reads more or fewer pages than the figures say."""
    return [
        f"{in_view:,} events in view: {name} {pages:,}, kept {kept_pages:,}"
        for in_view, recall in found.items()
        for name in ("cold_pages", "hot_pages")
        for pages, kept_pages in [(asdict(recall)[name], asdict(kept[in_view])[name])]
        if not kept_pages / ROOM - 10 <= pages <= kept_pages * ROOM + 10
    ]


@pytest.mark.proof
def test_database_cpu_figures_are_those_measured() -> None:
    kept = read_database_figures()
    found = database_cpu.measure(database_cpu.VIEWS, database_cpu.ASKS)
    print(f"\n{_describe(kept)}\n{_describe(found)}")
    assert find_stale(kept.recall, found.recall) == []


def test_database_cpu_finds_stale_pages() -> None:
    """A planted fault: a figure of half of what is read."""
    kept = read_database_figures().recall
    assert find_stale(kept, kept) == []
    half = {n: replace(one, hot_pages=one.hot_pages // 2) for n, one in kept.items()}
    assert len(find_stale(half, kept)) == sum(one.hot_pages > 30 for one in kept.values())


def _describe(figures: DatabaseFigures) -> str:
    recalls = ", ".join(
        f"{one.in_view:,} in view {one.database_ms} ms" for one in figures.recall.values()
    )
    event = figures.event
    return (
        f"recall: {recalls}; event: append {event.append_ms} ms, embedding {event.embedding_ms}, "
        f"fold {event.fold_ms}, jobs {event.jobs_ms}"
    )
