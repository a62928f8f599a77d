"""Communities through the API: listed, paged, explored; a user's own, and the whole tenant's."""

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.graph.communities import read_communities
from tests.strandline.graph.crews import ADA, BO, TWO_CREWS, crew, state
from tests.support import Gateway, Reply, ScratchDatabase

LIST, TENANT_LIST = "/api/v1/graph/communities", "/api/v1/admin/communities"


@pytest.fixture
def ids(gateway: Gateway) -> dict[str, str]:
    """Two crews of ada's and one of bo's, analysed; gives the ids of ada's nodes by name."""
    result = state(gateway, TWO_CREWS, ADA)
    state(gateway, crew("Petrel", "Ebba", "Finn"), BO)
    gateway.run_job("analytics", "acme")
    return result


@pytest.fixture
def ada(gateway: Gateway) -> str:
    return gateway.key(user="user:ada")


@pytest.fixture
def admin(gateway: Gateway) -> str:
    return gateway.key(rights=("read", "admin"))


def read(gateway: Gateway, key: str, path: str = LIST, **query: object) -> Any:
    reply = gateway.call("GET", path, key=key, query=query)
    assert reply.status == 200, reply.text
    return reply.body


def pages(gateway: Gateway, key: str, path: str, field: str) -> Iterator[Any]:
    """All entries, one a page."""
    query: dict[str, object] = {"limit": 1}
    while True:
        page = read(gateway, key, path, **query)
        yield from page[field]
        if page["next_cursor"] is None:
            return
        query["cursor"] = page["next_cursor"]


def test_community_is_named_and_explored(gateway: Gateway, ids: dict[str, str], ada: str) -> None:
    result = read(gateway, ada)["communities"]
    assert [one["size"] for one in result] == [6, 5]
    names = {one["name"].partition(",")[0]: one for one in result}
    assert set(names) == {"Petrel", "Lighthouse"}
    assert all(len(name["name"].split(", ")) == 3 for name in result)
    petrel = read(gateway, ada, f"{LIST}/{names['Petrel']['community_id']}")
    assert {name: petrel[name] for name in names["Petrel"]} == names["Petrel"]
    (first, *_), (neighbour,) = petrel["nodes"], petrel["neighbours"]
    assert (first["id"], first["rank"], first["is_bridge"]) == (ids["Petrel"], 1, False)
    assert (neighbour["name"], neighbour["weight"]) == (names["Lighthouse"]["name"], 100)
    other = read(gateway, ada, f"{LIST}/{neighbour['community_id']}")
    nodes = [*petrel["nodes"], *other["nodes"]]
    assert {node["name"]: node["id"] for node in nodes} == ids
    assert [node["name"] for node in nodes if node["is_bridge"]] == ["Nils"]
    assert {node["bridge_score"] for node in nodes if node["is_bridge"]} == {0.5}


def test_community_name_repeats_no_word(gateway: Gateway, ada: str) -> None:
    state(gateway, crew("Petrel", "Petrels", "old-PETREL", "Oskar", "Pia"), ["user:ada"])
    gateway.run_job("analytics", "acme")
    (community,) = read(gateway, ada)["communities"]
    assert (community["size"], set(community["name"].split(", "))) == (
        5,
        {"Petrel", "Oskar", "Pia"},
    )
    detail = read(gateway, ada, f"{LIST}/{community['community_id']}")
    assert detail["name"] == community["name"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["harbour", "North Harbours", "Petrel"], "harbour, Petrel"),
        (["The ferry", "ferries of Oslo", "the pier"], "The ferry"),
        (["Ada", "Bo", "Cleo", "Dag"], "Ada, Bo, Cleo"),
        (["Ada's boat", "the ADA", "sail-boat", "sails"], "Ada's boat, sails"),
        (["Boje", "Буй", "浮标", "浮标"], "Boje, Буй, 浮标"),
        (["+++", "---", "+++"], "+++, ---"),
        ([], "(no longer there)"),
    ],
)
def test_community_name_takes_first_names_sharing_no_word(names: list[str], expected: str) -> None:
    assert read_communities.name_community(names) == expected


def test_community_list_pages_without_gap(gateway: Gateway, ids: dict[str, str], ada: str) -> None:
    whole = read(gateway, ada)["communities"]
    assert list(pages(gateway, ada, LIST, "communities")) == whole
    place = f"{LIST}/{whole[0]['community_id']}"
    assert list(pages(gateway, ada, place, "nodes")) == read(gateway, ada, place)["nodes"]
    assert len(ids) == 11


def test_community_is_found_by_node(gateway: Gateway, ids: dict[str, str], ada: str) -> None:
    (community,) = read(gateway, ada, node_id=ids["Ulla"])["communities"]
    assert community["name"].startswith("Lighthouse")
    assert read(gateway, ada, node_id=f"ent:{community['community_id']}")["communities"] == []
    reply = gateway.call("GET", LIST, key=ada, query={"node_id": "Ulla"})
    assert (reply.status, reply.error["details"]["field"]) == (422, "node_id")


