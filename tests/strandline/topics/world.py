"""Chains laid down as the fold leaves them, with vectors that a test chooses."""

import hashlib
import json
import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from strandline import participants
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.topics import builder, growth, store_builds
from tests.support import ScratchDatabase

SPACE = EnglishEmbedder.space
START = datetime(2026, 5, 8, 9, 0, tzinfo=UTC)
DIMENSIONS = 16
"""Fewer than the model has: what is tested does not depend on it."""
MEMBERS = ("agent:helper", "user:alice")
ALONE, OTHERS = ("user:alice",), ("agent:helper", "user:alice", "user:bob")
TOPICS = ("the harbour", "sourdough bread", "the telescope", "the tax return", "the school run")

_INSERT = """
with given as (select %s::jsonb as doc),
who as (select %s::text as tenant_id, %s::uuid as scope_id, %s::text[] as participants,
    %s::text as space),
event as (
    insert into events (tenant_id, event_id, scope_id, seq, participants, channel, role, type,
        origin, writer, content, occurred_at, recorded_at, cid)
    select w.tenant_id, e.event_id, w.scope_id, e.seq, w.participants, 'http', 'user', 'message',
        e.origin, '*', 'text ' || e.seq, e.at, e.at, 'cid-' || e.seq
    from given, who w, jsonb_to_recordset(doc -> 'events') e
        (event_id uuid, seq bigint, at timestamptz, origin text)),
vector as (
    insert into event_vectors (tenant_id, space, scope_id, event_id, participants, embedding,
        refusal)
    select w.tenant_id, w.space, w.scope_id, e.event_id, w.participants, e.vector::halfvec,
        case when e.vector is null then 'refused' end
    from given, who w, jsonb_to_recordset(doc -> 'events') e (event_id uuid, vector text)),
chain as (
    insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,
        last_event_at, created_at, importance, density, strength, accessed_at, cold_at,
        promote_until)
    select w.tenant_id, c.chain_id, w.scope_id, w.participants, '', c.version, 'active', c.at, c.at,
        0.5, 0.5, 1, c.at, c.at, c.at
    from given, who w, jsonb_to_recordset(doc -> 'chains') c
        (chain_id uuid, version int, at timestamptz)
    on conflict (tenant_id, chain_id) do update set version = excluded.version),
link as (
    insert into chain_events (tenant_id, event_id, chain_id, scope_id, participants, seq,
        since_version)
    select w.tenant_id, e.event_id, e.chain_id, w.scope_id, w.participants, e.seq, e.version
    from given, who w, jsonb_to_recordset(doc -> 'events') e
        (event_id uuid, chain_id uuid, seq bigint, version int))
insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,
    created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at, topic,
    summary, entities, importance, density, quality, rejected, settings, models, content_hash,
    trust)
select w.tenant_id, c.chain_id, c.version, w.scope_id, w.participants, '', c.last_seq, 'break',
    c.first_seq, c.last_seq, c.event_count, c.at, c.at, c.topic, c.summary, '[]', 0.5, 0.5, 1,
    c.rejected, '{}', '{}', decode(c.hash, 'hex'), c.trust
from given, who w, jsonb_to_recordset(doc -> 'versions') c
    (chain_id uuid, version int, first_seq bigint, last_seq bigint, event_count int,
    at timestamptz, topic text, summary text, rejected text, hash text, trust text, place int)
order by c.place
"""


def random_vector(rng: random.Random, group: int | None = None) -> list[float]:
    """A unit vector; those of one group are alike."""
    values = [rng.gauss(0, 1) for _ in range(DIMENSIONS)]
    if group is not None:
        centre = random.Random(group)
        values = [4 * centre.gauss(0, 1) + value for value in values]
    length = sum(value * value for value in values) ** 0.5
    return [value / length for value in values]


