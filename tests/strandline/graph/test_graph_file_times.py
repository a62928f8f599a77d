"""Times in a graph file: one that no reader could load is refused, and one that lies in the
database all the same takes no list, context or search down."""

from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.graph.nodes.store_observations import recompute_nodes_and_edges
from strandline.moments import LAST_MOMENT
from tests.graph_calls import WHO, Graph
from tests.graph_files import FACT, file_with_patch, import_text
from tests.support import Gateway, Reply, ScratchDatabase, user_message

PAST_THE_LAST, BEFORE_THE_FIRST = "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"
LAST, FIRST = "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z"


def read_all(gateway: Gateway, key: str, base: ScratchDatabase) -> dict[str, Reply]:
    """Every way in which what was imported is read."""
    graph, who = Graph(gateway, key), {"participants": WHO}
    ((row_id,),) = base.rows("select node_id from graph_nodes")
    node_id = f"fact:{row_id}"

    def post(path: str, **fields: Any) -> Reply:
        return gateway.call("POST", f"/api/v1/{path}", {**who, **fields}, key=key)

    modes = ("semantic", "exact", "graph")
    return {
        "list": graph.ask("nodes"),
        "list with ended": graph.ask("nodes", type="fact", valid_only=False),
        "list of facts": graph.ask("nodes", type="fact", sort="name", as_of="2100-01-01T00:00:00Z"),
        "node": graph.ask(f"nodes/{node_id}"),
        "history": graph.ask(f"nodes/{node_id}/history"),
        "as of": graph.ask(f"nodes/{node_id}", as_of="2100-01-01T00:00:00Z"),
        "traverse": post("graph/traverse", node_id=node_id, hops=2),
        **{mode: post("graph/search", query=FACT, mode=mode) for mode in modes},
        "context": post("context", query=FACT),
        "recall": post("recall", query=FACT),
        "conflicts": post("graph/conflicts", content=FACT),
        "provenance": gateway.call("GET", f"/api/v1/provenance/{node_id}", key=key, query=who),
    }


def plant_unreadable_end(base: ScratchDatabase, end: str) -> None:
    """What an earlier release let in: a fact whose end the driver cannot load. The node is not
    computed again, as the migration does it."""
    base.rows("alter table graph_nodes drop constraint graph_nodes_times")
    base.rows("update graph_nodes set valid_to = %s where name = %s", end, FACT)
    base.rows("update graph_observations set patch = jsonb_build_object('valid_to', %s::text)", end)


@pytest.mark.parametrize(
    "end", [PAST_THE_LAST, BEFORE_THE_FIRST, "2026-01-01T00:00:00+23:59", "infinity", "2026-01-01"]
)
def test_graph_file_refuses_unreadable_end_time(
    gateway: Gateway, scratch_db: ScratchDatabase, end: str
) -> None:
    key = gateway.key()
    for name in ("valid_to", "event_date"):
        node_type = "fact" if name == "valid_to" else "event"
        if (name, end) == ("event_date", "2026-01-01"):
            continue  # a date is one
        reply = import_text(gateway, key, file_with_patch(node_type, FACT, **{name: end}))
        assert reply.status == 422, (name, reply.text)
        assert name in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(0,)]


