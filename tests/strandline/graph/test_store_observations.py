"""Nodes and edges are what their observations say together."""

import random
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from strandline.db.database import Caller, Database, TenantDb
from strandline.graph.nodes.observations import EdgeObservation, NodeObservation, ObservationSource
from strandline.graph.nodes.store_observations import write_observations
from strandline.log import store as log_store
from tests.prove.append_history import AppendOp, build_events
from tests.support import ScratchDatabase

NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)
PAIR = ("agent:helper", "user:ada")


@pytest.fixture
def database(scratch_db: ScratchDatabase) -> Iterator[Database]:
    """The service's access to it."""
    scratch_db.rows("insert into tenants (tenant_id) values ('acme') on conflict do nothing")
    with closing(Database(scratch_db.url)) as connection:
        yield connection


@pytest.fixture
def access(database: Database) -> TenantDb:
    """Background work of a tenant."""
    return database.connect_as(Caller.background("acme"))


def say(
    access: TenantDb, count: int = 1, participants: tuple[str, ...] = PAIR
) -> list[ObservationSource]:
    """Events, each as the one event of a chain."""
    ops = [AppendOp(f"said {uuid.uuid4()}", participants) for _ in range(count)]
    events = build_events(ops)
    with access.transaction():
        log_store.append_events(access, events, atomic=True)
    return [
        ObservationSource(
            source_id=uuid.uuid4(),
            version=1,
            scope_id=event.scope_id,
            participants=event.participants,
            event_ids=[event.event_id],
            trust="user",
            observed_at=NOON + timedelta(minutes=n),
            valid_from=NOON + timedelta(minutes=n),
        )
        for n, event in enumerate(events)
    ]


def write(
    access: TenantDb,
    nodes: Sequence[NodeObservation],
    edges: Sequence[EdgeObservation] = (),
    *,
    halves: bool = False,
) -> Sequence[UUID]:
    with access.transaction():
        return write_observations(access, nodes, edges, combines_by_halving=halves).node_ids


def lives(
    source: ObservationSource, confidence: float | None = None
) -> tuple[list[NodeObservation], list[EdgeObservation]]:
    """Ada lives in Oslo, and uses a kayak."""
    nodes = [
        NodeObservation(source, "entity", "Ada", {"category": "person"}),
        NodeObservation(source, "entity", "kayak", {"category": "other"}),
        NodeObservation(source, "fact", "Ada lives in Oslo", {"category": "personal"}, confidence),
    ]
    return nodes, [EdgeObservation(source, 0, 1, "USES", confidence=confidence, heat=0.5)]


STATE = """
    select 'node', n.type || ' ' || n.name, n.properties::text, n.confidence, n.weight, n.trust,
        n.valid_from, n.valid_to from graph_nodes n
    union all
    select 'edge', e.type, e.properties::text, e.confidence, e.weight, e.trust,
        e.valid_from, e.valid_to
    from graph_edges e order by 1, 2
"""


@pytest.mark.parametrize("halves", [False, True])
def test_observation_repeated_counts_once(
    scratch_db: ScratchDatabase, access: TenantDb, halves: bool
) -> None:
    sources = say(access, 3)
    spoken = [lives(source, 0.4 + 0.2 * n) for n, source in enumerate(sources)]
    for nodes, edges in spoken:
        write(access, nodes, edges, halves=halves)
    once = scratch_db.rows(STATE)
    deliveries = spoken * 5
    random.Random(4).shuffle(deliveries)
    for nodes, edges in deliveries:
        write(access, nodes, edges, halves=halves)
    assert scratch_db.rows(STATE) == once
    confidence = {(type, name): value for type, name, _, value, *_ in once}
    expected = ((0.4 + 0.6) / 2 + 0.8) / 2 if halves else 0.6
    assert confidence["edge", "USES"] == pytest.approx(expected)
    assert [row[4] for row in once] == [3, 3, 3, 3]

    scratch_db.rows("truncate graph_nodes, graph_edges, graph_observations, graph_sources cascade")
    for nodes, edges in reversed(spoken):
        write(access, nodes, edges, halves=halves)
    assert scratch_db.rows(STATE) == once


def test_observation_of_newer_chain_version_replaces_older(
    scratch_db: ScratchDatabase, access: TenantDb
) -> None:
    (source,) = say(access)
    nodes, edges = lives(source)
    write(access, nodes, edges)
    newer = replace(source, version=2)
    write(access, [NodeObservation(newer, "entity", "ADA.", {"description": "a rower"})])
    assert scratch_db.rows("select name, properties, weight from graph_nodes") == [
        ("Ada", {"description": "a rower"}, 1)
    ]
    assert scratch_db.rows("select count(*) from graph_edges") == [(0,)]
    write(access, nodes, edges)  # delivered late
    assert scratch_db.rows("select count(*) from graph_nodes") == [(1,)]


def test_observation_after_invalidation_makes_new_fact(
    scratch_db: ScratchDatabase, access: TenantDb
) -> None:
    first, second, third = (replace(s, version=None) for s in say(access, 3))
    fact = NodeObservation(first, "fact", "Ada lives in Oslo")
    (old,) = write(access, [fact])
    until = second.observed_at.isoformat()
    invalidation = NodeObservation(
        second, "fact", fact.name, {"valid_to": until, "reason": "moved"}, node_id=old
    )
    write(access, [invalidation])
    # old evidence that comes late speaks of the old one
    (late,) = write(access, [replace(fact, source=replace(say(access)[0], valid_from=NOON))])
    (new,) = write(access, [replace(fact, source=third)])
    assert late == old != new
    assert scratch_db.rows(
        "select node_id, ordinal, properties ->> 'reason', valid_to is null from graph_nodes"
        " order by ordinal"
    ) == [(old, 0, "moved", False), (new, 1, None, True)]


@pytest.mark.parametrize("lacks", ["observation", "source"])
def test_observation_without_source_is_not_committed(
    scratch_db: ScratchDatabase, access: TenantDb, lacks: str
) -> None:
    (source,) = say(access)
    nodes, edges = lives(source)
    write(access, nodes, edges)
    copies = {
        "observation": (
            "insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name,"
            " name_hash, ordinal, identity, trust, valid_from, created_at, updated_at)"
            " select tenant_id, gen_random_uuid(), scope_id, participants, 'fact', 'x', '\\x00', 0,"
            " '\\x00', trust, valid_from, created_at, updated_at from graph_nodes limit 1"
        ),
        "source": (
            "insert into graph_observations (tenant_id, target_id, source_id, scope_id,"
            " participants, patch, trust, observed_at, valid_from) select tenant_id, target_id,"
            " gen_random_uuid(), scope_id, participants, patch, trust, observed_at, valid_from"
            " from graph_observations limit 1"
        ),
    }
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        scratch_db.rows(copies[lacks])


def test_observation_is_hidden_from_non_participants(database: Database, access: TenantDb) -> None:
    for participants in [PAIR, ("agent:helper", "user:bo")]:
        (source,) = say(access, participants=participants)
        write(access, *lives(source))
    for tenant, viewer, expected in [
        ("acme", PAIR, 3),
        ("acme", ("user:bo",), 3),
        ("acme", ("agent:helper",), 6),
        ("acme", ("user:ada", "user:bo"), 0),
        ("globex", (), 0),
    ]:
        one = database.connect_as(Caller(tenant, viewer))
        with one.transaction():
            assert one.execute("select from graph_nodes", {}) == expected
