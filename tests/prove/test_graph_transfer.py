"""Promise: an export holds what the graph follows from: imported into an empty tenant and exported
again it is the same but for ids and times. A file that is not whole is refused with the line, and
nothing of it is stored."""

import json
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.graph.nodes.observations import EdgeObservation, NodeObservation, ObservationSource
from strandline.graph.nodes.store_observations import write_observations
from strandline.graph.transfer import export, import_file, import_graph, store_import
from strandline.graph.transfer.hashed_lines import ParsedLine
from strandline.graph.transfer.import_file import GraphFileReader
from strandline.graph.transfer.import_rows import ImportedGraphWriter, Row, StoredStatement
from strandline.graph.transfer.parsed_file import GraphFile
from tests.graph_calls import Graph, entity, fact, topic
from tests.graph_files import (
    comparable,
    count_rows,
    damages,
    import_text,
    lines_of,
    of_kind,
    rehash,
)
from tests.graph_files import export as fetch
from tests.support import Gateway, ScratchDatabase
from tests.uploads import cid_of, upload_file

NODES, ANALYZED = 10_000, 500
ADA, BO, HELPER = "user:ada", "user:bo", "agent:helper"
PAIR, ALONE, ALL = (HELPER, ADA), (BO,), (HELPER, ADA, BO)
OTHER = "globex"
NOON = datetime(2026, 5, 8, 12, tzinfo=UTC)


def tell_story(graph: Graph) -> None:
    """Everything that can be said of a graph within one scope."""
    link = {"edge": "fact_entity", "target": "ada", "nuance": "for years", "confidence": 0.7}
    ada, lives, boat = graph.create(
        entity("Ada", kind="person", ref="ada", description="A rower"),
        fact("Ada lives in Oslo", category="personal", relationships=[link], confidence=0.9),
        entity("the Petrel", kind="product"),
    )
    graph.create(entity("Ada", kind="person", confidence=0.25), entity("Ada B."))
    plan, autumn, boats, harbour = graph.create(
        {
            "type": "decision",
            "title": "Sell the boat",
            "rationale": "It leaks: \u201cbadly\u201d.",
            "alternatives": ["repair it", "keep it"],
        },
        {"type": "event", "title": "Regatta", "event_date": "2026-05-08T13:56:00Z"},
        topic("Boats", category="hobby"),
        topic("Harbour", description="Where the boats are.\nNorth."),
    )
    edge = graph.relate("USES", ada, boat, nuance="daily", valid_from="2020-01-01T00:00:00Z")
    graph.relate("decision_entity", plan, boat, role="what is sold")
    graph.relate("event_decision", autumn, plan)
    graph.relate("related", boats, harbour, role="lie in")
    graph.write("POST", f"edges/{edge['id']}/end", reason="It was sold.")
    graph.write("PATCH", f"nodes/{ada}", description=None)
    graph.write("PATCH", f"nodes/{boat}", archived=True)
    graph.write("PATCH", f"nodes/{plan}", status="superseded", confidence=0.5)
    replacement_fact = {"content": "Ada lives in Bergen", "category": "personal"}
    body = {
        "reason": "She moved.",
        "replacement": replacement_fact,
        "valid_from": "2099-01-01T00:00:00Z",
    }
    graph.write("POST", f"nodes/{lives}/invalidate", **body)
    (again,) = graph.create(fact("Ada lives in Oslo", valid_from="2100-01-01T00:00:00Z"))
    assert again != lives
    merge = graph.write("POST", "merges", from_id=graph_id(graph, "Ada B."), into_id=ada)
    graph.write("POST", f"merges/{merge['merge_id']}/undo")
    graph.write("POST", "merges", from_id=harbour, into_id=boats)
    fields = f"topics/{boats}/fields"
    graph.write("POST", f"{fields}/berth", value={"pier": "A", "number": 17}, field_type="place")
    graph.write("POST", f"{fields}/berth", value=None, why_changed="Winter.", ref_topic_id=harbour)
    graph.write("POST", f"{fields}/berth", value=["B", 1.5], ref_topic_id=None)
    graph.write("POST", f"{fields}/owner", value="Ada", impact_expected="She pays.")


def graph_id(graph: Graph, name: str) -> str:
    """The id of the node of this name."""
    nodes = graph.read("nodes", limit=100)["nodes"]
    return next(node["id"] for node in nodes if node["name"] == name)


