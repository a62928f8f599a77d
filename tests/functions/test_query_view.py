"""Who sees what, at every route: another's is as if it were not there."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from strandline.auth import store_tenants_and_keys
from strandline.db.database import Caller
from strandline.function_specs import FUNCTIONS
from strandline.log.cid import compute_blob_cid, compute_block_cid
from tests.chat_service import waiting_turn
from tests.support import Gateway, Reply, ScratchDatabase, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
COMMUNITIES = "/api/v1/graph/communities"
WITH_AN_ID = [
    route
    for fn in FUNCTIONS
    for route in fn.routes
    if "{" in route and fn.name == "query" and "/sessions/" not in route  # see test_sessions.py
    if not route.startswith("GET /console/")  # no memory there
    if route.startswith("GET ")
]


@dataclass(frozen=True)
class Ids:
    """What a path may name."""

    event_id: str
    scope_id: str
    cid: str
    blob: str
    node_id: str
    topic_id: str
    community_id: str
    erasure_id: str
    file_cid: str
    field: str = "anchorage"
    uuid: str = ""
    turn_id: str = ""

    def path(self, route: str) -> str:
        _, path = route.split()
        path = path.replace("{event_id}", self.event_id).replace("{scope_id}", self.scope_id)
        path = path.replace("{row_id}", self.event_id).replace("{node_id}", self.node_id)
        path = path.replace("{topic_id}", self.topic_id).replace("{field}", self.field)
        path = path.replace("{community_id}", self.community_id).replace("{uuid}", self.uuid)
        path = path.replace("{erasure_id}", self.erasure_id).replace("{turn_id}", self.turn_id)
        if "{path+}" in path:
            return path.format_map({"cid": self.file_cid, "path+": "data/content"})
        return path.replace("{cid}", self.blob if path.startswith("/file/") else self.cid)


def random_ids() -> Ids:
    noise = uuid.uuid4().bytes
    return Ids(
        str(uuid.uuid4()),
        str(uuid.uuid4()),
        compute_block_cid(noise),
        compute_blob_cid(noise),
        f"fact:{uuid.uuid4()}",
        f"topic:{uuid.uuid4()}",
        str(uuid.uuid4()),
        str(uuid.uuid4()),
        compute_block_cid(noise),
        uuid=str(uuid.uuid4()),
        turn_id=str(uuid.uuid4()),
    )


@pytest.fixture
def alices(gateway: Gateway, tell: Tell) -> Ids:
    """An event of alice's alone, and a payload."""
    key = gateway.key(user=ALICE)
    event = tell(key, "The anchor is a secret.", ALICE)
    large = tell(key, "a secret log line " * 5000, ALICE)
    anchor = {"type": "entity", "name": "The anchor", "ref": "a"}
    link = {"edge": "fact_entity", "target": "a"}
    fact = {"type": "fact", "content": "It is a secret.", "relationships": [link]}
    topic = {"type": "topic", "name": "Anchors"}
    stated = {"participants": [ALICE], "nodes": [fact, anchor, topic]}
    node, _, topic = gateway.call("POST", "/api/v1/graph/nodes", stated, key=key).body["nodes"]
    path = f"/api/v1/graph/topics/{topic['id']}/fields/{Ids.field}"
    contents = {"participants": [ALICE], "value": "a secret"}
    assert gateway.call("POST", path, contents, key=key).status == 201
    gateway.run_job("analytics", "acme")
    community = gateway.call("GET", COMMUNITIES, key=key).body["communities"][0]
    event_id = tell(key, "The anchor is forgotten.", ALICE)["event_id"]
    eraser = gateway.key(user=ALICE, rights=["erase"])
    erasure = gateway.call("DELETE", f"/api/v1/events/{event_id}", key=eraser).body
    return Ids(
        *(event["event_id"], event["scope_id"], event["cid"], large["blob"]["cid"]),
        *(node["id"], topic["id"], community["community_id"], erasure["erasure_id"]),
        large["cid"],
        uuid=gateway.call("POST", "/api/v1/sonas", {"name": "Diver"}, key=key).body["uuid"],
        turn_id=waiting_turn(gateway, ALICE),
    )


