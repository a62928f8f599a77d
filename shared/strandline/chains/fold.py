"""One scope's fold: events into lanes, lanes into chains, each step committed by compare-and-swap.

Up to `settled_seq` all is decided: a replay asks nobody, compares nothing, and goes by what was
stored. Past it the fold decides, and its decisions commit with what they led to, or, where a model
was asked whether a topic goes on, before: what was answered is not asked again. The kinds of
decisions:

- `settings`: what is folded by from this event on;
- `continues`: whether the topic goes on at this user message, where it broke or somebody was asked,
  when what it waited for had come, or where judging it failed and would fail again (it goes on);
- `vector_given_up`: this user message is compared with nothing;
- `formed`: what the run that ends here says, and which chain it became part of; where that failed
  and would fail again, that it is there, until a retry says more (`reformed`);
- `idle`: nobody spoke in this lane after this event, until the scope's mark was `at_seq`;
- `reformed`: what a chain, whose last event this is, says since then.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from strandline.chains import store, store_decisions, store_lanes
from strandline.chains.enrichment import (
    FOLD_FAILED,
    Enriched,
    Formed,
    Settings,
    ask_continues,
    enrich,
    formed_without_model,
    task_of,
)
from strandline.chains.enrichment import vector_of as vector_of_summary
from strandline.chains.open_lanes import as_turn, kept, read_lanes
from strandline.chains.segmentation import Lane, Run, Turn, Verdict, close, compare, silent, step
from strandline.chains.store_decisions import Decision
from strandline.chains.store_lanes import Kept, LoggedTurn, Mark
from strandline.chains.versions import Again, note_unsure, write_again, write_run
from strandline.db.database import Access
from strandline.failures import recurs
from strandline.jobs.context import NotYet, Overtaken, Worker
from strandline.llm.heuristic.model import Twin
from strandline.llm.types import Said
from strandline.log import store_work
from strandline.observability import logger
from strandline.tuning import Tuning

_GATES = {
    Verdict.BREAK: "GateBreak",
    Verdict.GRAY: "GateGray",
    Verdict.CONTINUE: "GateContinue",
}
"""The metrics that count comparisons."""


@dataclass(frozen=True)
class Answer:
    """Whether the topic ends before an event, and what was decided to know it."""

    breaks: bool
    decided: Sequence[Decision] = ()
    dear: bool = False
    """A model was asked: its answer is kept before anything is made of it, which may have to wait.
    The twin says the same again for nothing."""


@dataclass
class Fold:
    """A scope being folded: what was read of it, and what is not committed yet."""

    worker: Worker
    access: Access
    mark: Mark
    now: datetime
    known: Mapping[tuple[UUID, str], Decision]
    """Decided before, by event and kind."""
    marks: Mapping[int, Sequence[Decision]]
    """Of these what takes effect between two events, by the scope's mark, in order."""
    lanes: dict[str, Lane]
    tuning: Tuning
    settings: Settings | None
    """What was decided last to fold by."""
    fold_no: int
    at: int
    """The seq up to which is folded, committed or not."""
    touched: set[str] = field(default_factory=set[str])
    decided: list[Decision] = field(default_factory=list[Decision])
    said: dict[UUID, Said] = field(default_factory=dict[UUID, Said])
    """Texts that were read to ask whether a topic goes on."""
    committed: int = 0
    """`at`, as it is in the database."""

    def go(self, turns: Sequence[LoggedTurn]) -> bool:
        """Fold these events; False where one has to wait for a vector or a model. Commits each
        closed run, and the rest in the end. Raises Overtaken."""
        wait = None
        try:
            through = self._apply_marks()
            for turn in turns:
                if not through or self.worker.out_of_time():
                    break
                through = self._take(turn) and self._apply_marks()
        except NotYet as not_yet:
            through, wait = False, not_yet
        self.decided = [one for one in self.decided if one.at_seq <= self.at]
        self.commit()
        if wait is not None:
            self.worker.tally.waits[self.mark.scope_id] = wait
            self.worker.reasoner.flush(self.access)  # asked for nothing, and paid for
        return through

    def _take(self, logged: LoggedTurn) -> bool:
        """Fold one event, and judge what waited for it; False, or NotYet raised, where that has to
        wait: then the event is not folded."""
        if logged.erased:
            self.at = logged.seq
            return True
        turn, settled = as_turn(logged), logged.seq <= self.mark.settled_seq
        settings = self._settings_at(logged)
        if logged.refused and not logged.decided and not settled and turn.asks:
            self.decided.append(_give_up(turn, turn.seq, "refused"))
        lane = self._lane(turn.session_id)
        gap = silent(lane, turn, settings.rules)
        most = 0 if gap else settings.ahead_events
        if len(lane.ahead) > most:
            # Committed before this event is: whoever takes it again must go by the same settings.
            self._decide_settings(turn, settings, settled)
            if not self._judge_down_to(most, turn.session_id, settings, settled):
                return False
        if gap:
            self._begin_anew(turn, settings)
            return True
        lane = self._lane(turn.session_id).joined(turn)
        if len(lane.ahead) > most:
            return self._judge(turn.session_id, lane, settings, turn.seq, settled)
        self.at = turn.seq
        self.keep(turn.session_id, lane)
        return True

    def _lane(self, session_id: str) -> Lane:
        return self.lanes.get(session_id, Lane())

    def _judge_down_to(self, most: int, session_id: str, settings: Settings, settled: bool) -> bool:
        """Judge all but so many of a lane's events, where the scope's mark is; False, or NotYet
        raised, where that has to wait: what is done by then stays done, and is not done again."""
        while len((lane := self._lane(session_id)).ahead) > most:
            self.worker.require()
            if not self._judge(session_id, lane, settings, self.at, settled):
                return False
            if not self._apply_marks():
                return False
        return True

    def _begin_anew(self, turn: Turn, settings: Settings) -> None:
        """Close a lane, all of which is judged, before an event that comes after a silence."""
        lane, run = close(self._lane(turn.session_id), "gap")
        enriched = self._enriched(run, settings, turn.seq) if run else None
        lane = lane.joined(turn)
        if not settings.ahead_events:
            lane, _ = step(lane, settings.rules, breaks=False)
        self.at = turn.seq
        self.keep(turn.session_id, lane)
        if run is not None:
            self._commit_run(run, enriched, self.at)

    def _close_idle(self, session_id: str, settings: Settings, settled: bool) -> bool:
        """Judge and close a lane in which nobody spoke; False where that has to wait."""
        while (lane := self._lane(session_id)).ahead:
            self.worker.require()
            if not self._judge(session_id, lane, settings, self.at, settled):
                return False
        lane, run = close(lane, "idle")
        enriched = self._enriched(run, settings, self.at) if run else None
        self.keep(session_id, lane)
        if run is not None:
            self._commit_run(run, enriched, self.at)
        return True

    def _judge(
        self, session_id: str, lane: Lane, settings: Settings, at_seq: int, settled: bool
    ) -> bool:
        """Put the lane's first event that is not judged into its topic, at the mark `at_seq`.
        False, or NotYet raised, where nobody can say yet which it is: then nothing has changed."""
        answer = self._answer(lane, settings, at_seq, settled)
        if answer is None:
            return False
        decided = list(answer.decided)
        if answer.dear:
            self._keep_answer(decided)
            decided = []
        if any(one.kind == "vector_given_up" for one in decided):
            turn = lane.ahead[0]
            turn = replace(turn, given_up=turn.vector is None)
            lane = replace(lane, ahead=(turn, *lane.ahead[1:]))
        lane, run = step(lane, settings.rules, breaks=answer.breaks)
        enriched = self._enriched(run, settings, at_seq) if run else None
        self.at = at_seq
        self.decided += decided
        self.keep(session_id, lane)
        if run is not None:
            self._commit_run(run, enriched, at_seq)
        return True

    def _answer(self, lane: Lane, settings: Settings, at_seq: int, settled: bool) -> Answer | None:
        """As `_ends` says; where that fails on what is stored, and would again, the topic goes on,
        which is a decision like any other."""
        try:
            return self._ends(lane, settings, at_seq, settled)
        except Exception as error:
            if not recurs(error):
                raise
            self._log_failure("message not judged", error)
            body = {
                "continues": True,
                "by": "failure",
                "fell_back": FOLD_FAILED,
                "error": type(error).__name__,
            }
            decision = Decision(lane.ahead[0].event_id, "continues", 0, at_seq, body)
            return Answer(False, [decision])

    def _log_failure(self, message: str, error: Exception) -> None:
        """Without the error's own words: they may quote memory."""
        shown = {"scopes": [self.mark.scope_id], "error": type(error).__name__}
        self.worker.tally.counts["HeuristicFailures"] += 1
        logger.warning(message, extra=shown)

    def _keep_answer(self, decided: Sequence[Decision]) -> None:
        """Commit what a model answered, and nothing else of the event that it is asked for."""
        later = [one for one in self.decided if one.at_seq > self.at]
        self.decided = [*(one for one in self.decided if one.at_seq <= self.at), *decided]
        self.commit()
        self.decided = later

    def _settings_at(self, turn: LoggedTurn) -> Settings:
        """What an event is folded by: as decided, or as it is now, which is then decided."""
        settled = turn.seq <= self.mark.settled_seq
        found = self.known.get((turn.event_id, "settings"))
        if found is not None:
            self.settings = Settings.model_validate(found.body)
        elif self.settings is None or not settled:
            now = self._settings_now()
            if now != self.settings:
                self._decide_settings(as_turn(turn), now, settled)
            self.settings = now
        return self.settings

    def _decide_settings(self, turn: Turn, settings: Settings, settled: bool) -> None:
        """That an event is folded by these, unless that is decided."""
        decision = Decision(
            turn.event_id, "settings", 0, turn.seq, settings.model_dump(mode="json")
        )
        known = (turn.event_id, "settings") in self.known or decision in self.decided
        if not settled and not known:
            self.decided.append(decision)

    def _settings_now(self) -> Settings:
        return Settings.of(self.worker.embedder.space, self.tuning)

    def _ends(self, lane: Lane, settings: Settings, at_seq: int, settled: bool) -> Answer | None:
        """Whether the topic ends before the lane's first event that is not judged; None: nobody can
        say yet. `settled`: it was decided before."""
        turn = lane.ahead[0]
        found = self.known.get((turn.event_id, "continues"))
        if found is not None or settled:
            return Answer(found is not None and not found.body["continues"])
        compared = compare(lane, settings.rules)
        verdict, given_up = compared.verdict, list[Decision]()
        if compared.cosine is not None:
            self.worker.tally.cosines.append(round(compared.cosine, 4))
        if verdict is Verdict.WAIT:
            given_up = self._given_up(lane, at_seq, timedelta(hours=settings.vector_hours))
            if not given_up:
                return None
            verdict = Verdict.BLIND
        if verdict in _GATES:
            self.worker.tally.counts[_GATES[verdict]] += 1
        if verdict is Verdict.GRAY:
            return self._ask(lane, settings, at_seq, compared.cosine)
        if verdict is Verdict.BREAK:
            body = {"continues": False, "by": "cosine", "cosine": compared.cosine}
            return Answer(True, [Decision(turn.event_id, "continues", 0, at_seq, body)])
        return Answer(False, given_up)

    def _given_up(self, lane: Lane, at_seq: int, patience: timedelta) -> list[Decision]:
        """That whatever is missing is not waited for any longer; nothing while it is."""
        assert lane.user is not None, "who has nobody to be compared with does not wait"
        both = lane.user, lane.ahead[0]
        missing = [one for one in both if one.vector is None and not one.given_up]
        if any(self.now - one.recorded_at < patience for one in missing):
            return []
        return [_give_up(one, at_seq, "late") for one in missing]

    def _ask(self, lane: Lane, settings: Settings, at_seq: int, cosine: float | None) -> Answer:
        worker, access, mark = self.worker, self.access, self.mark
        task = task_of(worker, access, mark.scope_id, mark.participants)
        before = [one.event_id for one in lane.open]
        message, *after = [one.event_id for one in lane.ahead[: settings.ahead_events + 1]]
        patient = self.now - lane.ahead[-1].recorded_at < self._patience
        done = ask_continues(
            worker, access, task, before, message, after, self.said, patient=patient
        )
        if done is None:  # erased meanwhile
            raise Overtaken
        body = {
            "continues": done.value.continues,
            "by": "model",
            "cosine": cosine,
            "model": done.model,
            "prompt": done.prompt,
            "fell_back": done.fell_back,
        }
        decision = Decision(message, "continues", 0, at_seq, body)
        dear = done.model != Twin.name or done.fell_back is not None
        return Answer(not done.value.continues, [decision], dear)

    def _apply_marks(self) -> bool:
        """What was decided to happen where the scope is folded up to now; what has happened already
        does not again. False, or NotYet raised, where something of it is left for another time."""
        for mark in self.marks.get(self.at, ()):
            self.worker.require()
            if mark.kind == "reformed":
                self._reform(mark)
                continue
            last = self._lane(mark.body["session"]).last
            if last is None or last.event_id != mark.event_id:
                continue
            assert self.settings is not None, "what is open was folded by some"
            done = (mark.event_id, "formed") in self.known or self.at < self.mark.settled_seq
            if not self._close_idle(mark.body["session"], self.settings, done):
                return False
        return True

    def _reform(self, mark: Decision) -> None:
        """Say again what was decided to be said instead, in a replay."""
        chain_id, version = UUID(mark.body["chain_id"]), mark.body["version"]
        head = store.head(self.access, chain_id)
        if head is None or head.version != version - 1:
            return
        formed = Formed.model_validate(mark.body["formed"])
        vector = vector_of_summary(self.worker, formed, patient=True)
        self.commit(again=Again(chain_id, version, Enriched(formed, vector)))

    def _commit_run(self, run: Run, enriched: Enriched | None, at_seq: int) -> None:
        """Commit a closed run; where the database does not take what was just said of it, as what
        needs nobody to say it. Raises Overtaken."""
        try:
            self.commit(run, enriched)
        except Exception as error:
            if enriched is None or not enriched.fresh or not recurs(error):
                raise
            last = run.turns[-1].event_id
            self.decided = [
                one for one in self.decided if (one.event_id, one.kind) != (last, "formed")
            ]
            self.commit(run, self._formed_without_model(run, at_seq, error))

    def _formed_without_model(self, run: Run, at_seq: int, error: Exception) -> Enriched:
        """Decide of a run that it is there, and nothing else."""
        self._log_failure("run not summarised", error)
        formed = formed_without_model(self.now, len(run.turns), error)
        self._decide_formed(run, formed, at_seq)
        return Enriched(formed, None, fresh=True)

    def _decide_formed(self, run: Run, formed: Formed, at_seq: int) -> None:
        body = formed.model_dump(mode="json")
        self.decided.append(Decision(run.turns[-1].event_id, "formed", 0, at_seq, body))

    def commit(
        self,
        run: Run | None = None,
        enriched: Enriched | None = None,
        again: Again | None = None,
    ) -> None:
        """Everything since the last commit, and the run that closed, in one transaction. Raises
        Overtaken, and then nothing was."""
        moved = self.at > self.committed or self.touched or self.decided
        if run is None and again is None and not moved:
            return
        with self.access.transaction():
            self._swap()
            if run and enriched:
                write_run(self, run, enriched)
            if again:
                write_again(self, again)
            still, closed = self._lanes()
            store_lanes.keep(self.access, self.mark.scope_id, self.mark.participants, still, closed)
            store_work.go_on(self.access, self.mark.scope_id)
        self.worker.renew()
        self.worker.reasoner.flush(self.access)
        self.worker.tally.counts["EventsFolded"] += self.at - self.committed
        self.fold_no, self.committed = self.fold_no + 1, self.at
        self.touched.clear()
        self.decided.clear()

    def _swap(self) -> None:
        """Move the scope's mark and keep what was decided on the way, inside a transaction."""
        if not store_lanes.swap(self.access, self.mark.scope_id, self.fold_no, self.at):
            raise Overtaken
        store_decisions.add(self.access, self.mark.scope_id, self.mark.participants, self.decided)
        note_unsure(self, self.decided)

    def _enriched(self, run: Run, settings: Settings, at_seq: int) -> Enriched | None:
        """What a run says: as it was decided, or decided now, for the mark to move to `at_seq`.
        Raises NotYet."""
        last = run.turns[-1].event_id
        found = self.known.get((last, "formed"))
        if found is not None:
            formed = Formed.model_validate(found.body)
            return Enriched(formed, vector_of_summary(self.worker, formed, patient=True))
        task = task_of(self.worker, self.access, self.mark.scope_id, self.mark.participants)
        ids = [turn.event_id for turn in run.turns]
        patience = self._patience
        worker, access = self.worker, self.access
        try:
            made = enrich(
                worker, access, task, settings, ids, self.now, patience=patience, merge=True
            )
        except Exception as error:
            if not recurs(error):
                raise
            return self._formed_without_model(run, at_seq, error)
        if made is not None:
            self._decide_formed(run, made.formed, at_seq)
        return made

    @property
    def _patience(self) -> timedelta:
        return timedelta(minutes=self.tuning.model_patience_minutes)

    def keep(self, session_id: str, lane: Lane) -> None:
        """A lane as it is from now on."""
        self.lanes[session_id] = lane
        self.touched.add(session_id)

    def _lanes(self) -> tuple[list[Kept], list[str]]:
        still: list[Kept] = []
        closed: list[str] = []
        for session_id in sorted(self.touched):
            lane = self.lanes[session_id]
            if lane.last and self.settings:
                still.append(kept(session_id, lane, self.settings.rules))
            else:
                closed.append(session_id)
        return still, closed


