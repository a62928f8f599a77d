"""A new embedding space: trees are grown again in it, and readers in between miss nothing."""

import hashlib
import importlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any

import pytest

from strandline.db.database import Caller, TenantDb
from strandline.embeddings.embedder import Purpose
from strandline.topics import build_limits, growth, store_growth
from strandline.topics.store_growth import ScopeTreeState
from tests.strandline.topics.exactly_once import Pin, find_faults, read_scopes
from tests.strandline.topics.outline import build, drop_index, read_tree
from tests.strandline.topics.world import DIMENSIONS, SPACE, ScopeWorld, random_vector
from tests.support import Gateway, ScratchDatabase

NEW_SPACE = "another-model/16"
CHAINS = 60
PAIR, GROUP = ("agent:helper", "user:alice"), ("agent:helper", "user:alice", "user:bob")


@dataclass
class Embedder:
    """Vectors of texts in a space, the same for the same text."""

    space: str
    dimensions: int = DIMENSIONS

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """The vectors of these texts, in order."""
        del timeout
        return [random_vector(random.Random(f"{self.space} {text}")) for text in texts]


@pytest.fixture
def worlds(
    scratch_db: ScratchDatabase, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> list[ScopeWorld]:
    """Two scopes with trees in the old space, of several builds each."""
    use_space(SPACE)
    monkeypatch.setattr(build_limits, "MAX_VERSIONS", 25)
    worlds = [ScopeWorld(scratch_db, members=PAIR), ScopeWorld(scratch_db, members=GROUP, seed=1)]
    for world in worlds:
        world.add(CHAINS, merges=0.2)
    scratch_db.rows(
        "insert into scope_members (tenant_id, participant, scope_id, participants)"
        " select tenant_id, who, scope_id, participants from scopes, unnest(participants) who"
    )
    scratch_db.rows("update scopes set last_recorded_at = now()")
    while waits(scratch_db):
        assert build(gateway)["snapshots_published"] == 1
    return worlds


def use_space(space: str) -> None:
    """Deploy another embedding model."""
    for job in ("query", "builder", "sweeper", "worker"):
        handler: Any = importlib.import_module(f"functions.{job}.handler")
        handler.resources.__dict__["embedder"] = Embedder(space)


def embed_anew(base: ScratchDatabase, world: ScopeWorld, last_seq: int) -> None:
    """Store the vectors of a scope's events in the new space, up to this seq."""
    events = base.rows(
        "select event_id, seq from events where scope_id = %s and seq <= %s order by seq",
        world.scope_id,
        last_seq,
    )
    rng = random.Random(world.seed + 100)
    base.rows(
        "insert into event_vectors (tenant_id, space, scope_id, event_id, participants, embedding)"
        " select 'acme', %s, %s, event_id, %s, vector::halfvec"
        " from unnest(%s::uuid[], %s::text[]) given (event_id, vector) on conflict do nothing",
        NEW_SPACE,
        world.scope_id,
        list(world.members),
        [event_id for event_id, _ in events],
        [str(random_vector(rng, seq // 2 % 3)) for _, seq in events],
    )
    base.rows(
        "insert into embedding_progress (tenant_id, scope_id, space, participants, embedded_seq)"
        " values ('acme', %s, %s, %s, %s) on conflict (tenant_id, scope_id, space)"
        " do update set embedded_seq = excluded.embedded_seq",
        world.scope_id,
        NEW_SPACE,
        list(world.members),
        last_seq,
    )


def waits(base: ScratchDatabase) -> bool:
    return bool(base.rows("select from topic_work"))


def reader(gateway: Gateway) -> TenantDb:
    return gateway.database.connect_as(Caller.background("acme"))


def find_mixed(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    """The slots of active trees whose content is of another space than their tree."""
    return base.rows(
        "select t.slot, n.space, s.space from topic_tree t"
        " join snapshot_scopes s using (tenant_id, scope_id)"
        " join topic_nodes n using (tenant_id, node_id)"
        " where t.to_version is null and s.to_version is null and n.space <> s.space"
    )


def read_spaces(base: ScratchDatabase) -> set[str]:
    """The spaces of the active trees."""
    return {
        row[0]
        for row in base.rows("select distinct space from snapshot_scopes where to_version is null")
    }


def ask(gateway: Gateway, key: str, query: str | None = None) -> dict[str, Any]:
    """A question, or an outline of the topics; it has topics, and no event twice."""
    body = {"min_relevance": 0, "budget": 8000, **({"query": query} if query else {})}
    reply = gateway.call("POST", "/api/v1/references/query", body, key=key)
    assert reply.status == 200, reply.text
    assert any(scope["topics"] for scope in reply.body["tree"]["scopes"])
    events = [citation["event_id"] for citation in reply.body["citations"]]
    assert len(events) == len(set(events)) > 0
    return reply.body


def change_space(
    base: ScratchDatabase, gateway: Gateway, worlds: Sequence[ScopeWorld]
) -> list[str]:
    """Embed all events again bit by bit, and build in between. Returns what readers found wrong."""
    use_space(NEW_SPACE)
    key, faults = gateway.key("acme", "user:alice"), list[str]()
    for share in (0.0, 0.3, 1.0, 1.0, 1.0, 1.0):
        for world in worlds:
            embed_anew(base, world, int(world.seq * share))
        build(gateway)
        ask(gateway, key)
        if share:
            assert ask(gateway, key, "text 7")["space"] == NEW_SPACE
        faults += find_faults(reader(gateway))
        faults += [f"{slot}: {space} in {of}" for slot, space, of in find_mixed(base)]
    return faults


def test_space_change_regrows_trees_and_misses_nothing(
    scratch_db: ScratchDatabase, gateway: Gateway, worlds: list[ScopeWorld]
) -> None:
    old_tree, old_version = read_tree(scratch_db), active_version(scratch_db)
    old_reading = read_pinned(gateway, worlds, old_version)
    assert change_space(scratch_db, gateway, worlds) == []
    assert not waits(scratch_db)
    assert read_spaces(scratch_db) == {NEW_SPACE}
    assert read_tree(scratch_db, old_version) == old_tree  # a reader that pinned it goes on
    assert read_pinned(gateway, worlds, old_version) == old_reading
    slots = {row[2] for row in old_tree if not row[5]}
    tree = read_tree(scratch_db)
    assert slots.isdisjoint(row[2] for row in tree)
    drop_index(scratch_db)
    while waits(scratch_db):
        build(gateway)
    assert read_tree(scratch_db) == tree


def test_space_change_keeps_old_trees_until_embedded(
    scratch_db: ScratchDatabase, gateway: Gateway, worlds: list[ScopeWorld]
) -> None:
    before, version = read_tree(scratch_db), active_version(scratch_db)
    use_space(NEW_SPACE)
    assert "snapshots_published" not in build(gateway)
    assert (read_tree(scratch_db), active_version(scratch_db)) == (before, version)
    assert waits(scratch_db)
    ask(gateway, gateway.key("acme", "user:alice"))
    embed_anew(scratch_db, worlds[0], worlds[0].seq)  # the other scope still waits
    assert build(gateway)["scopes_grown"] == 1
    assert read_spaces(scratch_db) == {SPACE, NEW_SPACE}
    assert find_faults(reader(gateway)) == []


def test_space_change_test_detects_unnoticed_space(
    scratch_db: ScratchDatabase,
    gateway: Gateway,
    worlds: list[ScopeWorld],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: a build takes every tree for one of its own space."""
    read = store_growth.read_scope_tree_state

    def read_as_new(access: TenantDb, scope_id: Any, version: int) -> ScopeTreeState | None:
        tree = read(access, scope_id, version)
        return tree and replace_fields(tree, space=tree.space and NEW_SPACE)

    monkeypatch.setattr(growth.store_growth, "read_scope_tree_state", read_as_new)
    for world in worlds:
        world.add(5)
    assert any(f": {SPACE} in " in fault for fault in change_space(scratch_db, gateway, worlds))


def active_version(base: ScratchDatabase) -> int:
    ((version,),) = base.rows("select version from active_snapshot")
    return version


def read_pinned(gateway: Gateway, worlds: Sequence[ScopeWorld], version: int) -> str:
    """A digest of what a reader of this version finds."""
    access = reader(gateway)
    scopes = [(world.scope_id, 0, world.seq) for world in worlds]
    with access.snapshot_transaction():
        readings = read_scopes(access, Pin(version, scopes))
    return hashlib.sha256(repr(sorted(readings.items())).encode()).hexdigest()
