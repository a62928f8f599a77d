"""Promise: no node and no edge is there without a source, and each leads to events that its reader
sees."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from strandline.db.database import Caller
from tests.graph_calls import Graph, entity, fact, topic
from tests.strandline.graph.unfounded_rows import CHECK, UnfoundedRow
from tests.support import Gateway, Reply, ScratchDatabase

SCOPES = [
    ("user:ada",),
    ("user:bo",),
    ("agent:helper", "user:ada"),
    ("user:ada", "user:bo"),
]
TENANTS = ("acme", "globex")
NAMES = ("Oslo", "Bergen", "rowing", "Ada", "Bo", "kayak")


@dataclass
class Chance:
    """Changes of a graph at random, each by somebody among some participants."""

    gateway: Gateway
    rng: random.Random
    keys: dict[str, str]
    ids: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """What there is in a tenant: ids of nodes, of edges, and of merges."""
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter[tuple[str, int]])

    def step(self) -> None:
        """One change; what it makes may be named by the next ones."""
        tenant = self.rng.choice(TENANTS)
        graph = Graph(self.gateway, self.keys[tenant], self.rng.choice(SCOPES))
        known_ids = self.ids.setdefault(tenant, [])
        changes = (self._create, self._relate, self._patch, self._invalidate, self._merge)
        change = self.rng.choice((*changes, self._end, self._undo))
        reply = change(graph, known_ids)
        self.statuses[change.__name__, reply.status] += 1
        assert reply.status in (200, 201, 404, 409, 422), reply.text
        if reply.status in (200, 201):
            known_ids += [f"node {n['id']}" for n in reply.body.get("nodes", [])]
            known_ids += [f"edge {e['id']}" for e in reply.body.get("edges", [])]
            known_ids += [f"merge {reply.body['merge_id']}"] if "moved" in reply.body else []

    def _pick(self, known_ids: list[str], kind: str) -> str:
        """One of what there is; or what never was."""
        of_kind = [text.partition(" ")[2] for text in known_ids if text.startswith(kind)]
        return self.rng.choice(of_kind) if of_kind else "ent:00000000-0000-8000-8000-000000000000"

    def _create(self, graph: Graph, known_ids: list[str]) -> Reply:
        name, other = self.rng.sample(NAMES, 2)
        link = {"edge": "RELATES_TO", "target": self._pick(known_ids, "node")}
        links = {"relationships": [link]} if known_ids and self.rng.random() < 0.4 else {}
        nodes = [fact(f"{name} is {other}", **links), entity(name), topic(other)]
        return graph.send("POST", "nodes", {"nodes": nodes[: self.rng.randint(1, 3)]})

    def _relate(self, graph: Graph, known_ids: list[str]) -> Reply:
        ends = {"from_id": self._pick(known_ids, "node"), "to_id": self._pick(known_ids, "node")}
        return graph.send("POST", "edges", {"edges": [{"edge": "USES", **ends}]})

    def _patch(self, graph: Graph, known_ids: list[str]) -> Reply:
        fields: dict[str, Any] = {"archived": self.rng.random() < 0.5}
        return graph.send("PATCH", f"nodes/{self._pick(known_ids, 'node')}", fields)

    def _invalidate(self, graph: Graph, known_ids: list[str]) -> Reply:
        replacement = {"replacement": {"content": f"{self.rng.choice(NAMES)} is it"}}
        body = {"reason": "so", **(replacement if self.rng.random() < 0.5 else {})}
        return graph.send("POST", f"nodes/{self._pick(known_ids, 'node')}/invalidate", body)

    def _merge(self, graph: Graph, known_ids: list[str]) -> Reply:
        ends = {"from_id": self._pick(known_ids, "node"), "into_id": self._pick(known_ids, "node")}
        return graph.send("POST", "merges", ends)

    def _end(self, graph: Graph, known_ids: list[str]) -> Reply:
        return graph.send("POST", f"edges/{self._pick(known_ids, 'edge')}/end")

    def _undo(self, graph: Graph, known_ids: list[str]) -> Reply:
        return graph.send("POST", f"merges/{self._pick(known_ids, 'merge')}/undo")


def test_provenance_leads_to_visible_events(
    gateway: Gateway, proof_size: Callable[[int], int]
) -> None:
    chance = Chance(gateway, random.Random(11), {name: gateway.key(name) for name in TENANTS})
    for _ in range(max(120, proof_size(4000))):
        chance.step()
    results = {name for name, status in chance.statuses if status in (200, 201)}
    assert results >= {"_create", "_relate", "_patch", "_invalidate"}
    total = 0
    for tenant in TENANTS:
        for viewer in SCOPES:
            access = gateway.database.connect_as(Caller(tenant, tuple(sorted(viewer))))
            (row,) = access.fetch(UnfoundedRow, CHECK, {})
            assert row == UnfoundedRow(row.seen, 0, 0, 0, 0), (tenant, viewer)
            total += row.seen
    assert total > 20


@pytest.mark.parametrize("removal", ["delete from graph_sources", "delete from graph_observations"])
def test_provenance_loss_of_last_source_is_refused(
    gateway: Gateway, scratch_db: ScratchDatabase, removal: str
) -> None:
    graph = Graph(gateway, gateway.key())
    ada, kayak = graph.create(entity("Ada"), entity("kayak"))
    graph.relate("USES", ada, kayak)
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        scratch_db.rows(removal)
    assert len(graph.read("nodes")["nodes"]) == 2
    with psycopg.connect(scratch_db.admin_url) as administrator:  # with what rests on it, it may go
        administrator.execute("delete from graph_observations")
        administrator.execute("delete from graph_nodes")
    assert scratch_db.rows("select count(*) from graph_sources") == [(0,)]
    assert graph.read("nodes")["nodes"] == []