def promote(gateway: Gateway, key: str) -> None:
    """What a promoted chain said: two things from two people at two times, one a tool's output."""
    bodies: list[dict[str, Any]] = [
        {"role": "user", "speaker": ADA, "content": "Nils skippers the Petrel."},
        {"role": "agent", "speaker": HELPER, "type": "observation", "content": "Petrel: 9 m."},
    ]
    events = [
        gateway.call("POST", "/api/v1/events", {"participants": PAIR, **body}, key=key).body
        for body in bodies
    ]
    source_id = uuid.uuid4()
    sources = [
        ObservationSource(
            source_id=source_id,
            version=2,
            scope_id=uuid.UUID(event["scope_id"]),
            participants=sorted(PAIR),
            event_ids=[uuid.UUID(event["event_id"])],
            trust=trust,
            observed_at=datetime.fromisoformat(event["recorded_at"]),
            valid_from=datetime.fromisoformat(event["recorded_at"]) - timedelta(days=1),
        )
        for event, trust in zip(events, ("user", "tool"), strict=True)
    ]
    nodes = [
        NodeObservation(sources[0], "entity", "Nils", {"category": "person"}, 0.6, 0.5),
        NodeObservation(sources[1], "entity", "the Petrel", {}, 0.9, 0.5),
        NodeObservation(sources[1], "fact", "The Petrel is 9 m long", {"category": "technical"}),
    ]
    edges = [
        EdgeObservation(sources[0], 0, 1, "WORKS_ON", patch={"nuance": "skippers"}, heat=0.5),
        EdgeObservation(sources[1], 2, 1, "fact_entity"),
    ]
    access = gateway.database.connect_as(Caller.background("acme"))
    with access.transaction():
        write_observations(access, nodes, edges)


@pytest.fixture
def key(plenty: Gateway) -> str:
    """An unbound key of a tenant with a graph in three scopes."""
    key = plenty.key()
    tell_story(Graph(plenty, key, PAIR))
    promote(plenty, key)
    Graph(plenty, key, ALONE).create(fact("Bo rows"), entity("Ada", kind="person"))
    Graph(plenty, key, ALL).create(entity("Ada"), topic("Boats"))
    return key


def round_trip(gateway: Gateway, data: bytes, *who: str, tenant: str = OTHER) -> Any:
    """Import a file into an empty tenant, and check that its export is the same. Raises
    AssertionError."""
    other = gateway.key(tenant, rights=("read", "write", "admin"))
    reply = import_text(gateway, other, data)
    assert reply.status == 201, reply.text
    _, again = fetch(gateway, other, *who, everybody=not who)
    assert comparable(again) == comparable(data)
    return reply.body


# the round trip ----------------------------------------------------------------------------------


def test_graph_transfer_import_is_exported_the_same(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase
) -> None:
    admin = plenty.key(rights=("read", "admin"))
    answer, data = fetch(plenty, admin, everybody=True)
    assert answer["counts"]["scopes"] == 3
    assert {trust["trust"] for trust in of_kind(data, "statement")} == {"user", "tool"}
    states = [line["state"] for line in of_kind(data, "node")]
    assert any(state["valid_to"] for state in states)
    assert any(state["archived"] for state in states)
    assert any(state["merged_into"] for state in states)
    imports = round_trip(plenty, data)
    assert imports["counts"] == answer["counts"]
    assert imports["new_statements"] == answer["counts"]["statements"]
    assert (imports["known_statements"], imports["lowered_trust"]) == (0, 0)
    other = plenty.key(OTHER)
    before = count_rows(scratch_db, OTHER)
    reply = import_text(plenty, other, data)
    assert reply.headers["Idempotent-Replayed"] == "true"
    assert (reply.body["new_statements"], reply.body["new_nodes"]) == (0, 0)
    assert count_rows(scratch_db, OTHER) == before
    # An export of the same graph at another time has nothing new; nor has its own, at home.
    _, later = fetch(plenty, admin, everybody=True)
    assert later != data
    assert import_text(plenty, other, later).body["new_statements"] == 0
    before = count_rows(scratch_db, "acme")
    assert import_text(plenty, key, later).body["new_statements"] == 0
    assert count_rows(scratch_db, "acme") == before
    Graph(plenty, key, PAIR).create(fact("Ada rows"))
    _, later = fetch(plenty, admin, everybody=True)
    assert import_text(plenty, other, later).body["new_statements"] == 1
    read = Graph(plenty, other, PAIR)
    nodes = read.read("nodes", limit=100)["nodes"]
    assert "Ada rows" in {node["name"] for node in nodes}
    statements = of_kind(fetch(plenty, other, *ALONE)[1], "statement")
    (event,) = next(line["events"] for line in statements if line["content"] == "Bo rows.")
    body = plenty.call("GET", f"/api/v1/events/{event}", key=other, query={"participants": BO}).body
    assert (body["type"], body["content"]) == ("statement", "Bo rows.")
    assert body["metadata"]["graph"]["import"]["says"][0]["node"] == ["fact", "Bo rows", 0]