@pytest.mark.parametrize("end", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_graph_file_takes_first_and_last_second(
    gateway: Gateway, scratch_db: ScratchDatabase, end: str
) -> None:
    key = gateway.key(rights=["read", "write", "admin"])
    reply = import_text(gateway, key, file_with_patch("fact", FACT, valid_to=end))
    assert reply.status == 201, reply.text
    assert {
        n: r.status for n, r in read_all(gateway, key, scratch_db).items() if r.status != 200
    } == {}
    exported = gateway.call("POST", "/api/v1/graph/exports", {"participants": WHO}, key=key)
    assert exported.status == 201, exported.text


@pytest.mark.parametrize(("end", "shown"), [(PAST_THE_LAST, LAST), (BEFORE_THE_FIRST, FIRST)])
def test_graph_file_time_unreadable_breaks_no_other_read(
    gateway: Gateway, scratch_db: ScratchDatabase, end: str, shown: str
) -> None:
    key = gateway.key(rights=["read", "write", "admin"])
    message = user_message("Ada rows.", *WHO)
    assert gateway.call("POST", "/api/v1/events", message, key=key).status == 201
    reply = import_text(gateway, key, file_with_patch("fact", FACT, valid_to="2090-01-01T00:00Z"))
    assert reply.status == 201, reply.text
    health = gateway.call("GET", "/api/v1/health", key=key).body
    assert health["background"]["rows_unreadable"] == 0
    plant_unreadable_end(scratch_db, end)
    answers = read_all(gateway, key, scratch_db)
    assert {n: r.status for n, r in answers.items() if r.status != 200} == {}
    (node,) = answers["list with ended"].body["nodes"]
    assert node["valid_to"] == shown, "it is shown, with the nearest time that can be read"
    assert answers["node"].body["valid_to"] == shown, "computed from its observations, it is that"
    health = gateway.call("GET", "/api/v1/health", key=key).body
    assert (health["status"], health["background"]["rows_unreadable"]) == ("degraded", 1)
    metrics = gateway.call("GET", "/metrics", key=key).text
    assert "strandline_rows_unreadable 1\n" in metrics
    exported = gateway.call("POST", "/api/v1/graph/exports", {"participants": WHO}, key=key)
    assert exported.status == 500
    assert node["id"] in exported.error["message"]
    assert "valid_to" in exported.error["message"]


def test_graph_file_time_too_late_is_read_as_nearest_moment(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """So a graph that is derived again from events of an earlier release is the corrected one."""
    reply = import_text(gateway, gateway.key(), file_with_patch("fact", FACT, valid_to=LAST))
    assert reply.status == 201, reply.text
    said = "update graph_observations set patch = jsonb_build_object('valid_to', %s::text)"
    scratch_db.rows(said, PAST_THE_LAST)
    access = gateway.database.connect_as(Caller.background("acme"))
    ((node_id,),) = scratch_db.rows("update graph_nodes set valid_to = now() returning node_id")
    with access.transaction():
        recompute_nodes_and_edges(access, [node_id])
    ends = scratch_db.rows("select valid_to from graph_nodes")
    assert ends == [(LAST_MOMENT,)]


def test_graph_file_time_unreadable_is_not_told_other_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    reply = import_text(gateway, key, file_with_patch("fact", FACT, valid_to="2090-01-01T00:00Z"))
    assert reply.status == 201, reply.text
    plant_unreadable_end(scratch_db, PAST_THE_LAST)
    for tenant, count in (("globex", 0), ("acme", 1)):
        health = gateway.call("GET", "/api/v1/health", key=gateway.key(tenant)).body
        assert health["background"]["rows_unreadable"] == count


@pytest.mark.parametrize("day", ["2026-01-15", "2026-01-15T01:00:00+01:00", 1768435200])
def test_graph_file_event_date_may_be_day(gateway: Gateway, day: str | int) -> None:
    graph = Graph(gateway, gateway.key())
    event = {"type": "event", "title": "Regatta", "event_date": day}
    (node_id,) = graph.create(event)
    assert graph.read(f"nodes/{node_id}")["properties"]["event_date"] == "2026-01-15T00:00:00Z"
    graph.write("PATCH", f"nodes/{node_id}", event_date=None)
    graph.write("PATCH", f"nodes/{node_id}", event_date=day)
    assert graph.read(f"nodes/{node_id}")["properties"]["event_date"] == "2026-01-15T00:00:00Z"
    reply = graph.send("PATCH", f"nodes/{node_id}", {"event_date": "not a date"})
    assert (reply.status, reply.error["details"]["field"]) == (422, "event_date")
    if isinstance(day, str):
        data = file_with_patch("event", "Launch", event_date=day)
        assert import_text(gateway, graph.key, data).status == 201
        nodes = graph.read("nodes", sort="name", order="asc")["nodes"]
        assert nodes[0]["properties"]["event_date"] == "2026-01-15T00:00:00Z"


@pytest.mark.parametrize("node_type", ["decision", "event"])
def test_graph_file_refuses_field_of_other_node_type(gateway: Gateway, node_type: str) -> None:
    reply = import_text(gateway, gateway.key(), file_with_patch(node_type, "x", category="any"))
    assert reply.status == 422
    assert "`category` is no field of" in reply.error["message"]
    dated = file_with_patch("topic", "x", event_date="2026-01-15")
    assert import_text(gateway, gateway.key(), dated).status == 422
