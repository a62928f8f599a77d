"""From a request to the event it becomes: who may say what, and when two requests are the same."""

import json
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.auth.principals import Principal
from strandline.errors import Forbidden, Invalid
from strandline.log.cid import compute_blob_cid
from strandline.log.event_builder import build_event
from strandline.log.event_draft import EventDraft, build_draft
from strandline.log.refusals import list_differing_fields
from strandline.log.schemas_append import AppendRequest
from strandline.schemas import validate

APPEND = AppendRequest
RIGHTS = frozenset({"read", "write"})
ANYBODY = Principal("acme", None, RIGHTS)
ALICE = Principal("acme", "user:alice", RIGHTS)
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


def draft(principal: Principal = ANYBODY, key: str | None = None, **more: object) -> EventDraft:
    body = {"participants": ["user:alice", "agent:helper"], "role": "user", "content": "x", **more}
    body = {name: value for name, value in body.items() if value is not ...}
    return build_draft(principal, validate(APPEND, body), key)


def refusal_of(kind: type[Invalid | Forbidden], principal: Principal = ANYBODY, **more: Any) -> str:
    with pytest.raises(kind) as error:
        draft(principal, **more)
    return str(error.value.details["field"])


# who ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "kind", "principal", "speaker", "origin"),
    [
        ("user", "message", ANYBODY, "user:alice", "user"),
        ("agent", "message", ANYBODY, "agent:helper", "agent"),
        ("agent", "thought", ANYBODY, "agent:helper", "agent"),
        ("agent", "action", ANYBODY, "agent:helper", "agent"),
        ("system", "message", ANYBODY, None, "system"),
        ("user", "observation", ANYBODY, "user:alice", "tool"),
        ("agent", "observation", ANYBODY, "agent:helper", "tool"),
        ("system", "observation", ANYBODY, None, "tool"),
        ("user", "upload", ANYBODY, "user:alice", "document"),
        ("agent", "upload", ANYBODY, "agent:helper", "document"),
        ("system", "upload", ANYBODY, None, "document"),
        ("user", "message", ALICE, "user:alice", "user"),
        ("agent", "message", ALICE, "agent:helper", "agent"),
        ("system", "message", ALICE, None, "user"),
        ("user", "observation", ALICE, "user:alice", "user"),
        ("agent", "observation", ALICE, "agent:helper", "agent"),
        ("user", "upload", ALICE, "user:alice", "user"),
        ("agent", "upload", ALICE, "agent:helper", "agent"),
        ("system", "upload", ALICE, None, "user"),
    ],
)
def test_event_builder_derives_origin_and_speaker(
    role: str, kind: str, principal: Principal, speaker: str | None, origin: str
) -> None:
    event_draft = draft(principal, role=role, type=kind)
    assert (event_draft.speaker, event_draft.origin) == (speaker, origin)


def test_event_builder_leaves_ambiguous_speaker_empty() -> None:
    both = ["user:alice", "user:bob", "agent:helper", "agent:other"]
    assert draft(participants=both).speaker is None
    assert draft(participants=both, role="agent").speaker is None
    assert draft(ALICE, participants=both).speaker == "user:alice"
    assert refusal_of(Invalid, ALICE, participants=both, role="agent") == "speaker"


def test_event_builder_normalises_speaker() -> None:
    event_draft = draft(participants=["user:Zo\u00eb", "user:b"], speaker=" user:Zoe\u0308 ")
    assert event_draft.speaker == "user:Zo\u00eb"


def test_event_builder_requires_speaker_of_right_role() -> None:
    assert refusal_of(Invalid, speaker="user:carol") == "speaker"
    assert refusal_of(Invalid, speaker="alice") == "speaker"
    assert refusal_of(Invalid, speaker="agent:helper") == "speaker"
    assert refusal_of(Invalid, role="agent", speaker="user:alice") == "speaker"
    assert refusal_of(Invalid, role="system", speaker="agent:helper") == "speaker"


def test_event_builder_bound_key_writes_where_user_takes_part() -> None:
    assert refusal_of(Forbidden, ALICE, participants=["user:bob", "agent:helper"]) == "participants"
    assert refusal_of(Forbidden, ALICE, participants=["user:Alice"]) == "participants"
    assert draft(participants=["user:bob"]).participants == ["user:bob"]


