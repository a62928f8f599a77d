"""Changes of the graph while another program erases what they name, between look-up and write."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from strandline.graph.changes import create, statement_writes
from tests.graph_calls import Graph, entity, fact
from tests.support import Gateway

type ActBeforeWrite = Callable[[Callable[[], object]], None]


@pytest.fixture
def graph(gateway: Gateway) -> Graph:
    """For an unbound key that may erase, among ada and her helper."""
    return Graph(gateway, gateway.key(rights=["read", "write", "erase"]))


@pytest.fixture
def act_before_write(monkeypatch: pytest.MonkeyPatch) -> ActBeforeWrite:
    """Lets another program act once, when what the next change names was looked up."""

    def arrange(act: Callable[[], object]) -> None:
        acts = [act]
        for module in (statement_writes, create):
            store = module.charge_and_store_statements

            def store_after_other(*args: Any, store: Any = store) -> Any:
                if acts:
                    acts.pop()()
                return store(*args)

            monkeypatch.setattr(module, "charge_and_store_statements", store_after_other)

    return arrange


def erase(graph: Graph, event_id: str) -> None:
    reply = graph.gateway.call("DELETE", f"/api/v1/events/{event_id}", key=graph.key)
    assert reply.status == 200, reply.text


def list_contents(graph: Graph) -> list[str]:
    body = {"participants": graph.who, "type": "statement"}
    reply = graph.gateway.call("POST", "/api/v1/events/query", body, key=graph.key)
    return [event["content"] for scope in reply.body["scopes"] for event in scope["events"]]


CHANGES: list[tuple[str, str, dict[str, Any], int, str | None]] = [
    ("POST", "merges", {"from_id": "{ada}", "into_id": "{byron}"}, 422, "from_id"),
    ("POST", "merges", {"from_id": "{byron}", "into_id": "{ada}"}, 422, "into_id"),
    ("POST", "merges/refusals", {"from_id": "{ada}", "into_id": "{byron}"}, 422, "from_id"),
    ("PATCH", "nodes/{ada}", {"description": "A sailor"}, 404, None),
    ("POST", "nodes/{fact}/invalidate", {"reason": "It sank"}, 404, None),
    ("POST", "edges/{edge}/end", {"reason": "It sank"}, 404, None),
    ("POST", "edges", {"edges": [{"edge": "involves", "from_id": "{fact}", "to_id": "{byron}"}]},
     404, None),
    ("POST", "nodes", {"nodes": [fact("Boats float", relationships=[
        {"edge": "involves", "target": "{ada}"}])]}, 404, None),
    ("POST", "merges/{merge}/undo", {}, 404, None),
]  # fmt: skip
"""Each is about something that an erased event says: method, path and body, and the answer's status
and field."""


def fill_in(body: dict[str, Any], ids: dict[str, str]) -> dict[str, Any]:
    """A body with ids in place of their names."""
    text = json.dumps(body)
    for name, node_id in ids.items():
        text = text.replace(f"{{{name}}}", node_id)
    return json.loads(text)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    CHANGES,
    ids=[f"{one[1]} {one[4]}" for one in CHANGES],
)
def test_graph_change_of_what_is_erased_meanwhile_stores_nothing(
    graph: Graph,
    act_before_write: ActBeforeWrite,
    method: str,
    path: str,
    body: dict[str, Any],
    status: int,
    field: str | None,
) -> None:
    nodes = [entity("Ada"), entity("Ada Byron"), entity("Lady"), entity("Boat"), fact("Ada rows")]
    entries = graph.write("POST", "nodes", nodes=nodes)["nodes"]
    ids = dict(
        zip(("ada", "byron", "lady", "boat", "fact"), (one["id"] for one in entries), strict=True)
    )
    merge = graph.write("POST", "merges", from_id=ids["lady"], into_id=ids["boat"])
    edge = graph.relate("owns", ids["byron"], ids["boat"])
    ids |= {"merge": merge["merge_id"], "edge": edge["id"]}
    erased_ids = [entries[0]["event_id"], entries[4]["event_id"], ids["merge"], edge["event_id"]]
    before = list_contents(graph)

    def erase_all() -> None:
        for event_id in erased_ids:
            erase(graph, event_id)

    act_before_write(erase_all)
    reply = graph.send(method, path.format(**ids), fill_in(body, ids))
    assert (reply.status, reply.error["details"].get("field")) == (status, field), reply.text
    assert len(list_contents(graph)) == len(before) - len(erased_ids)
    again = graph.send(method, path.format(**ids), fill_in(body, ids))
    assert again.status in (404, 422), again.text