@dataclass
class ScopeWorld:
    """One scope of a tenant, whose chains are laid down version by version."""

    base: ScratchDatabase
    tenant: str = "acme"
    members: Sequence[str] = MEMBERS
    seed: int = 0
    seq: int = 0
    chain_ids: list[UUID] = field(default_factory=list[UUID])
    _versions: dict[UUID, int] = field(default_factory=dict[UUID, int])
    _events: dict[UUID, int] = field(default_factory=dict[UUID, int])

    def __post_init__(self) -> None:
        self.scope_id = participants.derive_scope_id(self.tenant, list(self.members))
        self.rng = random.Random(self.seed)
        self.base.rows(
            "with tenant as (insert into tenants (tenant_id) values (%s) on conflict do nothing)"
            " insert into scopes (tenant_id, scope_id, participants) values (%s, %s, %s)"
            " on conflict do nothing",
            self.tenant,
            self.tenant,
            self.scope_id,
            list(self.members),
        )

    def add(self, count: int, *, merges: float = 0.0, **options: Any) -> None:
        """Add chain versions: of new chains, or with this chance of one that is there. Options:
        `kind` of vectors (clustered, identical, none, random), `events` of each, `rejected` (the
        chance), `embedded` (whether the scope is embedded up to its end)."""
        document: dict[str, list[Any]] = {"events": [], "chains": [], "versions": []}
        for place in range(count):
            self._add_version(document, place, merges, options)
        chains = {row["chain_id"]: row for row in document["chains"]}
        document["chains"] = list(chains.values())
        text = json.dumps(document)
        self.base.rows(_INSERT, text, self.tenant, self.scope_id, list(self.members), SPACE)
        embedded_seq = self.seq if options.get("embedded", True) else 0
        self.base.rows(
            "with scope as (update scopes set last_seq = %s, folded_seq = %s, max_folded_seq = %s"
            " where scope_id = %s returning tenant_id, scope_id, participants)"
            " insert into embedding_progress (tenant_id, scope_id, space, participants,"
            " embedded_seq) select tenant_id, scope_id, %s, participants, %s from scope"
            " on conflict (tenant_id, scope_id, space) do update"
            " set embedded_seq = excluded.embedded_seq",
            *(self.seq, self.seq, self.seq, self.scope_id, SPACE, embedded_seq),
        )

    def _add_version(
        self, document: dict[str, list[Any]], place: int, merges: float, options: dict[str, Any]
    ) -> None:
        rng, kind = self.rng, options.get("kind", "clustered")
        if self.chain_ids and rng.random() < merges:
            chain_id = rng.choice(self.chain_ids)
        else:
            chain_id = UUID(int=rng.getrandbits(128), version=4)
            self.chain_ids.append(chain_id)
        version = self._versions[chain_id] = self._versions.get(chain_id, 0) + 1
        group = rng.randrange(len(TOPICS))
        at, first_seq = START + timedelta(minutes=self.seq), self.seq + 1
        for _ in range(options.get("events", 2)):
            self.seq += 1
            document["events"].append(
                {
                    "event_id": str(UUID(int=rng.getrandbits(128), version=4)),
                    "chain_id": str(chain_id),
                    "version": version,
                    "seq": self.seq,
                    "at": at.isoformat(),
                    "origin": "user",
                    "vector": self._vector(kind, group),
                }
            )
            self._events[chain_id] = self._events.get(chain_id, 0) + 1
        is_rejected = rng.random() < options.get("rejected", 0.0)
        digest = hashlib.sha256(f"{self.tenant} {chain_id} {version}".encode()).hexdigest()
        stamp = {"chain_id": str(chain_id), "version": version, "at": at.isoformat()}
        document["chains"].append(stamp)
        document["versions"].append(
            {
                **stamp,
                "place": place,
                "first_seq": first_seq,
                "last_seq": self.seq,
                "event_count": self._events[chain_id],
                "topic": TOPICS[group],
                "summary": f"They talked about {TOPICS[group]}, no. {len(self.chain_ids)}.",
                "rejected": "too thin" if is_rejected else None,
                "hash": digest,
                "trust": options.get("trust", "user"),
            }
        )

    def _vector(self, kind: str, group: int) -> str | None:
        match kind:
            case "none":
                return None
            case "identical":
                vector = random_vector(random.Random(7))
            case "random":
                vector = random_vector(self.rng)
            case _:
                vector = random_vector(self.rng, group)
        return json.dumps(vector)


def new_id() -> str:
    """An id that nothing has."""
    return str(uuid.uuid4())


def fail_growth_of(
    monkeypatch: pytest.MonkeyPatch, world: ScopeWorld, error: type[BaseException]
) -> None:
    """Have the growth of this scope's tree raise."""

    def grow(with_what: Any, scope: store_builds.ScopeToBuild) -> Any:
        if scope.scope_id == world.scope_id:
            raise error
        return growth.grow_scope_tree(with_what, scope)

    monkeypatch.setattr(builder, "grow_scope_tree", grow)
