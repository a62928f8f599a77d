"""Batches: each item on its own, or all or none."""

import json
from typing import Any

import pytest

from tests.support import Gateway, Reply, ScratchDatabase, user_message

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"
REPLAY_HEADER = "Idempotent-Replayed"
NO_CID = "bafyreihyrpefhacm6kkp4ql6j6udakdit7g3dmkzfriqfykhjw6cad5lrm"


class Sender:
    """One caller."""

    def __init__(self, gateway: Gateway, **key: Any) -> None:
        self.gateway, self.key = gateway, gateway.key(**key)

    def one(self, body: object, word: str | None = None) -> Reply:
        headers = {"Idempotency-Key": word} if word else None
        return self.gateway.call("POST", PATH, body, key=self.key, headers=headers)

    def batch(self, *events: object, atomic: bool = False, word: str | None = None) -> Reply:
        headers = {"Idempotency-Key": word} if word else None
        body = {"events": events, "atomic": atomic}
        return self.gateway.call("POST", BATCH, body, key=self.key, headers=headers)


@pytest.fixture
def alice(gateway: Gateway) -> Sender:
    return Sender(gateway, user="user:alice")


def statuses(reply: Reply) -> list[int]:
    return [item["status"] for item in reply.body["results"]]


def bad_items() -> list[tuple[dict[str, object], int]]:
    """Items that fail, each in another way and place, and their status alone."""
    return [
        ({"role": "user"}, 422),
        (user_message("x", role="tool"), 422),
        (user_message("x", "user:bob"), 403),
        (user_message("x", edges=[{"cid": NO_CID}]), 422),
        (user_message("x", blob={"cid": NO_CID}, content=None), 422),
        (user_message("other words", source_event_key="taken"), 409),
        (user_message("x", "user:alice", "user:bob", session_id="begun"), 422),
        (user_message("x", tenant_id="other"), 403),
    ]


def prepare_run(alice: Sender) -> None:
    """What the bad items collide with."""
    assert alice.one(user_message("first", source_event_key="taken")).status == 201
    assert alice.one(user_message("first", session_id="begun")).status == 201


def test_ingest_batch_item_has_same_status_and_error_as_alone(
    alice: Sender, scratch_db: ScratchDatabase
) -> None:
    prepare_run(alice)
    items = [body for body, _ in bad_items()]
    alone = [alice.one(body) for body in items]
    assert [reply.status for reply in alone] == [status for _, status in bad_items()]
    good = [user_message("good 1"), *items, user_message("good 2", source_event_key="new")]
    reply = alice.batch(*good)
    assert (reply.status, reply.body["stored"], reply.body["failed"]) == (200, 2, len(items))
    assert statuses(reply) == [201, *(a.status for a in alone), 201]
    for item, single in zip(reply.body["results"][1:-1], alone, strict=True):
        error = {**item["error"], "request_id": ""}
        assert error == {**single.error, "request_id": ""}
        assert item["event"] is None
    assert [item["event"]["seq"] for item in reply.body["results"] if item["event"]] == [3, 4]
    assert scratch_db.rows("select count(*), max(seq) from events") == [(4, 4)]


@pytest.mark.parametrize(
    ("bad", "name", "character"),
    [
        ("binary\0tail", "content", "U+0000 (NUL) at position 6"),
        ("cut \ud83d", "content", "U+D83D (half of a character, a lone surrogate) at position 4"),
        ({"log": ["ok", "a\0"]}, "metadata.log[1]", "U+0000 (NUL) at position 1"),
    ],
)
def test_ingest_batch_names_unstorable_character_and_goes_on(
    alice: Sender, bad: object, name: str, character: str
) -> None:
    field = name.partition(".")[0]
    item = user_message("x") | {field: bad}
    reply = alice.batch(user_message("before"), item, user_message("after"))
    assert statuses(reply) == [201, 422, 201]
    error = reply.body["results"][1]["error"]
    assert error["details"]["field"] == name
    expected = f"{name}: contains {character}, which cannot be stored; send U+FFFD in its place"
    assert error["message"].startswith(expected)
    assert alice.one(item).error["message"] == error["message"]


