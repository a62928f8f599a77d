"""Sessions over HTTP: begun, added to, listed and ended; who sees which."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.strandline.sessions.session_calls import (
    ALICE,
    BOB,
    HELPER,
    SESSIONS,
    WITH_HELPER,
    begin,
    interact,
)
from tests.support import Gateway, Reply, ScratchDatabase, user_message

# beginning ---------------------------------------------------------------------------------------


def test_session_is_created_and_read_back(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    upload = begin(gateway, key, "s", metadata={"tour": 7})
    assert upload["participants"] == [HELPER, ALICE]
    assert (upload["session_id"], upload["metadata"]) == ("s", {"tour": 7})
    assert gateway.call("GET", f"{SESSIONS}/s", key=key).body == upload
    session_uuid = uuid.UUID(begin(gateway, key)["session_id"])
    assert gateway.call("GET", f"{SESSIONS}/{session_uuid}", key=key).status == 200
    scope = gateway.call("GET", f"/api/v1/scopes/{upload['scope_id']}", key=key)
    assert (scope.status, scope.body["last_seq"]) == (200, 0)


def test_session_takes_user_and_agent_as_participants(gateway: Gateway) -> None:
    key = gateway.key()
    for user, agent in (("alice", "helper"), (ALICE, HELPER), (" alice ", "agent:helper")):
        body = {"user_id": user, "agent_id": agent}
        reply = gateway.call("POST", SESSIONS, body, key=key)
        assert (reply.status, reply.body["participants"]) == (201, [HELPER, ALICE])


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({}, 422, "participants"),
        ({"user_id": "alice"}, 422, "participants"),
        ({"agent_id": "helper"}, 422, "participants"),
        ({**WITH_HELPER, "user_id": "alice", "agent_id": "helper"}, 422, "participants"),
        ({**WITH_HELPER, "user_id": "alice"}, 422, "user_id"),
        ({"user_id": "", "agent_id": "helper"}, 422, "user_id"),
        ({"participants": [BOB, HELPER]}, 403, "participants"),
        ({"user_id": "bob", "agent_id": "helper"}, 403, "participants"),
        ({**WITH_HELPER, "tenant_id": "globex"}, 403, "tenant_id"),
        ({**WITH_HELPER, "session_id": ""}, 422, "session_id"),
        ({**WITH_HELPER, "session_id": "s" * 129}, 422, "session_id"),
        ({**WITH_HELPER, "metadata": {"x": "y" * 17_000}}, 422, "metadata"),
        ({**WITH_HELPER, "name": "s"}, 422, "name"),
    ],
)
def test_session_refuses_invalid_creation(
    gateway: Gateway, scratch_db: ScratchDatabase, body: dict[str, object], status: int, field: str
) -> None:
    reply = gateway.call("POST", SESSIONS, body, key=gateway.key(user=ALICE))
    assert (reply.status, reply.error["details"]["field"]) == (status, field)
    assert scratch_db.rows("select count(*) from sessions") == [(0,)]


def test_session_creation_is_idempotent(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key(user=ALICE)
    first = begin(gateway, key, "s", metadata={"a": 1})
    for more in ({}, {"metadata": {"a": 1}}):
        again = gateway.call("POST", SESSIONS, {**WITH_HELPER, "session_id": "s", **more}, key=key)
        assert (again.status, again.body) == (201, first)
        assert again.headers["Idempotent-Replayed"] == "true"
    other = {**WITH_HELPER, "session_id": "s", "metadata": {"a": 2}}
    reply = gateway.call("POST", SESSIONS, other, key=key)
    assert (reply.status, reply.error["code"]) == (409, "state_conflict")
    mismatch = {"participants": [ALICE], "session_id": "s"}
    reply = gateway.call("POST", SESSIONS, mismatch, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (422, "session_id")
    assert scratch_db.rows("select session_id from sessions") == [("s",)]


def test_session_begins_with_append_under_new_name(gateway: Gateway, tell: Any) -> None:
    key = gateway.key(user=ALICE)
    receipt = tell(key, "Hello.", session_id="s")
    body = gateway.call("GET", f"{SESSIONS}/s", key=key).body
    assert (body["scope_id"], body["metadata"]) == (receipt["scope_id"], {})
    assert begin(gateway, key, "s") == body


def test_session_name_is_encoded_in_path(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    for name, path in (("a/b ?#", "a%2Fb%20%3F%23"), ("été", "%C3%A9t%C3%A9"), ("..", "..")):
        begin(gateway, key, name)
        reply = gateway.call("GET", f"{SESSIONS}/{path}", key=key)
        assert (reply.status, reply.body["session_id"]) == (200, name)
    for path in ("s%00", "s" * 129, "%ff"):
        assert gateway.call("GET", f"{SESSIONS}/{path}", key=key).status == 404


def test_session_concurrent_creation_makes_one(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """The lock is the one that appends take: the one who comes second finds the first's."""
    key = gateway.key(user=ALICE)

    def race(n: int) -> int:
        who = [ALICE, HELPER] if n % 2 else [ALICE, f"agent:other-{n % 4}"]
        if n % 3:
            body: dict[str, object] = {"participants": who, "session_id": "s"}
            return gateway.call("POST", SESSIONS, body, key=key).status
        event = user_message("Hello.", *who, session_id="s")
        return gateway.call("POST", "/api/v1/events", event, key=key).status

    with ThreadPoolExecutor(max_workers=6) as pool:
        statuses = list(pool.map(race, range(24)))
    assert set(statuses) == {201, 422}
    assert scratch_db.rows("select count(*) from sessions") == [(1,)]


