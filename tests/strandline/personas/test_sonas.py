"""Sonas: looked up by name and by meaning, renamed, merged; where they are among memories, and what
that is worth to a search."""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support import Gateway, Reply, ScratchDatabase, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
SONAS = "/api/v1/sonas"


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key(user=ALICE)


def find(gateway: Gateway, key: str, name: str) -> Any:
    reply = gateway.call("POST", SONAS, {"name": name}, key=key)
    assert reply.status == (201 if reply.body["found_by"] == "new" else 200), reply.text
    return reply.body


def sona(gateway: Gateway, key: str, uuid: str, **query: Any) -> Any:
    reply = gateway.call("GET", f"/sona/{uuid}", key=key, query={"include": "centroid", **query})
    assert reply.status == 200, reply.text
    return reply.body


def activate(gateway: Gateway, key: str, uuid: str, *event_ids: str) -> Reply:
    return gateway.call("POST", f"{SONAS}/{uuid}/memories", {"event_ids": event_ids}, key=key)


def list_ids(gateway: Gateway, key: str, **query: Any) -> list[str]:
    page = gateway.call("GET", "/sonas/list", key=key, query=query).body
    return [one["names"][0] for one in page["sonas"]]


def test_sona_is_found_by_name_or_meaning(gateway: Gateway, key: str) -> None:
    """Exactly, whatever its case and spaces; else by meaning; else it is new."""
    first = find(gateway, key, "The accountant")
    assert (first["found_by"], first["names"]) == ("new", ["The accountant"])
    again = find(gateway, key, "  the   ACCOUNTANT ")
    assert (again["uuid"], again["found_by"]) == (first["uuid"], "name")
    near = find(gateway, key, "The accountants")
    assert (near["uuid"], near["found_by"]) == (first["uuid"], "meaning")
    other = find(gateway, key, "Dungeon master")
    assert (other["found_by"], other["uuid"] != first["uuid"]) == ("new", True)
    assert list_ids(gateway, key) == ["Dungeon master", "The accountant"]

    def race(_: int) -> Any:
        return find(gateway, key, "Lighthouse keeper")

    with ThreadPoolExecutor(4) as pool:
        racers = list(pool.map(race, range(4)))
    assert len({racer["uuid"] for racer in racers}) == 1
    assert [racer["found_by"] for racer in racers].count("new") == 1


def without_vector(*_: object) -> tuple[None, list[str]]:
    """As embed_query answers without the model."""
    return None, []