@pytest.mark.parametrize("user", [None, ADA])
def test_graph_transfer_there_and_back_adds_nothing(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase, user: str | None
) -> None:
    there = plenty.key(OTHER, user=user)
    _, data = fetch(plenty, key, *PAIR)
    assert import_text(plenty, there, data).body["new_statements"] > 0
    Graph(plenty, there, PAIR).create(fact("Ada rows"))
    _, back = fetch(plenty, there, *PAIR)
    assert import_text(plenty, key, back).body["new_statements"] == 1
    before = [count_rows(scratch_db, tenant) for tenant in ("acme", OTHER)]
    for _ in range(2):
        import_text(plenty, there, fetch(plenty, key, *PAIR)[1])
        import_text(plenty, key, fetch(plenty, there, *PAIR)[1])
    assert [count_rows(scratch_db, tenant) for tenant in ("acme", OTHER)] == before


FAULTS: Mapping[str, Callable[[int], Row]] = {
    "a-field": lambda n: {"confidence": None},
    "an-order": lambda n: {"observed_at": (NOON - timedelta(seconds=n)).isoformat()},
    "a-time": lambda n: {"valid_from": NOON.isoformat()},
}
"""What an import may get wrong in its rows, by the name of a tenant."""


def test_graph_transfer_test_detects_difference(
    plenty: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = ImportedGraphWriter.iter_observation_rows
    _, data = fetch(plenty, key, ADA)
    for tenant, change in FAULTS.items():

        def faulty(
            writer: ImportedGraphWriter,
            statements: Sequence[StoredStatement],
            change: Callable[[int], Row] = change,
        ) -> Iterator[Row]:
            for n, row in enumerate(describe(writer, statements)):
                yield {**row, **change(n)}

        monkeypatch.setattr(ImportedGraphWriter, "iter_observation_rows", faulty)
        with pytest.raises(AssertionError):
            round_trip(plenty, data, ADA, tenant=tenant)


@pytest.mark.proof
def test_graph_transfer_round_trips_large_graph(
    plenty: Gateway,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through an upload, with vectors, in pages that are smaller than it."""
    if proof_size(NODES) < NODES:
        monkeypatch.setattr("strandline.graph.transfer.store_export.PAGE", 40)
        monkeypatch.setattr(store_import, "_ROWS", 70)
    rng, count, key = random.Random(5), proof_size(NODES), plenty.key()
    graph = Graph(plenty, key, PAIR)
    for start in range(0, count, 50):
        nodes: list[dict[str, Any]] = []
        for n in range(start, min(start + 50, count)):
            link = {"edge": "RELATES_TO", "target": f"n{start}"}
            links = [link] if n > start else []
            kind = entity(f"Thing {n} {rng.random()}", ref=f"n{n}", relationships=links)
            nodes.append(kind)
        graph.create(*nodes)
        if start == ANALYZED:  # as autovacuum does once a minute: without, this fill takes longer
            scratch_db.rows("analyze")
    has_vectors = count < NODES
    if has_vectors:
        plenty.sweep()
    began = datetime.now(UTC)
    answer, data = fetch(plenty, key, ADA, vectors=has_vectors)
    print(f"  {answer['counts']}: exported in {(datetime.now(UTC) - began).total_seconds():.1f} s")
    assert answer["counts"]["nodes"] == count
    assert all(bool(line.get("vector")) == has_vectors for line in of_kind(data, "node"))
    other = plenty.key(OTHER)
    upload_file(plenty, other, data)
    scratch_db.rows("analyze")  # what makes it hardest: statistics know the tables, not the tenant
    began = datetime.now(UTC)
    reply = plenty.call("POST", "/api/v1/graph/imports", {"cid": cid_of(data)}, key=other)
    seconds = (datetime.now(UTC) - began).total_seconds()
    print(f"  {count} nodes, {len(data)} bytes: imported in {seconds:.1f} s")
    assert reply.status == 201, reply.text
    plain = [{**line, "vector": 0} for line in comparable(data)]
    _, again = fetch(plenty, other, ADA)
    assert [{**line, "vector": 0} for line in comparable(again)] == plain


# damage ------------------------------------------------------------------------------------------


def refuse_damages(
    gateway: Gateway, base: ScratchDatabase, data: bytes, tenant: str = OTHER
) -> None:
    """Import each damaged file, and check that it is refused with its line, and that nothing is
    stored. Raises AssertionError."""
    other = gateway.key(tenant)
    assert len(lines_of(data)) > 30
    for what, number, damaged in damages(data):
        if not damaged:
            continue  # nothing is left: the request itself is refused
        reply = import_text(gateway, other, damaged)
        results = reply.status, reply.body.get("error", {}).get("details", {}).get("line")
        assert results == (422, number), f"line {number} {what}: {reply.text[:300]}"
        assert f"line {number}: " in reply.error["message"]
    assert set(count_rows(base, tenant).values()) == {0}


def test_graph_import_of_damaged_file_is_refused_with_line(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase
) -> None:
    _, data = fetch(plenty, key, *PAIR)
    refuse_damages(plenty, scratch_db, data)


def test_graph_transfer_test_detects_damaged_file_taken(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: a reader that believes all hashes, and one that needs no end."""
    _, data = fetch(plenty, key, *PAIR)

    def trusting(data: bytes) -> Iterator[ParsedLine]:
        for number, line in enumerate(data.splitlines(), 1):
            if line.endswith(b"}"):
                members = json.loads(line)
                yield ParsedLine(number, {n: v for n, v in members.items() if n != "chain"})

    def lenient(reader: GraphFileReader, last: int) -> GraphFile:
        del last
        return reader.file

    with monkeypatch.context() as patch:
        patch.setattr(import_file, "read_verified_lines", trusting)
        with pytest.raises((AssertionError, ValueError)):
            refuse_damages(plenty, scratch_db, data, "trusting")
    monkeypatch.setattr(GraphFileReader, "check_and_finish", lenient)
    with pytest.raises(AssertionError):
        refuse_damages(plenty, scratch_db, data, "lenient")


def fail_halfway(gateway: Gateway, base: ScratchDatabase, data: bytes) -> None:
    """Import with a fault after nodes and edges were written, and check that nothing is there."""
    other = gateway.key(OTHER)
    assert import_text(gateway, other, data).status == 500
    assert set(count_rows(base, OTHER).values()) == {0}


def test_graph_transfer_failed_import_leaves_nothing(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data = fetch(plenty, key, *PAIR)

    def fail(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(store_import, "add_revisions", fail)
    fail_halfway(plenty, scratch_db, data)
    store = import_graph.charge_and_store_statements

    def in_two(quotas: Any, queue: Any, access: Any, batch: Any, write: Any, until: Any) -> Any:
        results: list[Any] = []
        store(quotas, queue, access, batch, results.extend, until)
        with access.transaction():
            write(results)
        return results

    monkeypatch.setattr(import_graph, "charge_and_store_statements", in_two)
    with pytest.raises(AssertionError):
        fail_halfway(plenty, scratch_db, data)


def replace_member(kind: str, member: str, value: object) -> Callable[[list[dict[str, Any]]], int]:
    """A change of the first line of a kind; gives the line's number."""

    def change(lines: list[dict[str, Any]]) -> int:
        line = next(line for line in lines if line["kind"] == kind)
        line[member] = value
        return line["line"]

    return change


def restate(lines: list[dict[str, Any]]) -> int:
    """The fact that holds again has not ended before."""
    for line in lines:
        for message in line.get("says", []):
            message["patch"] = {n: v for n, v in message["patch"].items() if n != "valid_to"}
    return next(line["line"] for line in lines if line.get("ordinal"))


DECEITS: dict[str, Callable[[list[dict[str, Any]]], int]] = {
    "no scope's participants": replace_member("scope", "participants", ["user:b", "user:a"]),
    "another format": replace_member("header", "version", 2),
    "counts": replace_member("header", "counts", {}),
    "a node's number": replace_member("node", "node", 7),
    "an unknown type": replace_member("node", "type", "person"),
    "an edge to itself": replace_member("edge", "to_node", 1),
    "an edge to nowhere": replace_member("edge", "to_node", 999),
    "a type of edge": replace_member("edge", "type", "invalidates"),
    "a speaker who was not there": replace_member("statement", "speaker", "user:eve"),
    "an unknown origin": replace_member("statement", "trust", "root"),
    "an id that is none": replace_member("statement", "id", "x"),
    "an unknown member": replace_member("statement", "verified", value=True),
    "a statement of nothing": replace_member("statement", "says", []),
    "a type of field": replace_member("field", "field_type", "A b"),
    "a fact that never ended": restate,
}


def test_graph_transfer_checks_forged_file(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase
) -> None:
    _, data = fetch(plenty, key, *PAIR)
    other = plenty.key(OTHER)
    for name, deceive in DECEITS.items():
        lines = lines_of(data)
        number = deceive(lines)
        reply = import_text(plenty, other, rehash(lines))
        assert reply.status == 422, f"{name}: {reply.text}"
        assert reply.error["details"]["line"] == number, f"{name}: {reply.text}"
    assert set(count_rows(scratch_db, OTHER).values()) == {0}
    assert import_text(plenty, other, rehash(lines_of(data))).status == 201


# who sees what -----------------------------------------------------------------------------------


def test_graph_transfer_export_is_of_caller_view(plenty: Gateway, key: str) -> None:
    bound = plenty.key(user=BO)
    _, data = fetch(plenty, bound)
    scopes = [line["participants"] for line in of_kind(data, "scope")]
    assert scopes == [sorted(ALL), [BO]]
    assert "Oslo" not in data.decode()
    scope_id = Graph(plenty, key, PAIR).write("POST", "nodes", nodes=[topic("Boats")])["scope_id"]
    mine = fetch(plenty, key, ADA, scope_id=scope_id)[1]
    assert [line["participants"] for line in of_kind(mine, "scope")] == [sorted(PAIR)]
    body = {"scope_id": scope_id}
    assert plenty.call("POST", "/api/v1/graph/exports", body, key=bound).status == 404
    stranger = plenty.key(OTHER, user=ADA)
    assert plenty.call("POST", "/api/v1/graph/exports", body, key=stranger).status == 404
    assert fetch(plenty, stranger)[0]["counts"]["nodes"] == 0
    nobody = plenty.call("POST", "/api/v1/graph/exports", {}, key=key)
    assert (nobody.status, nobody.error["details"]) == (422, {"field": "participants"})


def test_graph_transfer_import_respects_trust_and_rights(
    plenty: Gateway, key: str, scratch_db: ScratchDatabase
) -> None:
    _, data = fetch(plenty, key, *PAIR)
    bo = import_text(plenty, plenty.key(OTHER, user=BO), data)
    assert (bo.status, bo.error["details"]["line"]) == (403, 2)
    assert set(count_rows(scratch_db, OTHER).values()) == {0}
    lines = lines_of(data)
    for line in lines:
        if line["kind"] == "statement":
            line |= {"role": "system", "speaker": None, "trust": "system"}
    ada = plenty.key(OTHER, user=ADA)
    reply = import_text(plenty, ada, rehash(lines))
    assert (reply.status, reply.body["lowered_trust"]) == (201, reply.body["new_statements"])
    of_tenant = "from events where tenant_id = %s"
    assert scratch_db.rows(f"select distinct origin, speaker, writer {of_tenant}", OTHER) == [
        ("user", ADA, ADA)
    ]
    third = plenty.key("initech", user=ADA)
    assert import_text(plenty, third, data).status == 201
    trust = "select distinct trust from graph_nodes where tenant_id = 'initech' order by 1"
    assert scratch_db.rows(trust) == [("tool",), ("user",)]


def test_graph_transfer_too_large_is_refused_with_remedy(
    plenty: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, data = fetch(plenty, key, ADA)
    monkeypatch.setattr(import_graph, "MAX_STATEMENTS", 5)
    reply = import_text(plenty, plenty.key(OTHER), data)
    assert (reply.status, reply.error["details"]["limit"]) == (413, 5)
    other = plenty.key(OTHER)
    upload_file(plenty, other, data)
    monkeypatch.setattr(import_graph, "MAX_FILE_BYTES", 100)
    reply = plenty.call("POST", "/api/v1/graph/imports", {"cid": cid_of(data)}, key=other)
    assert (reply.status, reply.error["details"]["limit"]) == (413, 100)
    body = {"cid": cid_of(b"another")}
    reply = plenty.call("POST", "/api/v1/graph/imports", body, key=other)
    assert (reply.status, reply.error["details"]["field"]) == (422, "cid")
    for name, value in (("MAX_ROWS", 20), ("MAX_FILE_BYTES", 2000)):
        with monkeypatch.context() as patch:
            patch.setattr(export, name, value)
            reply = plenty.call("POST", "/api/v1/graph/exports", {"participants": PAIR}, key=key)
            assert (reply.status, reply.error["details"]["limit"]) == (413, value)
            assert "scope_id" in reply.error["message"]