def test_ingest_batch_with_only_failures_is_answered(
    alice: Sender, scratch_db: ScratchDatabase
) -> None:
    reply = alice.batch(1, None, "x", [], {})
    assert (reply.status, statuses(reply), reply.body["stored"]) == (200, [422] * 5, 0)
    assert scratch_db.rows("select count(*) from scopes") == [(0,)]


def test_ingest_batch_failed_item_leaves_no_key(alice: Sender, scratch_db: ScratchDatabase) -> None:
    prepare_run(alice)
    for n, (body, _) in enumerate(bad_items()):
        if "source_event_key" in body:
            continue
        word = f"retry-{n}"
        assert alice.batch(body, word=word).body["failed"] == 1
        again = alice.batch(user_message("fixed"), word=word)
        assert (statuses(again), again.headers.get(REPLAY_HEADER)) == ([201], None)
    assert scratch_db.rows(
        "select count(*) from event_keys where source_event_key like 'retry%%'"
    ) == [(len(bad_items()) - 1,)]


def test_ingest_batch_keys_go_by_position(alice: Sender, scratch_db: ScratchDatabase) -> None:
    events = [user_message("a"), user_message("b"), user_message("c")]
    first, second = alice.batch(*events, word="k"), alice.batch(*events, word="k")
    assert first.text == second.text
    assert (first.headers.get(REPLAY_HEADER), second.headers.get(REPLAY_HEADER)) == (None, "true")
    assert scratch_db.rows("select source_event_key from event_keys order by 1") == [
        ("k#0",),
        ("k#1",),
        ("k#2",),
    ]
    reply = alice.batch(
        user_message("a"), user_message("c"), user_message("b"), user_message("d"), word="k"
    )
    assert statuses(reply) == [201, 409, 409, 201]
    assert reply.headers[REPLAY_HEADER] == "0"
    alone = alice.one(user_message("b"), "k#1")
    assert (alone.status, alone.headers.get(REPLAY_HEADER)) == (201, "true")


def test_ingest_batch_with_key_refuses_item_with_own_key(alice: Sender) -> None:
    reply = alice.batch(user_message("a"), user_message("b", source_event_key="own"), word="k")
    assert statuses(reply) == [201, 422]


def test_ingest_batch_stores_repeated_key_once(alice: Sender, scratch_db: ScratchDatabase) -> None:
    same = user_message("a", source_event_key="k")
    reply = alice.batch(same, same, user_message("b", source_event_key="k"), user_message("c"))
    assert statuses(reply) == [201, 201, 409, 201]
    first, second = (item["event"] for item in reply.body["results"][:2])
    assert first == second
    assert reply.headers[REPLAY_HEADER] == "1"
    assert reply.body["results"][2]["error"]["details"]["fields"] == ["content"]
    assert scratch_db.rows("select seq, content from events order by seq") == [(1, "a"), (2, "c")]


def test_ingest_batch_counts_seq_of_each_scope(alice: Sender) -> None:
    who = [["user:alice"], ["user:alice", "agent:a"], ["user:alice"]]
    reply = alice.batch(*(user_message("x", *members) for members in who))
    assert [item["event"]["seq"] for item in reply.body["results"]] == [1, 1, 2]


def test_ingest_batch_edges_reach_their_own_targets(
    alice: Sender, scratch_db: ScratchDatabase
) -> None:
    targets = [alice.one(user_message(word)).body for word in "abcd"]
    ids = [target["event_id"] for target in targets]
    reply = alice.batch(
        user_message("1", edges=[{"event_id": ids[0]}, {"cid": targets[1]["cid"], "weight": 0.5}]),
        user_message("2"),
        user_message("3", edges=[{"event_id": ids[2], "weight": 0.25}]),
        user_message("4", edges=[{"cid": targets[3]["cid"]}]),
    )
    assert statuses(reply) == [201] * 4
    assert scratch_db.rows(
        "select e.content, m.cited_id::text, m.weight from memory_edges m join events e"
        " on e.event_id = m.event_id order by 1, 3 desc"
    ) == [("1", ids[0], 1.0), ("1", ids[1], 0.5), ("3", ids[2], 0.25), ("4", ids[3], 1.0)]


def test_ingest_batch_session_of_refused_item_stays_free(alice: Sender) -> None:
    """As alone: what was never stored began no session."""
    refusal = user_message("x", edges=[{"cid": NO_CID}], session_id="new")
    fine = user_message("y", "user:alice", "user:bob", session_id="new")
    assert statuses(alice.batch(refusal, fine)) == [422, 201]


