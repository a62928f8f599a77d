"""Payloads and edges: the claim check, what may be cited, and blocks that others can verify."""

import base64
import json
from contextlib import closing
from dataclasses import fields
from typing import Any, cast

import dag_cbor
import pytest
from multiformats import CID, multihash

from strandline.local.aws import LocalAws, make_local_client
from strandline.log.cid import Edge, EventColumns, ModelWrittenSpan, encode_block
from tests.support import Gateway, Reply, ScratchDatabase, user_message

PATH, BATCH = "/api/v1/events", "/api/v1/events/batch"


def other_cid(data: bytes, codec: str) -> str:
    """A CID by the implementation that is not ours."""
    return str(CID("base32", 1, codec, multihash.digest(data, "sha2-256")))


NOWHERE = other_cid(b"nobody ever stored this", "raw")


def objects(aws: LocalAws) -> dict[str, bytes]:
    """What lies in the bucket."""
    with closing(make_local_client("s3")) as s3:
        results: dict[str, bytes] = {}
        for entry in s3.list_objects_v2(Bucket=aws.bucket).get("Contents", []):
            with closing(s3.get_object(Bucket=aws.bucket, Key=entry["Key"])["Body"]) as body:
                results[entry["Key"]] = body.read()
        return results


def citing(cid: str, *who: str, **more: object) -> dict[str, object]:
    return {**user_message("", *who, **more), "content": None, "blob": {"cid": cid}}


def without_id(reply: Reply) -> tuple[int, dict[str, Any]]:
    return reply.status, {**reply.error, "request_id": ""}


# claim check -------------------------------------------------------------------------------------


