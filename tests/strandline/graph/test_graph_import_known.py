"""A graph import adds what the graph does not have as a whole from the same moment, and nothing
else."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from tests.graph_calls import Graph, entity, fact, topic
from tests.graph_files import count_rows, export, import_text, lines_of, of_kind, rehash
from tests.support import Gateway, ScratchDatabase

ADA = "user:ada"
ALL = ("agent:helper", ADA, "user:bo")
OTHER = "globex"
NOON = "2026-05-08T12:00:00+00:00"
CITIES = ("Borealis", "Corona", "Draco", "Eridani")

type Line = dict[str, Any]


def tell_job(gateway: Gateway, tenant: str, *cities: str) -> bytes:
    """The file of a fact that is related to these cities, all said by one statement."""
    key = gateway.key(tenant)
    links = [{"edge": "fact_entity", "target": city.lower()} for city in cities]
    Graph(gateway, key).create(
        *(entity(city, ref=city.lower()) for city in cities),
        fact("Ada changed her job", relationships=links),
    )
    lines = lines_of(export(gateway, key, ADA)[1])
    statements = [line for line in lines if line["kind"] == "statement"]
    says = {
        (said.get("edge"), said.get("node")): {**said, "valid_from": NOON}
        for line in statements
        for said in line["says"]
    }
    one = {
        **statements[-1],
        "said_at": NOON,
        "content": "Ada changed her job.",
        "says": [*says.values()],
    }
    return make_file([line for line in lines if line not in statements], one)


def make_file(others: list[Line], *statements: Line) -> bytes:
    """A file of these lines and statements."""
    header, *rows, end = others
    counts = {
        **header["counts"],
        "statements": len(statements),
        "observations": sum(len(line["says"]) for line in statements),
    }
    count = len(others) + len(statements)
    return rehash([{**header, "counts": counts}, *rows, *statements, {**end, "lines": count}])


def test_graph_import_stores_superset_of_edges_of_one_moment(gateway: Gateway) -> None:
    few = tell_job(gateway, "acme", CITIES[0])
    many = tell_job(gateway, "initech", *CITIES)
    key = gateway.key(OTHER)
    assert import_text(gateway, key, few).body["new_edges"] == 1
    body = import_text(gateway, key, many).body
    assert (body["new_statements"], body["new_edges"]) == (1, 3)
    assert len(of_kind(export(gateway, key, ADA)[1], "edge")) == 4
    # What a larger statement of the same moment says is known.
    third = gateway.key("umbrella")
    assert import_text(gateway, third, many).body["new_edges"] == 4
    assert import_text(gateway, third, few).body["known_statements"] == 1


def say(member: str, value: object) -> Callable[[Line], None]:
    """A change of the last observation of a statement."""
    return lambda line: line["says"][-1].update({member: value})


DIFFERENCES: dict[str, Callable[[Line], None]] = {
    "speaker": lambda line: line.update(role="agent", speaker="agent:helper"),
    "content": lambda line: line.update(content="Ada has another job."),
    "trust": lambda line: line.update(trust="agent"),
    "moment": lambda line: line.update(said_at="2026-05-08T12:00:01+00:00"),
    "confidence": say("confidence", 0.25),
    "heat": say("heat", 0.25),
    "valid_from": say("valid_from", "2026-05-08T11:00:00+00:00"),
    "patch": say("patch", {"description": "Her third."}),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_graph_import_stores_statement_that_differs_in(gateway: Gateway, name: str) -> None:
    data = tell_job(gateway, "acme", CITIES[0])
    lines = lines_of(data)
    DIFFERENCES[name](next(line for line in lines if line["kind"] == "statement"))
    key = gateway.key(OTHER)
    assert import_text(gateway, key, data).body["new_statements"] == 1
    assert import_text(gateway, key, rehash(lines)).body["new_statements"] == 1
    both = export(gateway, key, ADA)[1]
    assert len(of_kind(both, "statement")) == 2
    # Imported together elsewhere, each of them is known there.
    third = gateway.key("umbrella")
    assert import_text(gateway, third, both).body["new_statements"] == 2
    assert import_text(gateway, third, data).body["new_statements"] == 0


def test_graph_import_stores_each_copy_of_statement(gateway: Gateway) -> None:
    data = tell_job(gateway, "acme", CITIES[0])
    lines = lines_of(data)
    others = [line for line in lines if line["kind"] != "statement"]
    (one,) = (line for line in lines if line["kind"] == "statement")
    twice = make_file(others, one, {**one, "id": str(uuid.uuid4())})
    key = gateway.key(OTHER)
    assert import_text(gateway, key, data).body["new_statements"] == 1
    assert import_text(gateway, key, twice).body["new_statements"] == 1
    assert import_text(gateway, key, twice).body["new_statements"] == 0


REVISIONS: dict[str, Callable[[Line], None]] = {
    "value": lambda line: line["revision"].update(value="C"),
    "reason": lambda line: line["revision"].update(why_changed="Sold."),
    "topic": say("confidence", 0.25),
    "content": lambda line: line.update(content="The berth is B."),
}


@pytest.mark.parametrize("name", REVISIONS)
def test_graph_import_stores_revision_that_differs_in(gateway: Gateway, name: str) -> None:
    key = gateway.key()
    graph = Graph(gateway, key)
    (boats,) = graph.create(topic("Boats"))
    graph.write("POST", f"topics/{boats}/fields/berth", value="B")
    data = export(gateway, key, ADA)[1]
    lines = lines_of(data)
    REVISIONS[name](next(line for line in lines if "revision" in line))
    other = gateway.key(OTHER)
    assert import_text(gateway, other, data).body["new_revisions"] == 1
    assert import_text(gateway, other, rehash(lines)).body["new_revisions"] == 1


@pytest.mark.parametrize("user", [None, ADA])
def test_graph_import_known_after_exchange(
    gateway: Gateway, scratch_db: ScratchDatabase, user: str | None
) -> None:
    """Both graphs revise a field, and nobody is named as the speaker."""
    keys = gateway.key(), gateway.key(OTHER, user=user)
    here, there = (Graph(gateway, key, ALL) for key in keys)
    boats, harbour = here.create(topic("Boats"), topic("Harbour"))
    path = f"topics/{boats}/fields/berth"
    here.write("POST", path, value="A", ref_topic_id=harbour)
    here.write("POST", path, value="B")
    data = export(gateway, keys[0], ADA)[1]
    assert import_text(gateway, keys[1], data).body["new_revisions"] == 2
    nodes = there.read("nodes", type="topic")["nodes"]
    same = next(node["id"] for node in nodes if node["name"] == "Boats")
    there.write("POST", f"topics/{same}/fields/berth", value="C", ref_topic_id=None)
    here.write("POST", path, value="D")

    def exchange() -> list[int]:
        back = import_text(gateway, keys[0], export(gateway, keys[1], ADA)[1])
        forth = import_text(gateway, keys[1], export(gateway, keys[0], ADA)[1])
        return [back.body["new_statements"], forth.body["new_statements"]]

    assert exchange() == [1, 1]
    before = [count_rows(scratch_db, tenant) for tenant in ("acme", OTHER)]
    assert exchange() == [0, 0]
    assert [count_rows(scratch_db, tenant) for tenant in ("acme", OTHER)] == before
