"""A tenant's graph as large as promised, laid down in bulk."""

import random
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import psycopg
from pgvector import HalfVector

from tests.support import ScratchDatabase

TENANT, OTHER = "acme", "globex"
SPACE, DIMENSIONS = "graph/384", 384
WIDE, HELPER = "user:wide", "agent:helper"
"""In a quarter of the scopes; in all."""
NODES_PER_SCOPE = 100
RARE = "zebrafish"
"""A word of every five-hundredth node."""
_VECTORS = 500


@dataclass(frozen=True)
class LargeGraph:
    """How much was laid down, and some of it by name."""

    nodes: int
    edges: int
    scopes: int
    starts: list[UUID]
    """Nodes of WIDE's scopes, to follow edges from."""
    shared: UUID
    """A node whose name is in every scope."""
    vectors: list[list[float]]
    """Questions."""


def fill_graph(base: ScratchDatabase, nodes: int, edges: int) -> LargeGraph:
    """Lay down a tenant's graph of so many nodes and edges, each with one observation, and a tenth
    of it for another tenant. A node's edges stay in its scope of a hundred nodes."""
    rng = np.random.default_rng(5)
    pool = rng.standard_normal((_VECTORS, DIMENSIONS))
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    with psycopg.connect(base.admin_url) as administrator:
        administrator.execute("set local session_replication_role = replica")
        administrator.execute("set local work_mem = '256MB'")
        administrator.execute("create temp table pool (n int primary key, embedding halfvec)")
        administrator.cursor().executemany(
            "insert into pool values (%s, %s::halfvec)",
            [(n, HalfVector(list(map(float, v))).to_text()) for n, v in enumerate(pool)],
        )
        for tenant, share in ((TENANT, 1), (OTHER, 10)):
            params = {
                "tenant": tenant,
                "nodes": nodes // share,
                "edges": edges // share,
                "scopes": max(4, nodes // share // NODES_PER_SCOPE),
                "space": SPACE,
                "rare": RARE,
                "pool": _VECTORS,
            }
            for statement in _FILL_STATEMENTS:
                administrator.execute(statement, params)
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute("vacuum analyze")
        visible = administrator.execute(
            "select node_id from graph_nodes where tenant_id = %s and participants @> %s"
            " and type = 'entity' and name <> 'the helper' order by node_id",
            (TENANT, [WIDE]),
        ).fetchall()
        shared = administrator.execute(
            "select node_id from graph_nodes where tenant_id = %s and name = 'the helper'"
            " and participants @> %s order by node_id limit 1",
            (TENANT, [WIDE]),
        ).fetchone()
    assert shared is not None
    starts = [row[0] for row in random.Random(2).sample(visible, min(200, len(visible)))]
    questions = (pool[:100] + 0.3 * rng.standard_normal((100, DIMENSIONS)) / 20).tolist()
    scopes = max(4, nodes // NODES_PER_SCOPE)
    return LargeGraph(nodes, edges, scopes, starts, shared[0], questions)


_FILL_STATEMENTS = (
    "insert into tenants (tenant_id) values (%(tenant)s)",
    """
    create temp table scope_plan on commit drop as
    with planned as (select n, array(
        select who from unnest(array['agent:helper', 'user:p' || n,
            case when n %% 4 = 0 then 'user:wide' end]) who
        where who is not null order by who collate "C") as participants
    from generate_series(0, %(scopes)s::int - 1) n),
    hashed as (select *, encode(sha256(convert_to(
        to_jsonb(array_prepend(%(tenant)s::text, participants))::text, 'UTF8')), 'hex') as hash
    from planned)
    select n, participants, (left(hash, 12) || '8' || substr(hash, 14, 3)
        || substr('89ab', 1 + (('x' || substr(hash, 17, 1))::bit(4)::int & 3), 1)
        || substr(hash, 18, 15))::uuid as scope_id
    from hashed
    """,
    """
    insert into scopes (tenant_id, scope_id, participants, last_seq, folded_seq, last_recorded_at)
    select %(tenant)s, scope_id, participants, 1, 1, now() from scope_plan
    """,
    """
    insert into scope_members (tenant_id, participant, scope_id, participants)
    select %(tenant)s, who, scope_id, participants from scope_plan, unnest(participants) who
    """,
    """
    create temp table node_plan on commit drop as
    select i, s.n, s.scope_id, s.participants, md5(%(tenant)s || 'node' || i)::uuid as node_id,
        case when i / %(scopes)s = 0 then 'entity' else (array['fact', 'fact', 'fact', 'entity',
            'fact', 'entity', 'decision', 'fact', 'topic', 'event'])[1 + i / %(scopes)s %% 10] end
            as type,
        case when i / %(scopes)s = 0 then 'the helper' else (
            select string_agg('word' || (1500 * power(random(), 3))::int, ' ')
            from generate_series(1, 8 + i * 0)) || ' ' || i
            || case when i %% 500 = 1 then ' ' || %(rare)s else '' end end as name,
        now() - make_interval(secs => (%(nodes)s - i)) as at
    from generate_series(0, %(nodes)s::int - 1) i
    join scope_plan s on s.n = i %% %(scopes)s
    """,
    """
    insert into graph_nodes (tenant_id, node_id, scope_id, participants, type, name, name_hash,
        ordinal, identity, confidence, weight, trust, valid_from, created_at, updated_at, space,
        embedding)
    select %(tenant)s, node_id, scope_id, participants, type, name, sha256(name::bytea), 0,
        sha256(name::bytea), 0.8, 1, 'user', at, at, at, %(space)s, pool.embedding
    from node_plan join pool on pool.n = i %% %(pool)s order by i
    """,
    """
    create temp table edge_plan on commit drop as
    select md5(%(tenant)s || 'edge' || j)::uuid as edge_id, f.scope_id, f.participants, f.at,
        f.node_id as from_id, t.node_id as to_id,
        case when f.type = 'fact' and t.type = 'entity' then 'fact_entity' else 'RELATES_TO' end
            as type
    from (
        select j, j %% %(nodes)s as a,
            j %% %(scopes)s
                + %(scopes)s * floor(random() * (%(nodes)s / %(scopes)s))::int as b
        from generate_series(0, %(edges)s::int - 1) j) j
    join node_plan f on f.i = j.a join node_plan t on t.i = j.b
    where f.n = t.n and f.i <> t.i
    """,
    """
    insert into graph_edges (tenant_id, edge_id, scope_id, participants, from_id, to_id, type,
        confidence, weight, trust, valid_from, created_at, last_seen)
    select %(tenant)s, edge_id, scope_id, participants, from_id, to_id, type, 0.8, 1, 'user', at,
        at, at
    from edge_plan
    """,
    """
    insert into graph_observations (tenant_id, target_id, source_id, scope_id, participants, patch,
        confidence, trust, observed_at, valid_from)
    select %(tenant)s, target_id, target_id, scope_id, participants, '{}', 0.8, 'user', at, at
    from (
        select node_id as target_id, scope_id, participants, at from node_plan
        union all
        select edge_id, scope_id, participants, at from edge_plan) said
    """,
    """
    insert into graph_sources (tenant_id, target_id, source_id, event_id, scope_id, participants)
    select %(tenant)s, target_id, source_id, source_id, scope_id, participants
    from graph_observations where tenant_id = %(tenant)s
    """,
    "drop table edge_plan, node_plan, scope_plan",
)
