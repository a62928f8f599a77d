"""Nodes of the graph are proposed for a merge, merged and separated through the API."""

import json
from typing import Any

import pytest

from tests.graph_calls import WHO, Graph, entity, fact, topic
from tests.support import Gateway, ScratchDatabase


@pytest.fixture
def graph(gateway: Gateway) -> Graph:
    """For an unbound key, among ada and her helper."""
    return Graph(gateway, gateway.key())


def groups(graph: Graph, **query: Any) -> set[frozenset[str]]:
    """The nodes of the list, each as its members."""
    return {frozenset(node["members"]) for node in graph.read("nodes", **query)["nodes"]}


def test_graph_merge_joins_nodes_until_undone(graph: Graph) -> None:
    ada, byron, lady = graph.create(
        entity("Ada", kind="person"),
        entity("Ada Byron", kind="person", description="A sailor"),
        entity("Lady Lovelace"),
    )
    first = graph.write("POST", "merges", from_id=byron, into_id=ada, reason="One name")
    assert (first["into_id"], first["moved"]) == (ada, [byron])
    read = graph.read(f"nodes/{byron}")
    assert (read["id"], set(read["members"])) == (byron, {ada, byron})
    assert read["properties"] == {"kind": "person", "description": "A sailor"}
    assert (read["weight"], read["confidence"]) == (2, pytest.approx(0.8)), "a merge is no evidence"
    assert groups(graph) == {frozenset({ada, byron}), frozenset({lady})}
    (node, _) = graph.read("nodes", sort="weight")["nodes"]
    assert (node["id"], node["name"]) == (ada, "Ada"), "the one that they were merged into leads"

    # A later merge takes along what was merged before.
    second = graph.write("POST", "merges", from_id=ada, into_id=lady)
    assert set(second["moved"]) == {ada, byron}
    assert groups(graph) == {frozenset({ada, byron, lady})}
    reply = graph.send("POST", f"merges/{first['merge_id']}/undo")
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")
    assert reply.error["details"]["latest_id"] == second["merge_id"]

    undo = graph.write("POST", f"merges/{second['merge_id']}/undo", reason="A mistake")
    assert set(undo["restored"]) == {ada, byron}
    assert groups(graph) == {frozenset({ada, byron}), frozenset({lady})}
    graph.write("POST", f"merges/{first['merge_id']}/undo")
    assert groups(graph) == {frozenset({ada}), frozenset({byron}), frozenset({lady})}
    assert graph.read(f"nodes/{ada}")["properties"] == {"kind": "person"}

    observations = graph.read(f"nodes/{byron}/history")["observations"]
    assert [o["changes"].get("merged_into", "-") for o in observations] == [
        "-",
        ada,
        lady,
        ada,
        None,
    ]


def test_graph_merge_as_of_earlier_time_shows_two_nodes(graph: Graph) -> None:
    stated = graph.write("POST", "nodes", nodes=[topic("rowing"), topic("row boats")])
    rowing, boats = (node["id"] for node in stated["nodes"])
    merge = graph.write("POST", "merges", from_id=boats, into_id=rowing)
    undo = graph.write("POST", f"merges/{merge['merge_id']}/undo")
    times = [
        graph.recorded_at(event_id)
        for event_id in (stated["nodes"][1]["event_id"], merge["merge_id"], undo["event_id"])
    ]
    one, two = {frozenset({rowing, boats})}, {frozenset({rowing}), frozenset({boats})}
    for as_of, expected in zip(times, (two, one, two), strict=True):
        assert groups(graph, as_of=as_of) == expected
        members = graph.read(f"nodes/{boats}", as_of=as_of)["members"]
        assert frozenset(members) in expected


