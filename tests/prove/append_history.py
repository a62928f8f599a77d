"""What was asked of the log and what it acknowledged, and the one judge of both."""

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.auth import store_tenants_and_keys
from strandline.auth.principals import Principal
from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.db.database import Caller, Database
from strandline.http.writer import WriterResources
from strandline.log import event_builder, event_draft
from strandline.log import store as log_store
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.event_builder import NewEvent
from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.schemas import validate
from strandline.tenants.quotas import QuotaManager
from tests.support import NO_LIMITS_SETTINGS, ScratchDatabase, user_message

TENANT = "acme"
WRITER = Principal(TENANT, None, frozenset({"write"}))
BACKGROUND = Caller.background(TENANT)
_REQUEST = AppendRequest


@dataclass(frozen=True)
class AppendOp:
    """One append. Its content is its name: two ops that are not the same request never share it."""

    content: str
    participants: tuple[str, ...]
    key: str | None = None
    session: str | None = None

    def request(self) -> tuple[object, str | None]:
        """As the service takes it: the body, and the Idempotency-Key."""
        session_field = {} if self.session is None else {"session_id": self.session}
        return user_message(self.content, *self.participants, **session_field), self.key


@dataclass(frozen=True)
class AckedAppend:
    """An append that was acknowledged."""

    op: AppendOp
    receipt: Receipt
    is_replay: bool


@dataclass
class History:
    """What all clients did. Lists and sets grow by one atomic call, so threads may share one."""

    invocations: set[AppendOp] = field(default_factory=set[AppendOp])
    """Whatever may have been stored; written down before it is sent."""
    acks: list[AckedAppend] = field(default_factory=list[AckedAppend])
    unknown: list[AppendOp] = field(default_factory=list[AppendOp])
    """Neither acknowledged nor refused: may be there once, or not at all."""
    rolled_back: list[AppendOp] = field(default_factory=list[AppendOp])
    """Rolled back by us. Not invoked: only another call may have stored them."""


@dataclass(frozen=True)
class StoredEvent:
    """An event as it really lies there."""

    scope_id: UUID
    seq: int
    event_id: UUID
    cid: str | None
    content: str | None
    """None: erased."""
    recorded_at: datetime
    key: str | None
    last_seq: int


@dataclass
class Findings:
    """What is wrong with a log, given its history; all empty when it kept its promises."""

    lost: list[str] = field(default_factory=list[str])
    inventions: list[str] = field(default_factory=list[str])
    duplicates: list[str] = field(default_factory=list[str])
    order_faults: list[str] = field(default_factory=list[str])


def stored_in(base: ScratchDatabase) -> list[StoredEvent]:
    """The log, read as the superuser, whom no policy hides anything from."""
    rows = base.rows(
        "select e.scope_id, e.seq, e.event_id, e.cid, e.content, e.recorded_at,"
        " k.source_event_key, s.last_seq"
        " from scopes s left join events e using (tenant_id, scope_id)"
        " left join event_keys k using (tenant_id, event_id)"
        " order by e.scope_id, e.seq"
    )
    return [StoredEvent(*row) for row in rows]


def check_log(history: History, log: Sequence[StoredEvent]) -> Findings:
    """acknowledged ⊆ stored ⊆ invoked, nothing twice, and every scope's seq 1..n with a clock that
    never falls. An unknown outcome may be there once or not at all."""
    findings = Findings()
    by_id = {event.event_id: event for event in log}
    for ack in history.acks:
        event, receipt = by_id.get(ack.receipt.event_id), ack.receipt
        acknowledged = (
            ack.op.content,
            receipt.scope_id,
            receipt.seq,
            receipt.cid,
            receipt.recorded_at,
        )
        if event is None or acknowledged != (
            (event.content, event.scope_id, event.seq, event.cid, event.recorded_at)
        ):
            findings.lost.append(ack.op.content)
    invoked = {(op.content, op.key) for op in history.invocations}
    present = [(e.content, e.key) for e in log if e.content is not None]  # no tombstones
    findings.inventions += [text for text, key in present if (text, key) not in invoked]
    findings.duplicates += _duplicates(text for text, _ in present)
    findings.duplicates += _duplicates(e.key for e in log if e.key is not None)
    findings.duplicates += _duplicates(a.op.content for a in history.acks if not a.is_replay)
    findings.order_faults += _order_faults(log)
    return findings