# all or none -------------------------------------------------------------------------------------


def sizes(base: ScratchDatabase) -> list[tuple[Any, ...]]:
    return base.rows(
        "select (select count(*) from events), (select count(*) from event_keys),"
        " (select count(*) from scopes), (select sum(last_seq) from scopes),"
        " (select count(*) from sessions)"
    )


def test_ingest_batch_atomic_with_bad_item_stores_nothing(
    alice: Sender, scratch_db: ScratchDatabase
) -> None:
    prepare_run(alice)
    for place, (body, status) in enumerate(bad_items()):
        before = sizes(scratch_db)
        one = user_message("a", source_event_key=f"one-{place}")
        two = user_message("b", "user:alice", source_event_key=f"two-{place}")
        reply = alice.batch(one, body, two, atomic=True)
        assert (reply.status, reply.error["details"]["field"]) == (422, "events")
        results = reply.error["details"]["results"]
        assert [item["status"] for item in results] == [424, status, 424]
        assert [item["error"]["code"] for item in results][::2] == ["batch_refused"] * 2
        assert sizes(scratch_db) == before
        again = alice.batch(one, two, atomic=True)
        assert (statuses(again), again.headers.get(REPLAY_HEADER)) == ([201, 201], None)


def test_ingest_batch_atomic_is_stored_and_replayed(
    alice: Sender, scratch_db: ScratchDatabase
) -> None:
    events = [user_message("a"), user_message("b")]
    first, second = (alice.batch(*events, atomic=True, word="k") for _ in range(2))
    assert (first.status, first.text) == (200, second.text)
    assert second.headers[REPLAY_HEADER] == "true"
    assert scratch_db.rows("select count(*) from events") == [(2,)]


def test_ingest_batch_atomic_conflict_names_fields(alice: Sender) -> None:
    prepare_run(alice)
    reply = alice.batch(user_message("b", source_event_key="taken"), atomic=True)
    (item,) = reply.error["details"]["results"]
    assert item["error"]["details"]["fields"] == ["content"]


def test_ingest_batch_item_with_unstorable_json_fails_alone(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    good = json.dumps(user_message("fine"))
    bad = [
        json.dumps(user_message("tool output \u0000")),
        json.dumps(user_message("x")).replace('"x"', '"\\ud800"'),
        json.dumps(user_message("x", metadata={"a": 1})).replace('{"a": 1}', '{"a": NaN}'),
        json.dumps(user_message("x", metadata={"a": 1})).replace('{"a": 1}', '{"a": 1e999}'),
    ]
    raw = ('{"events": [' + ", ".join([good, *bad, good]) + "]}").encode()
    reply = gateway.call("POST", "/api/v1/events/batch", raw=raw, key=gateway.key())
    assert reply.status == 200, reply.text
    assert [item["status"] for item in reply.body["results"]] == [201, 422, 422, 422, 422, 201]
    fields = [item["error"]["details"]["field"] for item in reply.body["results"][1:5]]
    assert fields == ["content", "content", "metadata.a", "metadata.a"]
    assert scratch_db.rows("select count(*) from events") == [(2,)]


def test_ingest_session_name_of_user_blocks_no_other(gateway: Gateway) -> None:
    """Nobody can stop another's conversation by using its name, before or after."""
    service, bob = gateway.key(), gateway.key(user="user:bob")
    theirs = user_message("turn", "user:alice", "agent:helper", session_id="s")
    for _ in range(2):
        assert gateway.call("POST", "/api/v1/events", theirs, key=service).status == 201
        mine = user_message("mine", "user:bob", session_id="s")
        assert gateway.call("POST", "/api/v1/events", mine, key=bob).status == 201
    squatted = user_message("first", "user:bob", session_id="t")
    assert gateway.call("POST", "/api/v1/events", squatted, key=bob).status == 201
    late = {**theirs, "session_id": "t"}
    assert gateway.call("POST", "/api/v1/events", late, key=service).status == 201
    other = user_message("x", "user:carol", session_id="s")
    assert gateway.call("POST", "/api/v1/events", other, key=service).status == 422
