"""Promise: prices and capacities rest on what the database really does for a call.

CPU and pages are measured again, and printed beside the figures that `make prices` and `make scale`
use. Pages are the same on every machine, so they are compared. Of CPU only shares are compared,
each figure beside all of them, and coarsely: machines differ.
"""

from collections.abc import Mapping
from dataclasses import asdict, replace

import pytest

from infra.database_figures import DatabaseFigures, RecallFigures, read_database_figures
from tests.bench import database_cpu

ROOM = 1.25
"""By how much pages may be more than those that were kept: which ones a question reads varies."""
CPU_ROOM = 3.0
"""By how much a figure's share of all CPU may be more or less than its share of those kept."""


def find_stale(kept: Mapping[int, RecallFigures], found: Mapping[int, RecallFigures]) -> list[str]:
    """Views of which a recall reads more or fewer pages than the figures say."""
    return [
        f"{in_view:,} events in view: {name} {pages:,}, kept {kept_pages:,}"
        for in_view, recall in found.items()
        for name in ("cold_pages", "hot_pages")
        for pages, kept_pages in [(asdict(recall)[name], asdict(kept[in_view])[name])]
        if not kept_pages / ROOM - 10 <= pages <= kept_pages * ROOM + 10
    ]


def find_stale_cpu(kept: DatabaseFigures, found: DatabaseFigures) -> list[str]:
    """Figures of CPU whose share of them all is another than the figures say."""
    shares, kept_shares = _list_cpu_shares(found), _list_cpu_shares(kept)
    return [
        f"{name}: {share:.4f} of all CPU, kept {kept_shares[name]:.4f}"
        for name, share in shares.items()
        if not kept_shares[name] / CPU_ROOM <= share <= kept_shares[name] * CPU_ROOM
    ]


def _list_cpu_shares(figures: DatabaseFigures) -> Mapping[str, float]:
    event = figures.event
    milliseconds = {
        **{f"{n:,} events in view": one.database_ms for n, one in figures.recall.items()},
        "append": event.append_ms,
        "embedding": event.embedding_ms,
        "fold": event.fold_ms,
        "jobs": event.jobs_ms,
    }
    return {name: ms / sum(milliseconds.values()) for name, ms in milliseconds.items()}


@pytest.mark.proof
def test_database_cpu_figures_are_those_measured() -> None:
    kept = read_database_figures()
    found = database_cpu.measure(database_cpu.VIEWS, database_cpu.ASKS)
    print(f"\n{_describe(kept)}\n{_describe(found)}")
    assert find_stale(kept.recall, found.recall) == []
    assert find_stale_cpu(kept, found) == []


def test_database_cpu_finds_stale_pages() -> None:
    """A planted fault: a figure of half of what is read."""
    kept = read_database_figures().recall
    assert find_stale(kept, kept) == []
    half = {n: replace(one, hot_pages=one.hot_pages // 2) for n, one in kept.items()}
    assert len(find_stale(half, kept)) == sum(one.hot_pages > 30 for one in kept.values())


def test_database_cpu_finds_stale_cpu() -> None:
    """Planted: an event's and a recall's figure of a fifth, on a machine that is twice as slow."""
    kept = read_database_figures()
    slow = {n: replace(one, database_ms=one.database_ms * 2) for n, one in kept.recall.items()}
    event = replace(kept.event, **{name: ms * 2 for name, ms in asdict(kept.event).items()})
    found = DatabaseFigures(slow, event)
    assert find_stale_cpu(kept, found) == []
    wrong_event = replace(kept.event, fold_ms=kept.event.fold_ms / 5)
    assert len(find_stale_cpu(replace(kept, event=wrong_event), found)) == 1
    wrong = {**kept.recall, 1000: replace(kept.recall[1000], database_ms=1.0)}
    assert len(find_stale_cpu(replace(kept, recall=wrong), found)) == 1


def _describe(figures: DatabaseFigures) -> str:
    recalls = ", ".join(
        f"{one.in_view:,} in view {one.database_ms} ms" for one in figures.recall.values()
    )
    event = figures.event
    return (
        f"recall: {recalls}; event: append {event.append_ms} ms, embedding {event.embedding_ms}, "
        f"fold {event.fold_ms}, jobs {event.jobs_ms}"
    )
