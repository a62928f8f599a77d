"""Whether a pinned reader finds each event of a scope exactly once: under one leaf of its snapshot,
or in the fresh tail; and statements in neither."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.topics import store_references_query, store_tail
from strandline.topics.store_references_query import QueryVector
from strandline.topics.store_tail import EventPositionInScope

NOTHING = QueryVector(None, "")
_ALL = 100_000

type ListTail = Callable[
    [TenantDb, int, Sequence[tuple[UUID, int, int]], int], Sequence[EventPositionInScope]
]


@dataclass(frozen=True)
class Pin:
    """A version with the scopes in view, each with its cutoff and its mark."""

    version: int
    scopes: Sequence[tuple[UUID, int, int]]

    @property
    def marks(self) -> dict[UUID, int]:
        """The mark of each scope."""
        return {scope_id: mark for scope_id, _, mark in self.scopes}


@dataclass(frozen=True)
class ScopeReading:
    """What a pinned reader finds of one scope."""

    leaves: Sequence[EventPositionInScope]
    """An event as often as a leaf holds it."""
    tail: Sequence[EventPositionInScope]

    @property
    def events(self) -> Sequence[EventPositionInScope]:
        """All of it."""
        return (*self.leaves, *self.tail)


def pin_active(access: TenantDb) -> Pin:
    """Pin the active version; 0 without one."""
    snapshot, read = store_references_query.read_active_snapshot(access, NOTHING, None, _ALL)
    scopes = [
        (row.scope_id, row.cutoff or 0, row.last_seq or 0) for row in read.rows if row.scope_id
    ]
    return Pin(snapshot.version if snapshot else 0, scopes)


def read_scopes(
    access: TenantDb,
    pin: Pin,
    between_reads: Callable[[], object] = lambda: None,
    list_tail: ListTail | None = None,
) -> Mapping[UUID, ScopeReading]:
    """The events of a pin's scopes, under leaves and in the tail."""
    readings: dict[UUID, ScopeReading] = {}
    for scope in pin.scopes:
        leaves = store_tail.list_events_under_leaves(access, pin.version, scope[0])
        tail = (list_tail or store_tail.list_fresh_tail)(access, pin.version, [scope], _ALL)
        readings[scope[0]] = ScopeReading(leaves, tail)
        between_reads()
    return readings


@dataclass(frozen=True)
class _Statement:
    scope_id: UUID
    seq: int


def list_statements(access: TenantDb) -> set[tuple[UUID, int]]:
    """The statements in view, by scope and seq."""
    statement = "select scope_id, seq from events where type = 'statement'"
    return {(row.scope_id, row.seq) for row in access.fetch(_Statement, statement, {})}


def find_faults(
    access: TenantDb,
    between_reads: Callable[[], object] = lambda: None,
    *,
    marks_last: bool = False,
) -> list[str]:
    """The events of all scopes in view that the active snapshot and its fresh tail hold not once,
    and the statements that they hold: each by scope, seq and how often. With `marks_last` the
    marks are read again after the rows, as a reader without one database snapshot would."""
    if marks_last:
        return _find(access, between_reads, marks_last=True)
    with access.snapshot_transaction():
        return _find(access, between_reads, marks_last=False)


def _find(access: TenantDb, between_reads: Callable[[], object], *, marks_last: bool) -> list[str]:
    pin = pin_active(access)
    readings = read_scopes(access, pin, between_reads)
    marks = pin_active(access).marks if marks_last else pin.marks
    statements = list_statements(access)
    faults: list[str] = []
    for scope_id, mark in marks.items():
        reading = readings.get(scope_id)
        counts = Counter(event.seq for event in (reading.events if reading else ()))
        faults += [
            f"{scope_id}#{seq}: {counts[seq]} times"
            for seq in {*range(1, mark + 1), *counts}
            if counts[seq] != ((scope_id, seq) not in statements) or seq > mark
        ]
    return faults