def test_graph_merge_as_of_earlier_time_splits_search_and_fields(graph: Graph) -> None:
    """By traversals, searches and fields of topics; what was joined for a while is one then."""

    def ask(path: str, as_of: str, **body: Any) -> Any:
        query = {"participants": graph.who, "as_of": as_of, **body}
        reply = graph.gateway.call("POST", f"/api/v1/graph/{path}", query, key=graph.key)
        assert reply.status == 200, reply.text
        return reply.body

    def names(answer: Any) -> list[str]:
        return sorted(node["name"] for node in answer["nodes"])

    def fields(node: str, as_of: str) -> list[str]:
        listing = graph.read(f"topics/{node}/fields", as_of=as_of)["fields"]
        return [field["field"] for field in listing]

    rowing, boats, _, _ = graph.create(
        topic("rowing", ref="rowing"),
        topic("row boats", ref="boats"),
        fact("Ada rows", relationships=[{"edge": "fact_topic", "target": "rowing"}]),
        fact("Bo sinks", relationships=[{"edge": "fact_topic", "target": "boats"}]),
    )
    field = graph.write("POST", f"topics/{boats}/fields/berth", value="B 17")
    merge = graph.write("POST", "merges", from_id=boats, into_id=rowing)
    undo = graph.write("POST", f"merges/{merge['merge_id']}/undo")
    again = graph.write("POST", "merges", from_id=boats, into_id=rowing)
    two, one, three, four = (
        graph.recorded_at(event_id)
        for event_id in (
            field["event_id"],
            merge["merge_id"],
            undo["event_id"],
            again["merge_id"],
        )
    )
    for as_of in (two, three):
        for start, receipt in ((rowing, "Ada rows"), (boats, "Bo sinks")):
            contents = ask("traverse", as_of, node_id=start, traversal="topic_contents")
            assert (names(contents)[0], len(contents["nodes"])) == (receipt, 2)
            assert (contents["nodes"][0]["id"], contents["nodes"][0]["members"]) == (start, [start])
        assert names(ask("search", as_of, mode="exact", query="row", types=["topic"])) == [
            "row boats",
            "rowing",
        ]
        assert names(ask("search", as_of, query="row boats", types=["topic"]))[0] == "row boats"
        assert names(ask("search", as_of, mode="graph", query=boats)) == ["Bo sinks", "row boats"]
        assert (fields(rowing, as_of), fields(boats, as_of)) == ([], ["berth"])
    for as_of in (one, four):
        for start in (rowing, boats):
            contents = ask("traverse", as_of, node_id=start, traversal="topic_contents")
            assert names(contents)[:2] == ["Ada rows", "Bo sinks"]
            assert set(contents["nodes"][0]["members"]) == {rowing, boats}
            assert fields(start, as_of) == ["berth"]
        result = ask("search", as_of, mode="exact", query="row", types=["topic"])
        assert {frozenset(node["members"]) for node in result["nodes"]} == {
            frozenset({rowing, boats})
        }


def test_graph_merge_as_of_its_time_survives_later_changes(graph: Graph) -> None:
    """From each of them: a node of the same name that was merged since, and one that was merged
    then and is not any more."""
    other = Graph(graph.gateway, graph.key, ("agent:helper", "user:ada", "user:bo"))
    rowing, boats = graph.create(topic("rowing"), topic("row boats"))
    node = other.write("POST", "nodes", nodes=[topic("Row boats.")])["nodes"][0]
    theirs = node["id"]
    merge = graph.write("POST", "merges", from_id=boats, into_id=rowing)
    undo = graph.write("POST", f"merges/{merge['merge_id']}/undo")
    again = graph.write("POST", "merges", from_id=boats, into_id=rowing)
    apart = [{boats, theirs}, {rowing}]
    merges = [{boats, rowing}, {theirs}]
    for event_id, expected in (
        (node["event_id"], apart),
        (merge["merge_id"], merges),
        (undo["event_id"], apart),
        (again["merge_id"], merges),
    ):
        as_of = graph.recorded_at(event_id)
        for members in expected:
            for start in members:
                body = {"participants": graph.who, "node_id": start, "as_of": as_of}
                reply = graph.gateway.call("POST", "/api/v1/graph/traverse", body, key=graph.key)
                assert set(reply.body["nodes"][0]["members"]) == members
                assert set(graph.read(f"nodes/{start}", as_of=as_of)["members"]) == members


def test_graph_merge_keeps_merged_name_searchable(graph: Graph) -> None:
    """However short: no word of the question finds it."""
    golang, go, _ = graph.create(entity("Golang"), entity("Go"), entity("Gopher"))
    for expected in ({go}, {golang, go}):
        body = {"participants": graph.who, "query": "Do we use Go?"}
        reply = graph.gateway.call("POST", "/api/v1/graph/search", body, key=graph.key)
        (node,) = reply.body["nodes"]
        assert (set(node["members"]), node["why"]) == (expected, ["name"])
        if expected == {go}:
            graph.write("POST", "merges", from_id=go, into_id=golang)


def test_graph_merge_holds_only_in_its_scope(graph: Graph) -> None:
    """Among others the names stay two."""
    other = Graph(graph.gateway, graph.key, ("agent:helper", "user:ada", "user:bo"))
    ada, byron = graph.create(entity("Ada"), entity("Ada Byron"))
    theirs = other.create(entity("Ada"), entity("Ada Byron"))
    graph.write("POST", "merges", from_id=byron, into_id=ada)
    assert groups(other) == {frozenset({node}) for node in theirs}
    assert groups(graph) == {frozenset({ada, byron, theirs[0]}), frozenset({theirs[1]})}
    body = {"from_id": theirs[1], "into_id": ada}
    reply = graph.send("POST", "merges", body)
    assert (reply.status, reply.error["details"]["field"]) == (409, "from_id")