def test_query_view_covers_every_path_with_id() -> None:
    assert len(WITH_AN_ID) >= 6
    everywhere = {r for fn in FUNCTIONS for r in fn.routes if "{" in r and "GET" in r}
    everywhere -= {r for r in everywhere if "/admin/" in r or "/docs/" in r}  # no memory there
    everywhere -= {r for r in everywhere if "/console/" in r}
    everywhere -= {r for r in everywhere if "/sessions/" in r}
    assert everywhere == set(WITH_AN_ID)


def without_request(reply: Reply) -> Any:
    return {name: value for name, value in reply.error.items() if name != "request_id"}


def test_query_view_hides_foreign_rows_as_absent(gateway: Gateway, alices: Ids) -> None:
    strangers: dict[str, tuple[str, dict[str, object]]] = {
        "another principal": (gateway.key(user=BOB), {}),
        "another principal who names alice too": (gateway.key(user=BOB), {"participants": ALICE}),
        "an unbound key for bob": (gateway.key(), {"participants": BOB}),
        "another tenant": (gateway.key("globex", user=ALICE), {}),
        "another tenant's admin": (
            gateway.key("globex", rights=("admin",)),
            {"everybody": "true"},
        ),
    }
    own = gateway.key(user=ALICE)
    for route in WITH_AN_ID:
        assert gateway.call("GET", alices.path(route), key=own).status in (200, 307)
        for who, (key, query) in strangers.items():
            reply = gateway.call("GET", alices.path(route), key=key, query=query)
            never = gateway.call("GET", random_ids().path(route), key=key, query=query)
            assert (reply.status, never.status) == (404, 404), (who, route)
            assert without_request(reply) == without_request(never)
            assert reply.headers == never.headers


