"""The state of the graph through the API: counts, sizes, background work and use, of the view."""

from typing import Any

from tests.graph_calls import WHO, Graph, entity, fact, topic
from tests.support import Gateway, ScratchDatabase

NONE = {"total": 0, "current": 0, "ended": 0, "archived": 0, "merged": 0}


def status(gateway: Gateway, key: str, *who: str, everybody: str = "false") -> Any:
    query = {"participants": who} if who else {"everybody": everybody}
    reply = gateway.call("GET", "/api/v1/graph/status", key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


def test_graph_status_counts_nodes_in_view(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    graph = Graph(gateway, key)
    link = {"edge": "fact_entity", "target": "ada"}
    ada, oslo, boats, ships = graph.create(
        entity("Ada", ref="ada"),
        fact("Ada lives in Oslo", relationships=[link]),
        topic("Boats"),
        topic("Ships"),
    )
    Graph(gateway, key, ("user:bo",)).create(fact("Bo rows"))
    empty = status(gateway, key, "user:eve")
    assert (empty["scopes"], empty["nodes"], empty["use"]["observed_at"]) == (0, {}, None)
    before = status(gateway, key, *WHO)
    assert before["scopes"] == 1
    assert before["nodes"]["fact"] == {**NONE, "total": 1, "current": 1}
    assert before["health"]["nodes_without_vector"] == 4
    assert before["bytes"]["vectors"] == 0
    edge = graph.relate("USES", ada, graph.create(entity("the Petrel"))[0])
    graph.write("POST", f"edges/{edge['id']}/end")
    graph.write("POST", f"nodes/{oslo}/invalidate", reason="She moved.")
    graph.write("PATCH", f"nodes/{ada}", archived=True)
    graph.write("POST", "merges", from_id=ships, into_id=boats)
    for value in ("A", "B"):
        graph.write("POST", f"topics/{boats}/fields/berth", value=value)
    graph.read(f"topics/{boats}/fields/berth")
    gateway.sweep()
    gateway.run_job("analytics", "acme")
    state = status(gateway, key, *WHO)
    assert state["nodes"] == {
        "entity": {**NONE, "total": 2, "current": 1, "archived": 1},
        "fact": {**NONE, "total": 1, "ended": 1},
        "topic": {**NONE, "total": 2, "current": 1, "merged": 1},
    }
    assert state["edges"] == {
        "USES": {"total": 1, "current": 0, "ended": 1},
        "fact_entity": {"total": 1, "current": 1, "ended": 0},
    }
    counts = scratch_db.rows(
        "select count(*), count(distinct source_id) from graph_observations"
        " where participants @> '{user:ada}'"
    )
    assert (state["observations"], state["use"]["statements"]) == (counts[0][0], counts[0][1] + 1)
    assert (state["fields"], state["revisions"], state["communities"]) == (1, 2, 0)
    assert all(size > 0 for size in state["bytes"].values())
    assert state["use"]["answers"] == 1
    assert state["use"]["answered_at"] is not None
    assert state["health"] == {
        "promoted_at": None,
        "chains_due": 0,
        "promotions_failed": 0,
        "analysed_at": None,
        "scopes_to_analyse": 0,
        "analyses_failed": 0,
        "nodes_without_vector": 0,
        "nodes_refused": 0,
    }
    assert status(gateway, key, "user:bo")["nodes"] == {"fact": {**NONE, "total": 1, "current": 1}}
    whole = status(gateway, gateway.key(rights=("read", "admin")), everybody="true")
    assert (whole["scopes"], whole["nodes"]["fact"]["total"]) == (2, 2)


def test_graph_status_ignores_other_tenant_and_user(gateway: Gateway) -> None:
    ada = gateway.key(user="user:ada")
    Graph(gateway, ada, ("user:ada",)).create(entity("Ada"), entity("the Petrel"))
    before = status(gateway, ada)
    for tenant, who in (("acme", "user:bo"), ("globex", "user:ada")):
        key = gateway.key(tenant, user=who)
        Graph(gateway, key, (who,)).create(fact("Bo rows"), topic("Boats"))
    assert status(gateway, ada) == before