def test_community_cursor_is_bound_to_its_list(
    gateway: Gateway, ids: dict[str, str], ada: str, admin: str
) -> None:
    cursor = read(gateway, ada, limit=1)["next_cursor"]
    community = read(gateway, ada)["communities"][0]["community_id"]
    for path, key, query in (
        (f"{LIST}/{community}", ada, {}),
        (LIST, ada, {"node_id": ids["Nils"]}),
        (LIST, gateway.key(user="user:bo"), {}),
        (TENANT_LIST, admin, {}),
    ):
        reply = gateway.call("GET", path, key=key, query={"cursor": cursor, **query})
        assert (reply.status, reply.error["details"]["field"]) == (400, "cursor")


def test_community_members_join_over_visible_scopes(gateway: Gateway, ids: dict[str, str]) -> None:
    alone = state(gateway, [{"type": "entity", "name": "Petrel"}], ["user:ada"])
    petrel = {ids["Petrel"], alone["Petrel"]}
    views = ((["user:ada"], petrel), (ADA, {ids["Petrel"]}))
    for who, expected in views:
        query: dict[str, Any] = {"participants": who}
        (community,) = read(gateway, gateway.key(), node_id=ids["Petrel"], **query)["communities"]
        place = f"{LIST}/{community['community_id']}"
        first = read(gateway, gateway.key(), place, **query)["nodes"][0]
        assert (first["id"], set(first["members"])) == (ids["Petrel"], expected)


def test_community_is_hidden_from_non_participants(
    gateway: Gateway, ids: dict[str, str], ada: str, admin: str
) -> None:
    own = {one["community_id"] for one in read(gateway, ada)["communities"]}
    bos = {one["community_id"] for one in read(gateway, gateway.key(user="user:bo"))["communities"]}
    assert (len(own), len(bos), own & bos) == (2, 1, set())
    whole = {one["community_id"] for one in read(gateway, admin, TENANT_LIST)["communities"]}
    assert not whole & (own | bos), "the tenant's are others"
    everybody = {"everybody": "true"}
    strangers: tuple[tuple[str, dict[str, str]], ...] = (
        (gateway.key(user="user:bo"), {}),
        (gateway.key("globex", rights=("read", "admin")), everybody),
    )
    for key, query in strangers:
        result = read(gateway, key, **query)["communities"]
        assert not own & {one["community_id"] for one in result}
        assert read(gateway, key, node_id=ids["Petrel"], **query)["communities"] == []
        for community in own | whole:
            reply = gateway.call("GET", f"{LIST}/{community}", key=key, query=query)
            assert reply.status == 404
    for community in whole:
        reply = gateway.call("GET", f"{LIST}/{community}", key=admin, query=everybody)
        assert reply.status == 404


def test_community_of_tenant_needs_unbound_admin(
    gateway: Gateway, ids: dict[str, str], ada: str, admin: str
) -> None:
    result = read(gateway, admin, TENANT_LIST)["communities"]
    assert {one["scope_id"] for one in result} == {None}
    (petrel,) = [one for one in result if one["name"].startswith("Petrel")]
    detail = read(gateway, admin, f"{TENANT_LIST}/{petrel['community_id']}")
    names = {node["name"] for node in detail["nodes"]}
    assert {"Petrel", "Ebba", "Finn", "Quentin", "Rosa"} <= names, "of both scopes"
    assert len(detail["nodes"][0]["members"]) == 2
    (one,) = read(gateway, admin, TENANT_LIST, node_id=ids["Petrel"])["communities"]
    assert one == petrel
    paths = (TENANT_LIST, f"{TENANT_LIST}/{petrel['community_id']}")
    bound = gateway.key(user="user:ada", rights=("read", "admin"))
    for path in paths:
        for key in (ada, bound, gateway.key()):
            reply = gateway.call("GET", path, key=key)
            assert (reply.status, reply.error["code"]) == (403, "forbidden")
        other = gateway.call("GET", path, key=gateway.key("globex", rights=("read", "admin")))
        assert other.status == (200 if path == TENANT_LIST else 404)
        assert "Petrel" not in other.text


def test_community_of_tenant_is_hidden_by_database(
    gateway: Gateway, ids: dict[str, str], ada: str, scratch_db: ScratchDatabase
) -> None:
    """A route that forgot to refuse a bound credential finds nothing."""
    del ids, ada
    for viewer, count in ((("user:ada",), 0), ((), 2)):
        access = gateway.database.connect_as(Caller("acme", viewer))
        page = read_communities.list_communities(access, "tenant", None, None, 50)
        assert len(page.communities) == count
    assert scratch_db.rows("select count(*) from graph_tenant_communities") == [(2,)]


def test_community_with_unknown_id_is_404(gateway: Gateway, ada: str, admin: str) -> None:
    for path, key in ((LIST, ada), (TENANT_LIST, admin)):
        for name in ("x", "01934b6e-7a3c-7d2e-9f10-2b3c4d5e6f70"):
            reply: Reply = gateway.call("GET", f"{path}/{name}", key=key)
            assert (reply.status, reply.error["code"]) == (404, "not_found")
