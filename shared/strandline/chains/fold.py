"""Fold one scope: assign events to lanes and lanes to chains, committing each step by
compare-and-swap on `fold_no`.

Everything up to `settled_seq` is decided: a replay asks no model, compares nothing, and follows the
stored decisions. Past it the fold decides. A decision commits with the rows that follow from it;
where a model was asked whether a topic continues, its answer commits first, so that it is never
asked twice. Kinds of decisions:

- `settings`: the fold's settings from this event on;
- `continues`: whether the topic continues at this user message, judged once the later events that
  it waits for have come. Stored where the topic broke, where a model was asked, and where judging
  the message failed and would fail again (the topic then continues);
- `vector_given_up`: this user message is compared with nothing, as it has no vector;
- `formed`: the content of the run that ends at this event, and the chain it was merged into. Where
  deciding it failed and would fail again, a placeholder, until a retry (`reformed`);
- `idle`: no event followed in this lane until the scope's `folded_seq` was `at_seq`;
- `reformed`: the new content of the chain whose last event this is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import store, store_decisions, store_lanes
from strandline.chains.content import (
    FOLD_FAILED,
    ChainContent,
    RunEnrichment,
    make_placeholder_content,
)
from strandline.chains.enrichment import embed_summary, enrich_run
from strandline.chains.fold_settings import FoldSettings
from strandline.chains.open_lanes import read_lanes, to_lane_row, to_turn
from strandline.chains.questions import ask_if_topic_continues, make_task_context
from strandline.chains.segmentation import (
    Lane,
    TopicRun,
    TopicVerdict,
    Turn,
    close_lane,
    compare_topic,
    is_after_gap,
    judge_next,
)
from strandline.chains.store_decisions import Decision
from strandline.chains.store_lanes import FoldState, LaneRow, LoggedTurn
from strandline.chains.versions import (
    ChainRevision,
    record_topic_fallback,
    write_revision,
    write_run,
)
from strandline.db.database import TenantDb
from strandline.failures import is_permanent_failure
from strandline.jobs.context import ConcurrentUpdate, Deferred, Worker
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import PromptEvent
from strandline.log import store_work
from strandline.observability import logger
from strandline.tuning import Tuning

_VERDICT_METRICS = {
    TopicVerdict.BREAK: "GateBreak",
    TopicVerdict.GRAY: "GateGray",
    TopicVerdict.CONTINUE: "GateContinue",
}
"""The metric that counts each verdict of a comparison."""


@dataclass(frozen=True)
class BreakAnswer:
    """Whether the topic ends before an event, and the decisions made to find out."""

    ends_topic: bool
    new_decisions: Sequence[Decision] = ()
    is_costly: bool = False
    """A model was called, so the answer is committed before anything else is done with it: the next
    step may be deferred. The heuristic model gives the same answer again at no cost."""


@dataclass
class Fold:
    """The state of one scope's fold: what was read, and what is not committed yet."""

    worker: Worker
    access: TenantDb
    state: FoldState
    now: datetime
    stored_decisions: Mapping[tuple[UUID, str], Decision]
    """Decisions that are stored already, by event and kind."""
    decisions_by_seq: Mapping[int, Sequence[Decision]]
    """The stored `idle` and `reformed` decisions by the `folded_seq` at which they take effect, in
    order."""
    lanes: dict[str, Lane]
    tuning: Tuning
    settings: FoldSettings | None
    """The settings of the latest `settings` decision."""
    fold_no: int
    current_seq: int
    """The seq up to which events are folded, committed or not."""
    changed_lanes: set[str] = field(default_factory=set[str])
    pending_decisions: list[Decision] = field(default_factory=list[Decision])
    event_cache: dict[UUID, PromptEvent] = field(default_factory=dict[UUID, PromptEvent])
    """Events that were already loaded for questions to the model."""
    committed_seq: int = 0
    """`current_seq` as it stands in the database."""

    def run(self, turns: Sequence[LoggedTurn]) -> bool:
        """Fold these events, committing after each closed run and at the end. Returns False where
        the fold must wait for a vector or a model. Raises ConcurrentUpdate."""
        deferral = None
        try:
            reached_end = self._apply_scheduled()
            for turn in turns:
                if not reached_end or self.worker.is_out_of_time():
                    break
                reached_end = self._fold_event(turn) and self._apply_scheduled()
        except Deferred as error:
            reached_end, deferral = False, error
        self.pending_decisions = [
            decision for decision in self.pending_decisions if decision.at_seq <= self.current_seq
        ]
        self.commit()
        if deferral is not None:
            self.worker.tally.deferrals[self.state.scope_id] = deferral
            self.worker.llm.store_call_records(self.access)  # not used, but paid for
        return reached_end

    def _fold_event(self, event: LoggedTurn) -> bool:
        """Fold one event, and judge the events that were waiting for it. Returns False, or raises
        Deferred, where that must wait; the event is then not folded."""
        if event.erased:
            self.current_seq = event.seq
            return True
        turn, is_settled = to_turn(event), event.seq <= self.state.settled_seq
        settings = self._settings_for(event)
        if event.is_refused and not event.is_given_up and not is_settled and turn.is_user_message:
            self.pending_decisions.append(_make_give_up(turn, turn.seq, "refused"))
        lane = self._get_lane(turn.session_id)
        has_gap = is_after_gap(lane, turn, settings.rules)
        max_ahead = 0 if has_gap else settings.ahead_events
        if len(lane.pending_turns) > max_ahead:
            # Committed before this event is: a worker that folds it again must use these settings.
            self._decide_settings(turn, settings, is_settled)
            if not self._judge_until(max_ahead, turn.session_id, settings, is_settled):
                return False
        if has_gap:
            self._close_after_gap(turn, settings)
            return True
        lane = self._get_lane(turn.session_id).with_turn(turn)
        if len(lane.pending_turns) > max_ahead:
            return self._judge_next(turn.session_id, lane, settings, turn.seq, is_settled)
        self.current_seq = turn.seq
        self.set_lane(turn.session_id, lane)
        return True

    def _get_lane(self, session_id: str) -> Lane:
        return self.lanes.get(session_id, Lane())

    def _judge_until(
        self, max_ahead: int, session_id: str, settings: FoldSettings, is_settled: bool
    ) -> bool:
        """Judge a lane's pending events, at the current seq, until `max_ahead` are left. Returns
        False, or raises Deferred, where that must wait; events judged before stay judged."""
        while len((lane := self._get_lane(session_id)).pending_turns) > max_ahead:
            self.worker.require_time()
            if not self._judge_next(session_id, lane, settings, self.current_seq, is_settled):
                return False
            if not self._apply_scheduled():
                return False
        return True

    def _close_after_gap(self, turn: Turn, settings: FoldSettings) -> None:
        """Close a lane whose events are all judged, before an event that follows a gap."""
        lane, run = close_lane(self._get_lane(turn.session_id), "gap")
        enrichment = self._enrich(run, settings, turn.seq) if run else None
        lane = lane.with_turn(turn)
        if not settings.ahead_events:
            lane, _ = judge_next(lane, settings.rules, breaks=False)
        self.current_seq = turn.seq
        self.set_lane(turn.session_id, lane)
        if run is not None:
            self._commit_run(run, enrichment, self.current_seq)

    def _close_idle_lane(self, session_id: str, settings: FoldSettings, is_settled: bool) -> bool:
        """Judge the rest of an idle lane and close it. Returns False where that must wait."""
        while (lane := self._get_lane(session_id)).pending_turns:
            self.worker.require_time()
            if not self._judge_next(session_id, lane, settings, self.current_seq, is_settled):
                return False
        lane, run = close_lane(lane, "idle")
        enrichment = self._enrich(run, settings, self.current_seq) if run else None
        self.set_lane(session_id, lane)
        if run is not None:
            self._commit_run(run, enrichment, self.current_seq)
        return True

    def _judge_next(
        self, session_id: str, lane: Lane, settings: FoldSettings, at_seq: int, is_settled: bool
    ) -> bool:
        """Judge the lane's first pending event, with effect at `at_seq`. Returns False, or raises
        Deferred, where no verdict is possible yet; nothing has changed then."""
        answer = self._decide_break(lane, settings, at_seq, is_settled)
        if answer is None:
            return False
        new_decisions = list(answer.new_decisions)
        if answer.is_costly:
            self._commit_answer(new_decisions)
            new_decisions = []
        if any(decision.kind == "vector_given_up" for decision in new_decisions):
            turn = lane.pending_turns[0]
            turn = replace(turn, vector_given_up=turn.vector is None)
            lane = replace(lane, pending_turns=(turn, *lane.pending_turns[1:]))
        lane, run = judge_next(lane, settings.rules, breaks=answer.ends_topic)
        enrichment = self._enrich(run, settings, at_seq) if run else None
        self.current_seq = at_seq
        self.pending_decisions += new_decisions
        self.set_lane(session_id, lane)
        if run is not None:
            self._commit_run(run, enrichment, at_seq)
        return True

    def _decide_break(
        self, lane: Lane, settings: FoldSettings, at_seq: int, is_settled: bool
    ) -> BreakAnswer | None:
        """Call `_find_break`. Where it fails and would fail again on the same data, decide that the
        topic continues."""
        try:
            return self._find_break(lane, settings, at_seq, is_settled)
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            self._log_failure("message not judged", error)
            body = {
                "continues": True,
                "by": "failure",
                "fell_back": FOLD_FAILED,
                "error": type(error).__name__,
            }
            decision = Decision(lane.pending_turns[0].event_id, "continues", 0, at_seq, body)
            return BreakAnswer(False, [decision])

    def _log_failure(self, message: str, error: Exception) -> None:
        """Log a failure without the error's own text, which may quote memory."""
        log_fields = {"scopes": [self.state.scope_id], "error": type(error).__name__}
        self.worker.tally.counters["HeuristicFailures"] += 1
        logger.warning(message, extra=log_fields)

    def _commit_answer(self, new_decisions: Sequence[Decision]) -> None:
        """Commit the decisions that came from a model's answer, without the effects on the event
        they are about."""
        later_decisions = [
            decision for decision in self.pending_decisions if decision.at_seq > self.current_seq
        ]
        self.pending_decisions = [
            *(
                decision
                for decision in self.pending_decisions
                if decision.at_seq <= self.current_seq
            ),
            *new_decisions,
        ]
        self.commit()
        self.pending_decisions = later_decisions

    def _settings_for(self, event: LoggedTurn) -> FoldSettings:
        """The settings for an event: as decided, or else the current ones, which are then recorded
        as a decision."""
        is_settled = event.seq <= self.state.settled_seq
        decision = self.stored_decisions.get((event.event_id, "settings"))
        if decision is not None:
            self.settings = FoldSettings.model_validate(decision.body)
        elif self.settings is None or not is_settled:
            current_settings = self._current_settings()
            if current_settings != self.settings:
                self._decide_settings(to_turn(event), current_settings, is_settled)
            self.settings = current_settings
        return self.settings

    def _decide_settings(self, turn: Turn, settings: FoldSettings, is_settled: bool) -> None:
        """Record that these settings hold from this event on, unless that is recorded already."""
        decision = Decision(
            turn.event_id, "settings", 0, turn.seq, settings.model_dump(mode="json")
        )
        is_known = (
            turn.event_id,
            "settings",
        ) in self.stored_decisions or decision in self.pending_decisions
        if not is_settled and not is_known:
            self.pending_decisions.append(decision)

    def _current_settings(self) -> FoldSettings:
        return FoldSettings.from_tuning(self.worker.embedder.space, self.tuning)

    def _find_break(
        self, lane: Lane, settings: FoldSettings, at_seq: int, is_settled: bool
    ) -> BreakAnswer | None:
        """Find out whether the topic ends before the lane's first pending event; None where that is
        not known yet. `is_settled`: it was decided before."""
        turn = lane.pending_turns[0]
        decision = self.stored_decisions.get((turn.event_id, "continues"))
        if decision is not None or is_settled:
            return BreakAnswer(decision is not None and not decision.body["continues"])
        comparison = compare_topic(lane, settings.rules)
        verdict, give_ups = comparison.verdict, list[Decision]()
        if comparison.cosine is not None:
            self.worker.tally.cosines.append(round(comparison.cosine, 4))
        if verdict is TopicVerdict.WAIT:
            give_ups = self._give_up_vectors(lane, at_seq, timedelta(hours=settings.vector_hours))
            if not give_ups:
                return None
            verdict = TopicVerdict.BLIND
        if verdict in _VERDICT_METRICS:
            self.worker.tally.counters[_VERDICT_METRICS[verdict]] += 1
        if verdict is TopicVerdict.GRAY:
            return self._ask_model(lane, settings, at_seq, comparison.cosine)
        if verdict is TopicVerdict.BREAK:
            body = {"continues": False, "by": "cosine", "cosine": comparison.cosine}
            return BreakAnswer(True, [Decision(turn.event_id, "continues", 0, at_seq, body)])
        return BreakAnswer(False, give_ups)

    def _give_up_vectors(self, lane: Lane, at_seq: int, patience: timedelta) -> list[Decision]:
        """Give up on the missing vectors if they are overdue; an empty list while at least one of
        them may still come."""
        assert lane.last_user_turn is not None, "only a comparison of two user messages waits"
        turns = lane.last_user_turn, lane.pending_turns[0]
        missing_turns = [turn for turn in turns if turn.vector is None and not turn.vector_given_up]
        if any(self.now - turn.recorded_at < patience for turn in missing_turns):
            return []
        return [_make_give_up(turn, at_seq, "late") for turn in missing_turns]

    def _ask_model(
        self, lane: Lane, settings: FoldSettings, at_seq: int, cosine: float | None
    ) -> BreakAnswer:
        worker, access, state = self.worker, self.access, self.state
        task = make_task_context(worker, access, state.scope_id, state.participants)
        before = [turn.event_id for turn in lane.open_turns]
        message, *after = [
            turn.event_id for turn in lane.pending_turns[: settings.ahead_events + 1]
        ]
        waits_for_model = self.now - lane.pending_turns[-1].recorded_at < self._model_patience
        result = ask_if_topic_continues(
            worker,
            access,
            task,
            before,
            message,
            after,
            self.event_cache,
            waits_for_model=waits_for_model,
        )
        if result is None:  # erased meanwhile
            raise ConcurrentUpdate
        body = {
            "continues": result.value.continues,
            "by": "model",
            "cosine": cosine,
            "model": result.model,
            "prompt": result.prompt,
            "fell_back": result.fallback_reason,
        }
        decision = Decision(message, "continues", 0, at_seq, body)
        is_costly = result.model != HeuristicModel.name or result.fallback_reason is not None
        return BreakAnswer(not result.value.continues, [decision], is_costly)

    def _apply_scheduled(self) -> bool:
        """Apply the stored decisions that take effect at the current seq, except those that have
        taken effect already. Returns False, or raises Deferred, where something is left for later.
        """
        for decision in self.decisions_by_seq.get(self.current_seq, ()):
            self.worker.require_time()
            if decision.kind == "reformed":
                self._replay_reformed(decision)
                continue
            last = self._get_lane(decision.body["session"]).last_turn
            if last is None or last.event_id != decision.event_id:
                continue
            assert self.settings is not None, "open events were folded under some settings"
            is_settled = (
                decision.event_id,
                "formed",
            ) in self.stored_decisions or self.current_seq < self.state.settled_seq
            if not self._close_idle_lane(decision.body["session"], self.settings, is_settled):
                return False
        return True

    def _replay_reformed(self, decision: Decision) -> None:
        """In a replay, apply a stored `reformed` decision again."""
        chain_id, version = UUID(decision.body["chain_id"]), decision.body["version"]
        head = store.read_head(self.access, chain_id)
        if head is None or head.version != version - 1:
            return
        content = ChainContent.model_validate(decision.body["formed"])
        vector = embed_summary(self.worker, content, waits_for_model=True)
        self.commit(revision=ChainRevision(chain_id, version, RunEnrichment(content, vector)))

    def _commit_run(self, run: TopicRun, enrichment: RunEnrichment | None, at_seq: int) -> None:
        """Commit a closed run. If the database permanently rejects its newly decided content,
        commit a placeholder instead. Raises ConcurrentUpdate."""
        try:
            self.commit(run, enrichment)
        except Exception as error:
            if enrichment is None or not enrichment.is_new or not is_permanent_failure(error):
                raise
            last = run.turns[-1].event_id
            self.pending_decisions = [
                decision
                for decision in self.pending_decisions
                if (decision.event_id, decision.kind) != (last, "formed")
            ]
            self.commit(run, self._make_placeholder(run, at_seq, error))

    def _make_placeholder(self, run: TopicRun, at_seq: int, error: Exception) -> RunEnrichment:
        """Record a placeholder as the run's content."""
        self._log_failure("run not summarised", error)
        content = make_placeholder_content(self.now, len(run.turns), error)
        self._decide_formed(run, content, at_seq)
        return RunEnrichment(content, None, is_new=True)

    def _decide_formed(self, run: TopicRun, content: ChainContent, at_seq: int) -> None:
        body = content.model_dump(mode="json")
        self.pending_decisions.append(Decision(run.turns[-1].event_id, "formed", 0, at_seq, body))

    def commit(
        self,
        run: TopicRun | None = None,
        enrichment: RunEnrichment | None = None,
        revision: ChainRevision | None = None,
    ) -> None:
        """Commit everything since the last commit, and with it a closed run or a chain's new
        version, in one transaction. Raises ConcurrentUpdate; then nothing was committed."""
        has_changes = (
            self.current_seq > self.committed_seq or self.changed_lanes or self.pending_decisions
        )
        if run is None and revision is None and not has_changes:
            return
        with self.access.transaction():
            self._advance_scope()
            if run and enrichment:
                write_run(self, run, enrichment)
            if revision:
                write_revision(self, revision)
            open_rows, closed_sessions = self._changed_rows()
            store_lanes.save_lanes(
                self.access,
                self.state.scope_id,
                self.state.participants,
                open_rows,
                closed_sessions,
            )
            store_work.renew_lease(self.access, self.state.scope_id)
        self.worker.renew()
        self.worker.llm.store_call_records(self.access)
        self.worker.tally.counters["EventsFolded"] += self.current_seq - self.committed_seq
        self.fold_no, self.committed_seq = self.fold_no + 1, self.current_seq
        self.changed_lanes.clear()
        self.pending_decisions.clear()

    def _advance_scope(self) -> None:
        """Move the scope's `folded_seq` and store the pending decisions; inside a transaction."""
        if not store_lanes.advance_fold(
            self.access, self.state.scope_id, self.fold_no, self.current_seq
        ):
            raise ConcurrentUpdate
        store_decisions.add_decisions(
            self.access, self.state.scope_id, self.state.participants, self.pending_decisions
        )
        record_topic_fallback(self, self.pending_decisions)

    def _enrich(self, run: TopicRun, settings: FoldSettings, at_seq: int) -> RunEnrichment | None:
        """The run's content: as it was decided, or decided now with effect at `at_seq`. None where
        all events of the run were erased. Raises Deferred."""
        last = run.turns[-1].event_id
        decision = self.stored_decisions.get((last, "formed"))
        if decision is not None:
            content = ChainContent.model_validate(decision.body)
            return RunEnrichment(content, embed_summary(self.worker, content, waits_for_model=True))
        task = make_task_context(
            self.worker, self.access, self.state.scope_id, self.state.participants
        )
        event_ids = [turn.event_id for turn in run.turns]
        patience = self._model_patience
        worker, access = self.worker, self.access
        try:
            enrichment = enrich_run(
                worker,
                access,
                task,
                settings,
                event_ids,
                self.now,
                patience=patience,
                may_merge=True,
            )
        except Exception as error:
            if not is_permanent_failure(error):
                raise
            return self._make_placeholder(run, at_seq, error)
        if enrichment is not None:
            self._decide_formed(run, enrichment.content, at_seq)
        return enrichment

    @property
    def _model_patience(self) -> timedelta:
        return timedelta(minutes=self.tuning.model_patience_minutes)

    def set_lane(self, session_id: str, lane: Lane) -> None:
        """Replace a lane's state, to be saved by the next commit."""
        self.lanes[session_id] = lane
        self.changed_lanes.add(session_id)

    def _changed_rows(self) -> tuple[list[LaneRow], list[str]]:
        open_rows: list[LaneRow] = []
        closed_sessions: list[str] = []
        for session_id in sorted(self.changed_lanes):
            lane = self.lanes[session_id]
            if lane.last_turn and self.settings:
                open_rows.append(to_lane_row(session_id, lane, self.settings.rules))
            else:
                closed_sessions.append(session_id)
        return open_rows, closed_sessions


