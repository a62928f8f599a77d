"""How the topic index grows with a tenant: what builds take and how many summaries they write, and
what a references query takes beside recall and beside the bare SQL of its reads."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import LiteralString

import psycopg
from pgvector import HalfVector

from strandline.local.postgres import EmbeddedPostgres
from tests.bench import strandline_system
from tests.bench.cost import Call, interleave
from tests.bench.cost_sides import handler_call, log_to_nowhere
from tests.bench.growth_data import (
    SPACE,
    Asking,
    StoredVectors,
    SyntheticTenant,
    View,
    list_questions,
    load_tenant,
    make_tenant,
)
from tests.bench.strandline_system import Strandline
from tests.support import ScratchDatabase

EVENTS_PER_CHAIN = 10
NEXT_CHAINS = 20
"""So many new chains have a build begin."""
_NEXT_BUILDS = 3
_HITS = 100

_ADD_CHAINS = (
    """
    create temp table laid on commit drop as
    select e.tenant_id, e.scope_id, e.event_id, e.participants, e.seq, e.recorded_at as at,
        e.content, (e.seq - 1) / %(size)s + 1 as position,
        md5(e.scope_id::text || (e.seq - 1) / %(size)s)::uuid as chain_id
    from events e where e.tenant_id = %(tenant)s
        and (e.seq - 1) / %(size)s >= %(first)s and (e.seq - 1) / %(size)s < %(end)s
    """,
    """
    insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,
        last_event_at, created_at, importance, density, strength, accessed_at, cold_at,
        promote_until)
    select tenant_id, chain_id, scope_id, participants, '', 1, 'active', max(at), max(at), 0.5, 0.5,
        1, max(at), max(at), max(at)
    from laid group by 1, 2, 3, 4
    """,
    """
    insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,
        created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at,
        topic, summary, entities, importance, density, quality, settings, models, content_hash,
        trust, position)
    select tenant_id, chain_id, 1, scope_id, participants, '', max(seq), 'break', min(seq),
        max(seq), count(*), min(at), max(at), split_part(min(content), ' ', 1) || ' '
        || split_part(min(content), ' ', 2), min(content) || '. ' || max(content) || '.', '[]', 0.5,
        0.5, 1, '{}', '{}', decode(md5(chain_id::text), 'hex'), 'user', position
    from laid group by 1, 2, 4, 5, position
    """,
    """
    insert into chain_events (tenant_id, event_id, chain_id, scope_id, participants, seq,
        since_version)
    select tenant_id, event_id, chain_id, scope_id, participants, seq, 1 from laid
    """,
    """
    insert into topic_work (tenant_id, scope_id, participants, waiting, oldest_at, newest_at,
        last_position)
    select tenant_id, scope_id, participants, count(distinct chain_id), now(), now(), max(position)
    from laid group by 1, 2, 3
    """,
)

_BARE: Mapping[str, LiteralString] = {
    "nearest": """
        select event_id from event_vectors
        where tenant_id = %(tenant)s and space = %(space)s and scope_id = %(scope)s
        order by embedding <=> %(vector)s::halfvec limit %(limit)s
        """,
    "pin": """
        select t.root_slot, t.root_id, t.cutoff from active_snapshot a
        join snapshot_scopes t on t.tenant_id = a.tenant_id and t.from_version <= a.version
            and (t.to_version is null or t.to_version > a.version)
        where a.tenant_id = %(tenant)s and t.scope_id = %(scope)s
        """,
    "topics": """
        with recursive path as (
            select t.slot, t.parent_slot, t.node_id
            from topic_events e join topic_tree t on t.tenant_id = e.tenant_id
                and t.scope_id = e.scope_id and t.slot = e.chain_id and t.to_version is null
            where e.tenant_id = %(tenant)s and e.event_id = any (%(events)s)
            union
            select t.slot, t.parent_slot, t.node_id
            from path p join topic_tree t on t.tenant_id = %(tenant)s and t.scope_id = %(scope)s
                and t.slot = p.parent_slot and t.to_version is null)
        select p.slot, p.parent_slot, n.topic, n.summary, n.started_at, n.last_event_at, n.trust
        from path p join topic_nodes n on n.tenant_id = %(tenant)s and n.node_id = p.node_id
        """,
    "events": """
        select event_id, seq, speaker, origin, content, recorded_at from events
        where tenant_id = %(tenant)s and event_id = any (%(events)s)
        """,
}
"""The reads of a references query, past row-level security."""


@dataclass(frozen=True)
class TopicFigures:
    """What was measured of a tenant. Times are milliseconds of a call unless they say seconds."""

    events: int
    chains: int
    builds: int
    build_seconds: float
    summaries: int
    depth: int
    next_summaries: float
    """Of a build of NEXT_CHAINS new chains in the whole tree; the mean of some."""
    next_seconds: float
    p50_ms: float
    p95_ms: float
    recall_p50_ms: float
    """Of recall with as many hits as the query searches for."""
    recall_p95_ms: float
    bare_p50_ms: float
    bare_p95_ms: float

    @property
    def next_share(self) -> float:
        """The summaries of a later build for each new chain, by log2 of the chains."""
        return self.next_summaries / (NEXT_CHAINS * math.log2(self.chains))


def measure(server: EmbeddedPostgres, directory: Path, size: int, asks: int) -> TopicFigures:
    """Measure one scope with so many events in chains, in a database of its own."""
    embedder, name = StoredVectors(), f"topics_{size}"
    with (
        strandline_system.open_strandline(server, embedder, directory, name) as system,
        log_to_nowhere(),
    ):
        reserve = _NEXT_BUILDS * NEXT_CHAINS
        total = size + reserve * EVENTS_PER_CHAIN
        tenant = make_tenant("one", total, 1, seed=1, run=EVENTS_PER_CHAIN)
        load_tenant(system.base, tenant)
        chains = size // EVENTS_PER_CHAIN
        add_chains(system.base, tenant, 0, chains)
        first = _build(system, tenant)
        depth = _measure_depth(system.base)
        later: list[tuple[int, int, float]] = []
        for number in range(_NEXT_BUILDS):
            start = chains + number * NEXT_CHAINS
            add_chains(system.base, tenant, start, start + NEXT_CHAINS)
            later.append(_build(system, tenant))
        _analyze(system.base)
        took = _measure_queries(system, embedder, tenant, asks)
    server.drop_database(name)
    times = {side: (median(each), quantiles(each, n=20)[-1]) for side, each in took.items()}
    milliseconds = {
        side: [round(1000 * value, 2) for value in pair] for side, pair in times.items()
    }
    return TopicFigures(
        size,
        chains,
        first[0],
        round(first[2], 2),
        first[1],
        depth,
        round(sum(summaries for _, summaries, _ in later) / len(later), 1),
        round(sum(seconds for _, _, seconds in later) / len(later), 2),
        *milliseconds["references"],
        *milliseconds["recall"],
        *milliseconds["bare"],
    )


def add_chains(base: ScratchDatabase, tenant: SyntheticTenant, first: int, end: int) -> None:
    """Lay down chains as the fold leaves them, of EVENTS_PER_CHAIN events in a row each."""
    params = {"tenant": tenant.name, "size": EVENTS_PER_CHAIN, "first": first, "end": end}
    with psycopg.connect(base.admin_url) as administrator:
        administrator.execute("set local session_replication_role = replica")
        for statement in _ADD_CHAINS:
            administrator.execute(statement, params)
    _analyze(base)


def _analyze(base: ScratchDatabase) -> None:
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute("vacuum analyze")


def _build(system: Strandline, tenant: SyntheticTenant) -> tuple[int, int, float]:
    """Build until nothing waits: how many builds, their summaries, their seconds."""
    builds = summaries = 0
    began = time.monotonic()
    while system.base.rows("select from topic_work"):
        totals = system.gateway.run_job("builder", tenant.name)
        if totals.get("scopes_failed") or not totals.get("snapshots_published"):
            raise RuntimeError(f"the topic index was not built: {totals}")
        builds, summaries = builds + 1, summaries + totals["summaries"]
    return builds, summaries, time.monotonic() - began


def _measure_depth(base: ScratchDatabase) -> int:
    """The most slots above a leaf."""
    ((depth,),) = base.rows(
        """
        with recursive path as (
            select slot, 0 as depth from topic_tree where parent_slot is null and to_version is null
            union all
            select t.slot, p.depth + 1 from path p
            join topic_tree t on t.parent_slot = p.slot and t.to_version is null)
        select max(depth) from path
        """
    )
    return depth


def _measure_queries(
    system: Strandline, embedder: StoredVectors, tenant: SyntheticTenant, asks: int
) -> dict[str, list[float]]:
    """Seconds of each call; the sides take turns."""
    questions = list(list_questions(View("one scope", tenant, tenant.user(0), None), asks, tenant))
    embedder.vectors = {asking.text: asking.vector.tolist() for asking in questions}
    key = system.gateway.key(tenant.name)
    participants = [tenant.user(0)]
    with psycopg.connect(system.base.admin_url, autocommit=True) as administrator:
        calls: dict[str, list[Call]] = {"references": [], "recall": [], "bare": []}
        for asking in questions:
            body = {"query": asking.text, "participants": participants}
            references = {**body, "min_relevance": 0}
            recall = {**references, "limit": _HITS}
            calls["references"].append(handler_call("/api/v1/references/query", references, key))
            calls["recall"].append(handler_call("/api/v1/recall", recall, key))
            calls["bare"].append(_bare_call(administrator, tenant, asking))
        for side in calls.values():
            for call in side[:20]:
                call()
        return interleave(calls, 10)


def _bare_call(administrator: psycopg.Connection, tenant: SyntheticTenant, asking: Asking) -> Call:
    params: dict[str, object] = {
        "tenant": tenant.name,
        "space": SPACE,
        "scope": tenant.scope_ids[0],
        "vector": HalfVector(asking.vector).to_text(),
        "limit": _HITS,
    }

    def call() -> None:
        nearest = administrator.execute(_BARE["nearest"], params).fetchall()
        params["events"] = [row[0] for row in nearest]
        for name in ("pin", "topics", "events"):
            administrator.execute(_BARE[name], params).fetchall()

    return call


def table(figures: Sequence[TopicFigures]) -> list[str]:
    """Lines of Markdown: builds, then queries."""
    lines = [
        "| events | chains | builds | seconds | summaries | depth | of a build of "
        f"{NEXT_CHAINS} more chains: summaries | for each, by log2 of the chains | seconds |",
        "|---" * 9 + "|",
    ]
    lines += [
        f"| {one.events:,} | {one.chains:,} | {one.builds} | {one.build_seconds:.1f} "
        f"| {one.summaries:,} | {one.depth} | {one.next_summaries:.0f} | {one.next_share:.2f} "
        f"| {one.next_seconds:.2f} |"
        for one in figures
    ]
    lines += [
        "",
        "| events | references p50 ms | p95 ms | recall, 100 hits, p50 ms | p95 ms "
        "| bare SQL p50 ms | p95 ms | references to recall |",
        "|---" * 8 + "|",
    ]
    lines += [
        f"| {one.events:,} | {one.p50_ms:.1f} | {one.p95_ms:.1f} | {one.recall_p50_ms:.1f} "
        f"| {one.recall_p95_ms:.1f} | {one.bare_p50_ms:.1f} | {one.bare_p95_ms:.1f} "
        f"| {one.p50_ms / one.recall_p50_ms:.2f} |"
        for one in figures
    ]
    return lines
