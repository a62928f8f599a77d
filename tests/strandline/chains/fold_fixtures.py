"""What tests of folding share: conversations by seed, a scripted model, and what came out."""

import hashlib
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from strandline.llm.types import (
    Entities,
    Entity,
    ModelResult,
    PromptEvent,
    RunSummary,
    RunTopic,
    TaskContext,
    TopicContinuation,
)
from tests.support import Gateway, ScratchDatabase

ALICE, HELPER = "user:alice", "agent:helper"
START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
LATER = datetime(2040, 1, 1, tzinfo=UTC)
TOPICS = (
    "harbour mooring berth jetty",
    "sourdough flour oven crust",
    "telescope nebula lens mirror",
    "tax invoice ledger audit",
)
TUNING = {
    "similarity_low": 0.6,
    "similarity_high": 0.8,
    "similarity_merge": 0.9,
    "quality": "permissive",
    "ahead_events": 0,
}
"""Under which conversations give every verdict, by vectors of `WordEmbedder("words/64", 64)`."""


class RandomTasks:
    """A model whose answers are dice, thrown by what it is asked: odd summaries, yes or no at
    random. With `moody` it never answers the same twice, as some models do."""

    has_model = True
    max_run_seconds = 0.0

    def __init__(
        self, *, is_unrepeatable: bool = False, fallback_reason: str | None = None
    ) -> None:
        self.is_unrepeatable = is_unrepeatable
        self.fallback_reason = fallback_reason
        self.calls: list[str] = []

    def continues(
        self,
        task: TaskContext,
        before: Sequence[PromptEvent],
        message: PromptEvent,
        after: Sequence[PromptEvent],
    ) -> ModelResult[TopicContinuation]:
        """Yes, for two in three."""
        rng = self._make_rng(task, "continues", [*before, message, "after", *after])
        return self._make_result("continues", TopicContinuation(continues=rng.random() < 0.66))

    def summarise(
        self, task: TaskContext, events: Sequence[PromptEvent]
    ) -> ModelResult[RunSummary]:
        """Sometimes odd."""
        rng = self._make_rng(task, "summarise", events)
        odd = rng.choice(("\u202e\U0001f30a", "{'summary': null}", "x" * 4000, events[0].text[:50]))
        text = rng.choice((rng.choice(TOPICS), odd or "."))
        return self._make_result("summarise", RunSummary(summary=text, importance=rng.random()))

    def merge(
        self, task: TaskContext, earlier: RunSummary, later: RunSummary
    ) -> ModelResult[RunSummary]:
        """One of them."""
        rng = self._make_rng(task, "merge", [earlier.summary, later.summary])
        choice = rng.choice((earlier, later))
        return self._make_result("merge", choice.model_copy(update={"importance": rng.random()}))

    def topic(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[RunTopic]:
        """A number."""
        return self._make_result(
            "topic", RunTopic(topic=f"no. {self._make_rng(task, 'topic', events).random()}")
        )

    def entities(self, task: TaskContext, events: Sequence[PromptEvent]) -> ModelResult[Entities]:
        """Up to three."""
        rng = self._make_rng(task, "entities", events)
        names = [Entity(name=f"n{rng.randrange(9)}") for _ in range(rng.randrange(4))]
        return self._make_result("entities", Entities(entities=names))

    def store_call_records(self, access: object) -> None:
        """Nothing is recorded."""

    def take_metrics(self) -> dict[str, int]:
        """Nothing is counted."""
        return {}

    def _make_rng(self, task: TaskContext, verb: str, inputs: Sequence[object]) -> random.Random:
        self.calls.append(verb)
        texts = [(s.seq, s.text) if isinstance(s, PromptEvent) else s for s in inputs]
        seed = json.dumps(
            [task.tenant, verb, texts, len(self.calls) if self.is_unrepeatable else 0]
        )
        return random.Random(hashlib.sha256(seed.encode()).digest())

    def _make_result[Value: BaseModel](self, verb: str, value: Value) -> ModelResult[Value]:
        return ModelResult(value, "scripted:1", f"{verb}/1", self.fallback_reason)


class EchoTasks(RandomTasks):
    """A model that says what was said, and finds all of it worth keeping."""

    def summarise(
        self, task: TaskContext, events: Sequence[PromptEvent]
    ) -> ModelResult[RunSummary]:
        """All the words, once each."""
        words = dict.fromkeys(word for event in events for word in event.text.split())
        return self._make_result("summarise", RunSummary(summary=" ".join(words), importance=0.8))


@dataclass
class EventGenerator:
    """Events of a few scopes by seed: sessions interleaved, topics that change, silences, flows,
    long stretches of agents' work, clocks that go back."""

    seed: int
    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def generate(self, scopes: int, count: int) -> list[dict[str, Any]]:
        """The next events; they are kept in `events` too."""
        for _ in range(count):
            self.events.append(self._event(self.rng.randrange(scopes)))
        return self.events[-count:]

    def _event(self, scope: int) -> dict[str, Any]:
        rng, n = self.rng, len(self.events)
        self._clock = getattr(self, "_clock", START) + timedelta(
            minutes=rng.choice((0.2, 0.5, 1, 2, -3, 12)) + (40 if rng.random() < 0.03 else 0)
        )
        lane = rng.choice(("s-1", "s-2", ""))
        if rng.random() < 0.12:
            self._topic[scope, lane] = rng.choice(TOPICS)
        words = self._topic.setdefault((scope, lane), rng.choice(TOPICS)).split()
        role, type_ = rng.choice(
            (("user", "message"), ("user", "message"), ("agent", "message"), ("agent", "action"))
        )
        event: dict[str, Any] = {
            "participants": [ALICE, f"agent:{scope}"],
            "role": role,
            "type": type_,
            "speaker": ALICE if role == "user" else f"agent:{scope}",
            "content": " ".join(rng.choices(words, k=rng.choice((2, 4, 6)))) + f" {n % 5}",
            "occurred_at": self._clock.isoformat(),
            "source_event_key": f"{self.seed}-{n}",
        }
        if lane:
            event["session_id"] = f"{lane}-{scope}"
        if rng.random() < 0.1:
            event["metadata"] = {"workflow_id": f"wf-{rng.randrange(2)}"}
        return event

    @property
    def _topic(self) -> dict[tuple[int, str], str]:
        return self.__dict__.setdefault("_topics", {})


def append(gateway: Gateway, key: str, events: Sequence[dict[str, Any]]) -> list[str]:
    """Append them in one batch; gives their scopes."""
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": list(events)}, key=key)
    assert reply.body["failed"] == 0, reply.text
    return [item["event"]["scope_id"] for item in reply.body["results"]]


def set_tuning(base: ScratchDatabase, **overrides: object) -> None:
    """Every tenant's thresholds."""
    base.rows(
        "update tenants set tuning = %s::jsonb returning 1", json.dumps({**TUNING, **overrides})
    )


_STATE_QUERIES: dict[str, str] = {
    "scopes": "select scope_id, last_seq, folded_seq, max_folded_seq from scopes",
    "chains": "select chain_id, scope_id, session_id, version, status, last_event_at, importance,"
    " density, strength from chains",
    "use": "select chain_id, accessed_at, boosted_at, archived_at from chains",
    "versions": "select to_jsonb(v) - 'content_hash' || jsonb_build_object('hash',"
    " encode(content_hash, 'hex')) from chain_versions v",
    "links": "select event_id, chain_id, seq, since_version from chain_events",
    "vectors": "select chain_id, space, embedding::text from chain_vectors",
    "lanes": "select scope_id, session_id, folded_seq, open from lanes",
    "decisions": "select event_id, kind, attempt, at_seq,"
    " ((body #- '{at}') #- '{formed,at}') - '{fold,place}'::text[] from decisions",
}


def dump_state(base: ScratchDatabase, *parts: str) -> dict[str, list[str]]:
    """All that folding leaves, but for clocks (of `use`) and the number of commits it took."""
    return {
        part: sorted(
            json.dumps(row, default=str, sort_keys=True) for row in base.rows(_STATE_QUERIES[part])
        )
        for part in parts or (name for name in _STATE_QUERIES if name != "use")
    }


def replace_ids(base: ScratchDatabase, dump: dict[str, list[str]]) -> dict[str, list[str]]:
    """The same with each event and chain called by scope and seq instead of by its id, and without
    content hashes, which rest on ids: what two databases with the same log have in common."""
    names = {
        str(event): f"{scope}#{seq}"
        for event, scope, seq in base.rows("select event_id, scope_id, seq from events")
    }
    names |= {
        str(chain): f"chain {scope}#{seq}"
        for chain, scope, seq in base.rows(
            "select distinct on (chain_id) chain_id, scope_id, seq from chain_events"
            " order by chain_id, since_version, seq"
        )
    }
    return {part: sorted(_rename_ids(row, names) for row in rows) for part, rows in dump.items()}


def _rename_ids(row: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        if old in row:
            row = row.replace(old, new)
    value = json.loads(row)
    for column in value:
        if isinstance(column, dict):
            column.pop("hash", None)  # pyright: ignore[reportUnknownMemberType]
    return json.dumps(value, sort_keys=True)


def hashes(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    """Every version's content hash."""
    return base.rows(
        "select chain_id::text, version, encode(content_hash, 'hex') from chain_versions"
        " order by 1, 2"
    )


type Step = Callable[[], object]