@pytest.mark.parametrize("role", ["user", "system"])
def test_event_builder_bound_key_speaks_for_its_user_only(role: str) -> None:
    people = ["user:alice", "user:bob", "tool:clock"]
    for other in ("user:bob", "tool:clock"):
        with pytest.raises((Forbidden, Invalid)) as error:
            draft(ALICE, participants=people, role=role, speaker=other)
        assert error.value.details["field"] == "speaker"
    assert draft(ANYBODY, participants=people, role=role, speaker="user:bob").speaker == "user:bob"


def test_event_builder_refuses_ids_of_others() -> None:
    assert draft(ALICE, tenant_id="acme", user_id="user:alice").origin == "user"
    assert draft(ALICE, user_id="alice").origin == "user"
    assert refusal_of(Forbidden, ALICE, tenant_id="other") == "tenant_id"
    assert refusal_of(Forbidden, ALICE, user_id="user:bob") == "user_id"
    assert refusal_of(Forbidden, ALICE, user_id="bob") == "user_id"
    assert refusal_of(Forbidden, ANYBODY, user_id="user:alice") == "user_id"
    assert refusal_of(Forbidden, ANYBODY, tenant_id="ACME") == "tenant_id"


# what --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given_as",
    [
        {"content": ...},
        {"parts": [{"content": "x"}], "role": "agent"},
        {"blob": {"cid": compute_blob_cid(b"x")}},
        {"content": ..., "parts": [{"content": "x"}], "blob": {"cid": compute_blob_cid(b"x")}},
    ],
)
def test_event_builder_takes_one_of_content_parts_and_blob(given_as: dict[str, Any]) -> None:
    assert refusal_of(Invalid, **given_as) == "content"


@pytest.mark.parametrize("text", ["", " ", "\n\t\u00a0\u2003"])
def test_event_builder_refuses_blank_text_but_of_tools(text: str) -> None:
    for kind in ("message", "thought", "action", "upload"):
        assert refusal_of(Invalid, content=text, type=kind, role="agent") == "content"
    assert refusal_of(Invalid, content=text, type="message", role="user") == "content"
    assert refusal_of(Invalid, content=text, type="message", role="agent", model="m") == "content"
    blank_parts = [{"content": text, "model": "m"}, {"content": text}]
    assert refusal_of(Invalid, content=..., role="agent", parts=blank_parts) == "parts"
    assert draft(content=text, type="observation", role="agent").text == text
    calls = {"tool_calls": [{"name": "search"}]}
    assert draft(content=text, role="agent", metadata=calls).text == text


def test_event_builder_takes_parts_from_agents_only() -> None:
    parts = [{"content": "x"}]
    assert refusal_of(Invalid, content=..., parts=parts) == "parts"
    assert (
        refusal_of(Invalid, content=..., parts=parts, role="agent", type="observation") == "parts"
    )


def test_event_builder_parts_split_one_text() -> None:
    parts = [{"content": "Grüße 🌊", "model": "m"}, {"content": ""}, {"content": "e\u0301"}]
    event_draft = draft(content=..., role="agent", parts=parts)
    assert event_draft.text == "Grüße 🌊e\u0301"
    assert [tuple(part) for part in event_draft.parts] == [(7, "m"), (0, None), (2, None)]


@pytest.mark.parametrize(
    ("text", "is_payload"),
    [
        ("a", False),
        ("a" * 65_536, False),
        ("a" * 65_537, True),
        ("é" * 32_768, False),
        ("é" * 32_768 + "a", True),
        ("🌊" * 16_384, False),
        ("🌊" * 16_383 + "aaaaa", True),
        ("a" * 65_534 + "海", True),
    ],
    ids=[
        "a letter",
        "65536 letters",
        "65537 letters",
        "65536 in twos",
        "65537 in twos",
        "65536 in fours",
        "65537 in fours",
        "65537 with a three at the end",
    ],
)
def test_event_builder_long_content_becomes_payload(text: str, is_payload: bool) -> None:
    event_draft = draft(content=text)
    assert event_draft.payload == (text.encode() if is_payload else None)
    assert event_draft.payload_cid == (compute_blob_cid(text.encode()) if is_payload else None)
    event = build_event(event_draft, 0, [])
    assert event.content == (None if is_payload else text)
    assert event.mime_type == ("text/plain; charset=utf-8" if is_payload else None)


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("text/markdown", "text/markdown"),
        ("text/plain; charset=UTF-8", "text/plain; charset=UTF-8"),
        ("text/plain;charset=utf8; a=b", "text/plain;charset=utf8; a=b"),
        ("text/plain; charset=utf-16", "text/plain; charset=utf-8"),
        ('text/plain; name="a; charset=utf-16"', 'text/plain; name="a; charset=utf-16"'),
        ("text/plain; xcharset=utf-16", "text/plain; xcharset=utf-16"),
        (
            'text/csv; Charset="Shift_JIS"; header=present',
            "text/csv; Charset=utf-8; header=present",
        ),
        ("text/plain; charset=utf-8859", "text/plain; charset=utf-8"),
    ],
)
def test_event_builder_long_content_is_declared_as_utf8(sent: str, stored: str) -> None:
    """The key's fingerprint is of what was sent: a replay from before is one."""
    event_draft = draft(content="x" * 65_537, mime_type=sent, key="k")
    assert build_event(event_draft, 0, []).mime_type == stored
    assert event_draft.canonical_request_fields()["mime_type"] == sent
    assert build_event(draft(content="x", mime_type=sent), 0, []).mime_type == sent
    cid = compute_blob_cid(b"x")
    cited = build_event(draft(content=..., blob={"cid": cid}, mime_type=sent), 0, [])
    assert cited.mime_type == sent, "the bytes are what the caller says"


