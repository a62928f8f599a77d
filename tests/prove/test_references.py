"""Promises: an answer with its token repeats byte for byte while everything goes on; nobody sees
what they were not part of; a pinned reader finds each event once; no model leads a walk out of
view."""

import importlib
import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.config import get_settings
from strandline.db.database import Caller, TenantDb
from strandline.llm.provider import ModelReply, ModelRequest
from strandline.llm.tasks import LlmTasks
from strandline.resources import Resources
from strandline.topics import routes_read, store_tail
from strandline.topics.schemas_references import ReferencesOut, ReferencesRequest
from strandline.topics.store_tail import EventPositionInScope
from tests.context_block import read_outline
from tests.strandline.chains.fold_fixtures import TOPICS, set_tuning
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.strandline.topics.exactly_once import find_faults
from tests.strandline.topics.snapshots import publish, publish_without_cutoff
from tests.support import Gateway, Reply, ScratchDatabase

PATH = "/api/v1/references/query"
SPACE = "words/64"
RUNS, SAMPLE, STEPS = 200, 3, 50
CASES = 1000
GROUPS = (
    ("user:alice", "user:bob"),
    ("user:bob", "user:carol"),
    ("user:alice", "user:carol"),
    ("user:alice", "user:bob", "user:carol"),
)
"""Overlapping groups of three people; each event and so each summary has its group's own words."""
LISTENERS = (
    ("user:alice",),
    ("user:bob",),
    ("user:alice", "user:bob"),
    ("user:bob", "user:carol"),
    ("user:alice", "user:bob", "user:carol"),
)


@pytest.fixture
def embedder() -> WordEmbedder:
    """Quick, and without calibration."""
    return WordEmbedder(SPACE, 64)


def marker(group: tuple[str, ...]) -> str:
    """The word in every text of a group."""
    return "mark" + "".join(name[5] for name in group) + "end"


@dataclass
class Run:
    """A tenant in which much happens, and the answers that it gave."""

    gateway: Gateway
    base: ScratchDatabase
    tenant: str
    dice: random.Random
    answers: list[tuple[dict[str, Any], Reply]] = field(default_factory=list[Any])
    count: int = 0
    repeats: int = 0
    seen: int = 0

    def __post_init__(self) -> None:
        self.key = self.gateway.key(self.tenant)
        self.admin = self.gateway.key(self.tenant, rights=["admin"])
        self._last: list[dict[str, Any]] = []
        self._steps: list[tuple[Callable[[], object], float]] = [
            (self.append, 6),
            (self.retry, 2),
            (self.fold, 0.5),
            (self.publish, 1.5),
            (self.ask, 5),
            (self.repeat, 8),
        ]

    def step(self) -> None:
        """Do something."""
        actions, weights = zip(*self._steps, strict=True)
        self.dice.choices(actions, weights)[0]()

    def append(self) -> None:
        """Say a few things on one topic in one group."""
        group, words = self.dice.choice(GROUPS), self.dice.choice(TOPICS).split()
        self._last = []
        for _ in range(self.dice.randrange(2, 9)):
            self.count += 1
            self._last.append(
                {
                    "participants": list(group),
                    "role": "user",
                    "speaker": self.dice.choice(group),
                    "session_id": f"{marker(group)}-{self.dice.randrange(2)}",
                    "content": f"{' '.join(self.dice.choices(words, k=4))} {marker(group)}",
                    "source_event_key": f"k{self.count}",
                    "occurred_at": 1_780_000_000 + 600 * self.count,
                }
            )
        self.retry()

    def retry(self) -> None:
        """Send the same once more."""
        if self._last:
            body = {"events": self._last}
            reply = self.gateway.call("POST", "/api/v1/events/batch", body, key=self.key)
            assert reply.body["failed"] == 0, reply.text

    def fold(self) -> None:
        """Let chains form."""
        set_tuning(self.base, flush_events=4, gap_minutes=30)
        self.gateway.sweep()

    def publish(self) -> None:
        """Publish what there is; each reader then finds each event once."""
        publish(self.base, self.tenant, space=SPACE)
        access = self.gateway.database.connect_as(Caller.background(self.tenant))
        assert find_faults(access) == []

    def ask(self) -> None:
        """A new question."""
        body: dict[str, Any] = {
            "participants": list(self.dice.choice(LISTENERS)),
            "format": self.dice.choice(("json", "text")),
            "budget": self.dice.choice((100, 300, 1000, 2000)),
        }
        if self.dice.random() < 0.8:
            body["query"] = " ".join(self.dice.sample(self.dice.choice(TOPICS).split(), 2))
        reply = self.gateway.call("POST", PATH, body, key=self.key)
        assert reply.status == 200, reply.text
        self.check_view(body, reply)
        self.answers.append((body, reply))

    def repeat(self) -> None:
        """An earlier question, with its token."""
        if self.answers:
            body, reply = self.dice.choice(self.answers)
            again = {**body, "read_token": reply.body["read_token"]}
            assert self.gateway.call("POST", PATH, again, key=self.key).text == reply.text
            self.repeats += 1

    def check_view(self, body: dict[str, Any], reply: Reply) -> None:
        """Nothing of a group that lacks a listener, and no more than the budget."""
        listeners = set(body["participants"])
        secrets = [marker(group) for group in GROUPS if not listeners <= set(group)]
        assert not [word for word in secrets if word in reply.text], body
        assert reply.body["tokens"] <= body["budget"]
        self.seen += reply.text.count("mark")
        if body["format"] == "text":
            read_outline(reply.body["text"])

    def check_provenance(self) -> None:
        """Every id of the tenant, asked for by each group of listeners."""
        ids = self.base.rows(
            "select slot, participants from topic_tree where tenant_id = %s"
            " union select node_id, participants from topic_nodes where tenant_id = %s"
            " union select event_id, participants from events where tenant_id = %s",
            *[self.tenant] * 3,
        )
        for row_id, participants in self.dice.sample(ids, min(10, len(ids))):
            for listeners in LISTENERS:
                query = {"participants": list(listeners)}
                path = f"/api/v1/provenance/{row_id}"
                reply = self.gateway.call("GET", path, key=self.key, query=query)
                expected = 200 if set(listeners) <= set(participants) else 404
                assert reply.status == expected, (row_id, listeners)

    def check_differences(self) -> None:
        """They are the whole tenant's: told to its admin, as ids alone, and to no reader."""
        versions = self.base.rows(
            "select version from snapshots where tenant_id = %s order by version", self.tenant
        )
        readers = (self.key, self.gateway.key(self.tenant, user=LISTENERS[0][0]))
        for (before,), (after,) in itertools.pairwise(versions):
            path = f"/api/v1/admin/snapshots/{after}/difference"
            query = {"from": before}
            for reader in readers:
                assert self.gateway.call("GET", path, key=reader, query=query).status == 403
            reply = self.gateway.call("GET", path, key=self.admin, query=query)
            assert reply.status == 200, reply.text
            assert not [group for group in GROUPS if marker(group) in reply.text]