def test_query_view_malformed_id_is_not_found(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for route in WITH_AN_ID:
        if "{cid}" in route:
            continue  # see test_query.py: a CID that is none is said to be none
        for word in ("x", "0", "' or 1=1", "%2e%2e", "01934b6e"):
            reply = gateway.call("GET", Ids(*[word] * 12).path(route), key=key)
            assert reply.status == 404, reply.text


def test_query_view_foreign_scope_finds_nothing(gateway: Gateway, alices: Ids) -> None:
    for key in (gateway.key(user=BOB), gateway.key("globex", user=ALICE)):
        for scope in (alices.scope_id, str(uuid.uuid4())):
            body = {"scope_id": scope}
            reply = gateway.call("POST", "/api/v1/events/query", body, key=key)
            assert (reply.status, reply.body["scopes"]) == (200, [])
    key = gateway.key(user=ALICE)
    page = gateway.call("GET", "/memories/list", key=key, query={"limit": 1}).body
    stolen = {"cursor": page["next_cursor"]}
    reply = gateway.call("GET", "/memories/list", key=gateway.key(user=BOB), query=stolen)
    assert (reply.status, reply.error["details"]) == (400, {"field": "cursor"})


LISTS = [
    "GET /memories/list",
    "GET /api/v1/scopes",
    "POST /api/v1/events/query",
    "POST /api/v1/recall",
]


def ask(gateway: Gateway, route: str, key: str, **query: object) -> Reply:
    """One of the lists, with `?participants=`."""
    method, path = route.split()
    body = (
        {"query": "tide", "include": "full"}
        if path.endswith("recall")
        else {}
        if method == "POST"
        else None
    )
    return gateway.call(method, path, body, key=key, query=query)


def scopes_of(reply: Reply) -> set[tuple[str, ...]]:
    """The participants of everything in an answer."""
    body = reply.body
    events = [hit["event"] for hit in body.get("hits", [])]
    events += body.get("events", []) + body.get("scopes", [])
    return {tuple(item["participants"]) for item in events}


@pytest.fixture
def tides(gateway: Gateway, tell: Tell) -> set[tuple[str, ...]]:
    """The same words in scopes of one, two and three; gives all of them."""
    key = gateway.key()
    groups = [(ALICE,), (BOB,), (ALICE, BOB), (HELPER, ALICE), (HELPER, ALICE, BOB)]
    for who in groups:
        tell(key, "The tide turns.", *who)
    return {tuple(sorted(who)) for who in groups}


def test_query_view_lists_scopes_all_readers_share(
    gateway: Gateway, tides: set[tuple[str, ...]]
) -> None:
    unbound, bound = gateway.key(), gateway.key(user=ALICE)
    for names in ([ALICE], [BOB], [ALICE, BOB], [HELPER], [ALICE, BOB, HELPER], ["user:carol"]):
        expected = {who for who in tides if set(names) <= set(who)}
        narrowed = {who for who in expected if ALICE in who}
        for route in LISTS:
            assert scopes_of(ask(gateway, route, unbound, participants=names)) == expected
            assert scopes_of(ask(gateway, route, bound, participants=names)) == narrowed


def test_query_view_unbound_key_must_name_participants(
    gateway: Gateway, tides: set[tuple[str, ...]]
) -> None:
    unbound, admin = gateway.key(), gateway.key(rights=("admin",))
    bound_admin = gateway.key(user=BOB, rights=("admin",))
    for route in LISTS:
        reply = ask(gateway, route, unbound)
        assert (reply.status, reply.error["details"]) == (422, {"field": "participants"})
        assert "?participants=" in reply.error["message"]
        assert ask(gateway, route, admin).status == 422
        assert scopes_of(ask(gateway, route, admin, everybody="true")) == tides
        assert scopes_of(ask(gateway, route, bound_admin)) == {w for w in tides if BOB in w}


def test_query_view_needs_read_right_on_every_route(gateway: Gateway) -> None:
    others = [gateway.key(rights=rights) for rights in (("write",), ("operator",))]
    for route in [*LISTS, *WITH_AN_ID]:
        method, path = route.split()[0], random_ids().path(route)
        body = {"query": "x"} if path.endswith("recall") else {} if method == "POST" else None
        query = {"participants": ALICE}
        assert gateway.call(method, path, body, query=query).status == 401
        for key in others:
            assert gateway.call(method, path, body, key=key, query=query).status == 403


def test_query_view_refuses_revoked_and_expired_keys(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    revoked = gateway.new_key(user=ALICE)
    access = gateway.database.connect_as(Caller("acme", ()))
    with access.transaction():
        assert store_tenants_and_keys.revoke_key(access, revoked.key_id)
    expired = gateway.new_key(user=ALICE)
    past = "update api_keys set expires_at = '2020-01-01' where key_id = %s"
    scratch_db.rows(past, expired.key_id)
    for key in (revoked.token, expired.token):
        assert gateway.call("GET", "/memories/list", key=key).status == 401


def test_query_view_separates_users_on_warm_handler(gateway: Gateway, tell: Tell) -> None:
    """8 threads, 100 requests each, every third failing, and nobody sees another's row."""
    tokens = {name: gateway.key(user=name) for name in (ALICE, BOB)}
    ids = {name: tell(key, f"the tide of {name}", name)["event_id"] for name, key in tokens.items()}
    tokens["globex"] = gateway.key("globex", user=ALICE)
    ids["globex"] = tell(tokens["globex"], "elsewhere", ALICE)["event_id"]
    barrier = threading.Barrier(8)

    def many(thread: int) -> int:
        barrier.wait()
        count = 0
        for turn in range(100):
            me = list(tokens)[(thread + turn) % 3]
            other = list(tokens)[(thread + turn + 1) % 3]
            if turn % 3 == 0:
                reply = gateway.call("GET", f"/api/v1/events/{ids[other]}", key=tokens[me])
                assert reply.status == 404
                bad = gateway.call("GET", "/memories/list", key=tokens[me], query={"cursor": "x"})
                assert bad.status == 400
            if turn % 3 == 1:
                reply = gateway.call("GET", "/memories/list", key=tokens[me])
                assert [event["event_id"] for event in reply.body["events"]] == [ids[me]]
                count += 1
            else:
                reply = gateway.call("GET", f"/api/v1/events/{ids[me]}", key=tokens[me])
                assert reply.body["event_id"] == ids[me]
                count += 1
        return count

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(many, range(8))) == [100] * 8


@pytest.mark.parametrize(
    ("path", "question"), [("/api/v1/recall", "query"), ("/api/v1/events/query", "text")]
)
def test_query_view_participants_of_url_narrow_body(
    gateway: Gateway, tell: Tell, path: str, question: str
) -> None:
    key = gateway.key()
    tell(key, "The anchor is a secret.", ALICE, HELPER)

    def answer(*names: str) -> Reply:
        body = {question: "anchor", "participants": [HELPER]}
        return gateway.call("POST", path, body, key=key, query={"participants": names})

    assert "secret" in answer().text
    assert "secret" in answer(ALICE).text
    assert "secret" not in answer(BOB).text
    assert answer("no kind").status == 422