def _duplicates(names: Iterable[str]) -> list[str]:
    return [name for name, times in Counter(names).items() if times > 1]


def _order_faults(log: Sequence[StoredEvent]) -> list[str]:
    scopes: defaultdict[UUID, list[StoredEvent]] = defaultdict(list)
    for event in log:
        scopes[event.scope_id].append(event)
    faults: list[str] = []
    for scope_id, members in scopes.items():
        seqs, times = [e.seq for e in members], [e.recorded_at for e in members]
        if seqs != list(range(1, members[0].last_seq + 1)):
            faults.append(f"{scope_id}: seq is not 1..{members[0].last_seq}")
        if times != sorted(times):
            faults.append(f"{scope_id}: recorded_at falls")
    return faults


class Client:
    """One writer with a connection of its own; says in `history` what it does."""

    def __init__(self, url: str, blobs: BlobStore, history: History) -> None:
        self.database = Database(url)
        self.created = 0
        self.rolled_back = 0
        self._blobs = blobs
        self._quotas = QuotaManager(self.database, NO_LIMITS_SETTINGS)
        self._history = history

    def append(self, ops: Sequence[AppendOp]) -> list[AppendResult]:
        """Through the service. Raises Unavailable or Unsure."""
        self._history.invocations.update(ops)
        requests = [op.request() for op in ops]
        writer = WriterResources(WRITER, self.database, self._blobs, WorkQueue(""), self._quotas)
        results = append(writer, requests)
        for op, result in zip(ops, results, strict=True):
            assert result.receipt is not None, f"{op} was refused: {result.error!r}"
            self._history.acks.append(AckedAppend(op, result.receipt, result.is_replay))
            self.created += not result.is_replay
        return results

    def append_late(self, ops: Sequence[AppendOp], seconds: float, delay: float = 0.0) -> None:
        """Commit, and acknowledge, only `seconds` after the append function returned; call that
        `delay` seconds after the events got their ids."""
        new_events = self.prepare(ops)
        time.sleep(delay)
        self.append_prepared(ops, new_events, seconds)

    def prepare(self, ops: Sequence[AppendOp]) -> list[NewEvent]:
        """Give the events their ids, and append none yet."""
        self._history.invocations.update(ops)
        return build_events(ops)

    def append_prepared(
        self, ops: Sequence[AppendOp], new_events: Sequence[NewEvent], seconds: float = 0.0
    ) -> None:
        """Append what was prepared of `ops`; commit `seconds` after the append function
        returned."""
        access = self.database.connect_as(BACKGROUND)
        with access.transaction():
            outcomes = log_store.append_events(access, new_events, atomic=False)
            time.sleep(seconds)
        for op, outcome in zip(ops, outcomes, strict=True):
            assert outcome.outcome in ("created", "replayed"), f"{op}: {outcome.outcome}"
            receipt = Receipt.model_validate({**vars(outcome), "blob": None})
            self._history.acks.append(AckedAppend(op, receipt, outcome.outcome == "replayed"))
            self.created += outcome.outcome == "created"

    def append_and_roll_back(self, ops: Sequence[AppendOp], seconds: float) -> None:
        """Roll back after the append function returned."""
        access = self.database.connect_as(BACKGROUND)
        try:
            with access.transaction():
                log_store.append_events(access, build_events(ops), atomic=False)
                time.sleep(seconds)
                raise _RollBack
        except _RollBack:
            self._history.rolled_back.extend(ops)
            self.rolled_back += len(ops)


class _RollBack(Exception):
    """Our own reason to roll back."""


def build_events(ops: Sequence[AppendOp]) -> list[NewEvent]:
    """The events of these ops, as the service would make them."""
    new_events: list[NewEvent] = []
    for n, op in enumerate(ops):
        body, key = op.request()
        draft = event_draft.build_draft(WRITER, validate(_REQUEST, body), key)
        new_events.append(event_builder.build_event(draft, n, []))
    return new_events


def add_tenant(database: Database) -> None:
    """The tenant that all proofs write into."""
    access = database.connect_as(BACKGROUND)
    with access.transaction():
        store_tenants_and_keys.insert_tenant(access)


def make_rng(*parts: Any) -> random.Random:
    """The same numbers for the same parts, in every run."""
    return random.Random(repr(parts))
