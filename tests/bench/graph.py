"""What search and traversal of the graph take beside bare SQL, in one tenant of 100,000 nodes and
500,000 edges.

PYTHONPATH=shared:. .venv/bin/python -m tests.bench.graph 100000

Bare SQL runs as the superuser, whom no policy concerns, and gives the same rows without joining
what is of one name. Two hops stand beside it a second time, beside bare SQL that does follow equal
names, in the same view and up to as many nodes. Times are of the service's functions, without HTTP
and without embedding a question.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import LiteralString
from uuid import UUID

import psycopg
from pgvector import HalfVector

from strandline.db.database import Caller, Database, TenantDb
from strandline.embeddings.embedder import Embedder, Purpose
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.store_walk import MAX_NODES
from strandline.graph.search.read_for_recall import read_relevant_graph
from strandline.graph.search.routes import traverse_from_node
from strandline.graph.search.schemas import TraverseRequest
from strandline.graph.search.search import ALL_TYPES, NodeFinder, read_matched_nodes
from strandline.graph.search.store import NodeFilter, find_nodes_containing_text
from strandline.graph.status.routes import read_graph_status
from strandline.local.postgres import EmbeddedPostgres
from tests.bench.graph_data import HELPER, RARE, SPACE, TENANT, WIDE, LargeGraph, fill_graph
from tests.support import ScratchDatabase, make_template

EDGES_PER_NODE = 5
_WARM_UP = 5
_FEWEST_ASKS = 5
_SLOWER = {"state of the graph": 10}
"""What is asked less often, by which factor."""
_TWO_HOPS: LiteralString = """
with one as materialized (
    select to_id as node_id from graph_edges
    where tenant_id = %(tenant)s and from_id = %(start)s
    union all
    select from_id from graph_edges
    where tenant_id = %(tenant)s and to_id = %(start)s),
two as materialized (
    select e.to_id as node_id from graph_edges e
    where e.tenant_id = %(tenant)s and e.from_id in (select node_id from one)
    union all
    select e.from_id from graph_edges e
    where e.tenant_id = %(tenant)s and e.to_id in (select node_id from one)),
ends as materialized (select node_id from one union select node_id from two)
select to_jsonb(n) - array['embedding', 'code', 'text'] from graph_nodes n
where n.tenant_id = %(tenant)s and n.node_id in (select node_id from ends)
union all
select to_jsonb(e) from graph_edges e
where e.tenant_id = %(tenant)s and e.from_id in (select node_id from ends)
    and e.to_id in (select node_id from ends)
"""
_TWO_HOPS_BY_NAME: LiteralString = """
with zero as materialized (
    select m.node_id from graph_nodes s join graph_nodes m using (tenant_id, type, identity)
    where s.tenant_id = %(tenant)s and s.node_id = %(start)s and m.valid_to is null
        and m.participants @> %(view)s),
one as materialized (
    select * from (
        select edge_id, to_id as node_id, weight, heat from graph_edges
        where tenant_id = %(tenant)s and from_id in (select node_id from zero)
        union all
        select edge_id, from_id, weight, heat from graph_edges
        where tenant_id = %(tenant)s and to_id in (select node_id from zero)) e
    order by weight desc, heat desc, edge_id limit 5000),
near as materialized (select distinct node_id from one limit %(nodes)s),
names as materialized (
    select distinct s.type, s.identity from graph_nodes s
    where s.tenant_id = %(tenant)s and s.node_id in (select node_id from near)),
same as materialized (
    select m.node_id from names s cross join lateral (
        select m.node_id from graph_nodes m
        where m.tenant_id = %(tenant)s and m.type = s.type and m.identity = s.identity
            and m.valid_to is null and m.participants @> %(view)s offset 0) m limit 5000),
two as materialized (
    select * from (
        select edge_id, to_id as node_id, weight, heat from graph_edges
        where tenant_id = %(tenant)s and from_id in (select node_id from same)
        union all
        select edge_id, from_id, weight, heat from graph_edges
        where tenant_id = %(tenant)s and to_id in (select node_id from same)) e
    order by weight desc, heat desc, edge_id limit 5000),
ends as materialized (
    select node_id from near
    union select distinct node_id from two limit %(nodes)s),
