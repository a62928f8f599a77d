"""Strict JSON, and the shapes and limits of requests."""

import json
import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from strandline.errors import Invalid, Malformed
from strandline.log.schemas_append import AppendRequest, BatchRequest
from strandline.log.schemas_fields import MAX_METADATA_BYTES
from strandline.schemas import MAX_BODY_BYTES, check_storable, parse_json, validate

APPEND = AppendRequest
BATCH = BatchRequest
JSON_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | JSON_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(JSON_TEXT, inner, max_size=4),
    max_leaves=20,
)


def event(**more: object) -> dict[str, object]:
    return {"participants": ["user:alice"], "role": "user", "content": "x", **more}


def refusal_text(body: str | bytes) -> str:
    """Why a body is refused, or that it was read."""
    try:
        parse_json(body)
    except Invalid as error:
        return f"{error.details['field']}: {error.message}"
    return "read"


# JSON --------------------------------------------------------------------------------------------


@given(value=JSON, ascii_only=st.booleans(), is_bytes=st.booleans())
def test_schema_json_is_read_unchanged(value: Any, ascii_only: bool, is_bytes: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    assert parse_json(text.encode() if is_bytes else text) == value


@pytest.mark.parametrize(
    "body",
    [
        "",
        " ",
        "{",
        "{'a': 1}",
        '{"a": 1,}',
        "[1] 2",
        "nul",
        "[01]",
        "[+1]",
        '["\t"]',
        '["a\nb"]',
        '{"a": 1, "a": 2}',
        '[{"a": {"b": 1, "c": 2, "b": 1}}]',
        '{"a": 1, "\\u0061": 2}',
        "[" + "9" * 5000 + "]",
    ],
)
def test_schema_invalid_json_is_malformed(body: str) -> None:
    for given_as in (body, body.encode()):
        with pytest.raises(Malformed) as error:
            parse_json(given_as)
        assert error.value.details["field"] == "body"


@pytest.mark.parametrize(
    "body",
    [b"\xff", b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', b'"\xc0\x80"', '{"a":1}'.encode("utf-16")],
)
def test_schema_json_is_utf_8_only(body: bytes) -> None:
    with pytest.raises(Malformed):
        parse_json(body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (r'"\u0000"', "body"),
        (r'{"content": "a\u0000b"}', "content"),
        (r'{"metadata": {"deep": [1, {"x": "\u0000"}]}}', "metadata.deep[1].x"),
        (r'{"metadata": {"a\u0000": 1}}', "metadata.(name)"),
        (r'{"content": "\ud800"}', "content"),
        (r'{"content": "\udc00\ud800"}', "content"),
        (r'{"metadata": {"\udfff": 1}}', "metadata.(name)"),
        ('{"weight": 1e999}', "weight"),
        ('{"a": NaN}', "a"),
        ("[Infinity]", "[0]"),
        ("-Infinity", "body"),
        ('{"edges": [{"weight": -1e999}]}', "edges[0].weight"),
    ],
)
def test_schema_unstorable_value_is_refused_at_its_place(body: str, field: str) -> None:
    with pytest.raises(Invalid) as error:
        check_storable(parse_json(body))
    assert not isinstance(error.value, Malformed)
    assert error.value.details["field"] == field
    assert error.value.message.startswith(f"{field}: ")


def test_schema_surrogate_pair_is_one_character() -> None:
    assert parse_json(r'"\ud83c\udf0a"') == "🌊"


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_schema_json_depth_is_at_most_32(opening: str, closing: str) -> None:
    inner = "1" if opening != "[" else ""
    check_storable(parse_json(opening * 32 + inner + closing * 32))
    for levels in (33, 10_000, 200_000):
        with pytest.raises(Invalid, match="32 levels") as error:
            check_storable(parse_json(opening * levels + inner + closing * levels))
        assert error.value.details["field"]


@pytest.mark.parametrize(
    "body",
    [
        '{"' + '","'.join(f'a{n}": 1, "b{n}":"' for n in range(100_000)) + '": 1, "b99999": 1}',
        '{"' + "n" * 2_000_000 + '": [' + "1," * 900_000 + "1]}",
        '{"' + "n" * 2_000_000 + '": 1, "' + "n" * 2_000_000 + '": 1}',
    ],
    ids=["many names, the last one twice", "a long name over many items", "a long name twice"],
)
def test_schema_json_within_limit_is_read_fast(body: str) -> None:
    assert len(body) <= MAX_BODY_BYTES
    started = time.process_time()
    assert len(refusal_text(body)) < 500
    assert time.process_time() - started < 5


@given(
    body=st.binary(max_size=60)
    | st.text(max_size=60)
    | st.text('{}[]":,0123.e-\\u"d8 ', max_size=40)
)
def test_schema_any_body_is_read_or_refused(body: str | bytes) -> None:
    assert refusal_text(body) == "read" or ": " in refusal_text(body)


# shapes ------------------------------------------------------------------------------------------


def refusal(shape: type[BaseModel], value: object) -> Invalid:
    with pytest.raises(Invalid) as error:
        validate(shape, value)
    return error.value


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"participants": []}, "participants"),
        ({"participants": "user:alice"}, "participants"),
        ({"participants": ["user:a"] * 257}, "participants"),
        ({"participants": ["user:alice", 1]}, "participants.1"),
        ({"participants": ["user:" + "a" * 800]}, "participants.0"),
        ({"role": "tool"}, "role"),
        ({"role": None}, "role"),
        ({"type": "note"}, "type"),
        ({"content": 1}, "content"),
        ({"parts": []}, "parts"),
        ({"parts": [{"content": "x"}] * 257}, "parts"),
        ({"parts": [{"model": "m"}]}, "parts.0.content"),
        ({"parts": [{"content": "x", "model": "m" * 201}]}, "parts.0.model"),
        ({"blob": {"cid": "short"}}, "blob.cid"),
        ({"blob": {"cid": "b" * 129}}, "blob.cid"),
        ({"mime_type": "m/" + "m" * 254}, "mime_type"),
        ({"mime_type": "text/html\r\nX-Evil: 1"}, "mime_type"),
        ({"mime_type": "text/plain\n"}, "mime_type"),
        ({"mime_type": "text"}, "mime_type"),
        ({"mime_type": "té/xt"}, "mime_type"),
        ({"name": "n" * 1025}, "name"),
        ({"session_id": ""}, "session_id"),
        ({"session_id": "s" * 129}, "session_id"),
        ({"channel": ""}, "channel"),
        ({"channel": "c" * 65}, "channel"),
        ({"source_event_key": ""}, "source_event_key"),
        ({"source_event_key": "k" * 513}, "source_event_key"),
        ({"metadata": []}, "metadata"),
        ({"metadata": {"a": "é" * 8200}}, "metadata"),
        ({"stop_reason": "length"}, "stop_reason"),
        ({"role": "user", "stop_reason": "endTurn"}, "stop_reason"),
        ({"edges": [{"cid": "b" * 59}] * 65}, "edges"),
        ({"edges": [{"cid": "b" * 59, "weight": 1.01}]}, "edges.0.weight"),
        ({"edges": [{"cid": "b" * 59, "weight": -0.1}]}, "edges.0.weight"),
        ({"edges": [{"cid": "b" * 59, "weight": 10**4000}]}, "edges.0.weight"),
        ({"edges": [{"event_id": "no id"}]}, "edges.0.event_id"),
        ({"origin": "document"}, "origin"),
        ({"seq": 1}, "seq"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_schema_field_over_limit_is_refused_by_name(change: dict[str, object], field: str) -> None:
    error = refusal(APPEND, event(**change))
    assert error.details["field"] == field
    assert error.message.startswith(f"{field}: ")


@pytest.mark.parametrize("name", ["user", "agent", "agent_id"])
def test_schema_other_name_of_participants_is_told_theirs(name: str) -> None:
    with pytest.raises(Invalid) as error:
        validate(APPEND, event(**{name: "alice"}))
    assert error.value.message == (
        f"{name}: is not a known field: say who takes part as `participants`, as in "
        '["user:alice", "agent:helper"]'
    )


def test_schema_unknown_type_is_offered_no_statement() -> None:
    with pytest.raises(Invalid) as error:
        validate(APPEND, event(type="chat"))
    assert error.value.message == (
        "type: must be one of message, thought, action, observation, upload"
    )
    with pytest.raises(Invalid, match=r"^type: a statement is made by the routes under"):
        validate(APPEND, event(type="statement"))


@pytest.mark.parametrize("value", [None, 1, "x", True, [], [event()]])
def test_schema_event_is_object(value: object) -> None:
    assert refusal(APPEND, value).details["field"] == "body"


def test_schema_wrong_fields_are_named_up_to_limit() -> None:
    error = refusal(APPEND, {"content": 1, **{f"x{n}": n for n in range(100)}})
    fields = cast("list[dict[str, str]]", error.details["fields"])
    names = [field["field"] for field in fields]
    assert {"participants", "role", "content"} <= set(names)
    assert len(names) == 20


def test_schema_refusal_repeats_no_value() -> None:
    secret = "the secret of the caller"
    error = refusal(APPEND, event(role=secret, metadata=secret, **{"n" * 1_000_000: secret}))
    text = json.dumps([error.message, error.details])
    assert len(text) < 5000
    assert secret not in text


def test_schema_metadata_holds_16_kib_of_utf_8() -> None:
    room = MAX_METADATA_BYTES - len('{"a":""}')
    assert validate(APPEND, event(metadata={"a": "é" * (room // 2)}))
    error = refusal(APPEND, event(metadata={"a": "é" * (room // 2) + "xx"}))
    assert str(MAX_METADATA_BYTES) in error.message


def test_schema_batch_holds_1_to_500_events() -> None:
    assert validate(BATCH, {"events": [1] * 500}).atomic is False
    for number in (0, 501):
        assert refusal(BATCH, {"events": [1] * number}).details["field"] == "events"


@pytest.mark.parametrize(
    ("given_as", "moment"),
    [
        ("2026-05-08T13:56:00Z", datetime(2026, 5, 8, 13, 56, tzinfo=UTC)),
        ("2026-05-08T13:56:00.25+02:00", datetime(2026, 5, 8, 11, 56, 0, 250_000, tzinfo=UTC)),
        (1778248560, datetime(2026, 5, 8, 13, 56, tzinfo=UTC)),
        (-1.5, datetime(1969, 12, 31, 23, 59, 58, 500_000, tzinfo=UTC)),
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
    ],
)
def test_schema_moment_is_rfc_3339_or_unix_seconds(given_as: object, moment: datetime) -> None:
    assert validate(APPEND, event(occurred_at=given_as)).occurred_at == moment


@pytest.mark.parametrize(
    "value",
    [
        "2026-05-08T13:56:00",
        "2026-05-08",
        "yesterday",
        "",
        True,
        [],
        {},
        1e300,
        10**4000,
        -(10**12),
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "10000-01-01T00:00:00Z",
    ],
)
def test_schema_other_moment_is_refused_by_field(value: object) -> None:
    error = refusal(APPEND, event(occurred_at=value))
    assert error.details["field"] == "occurred_at"
    assert "time zone" in error.message