def _give_up(turn: Turn, at_seq: int, why: str) -> Decision:
    return Decision(turn.event_id, "vector_given_up", 0, at_seq, {"why": why})


def read(
    worker: Worker, access: Access, mark: Mark, turns: Sequence[LoggedTurn], now: datetime
) -> Fold:
    """A scope's fold as it stands, ready for these events, its next ones."""
    last = turns[-1].seq if turns else mark.folded_seq
    found = store_decisions.between(access, mark.scope_id, mark.folded_seq, last)
    marks: dict[int, list[Decision]] = {}
    for one in sorted(
        (d for d in found if d.kind in ("idle", "reformed")),
        key=lambda d: (d.body["fold"], d.body["place"]),
    ):
        marks.setdefault(one.at_seq, []).append(one)
    sessions = {turn.session_id for turn in turns}
    sessions |= {d.body["session"] for d in found if d.kind == "idle"}
    open_lanes = read_lanes(access, mark.scope_id, worker.embedder.space, sorted(sessions))
    # What is open may have been decided about at an earlier mark: before the release or the tuning
    # that has it wait, before an event it waited for was erased, or at a retry.
    still = [turn.event_id for one in open_lanes.values() for turn in (*one.open, *one.ahead)]
    found = [*found, *store_decisions.about(access, mark.scope_id, still, ("continues", "formed"))]
    return Fold(
        worker,
        access,
        mark,
        now,
        known={(d.event_id, d.kind): d for d in found},
        marks=marks,
        lanes=open_lanes,
        tuning=worker.tuning.with_overrides(mark.tuning),
        settings=Settings.model_validate(mark.settings) if mark.settings else None,
        fold_no=mark.fold_no,
        at=mark.folded_seq,
        committed=mark.folded_seq,
    )