edges as (
    select edge_id from one where node_id in (select node_id from ends)
    union select edge_id from two where node_id in (select node_id from ends)
    union (
        select edge_id from graph_edges
        where tenant_id = %(tenant)s and from_id in (select node_id from ends)
            and to_id in (select node_id from ends)
        order by weight desc, heat desc, edge_id limit 1000))
select to_jsonb(n) - array['embedding', 'code', 'text'] from graph_nodes n
where n.tenant_id = %(tenant)s and n.node_id in (select node_id from ends)
union all
select to_jsonb(e) from graph_edges e
where e.tenant_id = %(tenant)s and e.edge_id in (select edge_id from edges)
"""
_NEAREST: LiteralString = """
select n.node_id, n.name, n.properties, n.embedding <=> %(vector)s::halfvec from graph_nodes n
where n.tenant_id = %(tenant)s and n.space = %(space)s and n.valid_to is null
order by n.embedding <=> %(vector)s::halfvec limit 10
"""
_CONTAINING: LiteralString = """
select n.node_id, n.name, n.properties from graph_nodes n
where n.tenant_id = %(tenant)s and trigrams_of(n.text) @> trigrams_of(%(text)s)
    and strpos(n.text, %(text)s) > 0
order by length(n.text) limit 10
"""


class NoEmbedder:
    """Knows its space and embeds nothing: questions come with their vectors."""

    space, dimensions = SPACE, 384

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Never asked."""
        raise NotImplementedError


@dataclass(frozen=True)
class Figures:
    """Milliseconds of a call, of the service and of bare SQL."""

    call: str
    viewer: str
    p50_ms: float
    p95_ms: float
    bare_p50_ms: float | None = None
    bare_p95_ms: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times bare SQL's median the service's is."""
        return self.p50_ms / self.bare_p50_ms if self.bare_p50_ms else None


def main() -> None:
    """Lay down the graph, measure, print the table, write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.graph", description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=100_000)
    parser.add_argument("--asks", type=int, default=100, help="calls of each kind")
    parser.add_argument("--out", type=Path, default=Path("build/graph.json"))
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="strandline-graph-") as name:
        Path(name).chmod(0o711)
        with EmbeddedPostgres(
            Path(name) / "postgres", settings={"shared_buffers": "1GB"}, durable=False
        ) as server:
            make_template(server, "graph")
            base = ScratchDatabase(server, "graph")
            start = time.monotonic()
            graph = fill_graph(base, arguments.nodes, arguments.nodes * EDGES_PER_NODE)
            print(f"laid down in {time.monotonic() - start:.0f} s", file=sys.stderr)
            figures = measure(base, graph, arguments.asks)
    for line in table(figures):
        print(line)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(json.dumps([asdict(item) for item in figures], indent=1))


