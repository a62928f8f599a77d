"""The state of one scope's fold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal
from uuid import UUID

from strandline.chains import recall_echoes, store_decisions, store_fold_progress
from strandline.chains.decisions import FoldDecision
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.lane_row_conversion import read_open_lanes
from strandline.chains.recall_echoes import decide_which_events_are_echoes
from strandline.chains.segmentation import Lane
from strandline.chains.slot_decisions import decide_self_statements
from strandline.chains.store_fold_progress import EventToFold, ScopeFoldProgress
from strandline.db.database import TenantDb
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import NotFound
from strandline.jobs.worker_resources import Deferral, WorkerResources
from strandline.llm.types import PromptEvent
from strandline.tuning import Tuning

_BATCH = 200
"""The maximum number of events that are read and committed at a time."""


@dataclass(frozen=True)
class FoldOutcome:
    """How the fold of a scope ended. What it committed before stays."""

    end: Literal["finished", "waits_for_vector", "deferred", "unfinished", "out_of_time"]
    """`finished`: at the end of the log. `waits_for_vector`: before a user message without one.
    `deferred`: before a step that has to wait, see `deferral`. `unfinished`: the scope's share of
    the time is used up, and it queues up behind all other work. `out_of_time`: the worker's time
    is."""
    deferral: Deferral | None = None
    """Why a deferred fold waits, and how long."""

    @property
    def is_finished(self) -> bool:
        """Whether it reached the end of the log."""
        return self.end == "finished"


@dataclass
class FoldState:
    """The data that a fold has read about its scope, and its uncommitted changes."""

    worker: WorkerResources
    access: TenantDb
    scope: ScopeFoldProgress
    now: datetime
    stored_decisions: Mapping[tuple[UUID, str], FoldDecision]
    """The stored decisions, by event and kind: the last attempt of each."""
    decisions_by_seq: Mapping[int, Sequence[FoldDecision]]
    """The stored `idle` and `reformed` decisions by the `folded_seq` at which they take effect, in
    order."""
    lanes: dict[str, Lane]
    """The open lanes by session id."""
    tuning: Tuning
    settings: FoldSettings | None
    """The settings of the latest `settings` decision."""
    fold_no: int
    current_seq: int
    """The seq up to which events are folded, committed or not."""
    committed_seq: int
    """The value of `current_seq` in the database."""
    new_echoes: Mapping[UUID, FoldDecision] = field(default_factory=dict[UUID, FoldDecision])
    """The pending decisions about which of the next events are echoes, by event."""
    new_slots: Mapping[UUID, FoldDecision] = field(default_factory=dict[UUID, FoldDecision])
    """The pending decisions about what the next events state of their speakers, by event."""
    changed_lanes: set[str] = field(default_factory=set[str])
    pending_decisions: list[FoldDecision] = field(default_factory=list[FoldDecision])
    next_ids: Sequence[UUID] = ()
    """The next events of lanes: their texts are read with the first one that a prompt needs."""
    event_cache: dict[UUID, PromptEvent] = field(default_factory=dict[UUID, PromptEvent])
    """Events that are already loaded for model prompts."""

    @cached_property
    def current_settings(self) -> FoldSettings:
        """The settings of this deployment and tenant, for events without decided ones."""
        space = self.worker.embedder.space
        thresholds = read_thresholds(self.access, space, self.tuning)
        return FoldSettings.from_tuning(space, thresholds, self.tuning)

    @property
    def model_patience(self) -> timedelta:
        """How long a decision waits for a model that is unavailable."""
        return timedelta(minutes=self.tuning.model_patience_minutes)

    @property
    def pending_echo_ids(self) -> frozenset[UUID]:
        """The events that are echoes by decisions that are not committed yet."""
        pending = self.pending_decisions
        return frozenset(item.event_id for item in pending if item.kind == "echo")

    @property
    def pending_change_ids(self) -> frozenset[UUID]:
        """The events that bear a change by decisions that are not committed yet."""
        pending = self.pending_decisions
        return frozenset(
            item.event_id for item in pending if item.kind == "slots" and item.body["is_change"]
        )

    def get_lane(self, session_id: str) -> Lane:
        """A session's lane; empty if it has no open events."""
        return self.lanes.get(session_id, Lane())

    def set_lane(self, session_id: str, lane: Lane) -> None:
        """Replace a lane, to be saved by the next commit."""
        self.lanes[session_id] = lane
        self.changed_lanes.add(session_id)

    def compute_folded_seq_with_lane(self, lane: Lane) -> int:
        """The seq up to which events are folded once this lane is set: that of the lane's newest
        event, if that event has just been added."""
        return max(self.current_seq, lane.last_event.seq if lane.last_event else 0)