def test_sona_without_embedding_model_needs_exact_name(
    gateway: Gateway, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And are compared by meaning once it is back."""
    with monkeypatch.context() as patch:
        patch.setattr("strandline.personas.sonas.embed_query", without_vector)
        first = find(gateway, key, "The accountant")
        assert find(gateway, key, "the accountant")["uuid"] == first["uuid"]
    assert find(gateway, key, "The accountants")["found_by"] == "meaning"


def test_sona_belongs_to_its_writer(gateway: Gateway, key: str) -> None:
    """A bound user's, or of all unbound credentials together; every way to another's is as to
    none."""
    own = find(gateway, key, "Accountant")["uuid"]
    unbound, bob = gateway.key(), gateway.key(user=BOB)
    other = find(gateway, unbound, "Accountant")["uuid"]
    assert len({own, other, find(gateway, bob, "Accountant")["uuid"]}) == 3
    assert find(gateway, gateway.key(), "Accountant")["uuid"] == other
    assert (list_ids(gateway, key), list_ids(gateway, unbound)) == (["Accountant"], ["Accountant"])
    for stranger in (bob, gateway.key("globex", user=ALICE), unbound):
        for method, path, body in (
            ("GET", f"/sona/{own}?participants={ALICE}", None),
            ("PATCH", f"{SONAS}/{own}", {"names": ["Mine now"]}),
            ("POST", f"{SONAS}/{own}/merge", {"into": other}),
            ("POST", f"{SONAS}/{own}/memories", {"event_ids": [own]}),
        ):
            path, _, participants = path.partition("?participants=")
            query = {"participants": participants} if participants else {}
            assert gateway.call(method, path, body, key=stranger, query=query).status == 404, path


def test_sona_names_need_read_right(gateway: Gateway, key: str) -> None:
    uuid = find(gateway, key, "The accountant")["uuid"]
    other = find(gateway, key, "Dungeon master")["uuid"]
    writer = gateway.key(user=ALICE, rights=["write"])
    for method, path, body in (
        ("POST", SONAS, {"name": "The accountant"}),
        ("POST", SONAS, {"name": "The accountants"}),
        ("POST", SONAS, {"name": "Lighthouse keeper"}),
        ("PATCH", f"{SONAS}/{uuid}", {"names": ["dungeon master"]}),
        ("POST", f"{SONAS}/{uuid}/merge", {"into": other}),
    ):
        reply = gateway.call(method, path, body, key=writer)
        assert (reply.status, reply.error["details"]["right"]) == (403, "read"), path
    assert list_ids(gateway, key) == ["Dungeon master", "The accountant"]


def test_sona_is_renamed(gateway: Gateway, key: str) -> None:
    uuid = find(gateway, key, "Accountant")["uuid"]
    find(gateway, key, "Dungeon master")
    path = f"{SONAS}/{uuid}"
    reply = gateway.call("PATCH", path, {"names": ["Bookkeeper", "Treasurer"]}, key=key)
    assert (reply.status, reply.body["names"]) == (200, ["Bookkeeper", "Treasurer"])
    assert find(gateway, key, "treasurer")["uuid"] == uuid
    response = gateway.call("PATCH", path, {"names": ["dungeon  MASTER"]}, key=key)
    assert (response.status, response.error["details"]["field"]) == (409, "names")
    twice = gateway.call("PATCH", path, {"names": ["One", "one"]}, key=key)
    assert (twice.status, twice.error["details"]["field"]) == (422, "names")
    for names in ([], ["  "], ["x" * 201]):
        assert gateway.call("PATCH", path, {"names": names}, key=key).status == 422
    assert sona(gateway, key, uuid)["names"] == ["Bookkeeper", "Treasurer"]


def test_sona_list_pages_are_stable(gateway: Gateway, key: str) -> None:
    names = ["Accountant", "Dungeon master", "Lighthouse keeper", "Gardener"]
    for name in names[:3]:
        find(gateway, key, name)
    first = gateway.call("GET", "/sonas/list", key=key, query={"limit": 2}).body
    find(gateway, key, names[3])
    more = {"limit": 2, "cursor": first["next_cursor"]}
    rest = gateway.call("GET", "/sonas/list", key=key, query=more).body
    got = [one["names"][0] for page in (first, rest) for one in page["sonas"]]
    assert (got, rest["next_cursor"]) == (names[2::-1], None)
    assert gateway.call("GET", "/sonas/list", key=gateway.key(user=BOB), query=more).status == 400


def test_sona_centroid_is_mean_of_visible_memories(
    gateway: Gateway, tell: Tell, scratch_db: ScratchDatabase
) -> None:
    """Of an unbound credential's sona: each reader gets the mean of the events that it sees, and a
    redelivery changes nothing."""
    key = gateway.key()
    uuid = find(gateway, key, "Harbour master")["uuid"]
    alone = tell(key, "The pilot boat leaves at dawn.", ALICE)["event_id"]
    shared = tell(key, "The crane is out of order.", ALICE, BOB)["event_id"]
    tell(key, "The tug has a new engine.", ALICE, metadata={"sona": uuid})
    tell(key, "Nobody's.", ALICE, metadata={"sona": "no uuid"})
    assert activate(gateway, key, uuid, alone, shared, alone).body["added"] == 2
    assert sona(gateway, key, uuid, participants=ALICE)["centroid"] is None
    for _ in range(2):
        gateway.sweep()
        again = activate(gateway, key, uuid, shared).body
        assert (again["added"], again["known"]) == (0, 1)
    for who, count in ((ALICE, 3), (BOB, 1), (HELPER, 0)):
        vectors = [
            json.loads(text)
            for (text,) in scratch_db.rows(
                "select embedding::text from event_vectors v join sona_members m"
                " using (tenant_id, event_id) where v.participants @> array[%s]",
                who,
            )
        ]
        place = sona(gateway, key, uuid, participants=who)
        assert (place["memories"], len(vectors)) == (count, count)
        if vectors:
            mean = [math.fsum(column) / count for column in zip(*vectors, strict=True)]
            assert place["centroid"] == pytest.approx(mean, abs=1e-6)
        else:
            assert place["centroid"] is None
    plain = gateway.call("GET", f"/sona/{uuid}", key=key, query={"participants": ALICE}).body
    assert (plain["memories"], plain["centroid"]) == (3, None)


def test_sona_is_named_only_by_events_of_its_writer(gateway: Gateway, key: str, tell: Tell) -> None:
    uuid = find(gateway, key, "Gardener")["uuid"]
    tell(gateway.key(), "Planted by another.", ALICE, metadata={"sona": uuid})
    gateway.sweep()
    assert sona(gateway, key, uuid)["memories"] == 0
    tell(key, "The roses are cut.", ALICE, metadata={"sona": uuid.upper()})
    gateway.sweep()
    assert sona(gateway, key, uuid)["memories"] == 1


def test_sona_memories_must_all_be_in_view(gateway: Gateway, key: str, tell: Tell) -> None:
    uuid = find(gateway, key, "Gardener")["uuid"]
    own = tell(key, "The roses are cut.", ALICE)["event_id"]
    bobs = tell(gateway.key(user=BOB), "The roses are bob's.", BOB)["event_id"]
    reply = activate(gateway, key, uuid, own, bobs)
    assert (reply.status, reply.error["details"]["field"]) == (422, "event_ids")
    gateway.sweep()
    assert sona(gateway, key, uuid)["memories"] == 0


def test_sona_merge_joins_names_and_memories(gateway: Gateway, tell: Tell) -> None:
    """Its names and its memories, each once; also for what is told of it later."""
    key = gateway.key()
    a, b = (find(gateway, key, name)["uuid"] for name in ("Accountant", "Dungeon master"))
    both = tell(key, "The dragon's hoard is taxed.", ALICE)["event_id"]
    alone = tell(key, "The goblins pay in silver.", ALICE, BOB)["event_id"]
    activate(gateway, key, a, both)
    activate(gateway, key, b, both, alone)
    gateway.sweep()
    for _ in range(2):
        reply = gateway.call("POST", f"{SONAS}/{b}/merge", {"into": a}, key=key)
        assert (reply.status, reply.body["uuid"]) == (200, a)
        assert reply.body["names"] == ["Accountant", "Dungeon master"]
    assert (find(gateway, key, "dungeon master")["uuid"], list_ids(gateway, key)) == (
        a,
        ["Accountant"],
    )
    late = tell(key, "The wizard owes rent.", ALICE, metadata={"sona": b})["event_id"]
    gateway.sweep()
    assert activate(gateway, key, b, both, late).body == {"uuid": a, "added": 0, "known": 2}
    for uuid in (a, b):
        view = sona(gateway, key, uuid, participants=ALICE)
        assert (view["uuid"], view["memories"]) == (a, 3)
    itself = gateway.call("POST", f"{SONAS}/{a}/merge", {"into": b}, key=key)
    assert (itself.status, itself.body["uuid"]) == (200, a)
    nowhere = gateway.call("POST", f"{SONAS}/{a}/merge", {"into": both}, key=key)
    assert (nowhere.status, nowhere.error["details"]["field"]) == (422, "into")


def test_sona_orders_recall_and_hides_no_hit(gateway: Gateway, key: str, tell: Tell) -> None:
    """Only where it is weighted: what answers at all stays the same."""
    work, play = (find(gateway, key, name)["uuid"] for name in ("Accountant", "Dungeon master"))
    for uuid, text in (
        (play, "The budget for the tavern is forty gold pieces."),
        (work, "The budget for the office is forty thousand euros."),
        (play, "The dwarves brew ale in the mountain hall."),
        (work, "The auditors come in March for the annual report."),
    ):
        tell(key, text, ALICE, metadata={"sona": uuid})
    tell(key, "The budget for the garden is forty seeds.", ALICE)
    gateway.sweep()
    query = {"query": "What is the budget?", "min_relevance": 0, "explain": True}

    def texts(**more: Any) -> list[Any]:
        reply = gateway.call("POST", "/api/v1/recall", {**query, **more}, key=key)
        assert reply.status == 200, reply.text
        return reply.body["hits"]

    plain = texts()
    assert texts(sona=work) == plain
    for name, first in ((work, "office"), ("Dungeon master", "tavern")):
        hits = texts(sona=name, weights={"sona": 1.0})
        assert first in hits[0]["text"]
        assert hits[0]["features"]["sona"] == 1
        assert all(0 <= hit["features"]["sona"] <= 1 for hit in hits)
        assert {hit["event_id"] for hit in hits} == {hit["event_id"] for hit in plain}
        assert {hit["relevance"] for hit in hits} == {hit["relevance"] for hit in plain}
    unknown = gateway.call("POST", "/api/v1/recall", {**query, "sona": "Astronaut"}, key=key)
    assert (unknown.status, unknown.error["details"]["field"]) == (422, "sona")
