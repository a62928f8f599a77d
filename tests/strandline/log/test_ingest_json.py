"""Bodies that are hostile, broken or over a limit: a clear 4xx each, and nothing stored."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strandline.log.schemas_append import AppendRequest
from tests.support import Gateway, Reply, ScratchDatabase, user_message

EVENTS, BATCH = "/api/v1/events", "/api/v1/events/batch"
MAX = 4 * 1024 * 1024
TEXT = json.dumps(user_message("x"))


def assert_refused(reply: Reply, status: int, field: str) -> None:
    """The one error shape, naming the field."""
    assert reply.status == status, reply.text[:300]
    assert set(reply.body) == {"error"}
    error = reply.error
    assert set(error) == {"code", "message", "details", "request_id", "retryable"}
    assert error["details"]["field"] == field
    assert field in error["message"]
    assert error["request_id"]
    assert error["retryable"] is False


def nothing_stored(base: ScratchDatabase) -> bool:
    tables = ("events", "scopes", "event_keys", "sessions", "blobs", "memory_edges", "scope_work")
    return all(base.rows(f"select count(*) from {table}") == [(0,)] for table in tables)  # noqa: S608


def with_field(field: str) -> str:
    """A good event with one more field, as JSON text."""
    return f"{TEXT[:-1]}, {field}}}"


def test_ingest_json_refuses_malformed_body(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    for raw in (
        b"",
        b"{",
        TEXT[:-1].encode(),
        with_field('"content": "y"').encode(),
        with_field('"metadata": {"a": 1, "a": 2}').encode(),
        with_field(f'"occurred_at": {"9" * 5000}').encode(),
        TEXT.encode().replace(b"x", b"\xff"),
        TEXT.encode().replace(b"x", b"\xed\xa0\x80"),
        TEXT.encode("utf-16"),
    ):
        for path in (EVENTS, BATCH):
            assert_refused(gateway.call("POST", path, raw=raw, key=key), 400, "body")
    assert nothing_stored(scratch_db)


@pytest.mark.parametrize(
    ("raw", "place"),
    [
        (TEXT.encode().replace(b'"x"', b'"caf\xe9"'), TEXT.index('"x"') + 4),
        (gzip.compress(TEXT.encode()), 1),
        (TEXT.encode("utf-16"), 0),
    ],
    ids=["latin-1", "gzip", "utf-16"],
)
def test_ingest_json_names_other_encoding(gateway: Gateway, raw: bytes, place: int) -> None:
    reply = gateway.call("POST", EVENTS, raw=raw, key=gateway.key())
    assert_refused(reply, 400, "body")
    assert reply.error["message"] == (
        f"body: not UTF-8 at byte {place}. Send JSON in UTF-8, and uncompressed"
    )


def test_ingest_json_refuses_unstorable_value_by_place(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    for field, place in (
        (r'"name": "a\u0000"', "name"),
        (r'"session_id": "\ud800"', "session_id"),
        (r'"metadata": {"a": "\udfff"}', "metadata.a"),
        (r'"metadata": {"a": [1e999]}', "metadata.a[0]"),
        ('"metadata": {"a": ' + "9" * 309 + "}", "metadata.a"),
        (r'"occurred_at": -1e999', "occurred_at"),
        (f'"occurred_at": 1{"0" * 4000}', "occurred_at"),
        (f'"edges": [{{"weight": 1{"0" * 4000}}}]', "edges[0].weight"),
        (r'"source_event_key": "\u0000"', "source_event_key"),
    ):
        raw = with_field(field).encode()
        assert_refused(gateway.call("POST", EVENTS, raw=raw, key=key), 422, place)
    assert nothing_stored(scratch_db)


def test_ingest_json_refuses_too_deep_body(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    for levels in (33, 10_000, 1_000_000):
        for path in (EVENTS, BATCH):
            raw = ("[" * levels + "]" * levels).encode()
            reply = gateway.call("POST", path, raw=raw, key=key)
            assert reply.status == 422
            assert path == BATCH or "32 levels" in reply.error["message"]
            assert reply.error["details"]["field"]
    assert nothing_stored(scratch_db)


def test_ingest_json_metadata_may_be_as_deep_as_body(gateway: Gateway) -> None:
    raw = with_field('"metadata": ' + '{"a":' * 30 + "[]" + "}" * 30).encode()
    assert gateway.call("POST", EVENTS, raw=raw, key=gateway.key()).status == 201


def test_ingest_json_body_over_4_mib_is_413(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    for path, raw in ((EVENTS, b'"' + b"x" * (MAX - 1) + b'"'), (BATCH, b"\xff" * (MAX + 1))):
        assert len(raw) == MAX + 1
        reply = gateway.call("POST", path, raw=raw, key=key)
        assert_refused(reply, 413, "body")
        assert reply.error["details"]["limit"] == MAX
        assert str(MAX) in reply.error["message"]
    assert nothing_stored(scratch_db)


def test_ingest_json_body_of_exactly_4_mib_is_taken(gateway: Gateway) -> None:
    room = MAX - len(json.dumps(user_message("")))
    raw = json.dumps(user_message("x" * room)).encode()
    assert len(raw) == MAX
    reply = gateway.call("POST", EVENTS, raw=raw, key=gateway.key())
    assert (reply.status, reply.body["blob"]["size"]) == (201, room)


def test_ingest_json_refuses_non_object_body(gateway: Gateway, scratch_db: ScratchDatabase) -> None:
    key = gateway.key()
    bodies: list[object] = [[], "x", 1, True, [user_message("x")]]
    for body in bodies:
        for path in (EVENTS, BATCH):
            assert_refused(gateway.call("POST", path, body, key=key), 422, "body")
    assert nothing_stored(scratch_db)


def test_ingest_json_limits_are_kept_and_named(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    for field, value, limit in (
        ("metadata", {"a": "x" * 16_400}, "16384"),
        ("source_event_key", "k" * 513, "512"),
        ("source_event_key", "🌊" * 257, "1024"),
        ("channel", "c" * 65, "64"),
        ("session_id", "s" * 129, "128"),
        ("mime_type", "m/" + "m" * 254, "255"),
        ("name", "n" * 1025, "1024"),
        ("participants", [f"user:{n}" for n in range(65)], "64"),
        ("participants", ["user:" + "x" * 196], "200"),
        ("edges", [{"cid": "b" * 59}] * 65, "64"),
    ):
        reply = gateway.call("POST", EVENTS, {**user_message("x"), field: value}, key=key)
        assert_refused(reply, 422, field)
        assert limit in reply.error["message"], field
    for number, limit in ((0, "1"), (501, "500")):
        reply = gateway.call("POST", BATCH, {"events": [user_message("x")] * number}, key=key)
        assert_refused(reply, 422, "events")
        assert limit in reply.error["message"]
    for word in ("", "k" * 501, "a\tb", "k\u00e9y"):
        headers = {"Idempotency-Key": word}
        reply = gateway.call("POST", EVENTS, user_message("x"), key=key, headers=headers)
        assert_refused(reply, 422, "Idempotency-Key")
    assert "percent-encode other characters" in reply.error["message"]
    assert nothing_stored(scratch_db)


def test_ingest_json_stores_longest_value_of_every_field(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    """Every limit at once, in characters of four bytes that do not compress."""

    def longest(length: int, seed: int) -> str:
        return "".join(chr(0x20000 + (seed + n * 7919) % 40_000) for n in range(length))

    user = "user:" + longest(195, 1)
    body = {
        "participants": [user, *("agent:" + longest(194, n) for n in range(2, 65))],
        "role": "user",
        "content": "x",
        "source_event_key": longest(256, 3),
        "channel": longest(64, 4),
        "session_id": longest(128, 5),
        "mime_type": f"{'m' * 127}/{'m' * 127}",
        "name": longest(1024, 7),
        "metadata": {longest(4000, 8): 10**300},
    }
    key = gateway.key(user=user)
    for status in (201, 201):
        assert gateway.call("POST", EVENTS, body, key=key).status == status
    headers = {"Idempotency-Key": "k" * 500}
    del body["source_event_key"]
    assert gateway.call("POST", EVENTS, body, key=key, headers=headers).status == 201
    ((event_id,), *_) = scratch_db.rows("select event_id from events order by seq")
    read = gateway.call("GET", f"{EVENTS}/{event_id}", key=key)
    assert (read.status, read.body["metadata"]) == (200, body["metadata"])


def test_ingest_json_refusal_fits_answer_size(gateway: Gateway) -> None:
    huge = {"n" * 1_300_000 + str(n): 1 for n in range(3)}
    many = {"events": [{f"🌊{'🌊' * 150}{n}": 1 for n in range(12)} for _ in range(500)]}
    for path, body in ((EVENTS, huge), (BATCH, huge), (BATCH, many)):
        raw = json.dumps(body, ensure_ascii=False).encode()
        assert len(raw) < MAX
        reply = gateway.call("POST", path, raw=raw, key=gateway.key())
        assert reply.status in (200, 422)
        assert len(reply.text.encode()) < 5 * 1024 * 1024


# whatever comes ----------------------------------------------------------------------------------

ANY_TEXT = st.text(max_size=12)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(width=64) | ANY_TEXT
JSON: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)
LIKELY = st.sampled_from(
    ["user:alice", "agent:helper", "user", "agent", "message", "upload", "http", "", " ", "bafy", 0]
)
NAMES = [*sorted(AppendRequest.model_fields), "other"]
MOMENTS = st.datetimes().map(lambda at: f"{at.isoformat()}Z") | st.floats() | st.integers()
WORD = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=12)
KEY = WORD.filter(bool)
EDGE = st.fixed_dictionaries(
    {},
    optional={"cid": WORD, "event_id": st.uuids().map(str), "weight": st.floats(0, 1)},
)
# Mostly good events: what the database is asked to hold.
SHAPED: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "content": WORD,
        "role": st.sampled_from(["user", "agent", "system"]),
        "type": st.sampled_from(["message", "thought", "action", "observation", "upload"]),
        "occurred_at": MOMENTS,
        "metadata": st.dictionaries(WORD, JSON, max_size=3),
        "session_id": KEY,
        "channel": KEY,
        "source_event_key": KEY,
        "name": WORD,
        "mime_type": WORD,
    },
)
PARTS = st.fixed_dictionaries({"content": WORD}, optional={"model": WORD})
SHAPED_PARTS = st.lists(PARTS, min_size=1, max_size=3).map(
    lambda parts: {"role": "agent", "content": None, "parts": parts}
)
CHANGES: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from(NAMES), JSON | LIKELY | st.lists(LIKELY, max_size=3), max_size=2
)
EDGES = st.lists(EDGE, min_size=1, max_size=3).map(lambda edges: {"edges": edges})
OTHERWISE: st.SearchStrategy[dict[str, Any]] = CHANGES | SHAPED_PARTS | EDGES


def shape(fields: dict[str, Any], changes: dict[str, Any]) -> Any:
    return user_message("x") | fields | changes


BODIES: st.SearchStrategy[Any] = st.one_of(
    JSON,
    st.builds(shape, SHAPED, OTHERWISE),
    SHAPED.map(lambda fields: user_message("x") | fields),
)


@pytest.fixture
def check(gateway: Gateway) -> Callable[[str, object], None]:
    """Send a body; whatever it is, it is stored and reads back, or is refused."""
    key, admin = gateway.key(), gateway.key(rights=["admin"])

    def send(path: str, body: object) -> None:
        raw = json.dumps(body).encode()
        reply = gateway.call("POST", path, raw=raw, key=key)
        assert reply.status in (200, 201, 400, 403, 409, 422), (reply.status, raw)
        if reply.status >= 400:
            assert reply.error["message"]
            return
        single: dict[str, Any] = {"status": reply.status, "event": reply.body}
        items: list[dict[str, Any]] = reply.body.get("results") or [single]
        for item in items:
            assert item["status"] in (201, 403, 409, 422), item
            if item["status"] == 201:
                event = item["event"]
                for place in (f"{EVENTS}/{event['event_id']}", f"/ipfs/{event['cid']}"):
                    reply = gateway.call("GET", place, key=admin, query={"everybody": "true"})
                    assert reply.status == 200, reply.text

    return send


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(body=BODIES)
def test_ingest_json_body_never_fails_service(
    check: Callable[[str, object], None], body: object
) -> None:
    check(EVENTS, body)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(bodies=st.lists(BODIES, min_size=1, max_size=4), atomic=st.booleans())
def test_ingest_json_batch_never_fails_service(
    check: Callable[[str, object], None], bodies: list[object], atomic: bool
) -> None:
    check(BATCH, {"events": bodies, "atomic": atomic})


def test_ingest_json_refuses_unknown_query_parameter(
    gateway: Gateway, scratch_db: ScratchDatabase
) -> None:
    key = gateway.key()
    body = user_message("hi")
    assert_refused(gateway.call("POST", EVENTS, body, key=key, query={"dry": 1}), 422, "dry")
    assert_refused(gateway.call("GET", "/api/v1/usage", key=key, query={"x": 1}), 422, "x")
    assert nothing_stored(scratch_db)
