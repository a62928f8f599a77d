"""Uploads: a payload put by its caller, verified before an event may cite it, and its end."""

import copy
import importlib
import json
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from moto.s3.models import s3_backends

from functions.ingest.handler import lambda_handler
from strandline.aws.blobs import BlobStore
from strandline.aws.payload_texts import is_text_type
from strandline.config import get_settings
from strandline.db.database import Caller
from strandline.errors import PayloadMissing, Unavailable
from strandline.local.aws import LocalAws
from strandline.local.lambda_context import ACCOUNT_ID, LambdaContext
from strandline.log import store_uploads
from strandline.resources import Resources
from tests.support import EVENTS, Gateway, Reply, ScratchDatabase, user_message
from tests.uploads import (
    BATCH,
    EVENTS_PATH,
    UPLOADS,
    age,
    asking,
    begin,
    cid_of,
    citing,
    objects,
    pending_key,
    put,
    put_unchecked,
    upload_file,
)

ALICE, BOB = "user:alice", "user:bob"
DATA = b"\x00\x01 a payload \xff" * 100
NOWHERE = cid_of(b"nobody ever stored this")


@pytest.fixture(autouse=True)
def empty_bucket(aws: LocalAws) -> None:
    """The bucket is the module's: each test has it for itself."""
    keys: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket].keys
    for key in list(keys):
        keys.pop(key)


def cite(gateway: Gateway, key: str, cid: str, *who: str, **more: object) -> Reply:
    return gateway.call("POST", EVENTS_PATH, citing(cid, *who, **more), key=key)


def without_id(reply: Reply) -> tuple[int, dict[str, Any]]:
    return reply.status, {**reply.error, "request_id": ""}


def noting(calls: list[str], name: str) -> Callable[..., None]:
    """A function that only notes that it was called."""

    def note(*_: object) -> None:
        calls.append(name)

    return note


def blobs() -> BlobStore:
    """What the ingest function puts payloads with."""
    service: Resources = importlib.import_module("functions.ingest.handler").resources
    return service.blobs


# asking ------------------------------------------------------------------------------------------


def test_upload_recorded_request_returns_put_url(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    event = json.loads((EVENTS / "ingest_upload.json").read_text())
    for headers in (event["headers"], event["multiValueHeaders"]):
        one = headers is event["headers"]
        headers["X-API-Key"] = gateway.key() if one else [gateway.key()]
    context: Any = LambdaContext("ingest", 29)
    result = lambda_handler(event, context)
    assert result["statusCode"] == 201, result["body"]
    document, data = json.loads(result["body"]), json.loads(event["body"])
    assert document["headers"]["Content-Length"] == str(data["size"])
    now = datetime.now(UTC)
    expires_at, cite_until = (
        datetime.fromisoformat(document[n]) for n in ("expires_at", "cite_until")
    )
    assert now + timedelta(seconds=890) < expires_at <= now + timedelta(seconds=901)
    assert now + timedelta(hours=23.9) < cite_until < now + timedelta(hours=24.1)
    signed = document["url"].partition("SignedHeaders=")[2].partition("&")[0].split("%3B")
    assert signed == ["content-length", "host", "if-none-match", "x-amz-checksum-sha256"]
    assert "AWS4-HMAC-SHA256" in document["url"]
    rows = scratch_db.rows("select tenant_id, writer, cid, size, mime_type, file_name from uploads")
    assert rows == [("acme", "*", document["cid"], data["size"], data["mime_type"], data["name"])]


def test_upload_takes_sha256_or_cid(gateway: Gateway) -> None:
    key, cid = gateway.key(), cid_of(DATA)
    by_hash = begin(gateway, key, DATA)
    upper = asking(DATA) | {"sha256": str(asking(DATA)["sha256"]).upper()}
    for body in (upper, {"size": len(DATA), "cid": cid}):
        reply = gateway.call("POST", UPLOADS, body, key=key)
        assert (reply.status, reply.body["cid"]) == (201, cid)
        assert reply.body["upload_id"] == by_hash["upload_id"]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"size": 0}, "size"),
        ({"size": "5"}, "size"),
        ({"size": True}, "size"),
        ({"sha256": "ab"}, "sha256"),
        ({"sha256": None}, "sha256"),
        ({"cid": NOWHERE}, "sha256"),
        ({"sha256": None, "cid": "bafkreigarbage"}, "cid"),
        (
            {"sha256": None, "cid": "bafyreihdwdcefgh4dqkjv67uzcmw7ojee6xedzdetojuzjevtenxquvyku"},
            "cid",
        ),
        ({"mime_type": "no type"}, "mime_type"),
        ({"name": "n" * 1025}, "name"),
        ({"tenant": "other"}, "tenant"),
    ],
)
def test_upload_refuses_malformed_request(
    gateway: Gateway, scratch_db: ScratchDatabase, change: dict[str, object], field: str
) -> None:
    reply = gateway.call("POST", UPLOADS, asking(DATA) | change, key=gateway.key())
    assert (reply.status, reply.error["details"]["field"]) == (422, field), reply.text
    assert scratch_db.rows("select count(*) from uploads") == [(0,)]