# who sees them -----------------------------------------------------------------------------------


def test_session_is_found_only_by_participants(gateway: Gateway) -> None:
    begin(gateway, gateway.key(user=ALICE), "s")
    unknown = gateway.call("GET", f"{SESSIONS}/t", key=gateway.key(user=BOB))
    for key in (gateway.key(user=BOB), gateway.key("globex"), gateway.key("globex", user=ALICE)):
        for method, path, body in (
            ("GET", "", None),
            ("DELETE", "", None),
            ("POST", "/interactions", {"user_message": "a", "agent_response": "b"}),
            ("POST", "/events", {"role": "user", "content": "a"}),
            ("GET", "/context", None),
            ("POST", "/context/search", {"query": "a"}),
            ("GET", "/analysis/topics", None),
            ("GET", "/analysis/heat", None),
            ("GET", "/segments", None),
        ):
            reply = gateway.call(method, f"{SESSIONS}/s{path}", body, key=key)
            assert reply.status == 404, (method, path)
            assert reply.error["message"] == unknown.error["message"]
    for key in (gateway.key(), gateway.key(rights=["read"]), gateway.key(rights=["admin"])):
        assert gateway.call("GET", f"{SESSIONS}/s", key=key).status == 200


def test_session_routes_need_rights(gateway: Gateway) -> None:
    begin(gateway, gateway.key(user=ALICE), "s")
    reads, writes = gateway.key(rights=["read"]), gateway.key(rights=["write"])
    assert interact(gateway, reads, "s").status == 403
    assert gateway.call("DELETE", f"{SESSIONS}/s", key=reads).status == 403
    assert gateway.call("POST", SESSIONS, WITH_HELPER, key=reads).status == 403
    assert gateway.call("GET", f"{SESSIONS}/s/context", key=writes).status == 403


def test_session_name_in_several_scopes_needs_scope_id(gateway: Gateway) -> None:
    alice, bob, everybody = gateway.key(user=ALICE), gateway.key(user=BOB), gateway.key()
    hers = begin(gateway, alice, "s")
    his = begin(gateway, bob, "s", participants=[BOB])
    for key, own in ((alice, hers), (bob, his)):
        assert gateway.call("GET", f"{SESSIONS}/s", key=key).body == own
    both = gateway.call("GET", f"{SESSIONS}/s", key=everybody)
    assert (both.status, both.error["code"]) == (409, "state_conflict")
    scopes = sorted([hers["scope_id"], his["scope_id"]])
    assert both.error["details"] == {"field": "scope_id", "scope_ids": scopes}
    assert "?scope_id=" in both.error["message"]
    for own in (hers, his):
        query = {"scope_id": own["scope_id"]}
        assert gateway.call("GET", f"{SESSIONS}/s", key=everybody, query=query).body == own
    foreign = {"scope_id": his["scope_id"]}
    assert gateway.call("GET", f"{SESSIONS}/s", key=alice, query=foreign).status == 404


def test_session_own_goes_before_foreign_of_same_name(gateway: Gateway) -> None:
    """Nobody can put a session of mine out of reach by a name in a scope we share."""
    alice, bob = gateway.key(user=ALICE), gateway.key(user=BOB)
    mine = begin(gateway, alice, "s")
    shared = begin(gateway, bob, "s", participants=[ALICE, BOB])
    assert gateway.call("GET", f"{SESSIONS}/s", key=alice).body == mine
    query = {"scope_id": shared["scope_id"]}
    assert gateway.call("GET", f"{SESSIONS}/s", key=alice, query=query).body == shared