def test_references_repeat_and_show_listeners_own_events_only(
    gateway: Gateway, scratch_db: ScratchDatabase, request: pytest.FixtureRequest
) -> None:
    runs = RUNS if request.config.getoption("--full") else SAMPLE
    repeats = count = 0
    for number in range(runs):
        run = Run(gateway, scratch_db, f"run-{number}", random.Random(number))
        for action in (run.append, run.append, run.append, run.fold, run.publish, run.ask):
            action()
        for _ in range(STEPS):
            run.step()
        run.check_provenance()
        run.check_differences()
        repeats, count = repeats + run.repeats, count + run.seen
    # a run may fold so little that no chain ends
    with_topics = scratch_db.rows("select count(distinct tenant_id) from topic_nodes")[0][0]
    assert with_topics >= 0.9 * runs
    print(f"{repeats} repeated answers, {count} texts in view")
    assert repeats > 10
    assert count > 100


# planted faults ----------------------------------------------------------------------------------


@pytest.fixture
def run(gateway: Gateway, scratch_db: ScratchDatabase) -> Run:
    """With a snapshot and a fresh tail."""
    run = Run(gateway, scratch_db, "acme", random.Random(1))
    for action in (*[run.append] * 8, run.fold, run.append):
        action()
    return run


def test_references_test_detects_cutoff_past_leaves(
    run: Run, gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    access = gateway.database.connect_as(Caller.background("acme"))
    publish(scratch_db, space=SPACE)
    assert find_faults(access) == []
    publish_without_cutoff(scratch_db, space=SPACE)
    assert any(fault.endswith(": 0 times") for fault in find_faults(access))
    run.append()


def test_references_test_detects_tail_by_cutoff_alone(
    run: Run, gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tail that is what lies past the cutoff shows events twice: leaves reach past it."""
    access = gateway.database.connect_as(Caller.background("acme"))
    publish(scratch_db, space=SPACE, cutoff=lambda seqs, last_seq: 0)
    assert find_faults(access) == []
    original = store_tail.list_fresh_tail

    def list_past_cutoff(
        access: TenantDb, version: int, scopes: Sequence[tuple[UUID, int, int]], limit: int
    ) -> Sequence[EventPositionInScope]:
        del version
        return original(access, 0, scopes, limit)

    monkeypatch.setattr(store_tail, "list_fresh_tail", list_past_cutoff)
    assert any(fault.endswith(": 2 times") for fault in find_faults(access))
    del run


def test_references_test_detects_marks_read_late(
    run: Run, gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    reader = gateway.database.connect_as(Caller.background("acme"))
    publish(scratch_db, space=SPACE)
    writer = Gateway(scratch_db.url)
    try:
        assert find_faults(reader, run.append) == []
        assert find_faults(reader, run.append, marks_last=True) != []
    finally:
        writer.database.close()


def test_references_test_detects_new_selection(
    run: Run, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is not looked at: the same question gets what there is now."""
    publish(scratch_db, space=SPACE)
    run.ask()

    def ask_anew(access: TenantDb, body: ReferencesRequest, now: datetime) -> ReferencesOut:
        del access, now
        return _ask_anew(run, body)

    monkeypatch.setattr(routes_read, "repeat_answer", ask_anew)
    run.append()
    with pytest.raises(AssertionError):
        run.repeat()


def _ask_anew(run: Run, body: ReferencesRequest) -> ReferencesOut:
    fields = body.model_dump(mode="json", exclude={"read_token"}, exclude_none=True)
    answer = run.gateway.call("POST", PATH, fields, key=run.key).body
    return ReferencesOut.model_validate(answer)


# models ------------------------------------------------------------------------------------------


@dataclass
class LyingProvider:
    """A model whose answers are dice: foreign ids, numbers that were not shown, cycles, megabytes,
    SQL, unknown fields, nothing at all."""

    dice: random.Random
    foreign: list[str]
    name: str = "lying:1"
    output_mode: str = "json_schema"
    asked_for: list[str] = field(default_factory=list[str])
    kinds: list[str] = field(default_factory=list[str])

    def ask(
        self, request: ModelRequest, mode: str, *, is_proven: bool, timeout: float
    ) -> ModelReply:
        """An answer."""
        del mode, is_proven, timeout
        self.asked_for.append(request.data)
        kind = self.dice.choice(_KINDS)
        self.kinds.append(kind)
        return ModelReply(self._answer(kind), 10, 10)

    def _answer(self, kind: str) -> str:
        dice = self.dice
        match kind:
            case "foreign id":
                return json.dumps({"numbers": [dice.choice(self.foreign)]})
            case "not shown":
                return json.dumps({"numbers": [dice.choice((0, -1, 999, 2**70, 1.5, True, None))]})
            case "repeated":
                return json.dumps({"numbers": [1] * dice.choice((2, 50, 5000))})
            case "large":
                return '{"numbers": [' + ",".join(["1"] * dice.choice((10**5, 5 * 10**6))) + "]}"
            case "sql":
                return '{"numbers": ["1); drop table topic_nodes; --"]}'
            case "unknown field":
                return json.dumps({"numbers": [1], "scope_id": dice.choice(self.foreign)})
            case "nested":
                return '{"numbers": ' + "[" * 500 + "]" * 500 + "}"
            case "no json":
                return dice.choice(("", "yes", "\x00", "```json\n{}\n```", "null", "[1]"))
            case "shown":
                return json.dumps({"numbers": [1]})
            case _:
                return json.dumps({"numbers": []})


_KINDS = (
    "foreign id", "not shown", "repeated", "large", "sql", "unknown field", "nested", "no json",
    "shown", "shown", "empty",
)  # fmt: skip


@pytest.fixture
def liar(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LyingProvider]:
    """The language model of the query function, whose breaker never stays open."""
    provider = LyingProvider(random.Random(7), [])
    service: Resources = importlib.import_module("functions.query.handler").resources
    settings = get_settings().model_copy(
        update={
            "llm_breaker_failures": 1000,
            "llm_breaker_seconds": 0.001,
            "llm_calls_per_minute": 100_000,
        }
    )
    monkeypatch.setitem(service.__dict__, "llm", LlmTasks(service.database, settings, provider))
    yield provider
    del scratch_db


def test_references_walk_stays_in_view_despite_model(
    run: Run,
    liar: LyingProvider,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
) -> None:
    publish(scratch_db, space=SPACE)
    liar.foreign += [
        str(row[0])
        for row in scratch_db.rows(
            "select node_id from topic_nodes union select slot from topic_tree"
        )
    ]
    walks, began = {"beam": 0, "model": 0}, time.monotonic()
    for _ in range(proof_size(CASES)):
        body: dict[str, Any] = {
            "participants": list(run.dice.choice(LISTENERS)),
            "query": " ".join(run.dice.sample(run.dice.choice(TOPICS).split(), 2)),
            "walk": "model",
            "budget": 1000,
            "format": run.dice.choice(("json", "text")),
        }
        shown_before = len(liar.asked_for)
        reply = run.gateway.call("POST", PATH, body, key=run.key)
        assert reply.status == 200, reply.text
        run.check_view(body, reply)
        walks[reply.body["walk"]["by"]] += 1
        assert reply.body["walk"]["rounds"] <= 3
        secrets = [marker(g) for g in GROUPS if not set(body["participants"]) <= set(g)]
        prompts = liar.asked_for[shown_before:]
        for prompt in prompts:
            assert not [word for word in secrets if word in prompt]
            assert len(prompt) < 40_000
        if prompts and reply.body["walk"]["by"] == "beam":
            assert "model_failed" in reply.body["degraded"]
        if run.dice.random() < 0.1:
            again = {**body, "read_token": reply.body["read_token"]}
            assert run.gateway.call("POST", PATH, again, key=run.key).text == reply.text
    print(f"{walks} in {time.monotonic() - began:.0f} s, {len(liar.kinds)} answers of the model")
    assert min(walks.values()) > 0
    failures = scratch_db.rows(
        "select count(*) from model_calls where task = 'walk' and outcome = 'invalid_output'"
    )
    assert failures[0][0] > 0