def test_ingest_blob_holds_content_over_64_kib(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    key = gateway.key("claims")
    for text, is_large in (
        ("a" * 65_536, False),
        ("a" * 65_537, True),
        ("é" * 32_768, False),
        ("é" * 32_768 + "a", True),
        ("🌊" * 16_384, False),
        ("海" * 21_845 + "ab", True),
    ):
        reply = gateway.call("POST", PATH, user_message(text), key=key)
        assert reply.status == 201
        rows = scratch_db.rows(
            "select content, blob_cid, blob_size::int, mime_type from events"
            " where event_id::text = %s",
            reply.body["event_id"],
        )
        if not is_large:
            assert (rows, reply.body["blob"]) == ([(text, None, None, None)], None)
            continue
        data = text.encode()
        cid = other_cid(data, "raw")
        plain = "text/plain; charset=utf-8"
        assert rows == [(None, cid, len(data), plain)]
        assert objects(aws)[f"claims/{cid}"] == data
        blob = {"cid": cid, "size": len(data), "mime_type": plain, "name": None}
        assert reply.body["blob"] == blob
    stored_rows = [name for name in objects(aws) if name.startswith("claims/")]
    assert len(stored_rows) == 3


def test_ingest_blob_holds_parts_large_together(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    parts = [{"content": "a" * 40_000, "model": "m"}, {"content": "b" * 40_000}]
    body = {**user_message(""), "role": "agent", "parts": parts, "content": None}
    reply = gateway.call("POST", PATH, body, key=gateway.key())
    assert reply.body["blob"]["size"] == 80_000
    read = gateway.call("GET", f"/ipfs/{reply.body['cid']}", key=gateway.key(user="user:alice"))
    assert read.status == 200
    assert scratch_db.rows("select content from events") == [(None,)]


# who may cite a blob -----------------------------------------------------------------------------


def test_ingest_blob_is_cited_by_uploader_or_viewer(gateway: Gateway) -> None:
    alice, bob = gateway.key(user="user:alice"), gateway.key(user="user:bob")
    anybody = gateway.key()
    own = user_message("own " + "x" * 70_000, "user:alice")
    shared = user_message("shared " + "x" * 70_000, "user:alice", "user:bob")
    cids = [gateway.call("POST", PATH, b, key=alice).body["blob"]["cid"] for b in (own, shared)]
    for key, cid, who, status in (
        (alice, cids[0], ["user:alice", "agent:a"], 201),
        (alice, cids[1], ["user:alice"], 201),
        (bob, cids[1], ["user:bob"], 201),
        (bob, cids[0], ["user:bob"], 422),
        (bob, cids[0], ["user:alice", "user:bob"], 422),
        (anybody, cids[0], ["user:alice"], 201),
        (anybody, cids[0], ["user:alice", "user:bob"], 422),
        (anybody, cids[1], ["user:alice", "user:bob"], 201),
    ):
        reply = gateway.call("POST", PATH, citing(cid, *who), key=key)
        assert reply.status == status, reply.text
        if status == 201:
            assert reply.body["blob"]["size"] > 70_000


def test_ingest_blob_of_other_equals_unknown_blob(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    text = "a secret of alice " + "x" * 70_000
    cid = other_cid(text.encode(), "raw")
    mine = user_message(text, "user:alice")
    assert gateway.call("POST", PATH, mine, key=gateway.key(user="user:alice")).status == 201
    for key in (
        gateway.key(user="user:bob"),
        gateway.key("other"),
        gateway.key("other", "user:bob"),
    ):
        for path in (PATH, BATCH):
            replies = [
                gateway.call(
                    "POST",
                    path,
                    citing(c, "user:bob") if path == PATH else {"events": [citing(c, "user:bob")]},
                    key=key,
                )
                for c in (cid, NOWHERE)
            ]
            if path == PATH:
                assert without_id(replies[0]) == without_id(replies[1])
                assert (replies[0].status, replies[0].error["details"]["field"]) == (
                    422,
                    "blob.cid",
                )
            else:
                errors = [r.body["results"][0]["error"] | {"request_id": ""} for r in replies]
                assert errors[0] == errors[1]
            assert all(set(r.headers) == set(replies[0].headers) for r in replies)
        read = [gateway.call("GET", f"/file/{c}", key=key, query=VIEW) for c in (cid, NOWHERE)]
        assert without_id(read[0]) == without_id(read[1])
    assert scratch_db.rows("select count(*) from events") == [(1,)]


VIEW = {"participants": "user:bob"}


def test_ingest_blob_of_same_bytes_belongs_to_each_uploader(gateway: Gateway) -> None:
    """Who uploads the same bytes has them as its own, and still sees nothing of the other's."""
    text = "x" * 70_000
    alice, bob = gateway.key(user="user:alice"), gateway.key(user="user:bob")
    first = gateway.call("POST", PATH, user_message(text, "user:alice"), key=alice).body
    second = gateway.call("POST", PATH, user_message(text, "user:bob"), key=bob).body
    assert first["blob"] == second["blob"]
    assert (
        gateway.call("POST", PATH, citing(first["blob"]["cid"], "user:bob"), key=bob).status == 201
    )
    assert gateway.call("GET", f"{PATH}/{first['event_id']}", key=bob).status == 404


# edges -------------------------------------------------------------------------------------------


def test_ingest_edge_names_target_by_id_or_cid(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    target = gateway.call("POST", PATH, user_message("the supporting event"), key=key).body
    for edge in (
        {"event_id": target["event_id"]},
        {"cid": target["cid"]},
        {"event_id": target["event_id"], "cid": target["cid"]},
    ):
        body = user_message("x", edges=[{**edge, "weight": 0.25}])
        reply = gateway.call("POST", PATH, body, key=key).body
        read = gateway.call(
            "GET", f"{PATH}/{reply['event_id']}", key=gateway.key(user="user:alice")
        )
        settings = {"event_id": target["event_id"], "cid": target["cid"], "weight": 0.25}
        assert read.body["edges"] == [settings]
    assert scratch_db.rows("select count(*) from memory_edges") == [(3,)]


def test_ingest_edge_cid_means_earliest_commonly_seen_event(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    both = user_message("x", "user:alice", "user:bob", speaker="user:alice")
    narrow, wide, _ = (
        gateway.call("POST", PATH, body, key=key).body
        for body in (user_message("x", "user:alice"), both, both)
    )
    assert narrow["cid"] == wide["cid"]
    reply = gateway.call("POST", PATH, {**both, "edges": [{"cid": wide["cid"]}]}, key=key)
    assert reply.status == 201
    assert scratch_db.rows("select cited_id::text from memory_edges") == [(wide["event_id"],)]


def test_ingest_edge_refuses_target_hidden_from_reader(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    ours = gateway.call("POST", PATH, user_message("x", "user:alice"), key=key).body
    theirs = gateway.call(
        "POST", PATH, user_message("y", "user:bob"), key=gateway.key("other")
    ).body
    wrong = {"event_id": ours["event_id"], "cid": theirs["cid"]}
    unknown = {"event_id": "01920000-0000-7000-8000-000000000000"}
    answers: list[tuple[int, dict[str, Any]]] = []
    for edge, who in (
        ({"event_id": ours["event_id"]}, ["user:bob"]),
        ({"cid": ours["cid"]}, ["user:bob"]),
        ({"event_id": ours["event_id"]}, ["user:alice", "user:bob"]),
        ({"event_id": theirs["event_id"]}, ["user:bob"]),
        ({"cid": theirs["cid"]}, ["user:bob"]),
        (wrong, ["user:alice"]),
        (unknown, ["user:alice"]),
        ({"cid": NOWHERE}, ["user:alice"]),
        ({"cid": "no cid at all"}, ["user:alice"]),
    ):
        for path in (PATH, BATCH):
            body: dict[str, Any] = user_message("z", *who, edges=[edge])
            reply = gateway.call(
                "POST", path, body if path == PATH else {"events": [body]}, key=key
            )
            error = reply.error if path == PATH else reply.body["results"][0]["error"]
            answers.append((422, {**error, "request_id": ""}))
            assert error["details"]["field"] == "edges", edge
    assert all(answer == answers[0] for answer in answers)
    assert scratch_db.rows("select count(*) from events") == [(2,)]


def test_ingest_edge_refuses_target_named_twice(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    target = gateway.call("POST", PATH, user_message("x"), key=key).body
    by_id, by_cid = {"event_id": target["event_id"]}, {"cid": target["cid"]}
    for edges in ([by_id, by_id], [by_id, by_cid], [by_cid, {**by_cid, "weight": 0.5}]):
        reply = gateway.call("POST", PATH, user_message("y", edges=edges), key=key)
        assert (reply.status, reply.error["details"]["field"]) == (422, "edges")
    assert scratch_db.rows("select count(*) from events") == [(1,)]


# verified by others ------------------------------------------------------------------------------


def bodies(targets: list[str]) -> list[dict[str, Any]]:
    """Events of every shape that a block can have."""
    edges = [
        {"event_id": t, "weight": w} for t, w in zip(targets, (-0.0, 1e-7, 1 / 3, 1), strict=True)
    ]
    agent: dict[str, Any] = {"role": "agent", "content": None}
    parts = [{"content": "Grüße 🌊", "model": "m"}, {"content": ""}, {"content": "\r\n\tend "}]
    shapes: list[dict[str, Any]] = [
        {},
        {"type": "observation", "content": ""},
        {"content": "\u2028 \ufeff e\u0301 \U0010ffff \\ \" '"},
        {"type": "observation", "name": "ignored.txt"},
        {"role": "system", "occurred_at": "0001-01-01T00:00:00Z"},
        {"role": "agent", "stop_reason": "maxTokens", "occurred_at": -1.5},
        {"role": "agent", "type": "thought", "content": "?"},
        {"role": "agent", "type": "observation", "content": "", "occurred_at": 0},
        {**agent, "parts": parts, "stop_reason": "endTurn", "edges": edges},
        {**agent, "parts": [{"content": "x" * 70_000, "model": "m"}], "name": "é.txt"},
        {"content": "x" * 70_000, "name": "big.txt", "mime_type": "text/markdown", "edges": edges},
        {"occurred_at": "9999-12-31T23:59:59.999999Z", "edges": list(reversed(edges))},
        {"metadata": {"a": 1}, "session_id": "s", "edges": edges[:1]},
    ]
    return [user_message("Plain words.", "user:alice", "agent:helper") | shape for shape in shapes]


COLUMNS = [column.name for column in fields(EventColumns)]


def row_as_block(row: tuple[Any, ...]) -> bytes:
    """A stored row's block."""
    *values, edges = row
    event = EventColumns(**dict(zip(COLUMNS, values, strict=True)))
    event.parts = [
        ModelWrittenSpan(part["chars"], part["model"]) for part in cast("Any", event.parts)
    ]
    return encode_block(event, [Edge(edge["cid"], edge["weight"]) for edge in edges])


@pytest.fixture
def cids(gateway: Gateway) -> list[str]:
    """CIDs of stored events of every shape, some several times."""
    key = gateway.key()
    first = [gateway.call("POST", PATH, user_message(str(n)), key=key).body for n in range(4)]
    results = [event["cid"] for event in first]
    for _ in range(2):
        batch = {"events": bodies([event["event_id"] for event in first])}
        reply = gateway.call("POST", BATCH, batch, key=key)
        assert reply.body["failed"] == 0, reply.text[:500]
        results += [item["event"]["cid"] for item in reply.body["results"]]
    return results


def test_ingest_block_hashes_to_its_cid_and_is_canonical(gateway: Gateway, cids: list[str]) -> None:
    key = gateway.key(user="user:alice")
    for cid in cids:
        reply = gateway.call("GET", f"/ipfs/{cid}", key=key)
        assert (reply.status, reply.headers["Content-Type"]) == (200, "application/vnd.ipld.raw")
        block = base64.b64decode(reply.text)
        assert other_cid(block, "dag-cbor") == cid
        memory = dag_cbor.decode(block)
        assert dag_cbor.encode(memory) == block
        links = cast("list[dict[str, Any]]", cast("dict[str, Any]", memory)["edges"])
        assert {str(link["target"]) for link in links} <= {
            str(CID.decode(c).set(base="base58btc")) for c in cids
        } | set(cids)


def test_ingest_block_of_each_row_encodes_to_its_cid(
    gateway: Gateway, scratch_db: ScratchDatabase, cids: list[str]
) -> None:
    rows = scratch_db.rows(
        f"select cid, {', '.join(COLUMNS)}, edges from event_rows order by seq"  # noqa: S608
    )
    assert [cid for cid, *_ in rows] == cids
    for cid, *row in rows:
        assert other_cid(row_as_block(tuple(row)), "dag-cbor") == cid


def test_ingest_block_holds_agent_message(gateway: Gateway) -> None:
    """With or without parts: two agents' messages that differ have different CIDs."""
    key = gateway.key(user="user:alice")
    requests = [user_message(word, role="agent") for word in ("yes", "no")]
    replies = [gateway.call("POST", PATH, body, key=key).body for body in requests]
    assert replies[0]["cid"] != replies[1]["cid"]
    block = base64.b64decode(gateway.call("GET", f"/ipfs/{replies[0]['cid']}", key=key).text)
    assert json.dumps(cast("Any", dag_cbor.decode(block))["data"]) == json.dumps(
        {"kind": "self", "name": "agent:helper", "parts": [{"content": "yes"}]}
    )