def test_session_name_never_leads_to_foreign_session(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Else bob begins `default` with alice, and reads what she means for a session of hers."""
    alice, bob = gateway.key(user=ALICE), gateway.key(user=BOB)
    shared = begin(gateway, bob, "default", participants=[ALICE, BOB])
    event = {"role": "user", "content": "My diary."}
    for method, path, body in (
        ("POST", "/events", event),
        ("POST", "/interactions", {"user_message": "a", "agent_response": "b"}),
        ("GET", "", None),
        ("GET", "/context", None),
        ("DELETE", "", None),
    ):
        reply = gateway.call(method, f"{SESSIONS}/default{path}", body, key=alice)
        assert (reply.status, reply.error["code"]) == (409, "state_conflict"), (method, path)
        assert reply.error["details"] == {"field": "scope_id", "scope_ids": [shared["scope_id"]]}
        assert "?scope_id=" in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(0,)]
    query = {"scope_id": shared["scope_id"]}
    path = f"{SESSIONS}/default"
    assert gateway.call("GET", path, key=alice, query=query).body == shared
    assert gateway.call("POST", f"{path}/events", event, key=alice, query=query).status == 201
    assert gateway.call("GET", path, key=bob).body == shared
    assert gateway.call("GET", path, key=gateway.key()).body == shared


@pytest.mark.parametrize("others", [1, 21])
def test_session_of_service_is_not_hidden_by_users(gateway: Gateway, others: int) -> None:
    """Not by so many of its name either that no more are told apart."""
    alice = gateway.key(user=ALICE)
    mine = begin(gateway, gateway.key(), "mine")
    for n in range(others):
        user = f"user:u{n}"
        begin(gateway, gateway.key(user=user), "mine", participants=[ALICE, user])
    assert gateway.call("GET", f"{SESSIONS}/mine", key=alice).body == mine
    assert interact(gateway, alice, "mine").body["user"]["scope_id"] == mine["scope_id"]
    assert gateway.call("DELETE", f"{SESSIONS}/mine", key=alice).status == 200
    reply = gateway.call("GET", f"{SESSIONS}/mine", key=alice)
    assert (reply.status, "has ended" in reply.error["message"]) == (404, True)


# adding to them ----------------------------------------------------------------------------------


def test_session_interaction_is_two_messages_in_order(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    more = {"timestamp": 1_778_000_000, "metadata": {"workflow_id": "w"}}
    reply = interact(gateway, key, "s", **more)
    assert reply.status == 201
    assert "Idempotent-Replayed" not in reply.headers
    assert [reply.body[who]["seq"] for who in ("user", "agent")] == [1, 2]
    rows = scratch_db.rows(
        "select role, type, content, speaker, origin, session_id, metadata,"
        " extract(epoch from occurred_at)::int from events order by seq"
    )
    tail = ("s", {"workflow_id": "w"}, 1_778_000_000)
    assert rows == [
        ("user", "message", "Where is the buoy?", ALICE, "user", *tail),
        ("agent", "message", "In the harbour.", HELPER, "agent", *tail),
    ]


@pytest.mark.parametrize("by_header", [True, False])
def test_session_interaction_is_stored_once_by_key(
    gateway: Gateway, scratch_db: ScratchDatabase, by_header: bool
) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    headers = {"Idempotency-Key": "k-1"} if by_header else {}
    options: dict[str, object] = (
        {} if by_header else {"source_event_key": "k-1", "channel": "slack"}
    )

    def send(**more: object) -> Reply:
        body = {"user_message": "a", "agent_response": "b", **options, **more}
        path = f"{SESSIONS}/s/interactions"
        return gateway.call("POST", path, body, key=key, headers=headers)

    first, again = send(), send()
    assert (again.status, again.body) == (201, first.body)
    assert again.headers["Idempotent-Replayed"] == "true"
    keys = scratch_db.rows("select channel, source_event_key from event_keys order by 2")
    channel = "http" if by_header else "slack"
    assert keys == [(channel, "k-1#agent"), (channel, "k-1#user")]
    for more, fields in (
        ({"user_message": "x"}, ["user_message"]),
        ({"agent_response": "x"}, ["agent_response"]),
        ({"timestamp": 7}, ["timestamp"]),
        ({"metadata": {"x": 1}}, ["metadata"]),
    ):
        other = send(**more)
        assert (other.status, other.error["code"]) == (409, "key_conflict")
        assert other.error["details"]["fields"] == fields
        assert fields[0] in other.error["message"]
    assert scratch_db.rows("select last_seq from scopes") == [(2,)]


def test_session_interaction_is_atomic(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    """The agent's key is used already by another event: the user's message is not stored."""
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    body = {"role": "user", "content": "Mine.", "source_event_key": "k#agent"}
    assert gateway.call("POST", f"{SESSIONS}/s/events", body, key=key).status == 201
    reply = interact(gateway, key, "s", source_event_key="k")
    assert (reply.status, reply.error["code"]) == (409, "key_conflict")
    assert scratch_db.rows("select content from events") == [("Mine.",)]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"user_message": "a"}, 422, "agent_response"),
        ({"agent_response": "a"}, 422, "user_message"),
        ({"user_message": "", "agent_response": "b"}, 422, "user_message"),
        ({"user_message": "a", "agent_response": "b\0"}, 422, "agent_response"),
        ({"user_message": "a", "agent_response": "b", "timestamp": "noon"}, 422, "timestamp"),
        ({"user_message": " ", "agent_response": "b"}, 422, "user_message"),
        ({"user_message": "a", "agent_response": "\n"}, 422, "agent_response"),
        ({"user_message": "a", "agent_response": "b", "agent": ALICE}, 422, "agent"),
        ({"user_message": "a", "agent_response": "b", "agent": "agent:x"}, 422, "agent"),
        ({"user_message": "a", "agent_response": "b", "user": BOB}, 422, "user"),
        ({"user_message": "a", "agent_response": "b", "user_id": "bob"}, 403, "user_id"),
        ({"user_message": "a", "agent_response": "b", "participants": [BOB]}, 422, "participants"),
        (
            {"user_message": "a", "agent_response": "b", "source_event_key": "k" * 507},
            422,
            "source_event_key",
        ),
        ({"user_message": "a", "agent_response": "b", "channel": ""}, 422, "channel"),
    ],
)
def test_session_interaction_errors_name_its_fields(
    gateway: Gateway, scratch_db: ScratchDatabase, body: dict[str, object], status: int, field: str
) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    reply = gateway.call("POST", f"{SESSIONS}/s/interactions", body, key=key)
    assert (reply.status, reply.error["details"]["field"]) == (status, field)
    assert reply.error["message"].startswith(field)
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_session_interaction_needs_agent_where_several(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s", participants=[ALICE, HELPER, "agent:pilot"])
    unclear = interact(gateway, key, "s")
    assert (unclear.status, unclear.error["details"]["field"]) == (422, "agent")
    assert interact(gateway, key, "s", agent="agent:pilot").status == 201
    assert scratch_db.rows("select speaker from events order by seq") == [
        (ALICE,),
        ("agent:pilot",),
    ]


def test_session_interaction_stores_large_message_as_payload(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    reply = interact(gateway, key, "s", agent_response="x" * 70_000)
    assert (reply.body["user"]["blob"], reply.body["agent"]["blob"]["size"]) == (None, 70_000)


def test_session_event_takes_session_participants(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    upload = begin(gateway, key, "s")
    for role, kind in (("agent", "thought"), ("agent", "action"), ("user", "observation")):
        body = {"role": role, "type": kind, "content": kind}
        reply = gateway.call("POST", f"{SESSIONS}/s/events", body, key=key)
        assert (reply.status, reply.body["scope_id"]) == (201, upload["scope_id"])
    assert scratch_db.rows("select distinct session_id from events") == [("s",)]
    headers = {"Idempotency-Key": "k"}
    answers = [
        gateway.call("POST", f"{SESSIONS}/s/events", body, key=key, headers=headers)
        for _ in range(2)
    ]
    assert [a.headers.get("Idempotent-Replayed") for a in answers] == [None, "true"]
    assert answers[0].body == answers[1].body
    for more, field in (
        ({"participants": [BOB]}, "participants"),
        ({"session_id": "t"}, "session_id"),
        ({"role": "nobody"}, "role"),
        ({"content": None}, "content"),
    ):
        reply = gateway.call("POST", f"{SESSIONS}/s/events", body | more, key=key)
        assert (reply.status, reply.error["details"]["field"]) == (422, field)


def test_session_unknown_takes_no_interaction(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    assert interact(gateway, key, "s").status == 404
    assert scratch_db.rows("select count(*) from sessions") == [(0,)]


# ending ------------------------------------------------------------------------------------------


def test_session_end_hides_it_and_keeps_log(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    body = interact(gateway, key, "s").body
    for _ in range(2):
        reply = gateway.call("DELETE", f"{SESSIONS}/s", key=key)
        assert (reply.status, reply.body) == (200, {"ended": True, "events_kept": 2})
    for path in ("", "/context", "/analysis/topics", "/analysis/heat", "/segments"):
        response = gateway.call("GET", f"{SESSIONS}/s{path}", key=key)
        assert (response.status, response.error["code"]) == (404, "not_found")
        assert "/api/v1/events/query" in response.error["message"]
    assert gateway.call("GET", SESSIONS, key=key).body["sessions"] == []
    query = {"session_id": "s"}
    tree = gateway.call("POST", "/api/v1/events/query", query, key=key).body
    event_ids = [event["event_id"] for event in tree["scopes"][0]["events"]]
    assert event_ids == [body["user"]["event_id"], body["agent"]["event_id"]]
    hits = gateway.call("POST", "/api/v1/recall", {"query": "buoy", **query}, key=key).body["hits"]
    assert event_ids[0] in [hit["event_id"] for hit in hits]


def test_session_ended_takes_no_append(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    """Through no route, in no batch; what was stored before is answered as before."""
    key = gateway.key(user=ALICE)
    begin(gateway, key, "s")
    before = user_message("Before.", session_id="s", source_event_key="k")
    first = gateway.call("POST", "/api/v1/events", before, key=key)
    own = f"{SESSIONS}/s/events", {"role": "user", "content": "Before too."}
    once = {"Idempotency-Key": "once"}
    second = gateway.call("POST", *own, key=key, headers=once)
    assert gateway.call("DELETE", f"{SESSIONS}/s", key=key).status == 200
    late = user_message("Late.", session_id="s")
    refusals = [
        interact(gateway, key, "s"),
        gateway.call("POST", f"{SESSIONS}/s/events", {"role": "user", "content": "x"}, key=key),
        gateway.call("POST", "/api/v1/events", late, key=key),
        gateway.call("POST", SESSIONS, {**WITH_HELPER, "session_id": "s"}, key=key),
    ]
    for reply in refusals:
        assert (reply.status, reply.error["code"]) == (409, "state_conflict")
        assert "begin another" in reply.error["message"]
    batch = {"events": [late, user_message("Elsewhere.", session_id="t"), late]}
    items = gateway.call("POST", "/api/v1/events/batch", batch, key=key).body["results"]
    assert [item["status"] for item in items] == [409, 201, 409]
    again = gateway.call("POST", "/api/v1/events", before, key=key)
    assert (again.status, again.body) == (201, first.body)
    again = gateway.call("POST", *own, key=key, headers=once)
    assert (again.status, again.text) == (201, second.text)
    texts = [("Before.",), ("Before too.",), ("Elsewhere.",)]
    assert scratch_db.rows("select content from events order by seq") == texts


def test_session_ends_only_in_its_scope(gateway: Gateway) -> None:
    alice, bob = gateway.key(user=ALICE), gateway.key(user=BOB)
    begin(gateway, alice, "s")
    his = begin(gateway, bob, "s", participants=[BOB])
    assert gateway.call("DELETE", f"{SESSIONS}/s", key=alice).status == 200
    assert gateway.call("GET", f"{SESSIONS}/s", key=bob).body == his


# lists -------------------------------------------------------------------------------------------


def test_session_list_is_paged_newest_first(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    uploads = [begin(gateway, key, f"s-{n}") for n in range(7)]
    events = [
        user_message("Hello.", session_id=f"batch-{n}") for n in range(4)
    ]  # begun at one moment
    assert gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key).status == 200
    begin(gateway, gateway.key(user=BOB), "his", participants=[BOB, HELPER])
    assert gateway.call("DELETE", f"{SESSIONS}/s-3", key=key).status == 200
    for who, request in ((key, {}), (gateway.key(), {"participants": [ALICE, HELPER]})):
        names: list[str] = []
        cursor: str | None = None
        while True:
            query = {"limit": 3, **request, **({"cursor": cursor} if cursor else {})}
            page = gateway.call("GET", SESSIONS, key=who, query=query)
            names += [session["session_id"] for session in page.body["sessions"]]
            cursor = page.body["next_cursor"]
            if cursor is None:
                break
        assert sorted(names[:4]) == [f"batch-{n}" for n in range(4)]
        assert names[4:] == [s["session_id"] for s in reversed(uploads) if s["session_id"] != "s-3"]
    admin, query = gateway.key(rights=["admin"]), {"everybody": "true"}
    everything = gateway.call("GET", SESSIONS, key=admin, query=query).body["sessions"]
    assert len(everything) == 11
    reply = gateway.call("GET", SESSIONS, key=gateway.key())
    assert (reply.status, reply.error["details"]["field"]) == (422, "participants")