def measure(base: ScratchDatabase, graph: LargeGraph, asks: int) -> list[Figures]:
    """The times of each kind of call, the service's and bare SQL's in turn."""
    with closing(Database(base.url)) as database, psycopg.connect(base.admin_url) as bare:
        bare.autocommit = True
        return [
            _time(name, viewer, calls, max(_FEWEST_ASKS, asks // _SLOWER.get(name, 1)))
            for viewer in (WIDE, HELPER)
            for name, calls in _Reader(
                database.connect_as(Caller(TENANT, (viewer,))), bare, graph, viewer
            )
            .calls()
            .items()
        ]


type _Calls = tuple[Callable[[int], object], Callable[[int], object] | None]


@dataclass(frozen=True)
class _Reader:
    """Who asks the graph, by the service's functions and by bare SQL; the nth question of each."""

    access: TenantDb
    bare: psycopg.Connection[tuple[object, ...]]
    graph: LargeGraph
    viewer: str

    def calls(self) -> dict[str, _Calls]:
        """Each kind of call, and what stands beside it."""
        return {
            "one hop": (lambda n: self.walk(n, 1), None),
            "two hops": (lambda n: self.walk(n, 2), lambda n: self.walk_bare(n, _TWO_HOPS)),
            "two hops, along equal names": (
                lambda n: self.walk(n, 2),
                lambda n: self.walk_bare(n, _TWO_HOPS_BY_NAME),
            ),
            "three hops": (lambda n: self.walk(n, 3), None),
            "one hop from a name of every scope": (
                lambda n: self.walk(n, 1, self.graph.shared),
                None,
            ),
            "search by meaning": (self.near, self.near_bare),
            "what is known, for a context": (self.known, None),
            "search by a part of a text": (self.contains, self.contains_bare),
            "state of the graph": (self.state, None),
        }

    def start(self, n: int) -> UUID:
        """Where a walk begins."""
        return self.graph.starts[n % len(self.graph.starts)]

    def walk(self, n: int, hops: int, node_id: UUID | None = None) -> object:
        """A traversal."""
        name = format_node_id("entity", node_id or self.start(n))
        return traverse_from_node(self.access, TraverseRequest(node_id=name, hops=hops, limit=500))

    def near(self, n: int) -> object:
        """A search by meaning."""
        embedder: Embedder = NoEmbedder()
        node_filter = NodeFilter(ALL_TYPES)
        finder = NodeFinder(self.access, embedder, 1.0)
        matches = finder.find_nodes_by_vector(
            f"about {RARE}", self.graph.vectors[n % 100], node_filter
        )
        return read_matched_nodes(self.access, matches, node_filter, 10)

    def contains(self, n: int) -> object:
        """A search by a part of a text."""
        node_filter = NodeFilter(ALL_TYPES)
        matches = find_nodes_containing_text(self.access, _part(n), node_filter)
        return read_matched_nodes(self.access, matches, node_filter, 10)

    def known(self, n: int) -> object:
        """What a context asks."""
        vector = self.graph.vectors[n % 100]
        return read_relevant_graph(self.access, f"What about the {RARE}?", vector, SPACE)

    def state(self, n: int) -> object:
        """The counts of all that is in view."""
        del n
        return read_graph_status(self.access, datetime.now(UTC))

    def walk_bare(self, n: int, statement: LiteralString) -> object:
        """A walk in bare SQL."""
        return self._query(statement, start=self.start(n))

    def near_bare(self, n: int) -> object:
        """The nearest nodes in bare SQL."""
        vector = HalfVector(self.graph.vectors[n % 100]).to_text()
        return self._query(_NEAREST, vector=vector, space=SPACE)

    def contains_bare(self, n: int) -> object:
        """Nodes that contain a text in bare SQL."""
        return self._query(_CONTAINING, text=_part(n))

    def _query(self, statement: LiteralString, **params: object) -> object:
        params |= {"tenant": TENANT, "view": [self.viewer], "nodes": MAX_NODES}
        return self.bare.execute(statement, params).fetchall()


def _part(n: int) -> str:
    return f" {1 + 500 * (n % 100)} {RARE}"


def _time(name: str, viewer: str, calls: _Calls, asks: int) -> Figures:
    own, bare = calls
    times: tuple[list[float], list[float]] = [], []
    for n in range(-_WARM_UP, asks):
        for call, outcome in zip((own, bare), times, strict=True):
            if call is None:
                continue
            begin = time.perf_counter()
            call(n % asks)
            if n >= 0:
                outcome.append(1000 * (time.perf_counter() - begin))
    figures = Figures(name, viewer, *_quantiles(times[0]))
    if bare is None:
        return figures
    return Figures(name, viewer, figures.p50_ms, figures.p95_ms, *_quantiles(times[1]))


def _quantiles(values: Sequence[float]) -> tuple[float, float]:
    return median(values), quantiles(values, n=20)[-1]


def table(figures: Sequence[Figures]) -> Iterator[str]:
    """Lines of Markdown."""
    yield "| call | viewer | p50 ms | p95 ms | bare SQL p50 ms | p95 ms | times |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    for item in figures:
        bare = (
            f"{item.bare_p50_ms:.1f} | {item.bare_p95_ms:.1f} | {item.ratio:.1f}"
            if item.ratio and item.bare_p50_ms and item.bare_p95_ms
            else " | | "
        )
        yield f"| {item.call} | {item.viewer} | {item.p50_ms:.1f} | {item.p95_ms:.1f} | {bare} |"


if __name__ == "__main__":
    main()
