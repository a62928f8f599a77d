"""The bench of the analytics: a small graph is stored, analysed in a process, and measured."""

from tests.bench.analytics import measure, table
from tests.support import ScratchDatabase


def test_bench_analytics_measures_small_graph(scratch_db: ScratchDatabase) -> None:
    figures = measure(scratch_db, 400)
    assert (figures.nodes, figures.communities) == (400, 4)
    assert figures.agreement > 0.95
    assert figures.edges > 1500
    assert 0 < figures.propagation + figures.scores < figures.seconds
    assert 20 < figures.idle_mb <= figures.peak_mb
    (_, _, row, _) = table([figures])
    assert row.startswith("| 400 | ")