def test_graph_merge_refuses_invalid_pair_by_field(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    ada, same, rowing, rows, tall = graph.create(
        entity("Ada"), entity("Adah"), topic("rowing"), fact("Ada rows"), fact("Ada is tall")
    )
    for start, into, status, field in (
        (ada, rowing, 422, "into_id"),
        (ada, ada, 422, "into_id"),
        (rows, tall, 422, "from_id"),
        (ada, "ent:7", 422, "into_id"),
        ("fact:00000000-0000-8000-8000-000000000000", tall, 422, "from_id"),
    ):
        reply = graph.send("POST", "merges", {"from_id": start, "into_id": into})
        assert (reply.status, reply.error["details"]["field"]) == (status, field), reply.text
    graph.write("POST", "merges", from_id=same, into_id=ada)
    reply = graph.send("POST", "merges", {"from_id": ada, "into_id": same})
    assert (reply.status, reply.error["details"]["field"]) == (409, "into_id")
    for merge_id in ("00000000-0000-8000-8000-000000000000", "x"):
        assert graph.send("POST", f"merges/{merge_id}/undo").status == 404
    assert scratch_db.rows("select count(*) from events") == [(6,)]


def test_graph_merge_proposals_list_near_names(graph: Graph) -> None:
    nils, niels, *_ = graph.create(
        entity("Nils Berg"),
        entity("Niels Berg"),
        entity("Petrel"),
        topic("Petrels"),
        entity("Bo"),
    )
    graph.create(entity("Nils Berg"), fact("Nils Berg rows"), fact("Niels Berg rows"))
    other = Graph(graph.gateway, graph.key, ("agent:helper", "user:ada", "user:bo"))
    other.create(entity("Nils Bergh"))
    answer = graph.read("merges/proposals")
    (proposal,) = answer["proposals"]
    assert (proposal["from_id"], proposal["into_id"]) == (niels, nils), "the one of more weight"
    assert (proposal["similarity"], proposal["cosine"]) == (0.6154, None)
    assert set(proposal["participants"]) == set(WHO)
    assert (answer["compared"], answer["complete"]) == (6, True)
    assert graph.read("merges/proposals", min_similarity=0.7)["proposals"] == []
    scope_id = proposal["scope_id"]
    assert graph.read("merges/proposals", scope_id=scope_id)["compared"] == 5
    graph.write("POST", "merges", from_id=niels, into_id=nils)
    assert graph.read("merges/proposals")["proposals"] == []


def test_graph_merge_proposals_leave_out_refused_pair(
    graph: Graph, scratch_db: ScratchDatabase
) -> None:
    nils, niels, nilse = graph.create(
        entity("Nils Berg"), entity("Niels Berg"), entity("Nils Bergh")
    )

    def proposed() -> set[frozenset[str]]:
        answer = graph.read("merges/proposals")
        return {frozenset((it["from_id"], it["into_id"])) for it in answer["proposals"]}

    all_pairs = proposed()
    assert all_pairs >= {frozenset((nils, niels)), frozenset((nils, nilse))}
    body = {"from_id": niels, "into_id": nils, "reason": "Two brothers"}
    refusal = graph.write("POST", "merges/refusals", **body)
    assert (refusal["from_id"], refusal["into_id"]) == (niels, nils)
    assert proposed() == all_pairs - {frozenset((nils, niels))}
    nodes = graph.read("nodes")["nodes"]
    assert {node["weight"] for node in nodes} == {1}, "a refusal is no evidence"
    *_, last = graph.read(f"nodes/{nils}/history")["observations"]
    assert (last["is_evidence"], last["event_ids"]) == (False, [refusal["event_id"]])
    # It forbids nothing.
    merge = graph.write("POST", "merges", from_id=niels, into_id=nils)
    for pair in ({"from_id": niels, "into_id": nils}, {"from_id": nils, "into_id": nils}):
        reply = graph.send("POST", "merges/refusals", pair)
        assert reply.error["details"]["field"] == "into_id"
    graph.write("POST", f"merges/{merge['merge_id']}/undo")
    # What was refused is proposed again once the statement is gone.
    key = graph.gateway.key("acme", rights=["erase"])
    path = f"/api/v1/events/{refusal['event_id']}"
    assert graph.gateway.call("DELETE", path, key=key).status == 200
    graph.gateway.run_job("eraser", "acme")
    assert proposed() == all_pairs
    assert scratch_db.rows("select count(*) from graph_observations where patch ? 'upkeep'") == [
        (2,)
    ], "the merge and its undoing"


def test_graph_merge_proposals_list_near_vectors(graph: Graph, scratch_db: ScratchDatabase) -> None:
    """With vectors in the present space; another space's do not count."""
    boat, ship, car = graph.create(entity("boat"), entity("ship"), entity("car"))
    space = "minilm-l6-v2-int8/384"
    for node, vector, where in (
        (boat, [1.0, 0.1], space),
        (ship, [1.0, 0.0], space),
        (car, [1.0, 0.0], "another space"),
    ):
        scratch_db.rows(
            "update graph_nodes set space = %s, embedding = %s::halfvec where node_id = %s",
            *(where, json.dumps(vector + [0.0] * 382), node.partition(":")[2]),
        )
    (proposal,) = graph.read("merges/proposals")["proposals"]
    assert {proposal["from_id"], proposal["into_id"]} == {boat, ship}
    assert proposal["cosine"] == pytest.approx(0.995, abs=0.001)
    assert proposal["similarity"] == 0
