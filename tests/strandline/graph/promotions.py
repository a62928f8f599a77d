"""Promotions that tests make: what was said, what a model extracts, and what became of it."""

import json

from tests.model_server import Says, completion
from tests.support import Gateway, ScratchDatabase

JOBS = "/api/v1/admin/jobs"
TALK = (
    "I live in Lisbon now, near the river.",
    "I'm allergic to penicillin.",
    "My sister Linnea comes on Friday.",
    "We decided to use Postgres because it is boring.",
)
STATE = """
    select n.type, n.name, n.properties::text, n.confidence, n.weight, n.trust, n.valid_to
    from graph_nodes n
    union all
    select e.type, f.name || ' > ' || t.name, e.properties::text, e.confidence, e.weight, e.trust,
        e.valid_to
    from graph_edges e
    join graph_nodes f on f.node_id = e.from_id join graph_nodes t on t.node_id = e.to_id
    order by 1, 2
"""
FACTS = [
    "Alice is allergic to penicillin.",
    "Alice lives in Lisbon now, near the river.",
    "Linnea is Alice's sister.",
]


def names(base: ScratchDatabase, node_type: str) -> list[str]:
    rows = base.rows("select name from graph_nodes where type = %s order by name", node_type)
    return [name for (name,) in rows]


def forget(base: ScratchDatabase) -> None:
    """The graph is dropped, and its chains are due again."""
    base.rows("truncate graph_nodes, graph_edges, graph_observations, graph_sources cascade")
    base.rows("update chains set promoted_version = 0")


def say(**parts: object) -> Says:
    """An extraction of these parts."""
    return completion(
        json.dumps({"entities": [], "facts": [], "decisions": [], "relations": [], **parts})
    )


def failures(gateway: Gateway, key: str) -> list[tuple[str, str]]:
    jobs = gateway.call("GET", JOBS, query={"kind": "promote"}, key=key).body["jobs"]
    return [(job["state"], job["reason"]) for job in jobs]
