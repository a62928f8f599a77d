"""Conversations whose topics people have marked, as the fold sees them, with real vectors.

`tests/bench/corpus/talks.jsonl` was written for this: eight short conversations of 34 topics, at
work and at home, with each topic's names. Weights are fitted to it, to events/demo and to the files
beside it; those in tests/bench/corpus/unseen tell how good the weights are elsewhere.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from strandline.chains import quality
from strandline.chains.segmentation import (
    Lane,
    LaneEvent,
    SegmentationRules,
    TopicRun,
    read_workflow_ids,
)
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.similarity_thresholds import Thresholds
from strandline.llm.heuristic.model import HeuristicModel
from strandline.llm.types import PromptEvent
from strandline.log import indexed_text
from strandline.tuning import DEFAULTS
from tests.bench import conversations
from tests.bench.locomo import Conversation
from tests.bench.scores import ChainKeys, Expected
from tests.lanes import finish, segment

_FOLDER = Path(__file__).parent / "corpus"
CORPUS = _FOLDER / "talks.jsonl"
DEMO = Path(__file__).parents[2] / "events" / "demo"
LEARNING_SET = tuple(path for path in sorted(_FOLDER.glob("*.jsonl")) if path != CORPUS)
"""Conversations, each written as docs/annotation.md asks."""
FITTING_SET = (DEMO, CORPUS, *LEARNING_SET)
"""What the heuristic model's weights were fitted to, and its rules mended by."""
UNSEEN_SET = tuple(sorted(_FOLDER.glob("unseen/*.jsonl")))
"""What nobody looked at who did so."""
SHOWN_CHARACTERS = 4000
"""Characters of a text that models are shown, as the worker cuts payloads."""
GAP_MINUTES = DEFAULTS.gap_minutes
_EMBED_SECONDS = 300.0


class Event(NamedTuple):
    """An event, and what the fold reads of it."""

    key: str
    scope: tuple[str, ...]
    turn: LaneEvent
    prompt: PromptEvent
    trait: quality.EventDensityTraits


@dataclass(frozen=True)
class Talk:
    """A conversation and what is expected of its chains."""

    name: str
    events: Sequence[Event]
    expected: Expected


def read(path: Path) -> Talk:
    """A conversation's file, or a folder like events/demo."""
    conversation = conversations.read(path)
    return Talk(conversation.name, _events(conversation.events), conversation.expected)


def of_locomo(conversation: Conversation, *, one_lane: bool) -> Talk:
    """A LoCoMo conversation whose topics are its sessions. In `one_lane` they run into each other
    without a pause, half a minute from turn to turn: neither lanes nor gaps give them away."""
    first = conversation.turns[0].said_at
    rows: list[dict[str, Any]] = []
    starts: list[str] = []
    for place, turn in enumerate(conversation.turns):
        if not place or turn.session != conversation.turns[place - 1].session:
            starts.append(turn.key)
        said_at = first + timedelta(seconds=30 * place) if one_lane else turn.said_at
        rows.append(
            {
                "source_event_key": turn.key,
                "session_id": "all" if one_lane else turn.session,
                "participants": sorted(f"user:{name}" for name in conversation.speakers),
                "speaker": f"user:{turn.speaker}",
                "role": "user",
                "content": turn.text,
                "occurred_at": said_at.isoformat(),
            }
        )
    lanes: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        lanes[row["session_id"]].append(row["source_event_key"])
    return Talk(conversation.name, _events(rows), Expected(lanes, frozenset(starts), {}))


def _events(rows: Sequence[dict[str, Any]]) -> list[Event]:
    return [_event(number, row) for number, row in enumerate(rows, 1)]


def _event(number: int, row: dict[str, Any]) -> Event:
    said_at = datetime.fromisoformat(row["occurred_at"])
    role, kind = row["role"], row.get("type", "message")
    text: str = row.get("content") or row.get("name") or ""
    metadata: dict[str, Any] = row.get("metadata", {})
    turn = LaneEvent(
        event_id=UUID(int=number),
        seq=number,
        session_id=row["session_id"],
        role=role,
        type=kind,
        said_at=said_at,
        recorded_at=said_at,
        flow_ids=read_workflow_ids(metadata),
    )
    prompt_event = PromptEvent(
        number, row.get("speaker"), role, kind, text[:SHOWN_CHARACTERS], said_at
    )
    trait = quality.EventDensityTraits(kind, role, len(text), len(metadata), "mime_type" in row)
    return Event(row["source_event_key"], tuple(row["participants"]), turn, prompt_event, trait)


def shown_text(event: Event) -> str:
    """What the embedding model is shown of an event, as the worker puts it."""
    return indexed_text.format_event_for_model(
        event.turn.said_at, event.prompt.speaker, event.prompt.text
    )


def vectors(embedder: Embedder, talk: Talk) -> dict[int, list[float]]:
    """A vector of every event, by seq."""
    texts = [shown_text(event) for event in talk.events]
    result = embedder.embed(texts, timeout=_EMBED_SECONDS)
    return {event.turn.seq: vector for event, vector in zip(talk.events, result, strict=True)}


type Ask = Callable[[Sequence[PromptEvent], PromptEvent, Sequence[PromptEvent]], bool]


def _ask_heuristic(
    before: Sequence[PromptEvent], message: PromptEvent, after: Sequence[PromptEvent]
) -> bool:
    return HeuristicModel().continues(before, message, after).continues


class FoldResult(NamedTuple):
    """A talk's runs, and how often somebody was asked."""

    closed: list[TopicRun]
    runs: list[tuple[Event, ...]]
    """Their events."""
    request_count: int


def fold(
    talk: Talk,
    known_values: dict[int, list[float]],
    thresholds: Thresholds,
    ask: Ask = _ask_heuristic,
) -> FoldResult:
    """The talk's runs by the real fold, each lane on its own, with the defaults; nobody speaks
    after its end."""
    events = {event.turn.seq: event for event in talk.events}
    rules = SegmentationRules(
        thresholds.low,
        thresholds.high,
        timedelta(minutes=GAP_MINUTES),
        DEFAULTS.flush_events,
        DEFAULTS.ahead_events,
    )
    request_count = 0

    def continues(lane: Lane) -> bool:
        nonlocal request_count
        request_count += 1
        message, *after = [
            events[one.seq].prompt for one in lane.pending_events[: rules.lookahead + 1]
        ]
        return ask([events[one.seq].prompt for one in lane.open_events], message, after)

    turns = (_with_vector(event.turn, known_values) for event in talk.events)
    closed, lanes = segment(turns, rules, continues)
    closed += finish(lanes, rules, continues)
    return FoldResult(
        closed, [tuple(events[t.seq] for t in run.events) for run in closed], request_count
    )


def _with_vector(turn: LaneEvent, known_values: dict[int, list[float]]) -> LaneEvent:
    return replace(turn, vector=known_values[turn.seq]) if turn.is_user_message else turn


def chains_of(fold_count: FoldResult) -> list[ChainKeys]:
    """The runs with what the heuristic model says they name."""
    heuristic = HeuristicModel()
    return [
        ChainKeys(
            [event.key for event in run],
            [one.name for one in heuristic.entities([event.prompt for event in run]).entities],
        )
        for run in fold_count.runs
    ]
