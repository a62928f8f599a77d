"""Groups of entities that know each other, for communities."""

from collections.abc import Sequence
from typing import Any

from tests.support import Gateway

ADA, BO = ["user:ada", "agent:helper"], ["user:bo"]


def crew(*names: str) -> list[dict[str, Any]]:
    """Entities, each related to all before it; the first one most surely."""
    return [
        {
            "type": "entity",
            "ref": name.lower(),
            "name": name,
            "relationships": [
                {
                    "edge": "WORKS_ON",
                    "target": other.lower(),
                    "confidence": 0.8 if place else 1.0,
                }
                for place, other in enumerate(names[:n])
            ],
        }
        for n, name in enumerate(names)
    ]


def between(name: str, *others: str) -> dict[str, Any]:
    """An entity that is related to these, less surely."""
    links = [{"edge": "RELATES_TO", "target": other.lower(), "confidence": 0.5} for other in others]
    return {"type": "entity", "name": name, "relationships": links}


TWO_CREWS = [
    *crew("Petrel", "Oskar", "Pia", "Quentin", "Rosa"),
    *crew("Lighthouse", "Sven", "Tove", "Ulla", "Viktor"),
    between("Nils", "Oskar", "Pia", "Sven", "Tove"),
]
"""Two groups of five that know each other, and one who knows two of each."""


def state(
    gateway: Gateway, nodes: Sequence[dict[str, Any]], who: Sequence[str], tenant: str = "acme"
) -> dict[str, str]:
    """Store nodes; gives their ids by name."""
    body = {"participants": list(who), "nodes": list(nodes)}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=gateway.key(tenant))
    assert reply.status == 201, reply.text
    return {
        node["name"]: receipt["id"]
        for node, receipt in zip(nodes, reply.body["nodes"], strict=True)
    }
