"""Whether a pinned reader finds each event of a scope exactly once: under one leaf of its snapshot,
or in the fresh tail."""

from collections import Counter
from collections.abc import Callable

from strandline.db.database import TenantDb
from strandline.topics import store_references, store_tail
from strandline.topics.store_references import Query

NOTHING = Query(None, "")
_ALL = 100_000


def find_faults(
    access: TenantDb,
    between_reads: Callable[[], object] = lambda: None,
    *,
    marks_last: bool = False,
) -> list[str]:
    """The events of all scopes in view that the active snapshot and its fresh tail hold not once:
    each by scope, seq and how often. With `marks_last` the marks are read again after the rows, as
    a reader without one database snapshot would."""
    if marks_last:
        return _find(access, between_reads, marks_last=True)
    with access.snapshot_transaction():
        return _find(access, between_reads, marks_last=False)


def _find(access: TenantDb, between_reads: Callable[[], object], *, marks_last: bool) -> list[str]:
    snapshot, read = store_references.pin_snapshot(access, NOTHING, None, _ALL)
    version = snapshot.version if snapshot else 0
    faults: list[str] = []
    seen: dict[object, Counter[int]] = {}
    for row in read.rows:
        if row.scope_id is None:
            continue
        mark = row.last_seq or 0
        leaves = store_tail.list_leaf_events(access, version, row.scope_id)
        tail = store_tail.list_tail(access, version, [(row.scope_id, row.cutoff or 0, mark)], _ALL)
        seen[row.scope_id] = Counter(event.seq for event in (*leaves, *tail))
        between_reads()
    marks = {row.scope_id: row.last_seq or 0 for row in read.rows if row.scope_id}
    if marks_last:
        _, again = store_references.pin_snapshot(access, NOTHING, None, _ALL)
        marks = {row.scope_id: row.last_seq or 0 for row in again.rows if row.scope_id}
    for scope_id, mark in marks.items():
        counts = seen.get(scope_id, Counter[int]())
        faults += [
            f"{scope_id}#{seq}: {counts[seq]} times"
            for seq in {*range(1, mark + 1), *counts}
            if counts[seq] != 1 or seq > mark
        ]
    return faults