def test_upload_refuses_read_only_key(gateway: Gateway) -> None:
    reply = gateway.call("POST", UPLOADS, asking(DATA), key=gateway.key(rights=("read",)))
    assert reply.status == 403


def test_upload_over_size_limit_returns_413(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_UPLOAD_MAX_BYTES", str(len(DATA)))
    get_settings.cache_clear()
    key = gateway.key()
    assert gateway.call("POST", UPLOADS, asking(DATA), key=key).status == 201
    for size in (len(DATA) + 1, 2**63, 10**30):
        reply = gateway.call("POST", UPLOADS, asking(DATA) | {"size": size}, key=key)
        assert (reply.status, reply.error["code"]) == (413, "too_large")
        assert reply.error["details"] == {"field": "size", "limit": len(DATA)}
        assert "STRANDLINE_UPLOAD_MAX_BYTES" in reply.error["message"]
    assert scratch_db.rows("select count(*) from uploads") == [(1,)]


def test_upload_is_suggested_for_oversized_content(gateway: Gateway) -> None:
    reply = gateway.call("POST", EVENTS_PATH, user_message("x" * 4_200_000), key=gateway.key())
    assert reply.status == 413
    assert "POST /api/v1/uploads" in reply.error["message"]


def test_upload_spends_stored_bytes_quota_once(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    scratch_db.rows("update tenants set stored_bytes_limit = %s", len(DATA))
    for _ in range(3):
        assert gateway.call("POST", UPLOADS, asking(DATA), key=key).status == 201
    reply = gateway.call("POST", UPLOADS, asking(b"one more"), key=key)
    assert reply.status in (413, 429), reply.text
    assert scratch_db.rows("select count(*) from uploads") == [(1,)]


# putting -----------------------------------------------------------------------------------------


def test_upload_url_takes_announced_bytes_once(gateway: Gateway, aws: LocalAws) -> None:
    key = gateway.key()
    upload = begin(gateway, key, DATA)
    wrong, shorter = DATA[:-1] + b"!", DATA[:-1]
    headers: dict[str, str] = upload["headers"]
    status, said_so = put(upload, wrong)
    assert (status, "<Code>BadDigest</Code>" in said_so) == (400, True)
    assert put(upload, shorter, headers | {"Content-Length": str(len(shorter))})[0] == 403
    other_sum = asking(wrong)["sha256"]
    assert put(upload, wrong, headers | {"x-amz-checksum-sha256": str(other_sum)})[0] == 403
    for missing in headers:
        less = {name: value for name, value in headers.items() if name != missing}
        if missing != "Content-Length":  # which every client sends by itself
            assert put(upload, DATA, less)[0] == 403, missing
    elsewhere = upload | {"url": upload["url"].replace("/acme/", "/other/")}
    assert put(elsewhere, DATA)[0] == 403
    assert objects(aws) == {}
    assert put(upload, DATA)[0] == 200
    assert put(upload, DATA)[0] == 412
    assert objects(aws) == {pending_key("acme", upload): DATA}


def test_upload_repeated_request_keeps_upload_id(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    key = gateway.key()
    first, again = begin(gateway, key, DATA), begin(gateway, key, DATA)
    assert first["upload_id"] == again["upload_id"]
    assert first["cite_until"] == again["cite_until"]
    assert put(again, DATA)[0] == 200
    assert put(first, DATA)[0] == 412
    assert len(objects(aws)) == 1
    assert scratch_db.rows("select count(*) from uploads") == [(1,)]


def test_upload_near_removal_is_not_reused(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    """No URL outlives what it is for, so that nothing is put where nobody looks any more."""
    key = gateway.key()
    first = begin(gateway, key, DATA)
    scratch_db.rows("update uploads set remove_at = now() + interval '29 minutes'")
    assert begin(gateway, key, DATA)["upload_id"] != first["upload_id"]


def test_upload_is_skipped_for_stored_payload(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    alice, anybody = gateway.key(user=ALICE), gateway.key()
    text = "x" * 70_000
    blob = gateway.call("POST", EVENTS_PATH, user_message(text, ALICE, BOB), key=alice).body["blob"]
    data = text.encode()
    for key in (alice, gateway.key(user=BOB)):
        reply = gateway.call("POST", UPLOADS, asking(data), key=key)
        assert (reply.status, reply.body) == (
            200,
            {"cid": blob["cid"], "size": len(data), "stored": True},
        )
        wrong = gateway.call("POST", UPLOADS, asking(data) | {"size": 5}, key=key)
        assert (wrong.status, wrong.error["details"]["expected_size"]) == (422, len(data))
    # Others are asked for the bytes: knowing them is having them. An unbound credential may cite
    # the event's payload only among those who see it.
    for key in (gateway.key(user="user:carol"), gateway.key("other"), anybody):
        assert gateway.call("POST", UPLOADS, asking(data), key=key).status == 201
    assert scratch_db.rows("select count(*) from uploads") == [(3,)]


# citing ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", [None, ALICE])
def test_upload_becomes_payload_of_citing_event(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, user: str | None
) -> None:
    key, reader = gateway.key(user=user), gateway.key(user=ALICE)
    about = {"mime_type": "image/png", "name": "chart é.png"}
    upload = upload_file(gateway, key, DATA, **about)
    cid = upload["cid"]
    assert cid == cid_of(DATA)
    for asks in (key, reader):
        read = gateway.call("GET", f"/file/{cid}", key=asks, query={"participants": ALICE})
        assert read.status == 404, "until an event cites it"
    reply = cite(gateway, key, cid)
    assert reply.status == 201, reply.text
    assert reply.body["blob"] == {"cid": cid, "size": len(DATA), **about}
    assert objects(aws)[f"acme/{cid}"] == DATA
    rows = scratch_db.rows("select blob_cid, blob_size, mime_type, file_name, content from events")
    assert rows == [(cid, len(DATA), *about.values(), None)]
    assert scratch_db.rows("select cid, writer, size from blobs") == [(cid, user or "*", len(DATA))]
    read = gateway.call("GET", f"/file/{cid}", key=reader)
    assert read.status == 307
    with urllib.request.urlopen(read.headers["Location"], timeout=10) as answer:  # noqa: S310
        assert answer.read() == DATA
        assert answer.headers["Content-Type"] == "image/png"
    block = gateway.call("GET", f"/ipfs/{reply.body['cid']}", key=reader)
    assert block.status == 200, "the block says name and type too"


def test_upload_name_and_type_yield_to_event(gateway: Gateway) -> None:
    key = gateway.key()
    upload = upload_file(gateway, key, DATA, mime_type="image/png", name="a.png")
    reply = cite(gateway, key, upload["cid"], mime_type="image/jpeg", name="b.jpg")
    assert reply.body["blob"]["mime_type"] == "image/jpeg"
    assert reply.body["blob"]["name"] == "b.jpg"
    second = cite(gateway, key, upload["cid"])
    assert (second.body["blob"]["mime_type"], second.body["blob"]["name"]) == ("image/png", "a.png")


def test_upload_is_cited_twice_in_batch_and_later(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    upload = upload_file(gateway, key, DATA)
    events = [citing(upload["cid"], ALICE), citing(upload["cid"], ALICE, BOB, speaker=ALICE)]
    reply = gateway.call("POST", BATCH, {"events": events}, key=key)
    assert reply.body["failed"] == 0, reply.text
    assert cite(gateway, key, upload["cid"], ALICE).status == 201
    assert scratch_db.rows("select count(*), min(blob_size) from events") == [(3, len(DATA))]
    assert scratch_db.rows("select count(*) from blobs") == [(1,)]


@pytest.mark.parametrize("path", [EVENTS_PATH, BATCH])
def test_upload_of_another_user_looks_absent(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    upload = upload_file(gateway, gateway.key(user=ALICE), DATA, mime_type="text/plain")
    requests: list[str] = []
    store = blobs()
    for name in (
        "inspect_upload",
        "read_text_prefix",
        "copy_upload_to_cid",
        "delete_uploaded_object",
    ):
        monkeypatch.setattr(store, name, noting(requests, name))
    for key, who in (
        (gateway.key(user=BOB), BOB),
        (gateway.key("other", ALICE), ALICE),
        (gateway.key(), ALICE),
    ):
        answers: list[object] = []
        for cid in (upload["cid"], NOWHERE):
            body = citing(cid, who)
            if path == EVENTS_PATH:
                answers.append(without_id(gateway.call("POST", path, body, key=key)))
            else:
                reply = gateway.call("POST", path, {"events": [body]}, key=key)
                answers.append(reply.body["results"][0]["error"] | {"request_id": ""})
        assert answers[0] == answers[1]
        assert "blob_not_found" in str(answers[0])
        assert "POST /api/v1/uploads" in str(answers[0])
    assert requests == [], "no time is spent on asking the store either"
    assert scratch_db.rows("select count(*) from events") == [(0,)]


def test_upload_without_bytes_is_missing(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    key = gateway.key()
    upload = begin(gateway, key, DATA)
    assert put(upload, DATA[:-1] + b"!")[0] == 400
    reply = cite(gateway, key, upload["cid"])
    assert (reply.status, reply.error["details"]) == (
        422,
        {"field": "blob.cid", "reason": "upload_missing", "expected_size": len(DATA)},
    )
    assert "POST /api/v1/uploads" in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(0,)]
    assert put(upload, DATA)[0] == 200
    assert cite(gateway, key, upload["cid"]).status == 201


@pytest.mark.parametrize("there", [b"something else", DATA[:-1] + b"!", DATA + b"more", b""])
def test_upload_with_wrong_bytes_is_mismatch(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, there: bytes
) -> None:
    """A store that verifies nothing: our own side hashes, and makes room for the right bytes."""
    key = gateway.key()
    upload = begin(gateway, key, DATA)
    put_unchecked(aws, pending_key("acme", upload), there)
    reply = cite(gateway, key, upload["cid"])
    assert (reply.status, reply.error["details"]) == (
        422,
        {
            "field": "blob.cid",
            "reason": "upload_mismatch",
            "expected_size": len(DATA),
            "found_size": len(there),
        },
    )
    assert objects(aws) == {}
    assert scratch_db.rows("select count(*) from events") == [(0,)]
    again = begin(gateway, key, DATA)
    assert put(again, DATA)[0] == 200
    assert cite(gateway, key, upload["cid"]).status == 201


def test_upload_with_wrong_length_is_mismatch(gateway: Gateway, aws: LocalAws) -> None:
    key = gateway.key()
    body = gateway.call("POST", UPLOADS, asking(DATA) | {"size": 7}, key=key).body
    put_unchecked(aws, pending_key("acme", body), DATA)
    details = cite(gateway, key, body["cid"]).error["details"]
    assert (details["reason"], details["expected_size"]) == ("upload_mismatch", 7)
    assert details["found_size"] == len(DATA)


def test_upload_citation_picks_upload_with_bytes(gateway: Gateway, aws: LocalAws) -> None:
    key = gateway.key()
    first = begin(gateway, key, DATA, name="first.bin")
    second = begin(gateway, key, DATA, name="second.bin")
    assert first["upload_id"] != second["upload_id"]
    assert put(first, DATA)[0] == 200
    for n in range(20):  # however many were never put since
        begin(gateway, key, DATA, name=f"{n}.bin")
    twice = [citing(first["cid"]), citing(first["cid"])]
    reply = gateway.call("POST", BATCH, {"events": twice}, key=key)
    assert [item["event"]["blob"]["name"] for item in reply.body["results"]] == ["first.bin"] * 2


def test_upload_without_stored_checksum_is_read(
    gateway: Gateway, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    upload = upload_file(gateway, key, DATA)
    bucket: Any = s3_backends[ACCOUNT_ID]["aws"].buckets[aws.bucket]
    [receipt] = bucket.keys.values()
    assert (receipt.checksum_algorithm, receipt.checksum_value is not None) == ("SHA256", True)
    receipt.checksum_algorithm = receipt.checksum_value = None
    assert cite(gateway, key, upload["cid"]).status == 201


def test_upload_read_timeout_prevents_citation(gateway: Gateway, aws: LocalAws) -> None:
    upload = begin(gateway, gateway.key(), DATA)
    put_unchecked(aws, pending_key("acme", upload), DATA)
    with pytest.raises(Unavailable, match="too slow"):
        blobs().inspect_upload("acme", UUID(upload["upload_id"]), deadline=0.0)


def test_upload_expired_looks_absent_and_is_removed(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    key = gateway.key()
    upload = upload_file(gateway, key, DATA)
    unknown = without_id(cite(gateway, key, NOWHERE))
    age(scratch_db)
    assert without_id(cite(gateway, key, upload["cid"])) == unknown
    gateway.sweep()
    assert (objects(aws), scratch_db.rows("select count(*) from uploads")) == ({}, [(0,)])
    assert without_id(cite(gateway, key, upload["cid"])) == unknown
    assert "cite_until" in str(unknown)


@pytest.mark.parametrize("atomic", [False, True])
def test_upload_bad_citation_fails_item_or_atomic_batch(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, atomic: bool
) -> None:
    key = gateway.key(user=ALICE)
    good, missing = upload_file(gateway, key, DATA), begin(gateway, key, b"never put")
    target = gateway.call("POST", EVENTS_PATH, user_message("target", ALICE), key=key).body[
        "event_id"
    ]
    events = [
        citing(missing["cid"], ALICE, edges=[{"event_id": target}]),
        user_message("plain", ALICE, edges=[{"event_id": target}]),
        citing(good["cid"], ALICE),
    ]
    reply = gateway.call("POST", BATCH, {"events": events, "atomic": atomic}, key=key)
    results = reply.error["details"]["results"] if atomic else reply.body["results"]
    assert [r["status"] for r in results] == ([422, 424, 424] if atomic else [422, 201, 201])
    assert results[0]["error"]["details"]["reason"] == "upload_missing"
    assert scratch_db.rows("select count(*) from events") == [(1 if atomic else 3,)]
    assert scratch_db.rows("select count(*) from memory_edges") == [(0 if atomic else 1,)]
    assert (f"acme/{good['cid']}" in objects(aws)) is not atomic


def test_upload_replay_outlives_removed_upload(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    upload = upload_file(gateway, key, DATA, mime_type="image/png", name="a.png")
    body = citing(upload["cid"], ALICE, BOB, speaker=ALICE, source_event_key="k")
    first = gateway.call("POST", EVENTS_PATH, body, key=key)
    age(scratch_db)
    gateway.sweep()
    assert scratch_db.rows("select count(*) from uploads") == [(0,)]
    again = gateway.call("POST", EVENTS_PATH, body, key=key)
    assert (again.status, again.text) == (201, first.text)
    assert again.headers["Idempotent-Replayed"] == "true"
    for change, fields in (
        ({"speaker": None, "session_id": "s"}, ["session_id"]),
        ({"metadata": {"a": 1}, "name": "b.png"}, ["name", "metadata"]),
        ({"mime_type": "image/jpeg"}, ["mime_type"]),
    ):
        conflict = gateway.call("POST", EVENTS_PATH, {**body, **change}, key=key)
        assert (conflict.status, conflict.error["details"]["fields"]) == (409, fields)


# text --------------------------------------------------------------------------------------------


def hits(gateway: Gateway, key: str, words: str) -> list[Any]:
    body = {"query": words, "participants": [ALICE], "limit": 20}
    result = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
    return [hit for hit in result if set(hit["why"]) - {"meaning"}]


TEXT = ("calm water and no wind today 🌊 " * 4000 + "then a zephyr came").encode()


@pytest.mark.parametrize("kind", ["text/markdown", "application/ld+json", "application/xml"])
def test_upload_text_is_searchable_and_cited_by_range(gateway: Gateway, kind: str) -> None:
    key = gateway.key(user=ALICE)
    upload = upload_file(gateway, key, TEXT, mime_type=kind, name="logbook of the harbour")
    body = cite(gateway, key, upload["cid"], ALICE).body
    for _ in range(2):
        (hit,) = hits(gateway, key, "zephyr")
        piece = TEXT.decode()[hit["piece"]["start_char"] : hit["piece"]["end_char"]]
        assert "zephyr" in piece
        assert len(piece) <= 16 * 1024
        assert hit["event_id"] == body["event_id"]
        assert hit["text"] is None
        gateway.sweep()
    (hit_list,) = hits(gateway, key, "logbook")
    assert hit_list["piece"]["start_char"] == 0


def test_upload_text_type_comes_from_event(gateway: Gateway) -> None:
    key = gateway.key(user=ALICE)
    silent = upload_file(gateway, key, b"the silent zephyr")
    # Sessions of their own: an event is found by the words of the one before it, too.
    reply = cite(gateway, key, silent["cid"], ALICE, name="a.bin", session_id="a")
    assert reply.status == 201
    assert hits(gateway, key, "zephyr") == []
    (hit,) = hits(gateway, key, "a.bin")
    assert hit["piece"] is None, "its name is no part of its text"
    text = cite(gateway, key, silent["cid"], ALICE, mime_type="text/plain", session_id="b")
    assert text.status == 201
    assert len(hits(gateway, key, "zephyr")) == 1
    called_text = upload_file(gateway, key, b"another zephyr", mime_type="text/plain")
    image = cite(gateway, key, called_text["cid"], ALICE, mime_type="image/png", session_id="c")
    assert image.status == 201
    assert len(hits(gateway, key, "zephyr")) == 1


@pytest.mark.parametrize(
    ("mime_type", "expected"),
    [
        ("text/plain", True),
        ("TEXT/HTML; charset=UTF-8", True),
        ('text/plain; charset="utf-8"', True),
        ("application/json", True),
        ("application/problem+json", True),
        ("image/svg+xml", True),
        ("text/plain; charset=utf-16", True),
        ("text/plain; charset=ISO-8859-1", True),
        ("text/plain; charset=unicode-escape", False),
        ("text/plain; charset=made-up", False),
        ("application/jsonp", False),
        ("image/png", False),
        ("application/octet-stream", False),
        ("", False),
        (None, False),
    ],
)
def test_upload_mime_type_decides_text(mime_type: str | None, expected: bool) -> None:
    assert is_text_type(mime_type) is expected


def test_upload_text_tolerates_bad_bytes(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key(user=ALICE)
    filler = b"a" * 1024 * 1024
    for data in (
        b"zephyr \x00\x00 \xff\xfe \xc3 zephyr",
        filler[:-8] + b" zephyr" + "🌊".encode(),  # cut at the megabyte, within the character
        filler[:-7] + b" zephyr" + b" mistral",
        "\ufeff zephyr \u2028 \x01 \ud7ff".encode(),
        b"zephyr \xed\xa0\x80",  # a surrogate, as some encoders write it
    ):
        upload = upload_file(gateway, key, data, mime_type="text/plain")
        reply = cite(gateway, key, upload["cid"], ALICE)
        assert reply.status == 201, reply.text
        results = {hit["event_id"]: hit["piece"] for hit in hits(gateway, key, "zephyr")}
        piece = results[reply.body["event_id"]]
        text = data.decode("utf-8", "replace")
        assert "zephyr" in text[piece["start_char"] : piece["end_char"]]
    assert hits(gateway, key, "mistral") == [], "past the first 1 MiB"
    gateway.sweep()
    assert scratch_db.rows("select count(*) from event_vectors") == [(5,)]


def test_upload_stored_text_is_indexed_for_citer_only(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = gateway.key(user=ALICE), gateway.key(user=BOB)
    text = "a secret zephyr " * 5000
    blob = gateway.call("POST", EVENTS_PATH, user_message(text, ALICE), key=alice).body["blob"]
    second = cite(gateway, alice, blob["cid"], ALICE, "agent:helper").body
    assert second["blob"]["mime_type"] == "text/plain; charset=utf-8"
    assert second["event_id"] in {hit["event_id"] for hit in hits(gateway, alice, "zephyr")}
    read: list[str] = []
    monkeypatch.setattr(blobs(), "read_text_prefix", noting(read, "read"))
    assert cite(gateway, bob, blob["cid"], BOB, mime_type="text/plain").status == 422
    assert read == []


def test_upload_removed_during_read_is_retryable(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sweep or another PUT may remove an upload after it was looked at."""
    key = gateway.key(user=ALICE)
    upload = upload_file(gateway, key, DATA, mime_type="text/plain")

    def refuse_gone(*_: object) -> str:
        raise PayloadMissing

    with monkeypatch.context() as patch:
        patch.setattr(blobs(), "read_text_prefix", refuse_gone)
        reply = gateway.call("POST", EVENTS_PATH, citing(upload["cid"], ALICE), key=key)
    assert (reply.status, reply.error["retryable"]) == (503, True)
    assert "Send this again" in reply.error["message"]
    assert scratch_db.rows("select count(*) from events") == [(0,)]
    assert gateway.call("POST", EVENTS_PATH, citing(upload["cid"], ALICE), key=key).status == 201


def test_upload_text_index_is_limited_per_request(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key(user=ALICE)
    events: list[dict[str, object]] = []
    for n in range(5):
        data = f"{n} ".encode() + b"a word or two " * 75_000
        upload = upload_file(gateway, key, data, mime_type="text/plain")
        events.append(citing(upload["cid"], ALICE))
    reply = gateway.call("POST", BATCH, {"events": events}, key=key)
    assert [item["status"] for item in reply.body["results"]] == [201, 201, 201, 201, 413]
    details = reply.body["results"][4]["error"]["details"]
    assert details == {"field": "blob.cid", "limit": 4 * 1024 * 1024}
    assert gateway.call("POST", EVENTS_PATH, events[4], key=key).status == 201
    assert scratch_db.rows("select count(*) from blobs") == [(5,)]


# the end -----------------------------------------------------------------------------------------


def test_upload_sweep_removes_expired_and_keeps_cited(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws
) -> None:
    keys = [gateway.key(), gateway.key(user=ALICE), gateway.key("other", ALICE)]
    results: list[dict[str, Any]] = []
    for key in keys:
        citation, never_cited, fresh = (
            upload_file(gateway, key, f"{n} {key}".encode()) for n in range(3)
        )
        assert cite(gateway, key, citation["cid"], ALICE).status == 201
        results.append(fresh)
        for upload in (citation, never_cited, begin(gateway, key, b"never put")):
            age(scratch_db, upload["upload_id"])
    gateway.sweep()
    rows = scratch_db.rows("select upload_id::text from uploads")
    assert {row[0] for row in rows} == {start["upload_id"] for start in results}
    pending = objects(aws, "_uploads/")
    assert len(pending) == 3
    assert all(any(start["upload_id"] in name for name in pending) for start in results)
    assert len(objects(aws)) - len(pending) == 3, "cited payloads"
    before = copy.deepcopy(objects(aws))
    gateway.sweep()
    assert objects(aws) == before


def test_upload_sweep_failure_stays_in_one_tenant(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tenant in ("acme", "broken", "zebra"):
        upload_file(gateway, gateway.key(tenant), DATA)
    age(scratch_db)
    sweeper: Resources = importlib.import_module("functions.sweeper.handler").resources
    real: Callable[..., Any] = sweeper.blobs.erase_uploads

    def removing(tenant: str, upload_ids: Any) -> Any:
        if tenant == "broken":
            raise Unavailable
        return real(tenant, upload_ids)

    with monkeypatch.context() as patch:
        patch.setattr(sweeper.blobs, "erase_uploads", removing)
        assert gateway.sweep()["jobs_failed"] == 1
        assert scratch_db.rows("select tenant_id from uploads") == [("broken",)]
    gateway.sweep()
    assert (scratch_db.rows("select count(*) from uploads"), objects(aws)) == ([(0,)], {})


def test_upload_sweep_keeps_row_until_object_is_gone(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = upload_file(gateway, gateway.key(), DATA)
    age(scratch_db)
    sweeper: Resources = importlib.import_module("functions.sweeper.handler").resources
    store: Any = sweeper.blobs
    failure = {"Errors": [{"Key": pending_key("acme", upload), "Code": "InternalError"}]}

    def answering(**_: object) -> Any:
        return failure

    monkeypatch.setattr(store.s3, "delete_objects", answering)
    gateway.sweep()
    assert scratch_db.rows("select count(*) from uploads") == [(1,)]


def test_upload_sweep_is_bounded(
    gateway: Gateway, scratch_db: ScratchDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = gateway.key()
    for n in range(5):
        begin(gateway, key, str(n).encode())
    age(scratch_db)
    monkeypatch.setattr("strandline.log.presigned_uploads.MAX_KEYS_PER_CALL", 2)
    for uploads_left in (3, 1, 0):
        gateway.sweep()
        assert scratch_db.rows("select count(*) from uploads") == [(uploads_left,)]


def test_upload_is_invisible_to_other_users(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    del scratch_db
    begin(gateway, gateway.key(user=ALICE), DATA)
    for caller, result in (
        (Caller("acme", (), ALICE), 1),
        (Caller("acme", (BOB,), BOB), 0),
        (Caller("acme", ()), 0),
        (Caller("other", (), ALICE), 0),
    ):
        access = gateway.database.connect_as(caller)
        expectations = [{"place": 0, "cid": cid_of(DATA), "participants": [ALICE]}]
        (payload,) = store_uploads.look_up_cited_payloads(access, expectations)
        assert (payload.upload_id is not None, payload.citable) == (bool(result), False)