def load_fold_state_and_next_events(
    worker: WorkerResources, access: TenantDb, scope_id: UUID, now: datetime
) -> tuple[FoldState, Sequence[EventToFold]]:
    """Load the state of a scope's fold, and the scope's next events. Raises NotFound."""
    scope, space = (
        store_fold_progress.read_scope_fold_progress(access, scope_id),
        worker.embedder.space,
    )
    if scope is None:
        raise NotFound
    turns = store_fold_progress.read_next_events(access, scope_id, space, scope.folded_seq, _BATCH)
    last_seq = turns[-1].seq if turns else scope.folded_seq
    decisions = store_decisions.list_decisions_between_seqs(
        access, scope_id, scope.folded_seq, last_seq
    )
    sessions = {turn.session_id for turn in turns}
    sessions |= {item.body["session"] for item in decisions if item.kind == "idle"}
    lanes = read_open_lanes(access, scope_id, space, sorted(sessions))
    # Decisions about open events may have taken effect at a lower seq: under a release or a tuning
    # that did not wait for later events, before an awaited event was erased, or at a retry.
    open_event_ids = [
        turn.event_id
        for lane in lanes.values()
        for turn in (*lane.open_events, *lane.pending_events)
    ]
    earlier_decisions = store_decisions.list_decisions_about_events(
        access, scope_id, open_event_ids, ("continues", "formed")
    )
    state = FoldState(
        worker,
        access,
        scope,
        now,
        stored_decisions={
            (item.event_id, item.kind): item
            for item in sorted((*decisions, *earlier_decisions), key=lambda item: item.attempt)
        },
        decisions_by_seq=_group_timed_decisions_by_seq(decisions),
        lanes=lanes,
        tuning=worker.tuning.with_overrides(scope.tuning),
        settings=FoldSettings.model_validate(scope.settings) if scope.settings else None,
        fold_no=scope.fold_no,
        current_seq=scope.folded_seq,
        committed_seq=scope.folded_seq,
        new_echoes=(new_echoes := _decide_recall_echoes(access, scope, turns)),
        new_slots=_decide_statements_about_speakers(access, scope, turns, new_echoes),
        next_ids=[turn.event_id for turn in turns if turn.is_in_lane],
    )
    return state, turns


def _decide_statements_about_speakers(
    access: TenantDb,
    scope: ScopeFoldProgress,
    turns: Sequence[EventToFold],
    echoes: Mapping[UUID, FoldDecision],
) -> Mapping[UUID, FoldDecision]:
    """Decide what the user messages that were never folded state of their speakers. An echo is no
    evidence of it."""
    new_ids = [
        turn.event_id
        for turn in turns
        if turn.seq > scope.max_folded_seq
        and turn.is_in_lane
        and (turn.role, turn.type) == ("user", "message")
        and turn.event_id not in echoes
    ]
    return decide_self_statements(access, scope.scope_id, new_ids)


def _decide_recall_echoes(
    access: TenantDb, scope: ScopeFoldProgress, turns: Sequence[EventToFold]
) -> Mapping[UUID, FoldDecision]:
    """Decide which of the events that were never folded are echoes. If there were no recalls, this
    costs one index lookup."""
    new_turns = [turn for turn in turns if turn.seq > scope.max_folded_seq and turn.is_in_lane]
    if not new_turns:
        return {}
    sources = recall_echoes.read_recalled_texts(
        access, scope.participants, new_turns[0].recorded_at, new_turns[-1].recorded_at
    )
    if not sources:
        return {}
    return decide_which_events_are_echoes(
        recall_echoes.read_event_texts(access, [t.event_id for t in new_turns]), sources
    )


def _group_timed_decisions_by_seq(
    decisions: Sequence[FoldDecision],
) -> dict[int, list[FoldDecision]]:
    """Group the `idle` and `reformed` decisions by the seq at which they take effect, in the order
    in which they were made."""
    timed_decisions = [item for item in decisions if item.kind in ("idle", "reformed")]
    decisions_by_seq: dict[int, list[FoldDecision]] = {}
    for item in sorted(timed_decisions, key=lambda item: (item.body["fold"], item.body["place"])):
        decisions_by_seq.setdefault(item.at_seq, []).append(item)
    return decisions_by_seq
