"""What was asked of the log and what it acknowledged, and the one judge of both."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.auth import store_keys
from strandline.auth.principals import Principal
from strandline.aws.blobs import Blobs
from strandline.aws.work_queue import Hints
from strandline.db.database import Asker, Database
from strandline.log import event_builder
from strandline.log import store as log_store
from strandline.log.append import Appended, append
from strandline.log.event_builder import NewEvent
from strandline.log.schemas import AppendRequest, Receipt
from strandline.schemas import validated
from strandline.tenants.quotas import Quotas
from tests.support import PLENTY, Base, said

TENANT = "acme"
WRITER = Principal(TENANT, None, frozenset({"write"}))
EVERYTHING = Asker.background(TENANT)
_REQUEST = AppendRequest


@dataclass(frozen=True)
class Op:
    """One append. Its content is its name: two ops that are not the same request never share it."""

    content: str
    who: tuple[str, ...]
    key: str | None = None
    session: str | None = None

    def request(self) -> tuple[object, str | None]:
        """As the service takes it: the body, and the Idempotency-Key."""
        more = {} if self.session is None else {"session_id": self.session}
        return said(self.content, *self.who, **more), self.key


@dataclass(frozen=True)
class Acked:
    """An append that was acknowledged."""

    op: Op
    receipt: Receipt
    replayed: bool


@dataclass
class History:
    """What all clients did. Lists and sets grow by one atomic call, so threads may share one."""

    invoked: set[Op] = field(default_factory=set[Op])
    """Whatever may have been stored; written down before it is sent."""
    acked: list[Acked] = field(default_factory=list[Acked])
    unknown: list[Op] = field(default_factory=list[Op])
    """Neither acknowledged nor refused: may be there once, or not at all."""
    undone: list[Op] = field(default_factory=list[Op])
    """Rolled back by us. Not invoked: only another call may have stored them."""


@dataclass(frozen=True)
class Stored:
    """An event as it really lies there."""

    scope_id: UUID
    seq: int
    event_id: UUID
    cid: str
    content: str
    recorded_at: datetime
    key: str | None
    last_seq: int


@dataclass
class Findings:
    """What is wrong with a log, given its history; all empty when it kept its promises."""

    lost: list[str] = field(default_factory=list[str])
    invented: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    disordered: list[str] = field(default_factory=list[str])


def stored_in(base: Base) -> list[Stored]:
    """The log, read as the superuser, whom no policy hides anything from."""
    rows = base.rows(
        "select e.scope_id, e.seq, e.event_id, e.cid, e.content, e.recorded_at,"
        " k.source_event_key, s.last_seq"
        " from scopes s left join events e using (tenant_id, scope_id)"
        " left join event_keys k using (tenant_id, event_id)"
        " order by e.scope_id, e.seq"
    )
    return [Stored(*row) for row in rows]


def judge(history: History, log: Sequence[Stored]) -> Findings:
    """acknowledged ⊆ stored ⊆ invoked, nothing twice, and every scope's seq 1..n with a clock that
    never falls. An unknown outcome may be there once or not at all."""
    found = Findings()
    by_id = {event.event_id: event for event in log}
    for ack in history.acked:
        event, said_so = by_id.get(ack.receipt.event_id), ack.receipt
        receipt = (ack.op.content, said_so.scope_id, said_so.seq, said_so.cid, said_so.recorded_at)
        if event is None or receipt != (
            (event.content, event.scope_id, event.seq, event.cid, event.recorded_at)
        ):
            found.lost.append(ack.op.content)
    invoked = {(op.content, op.key) for op in history.invoked}
    found.invented += [e.content for e in log if (e.content, e.key) not in invoked]
    found.doubled += _twice(e.content for e in log)
    found.doubled += _twice(e.key for e in log if e.key is not None)
    found.doubled += _twice(a.op.content for a in history.acked if not a.replayed)
    found.disordered += _disorder(log)
    return found


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _disorder(log: Sequence[Stored]) -> list[str]:
    scopes: defaultdict[UUID, list[Stored]] = defaultdict(list)
    for event in log:
        scopes[event.scope_id].append(event)
    wrong: list[str] = []
    for scope_id, members in scopes.items():
        seqs, clock = [e.seq for e in members], [e.recorded_at for e in members]
        if seqs != list(range(1, members[0].last_seq + 1)):
            wrong.append(f"{scope_id}: seq is not 1..{members[0].last_seq}")
        if clock != sorted(clock):
            wrong.append(f"{scope_id}: recorded_at falls")
    return wrong


class Client:
    """One writer with a connection of its own; says in `history` what it does."""

    def __init__(self, url: str, blobs: Blobs, history: History) -> None:
        self.database = Database(url)
        self.created = 0
        self._blobs = blobs
        self._quotas = Quotas(self.database, PLENTY)
        self._history = history

    def append(self, ops: Sequence[Op]) -> list[Appended]:
        """Through the service. Raises Unavailable or Unsure."""
        self._history.invoked.update(ops)
        requests = [op.request() for op in ops]
        results = append(self.database, self._blobs, Hints(""), self._quotas, WRITER, requests)
        for op, result in zip(ops, results, strict=True):
            assert result.receipt is not None, f"{op} was refused: {result.error!r}"
            self._history.acked.append(Acked(op, result.receipt, result.replayed))
            self.created += not result.replayed
        return results

    def append_late(self, ops: Sequence[Op], seconds: float) -> None:
        """Commit, and acknowledge, only `seconds` after the append function returned."""
        self._history.invoked.update(ops)
        access = self.database.access(EVERYTHING)
        with access.transaction():
            outcomes = log_store.append(access, drafted(ops), atomic=False)
            time.sleep(seconds)
        for op, said_so in zip(ops, outcomes, strict=True):
            assert said_so.outcome in ("created", "replayed"), f"{op}: {said_so.outcome}"
            receipt = Receipt.model_validate({**vars(said_so), "blob": None})
            self._history.acked.append(Acked(op, receipt, said_so.outcome == "replayed"))
            self.created += said_so.outcome == "created"

    def append_in_vain(self, ops: Sequence[Op], seconds: float) -> None:
        """Roll back after the append function returned."""
        access = self.database.access(EVERYTHING)
        try:
            with access.transaction():
                log_store.append(access, drafted(ops), atomic=False)
                time.sleep(seconds)
                raise _InVain
        except _InVain:
            self._history.undone.extend(ops)


class _InVain(Exception):
    """Our own reason to roll back."""


def drafted(ops: Sequence[Op]) -> list[NewEvent]:
    """The events of these ops, as the service would make them."""
    made: list[NewEvent] = []
    for n, op in enumerate(ops):
        body, key = op.request()
        draft = event_builder.draft(WRITER, validated(_REQUEST, body), key)
        made.append(event_builder.finish(draft, n, []))
    return made


def add_tenant(database: Database) -> None:
    """The tenant that all proofs write into."""
    access = database.access(EVERYTHING)
    with access.transaction():
        store_keys.add_tenant(access)


def seeded(*parts: Any) -> random.Random:
    """The same numbers for the same parts, in every run."""
    return random.Random(repr(parts))