def test_event_builder_cited_blob_has_cid() -> None:
    assert refusal_of(Invalid, content=..., blob={"cid": "no-cid-at-all"}) == "blob.cid"


def test_event_builder_takes_key_once() -> None:
    assert draft().key is None
    assert draft(key="k").key == ("http", "k")
    assert draft(source_event_key="k", channel="slack").key == ("slack", "k")
    assert refusal_of(Invalid, key="k", source_event_key="k") == "source_event_key"


def test_event_builder_refuses_duplicate_edges() -> None:
    edges = [{"event_id": str(FIRST)}, {"cid": compute_blob_cid(b"x"), "weight": 0.5}]
    event_draft = draft(edges=edges)
    target = compute_blob_cid(b"x")
    with pytest.raises(Invalid) as twice:
        build_event(event_draft, 0, [(FIRST, target), (FIRST, target)])
    assert twice.value.details["field"] == "edges"
    build_event(event_draft, 0, [(FIRST, target), (SECOND, target)])
    build_event(event_draft, 0, [(None, None), (None, None)])  # refused where the log is


# the same request --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            {"participants": ["user:a", "agent:b"]},
            {"participants": ["agent:b", " user:a", "user:a"]},
        ),
        ({"speaker": "user:alice"}, {}),
        ({"type": "message", "channel": "http", "metadata": {}, "edges": []}, {}),
        ({"tenant_id": "acme"}, {}),
        ({"occurred_at": "2026-05-08T13:56:00Z"}, {"occurred_at": "2026-05-08T15:56:00+02:00"}),
        ({"occurred_at": "2026-05-08T13:56:00Z"}, {"occurred_at": 1778248560.0}),
        ({"metadata": {"a": 1, "b": [1e3]}}, {"metadata": {"b": [1000], "a": 1.0}}),
        (
            {"edges": [{"event_id": str(FIRST)}, {"event_id": str(SECOND)}]},
            {"edges": [{"event_id": str(SECOND), "weight": 1}, {"event_id": str(FIRST)}]},
        ),
    ],
)
def test_event_builder_fingerprint_is_same_for_same_request(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    assert draft(**one).compute_fingerprint() == draft(**other).compute_fingerprint()


@pytest.mark.parametrize(
    ("body", "fingerprint"),
    [
        ({}, "2dcb07ffbafa221415824303de369b8132cb8f8b47979a3406922144f39f6669"),
        (
            {
                "role": "agent",
                "stop_reason": "endTurn",
                "model": "m",
                "name": "n.txt",
                "mime_type": "text/plain",
                "session_id": "s",
                "channel": "slack",
                "occurred_at": "2026-05-08T13:56:00Z",
                "metadata": {"a": [1.0, 1e3]},
                "edges": [{"event_id": str(FIRST), "weight": 0.5}],
            },
            "47b9a27883241930eb93c0fa0394e8e37ba73af1a44e96748531b446861729a5",
        ),
    ],
)
def test_event_builder_fingerprints_are_frozen(body: dict[str, Any], fingerprint: str) -> None:
    """A key from before an upgrade has the fingerprint of its request."""
    assert draft(key="k", **body).compute_fingerprint() == fingerprint


def test_event_builder_fingerprint_differs_for_other_request() -> None:
    numbers = [1, 1.5, True, "1", None, [1], {"a": 1}, 2**53, 2**53 + 1, 2**70]
    bodies: list[dict[str, Any]] = [{"metadata": {"a": number}} for number in numbers]
    bodies += [{}, {"content": "y"}, {"role": "agent"}, {"type": "thought"}, {"session_id": "s"}]
    bodies += [{"channel": "c"}, {"name": "n"}, {"mime_type": "m/m"}]
    bodies += [{"occurred_at": 1}, {"occurred_at": 1.5}, {"participants": ["user:alice"]}]
    bodies += [{"edges": [{"event_id": str(target)}]} for target in (FIRST, SECOND)]
    bodies += [{"edges": [{"event_id": str(FIRST), "weight": 0.5}]}]
    bodies += [
        {"role": "agent", "parts": [{"content": "x", "model": m}], "content": ...} for m in "ab"
    ]
    bodies += [{"content": "x" * 70_000}, {"content": "y" * 70_000}]
    prints = [draft(**body).compute_fingerprint() for body in bodies]
    assert len(set(prints)) == len(bodies)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(one=st.dictionaries(st.text(max_size=3), VALUES, max_size=3), other=VALUES)
def test_event_builder_fingerprint_ignores_number_spelling(one: Any, other: Any) -> None:
    same = json.loads(json.dumps(dict(reversed(one.items()))))
    assert draft(metadata=one).compute_fingerprint() == draft(metadata=same).compute_fingerprint()
    if json.dumps(one.get("x"), sort_keys=True) != json.dumps(other, sort_keys=True):
        changes = {**one, "x": other}
        if "x" not in one or one["x"] != other:
            assert (
                draft(metadata=one).compute_fingerprint()
                != draft(metadata=changes).compute_fingerprint()
            )


def stored_row(event: EventDraft) -> dict[str, Any]:
    """The row of a draft, as the database gives it in a conflict."""
    row: dict[str, Any] = build_event(
        event, 0, [(FIRST, compute_blob_cid(b"x"))] * len(event.request.edges)
    ).as_json()
    parts = [part._asdict() for part in event.parts]
    links = [{"event_id": str(FIRST), "weight": e.weight} for e in event.request.edges]
    return json.loads(json.dumps({**row, "parts": parts, "edges": links}))


def said_by_agent(body: dict[str, Any]) -> EventDraft:
    instead: dict[str, Any] = {"content": ...} if "parts" in body else {}
    whole: dict[str, Any] = {"role": "agent", **instead, **body}
    return draft(key="k", **whole)


PARTS = [{"content": "x", "model": "m"}, {"content": "y"}]
LONG, LONGER = "x" * 70_000, "x" * 70_001
UTF16 = {"mime_type": "text/plain; charset=utf-16"}


@pytest.mark.parametrize(
    ("first", "second", "names"),
    [
        ({}, {"content": "yy"}, ["content"]),
        ({"content": LONG}, {"content": LONGER}, ["content"]),
        ({}, {"content": LONG}, ["content"]),
        ({"content": LONG}, {}, ["content"]),
        ({"parts": PARTS}, {"parts": [*PARTS, {"content": "z"}]}, ["parts"]),
        ({"parts": PARTS}, {"parts": [{"content": LONG}]}, ["parts"]),
        ({"parts": PARTS}, {"parts": [{**PARTS[0], "model": "n"}, PARTS[1]]}, ["parts"]),
        ({"metadata": {"a": 1}}, {"metadata": {"a": True}}, ["metadata"]),
        ({"metadata": {"a": 1e300}}, {"metadata": {"a": 1e300}, "name": "n"}, ["name"]),
        ({"metadata": {"a": 1.5}}, {"metadata": {"a": 1.5}, "name": "n"}, ["name"]),
        ({}, {"mime_type": "text/plain; charset=utf-8"}, ["mime_type"]),
        ({"content": LONG, **UTF16}, {"content": LONGER, **UTF16}, ["content"]),
        ({"content": LONG, **UTF16}, {"content": LONG}, ["mime_type"]),
        ({"content": LONG, **UTF16}, {**UTF16}, ["content"]),
        ({"edges": [{"event_id": str(FIRST)}]}, {"edges": []}, ["edges"]),
        (
            {"edges": [{"event_id": str(FIRST)}]},
            {"edges": [{"cid": compute_blob_cid(b"x")}]},
            ["edges"],
        ),
    ],
)
def test_event_builder_names_differences_as_caller_does(
    first: dict[str, Any], second: dict[str, Any], names: list[str]
) -> None:
    was, now = said_by_agent(first), said_by_agent(second)
    links = [{"event_id": str(FIRST), "weight": e.weight} for e in now.request.edges]
    assert list_differing_fields(now, stored_row(was), links) == names
