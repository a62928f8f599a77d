"""The bench of the analytics: a small graph is stored, analysed in a process, and measured."""

from tests.bench.analytics import measure, table
from tests.support import ScratchDatabase


def test_a_small_graph_is_measured(scratch_db: ScratchDatabase) -> None:
    found = measure(scratch_db, 400)
    assert (found.nodes, found.communities) == (400, 4)
    assert found.agreement > 0.95
    assert found.edges > 1500
    assert 0 < found.propagation + found.scores < found.seconds
    assert 20 < found.idle_mb <= found.peak_mb
    (_, _, row, _) = table([found])
    assert row.startswith("| 400 | ")