def _make_give_up(turn: Turn, at_seq: int, reason: str) -> Decision:
    return Decision(turn.event_id, "vector_given_up", 0, at_seq, {"why": reason})


def load_fold(
    worker: Worker, access: TenantDb, state: FoldState, turns: Sequence[LoggedTurn], now: datetime
) -> Fold:
    """Load the fold's state for a scope, ready for `turns`, its next events."""
    last_seq = turns[-1].seq if turns else state.folded_seq
    stored_decisions = store_decisions.list_between(
        access, state.scope_id, state.folded_seq, last_seq
    )
    decisions_by_seq: dict[int, list[Decision]] = {}
    for item in sorted(
        (decision for decision in stored_decisions if decision.kind in ("idle", "reformed")),
        key=lambda decision: (decision.body["fold"], decision.body["place"]),
    ):
        decisions_by_seq.setdefault(item.at_seq, []).append(item)
    sessions = {turn.session_id for turn in turns}
    sessions |= {
        decision.body["session"] for decision in stored_decisions if decision.kind == "idle"
    }
    open_lanes = read_lanes(access, state.scope_id, worker.embedder.space, sorted(sessions))
    # Decisions about open events may have taken effect at a lower seq: under a release or a tuning
    # that did not wait for later events, before an awaited event was erased, or at a retry.
    open_event_ids = [
        turn.event_id
        for item in open_lanes.values()
        for turn in (*item.open_turns, *item.pending_turns)
    ]
    stored_decisions = [
        *stored_decisions,
        *store_decisions.list_about(
            access, state.scope_id, open_event_ids, ("continues", "formed")
        ),
    ]
    return Fold(
        worker,
        access,
        state,
        now,
        stored_decisions={
            (decision.event_id, decision.kind): decision for decision in stored_decisions
        },
        decisions_by_seq=decisions_by_seq,
        lanes=open_lanes,
        tuning=worker.tuning.with_overrides(state.tuning),
        settings=FoldSettings.model_validate(state.settings) if state.settings else None,
        fold_no=state.fold_no,
        current_seq=state.folded_seq,
        committed_seq=state.folded_seq,
    )
