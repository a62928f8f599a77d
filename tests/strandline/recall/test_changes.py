"""What people say later about the same slot of their lives comes with what they said before, and
marks it; `as_of` asks for then."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_calls import call_tool
from tests.support import Gateway, Reply, Tell

FOLDER = Path(__file__).parent / "changes"
ANN, BEN, HELPER = "user:ann", "user:ben", "agent:helper"
_CASES = [json.loads(line) for line in (FOLDER / "changes.jsonl").read_text().splitlines()]
_QUESTIONS = {
    "What films does Ann like?": "rev-2",
    "Does Ann like coriander?": "rev-3",
    "Where does Ann live now?": "rev-4",
    "Is Ann on the night shift?": "rev-6",
}
"""The newest statement about each question."""
_UNREAD = "there and back"
"""The lexicon holds "graz" as an everyday word, and such a word names no new home."""


@pytest.fixture
def key(gateway: Gateway) -> str:
    return gateway.key()


def post(gateway: Gateway, path: str, key: str, query: str, *who: str, **more: object) -> Reply:
    body = {"query": query, "participants": list(who) or [ANN], **more}
    return gateway.call("POST", f"/api/v1/{path}", body, key=key)


def recall(gateway: Gateway, key: str, query: str, *who: str, **more: object) -> list[Any]:
    reply = post(gateway, "recall", key, query, *who, **{"min_relevance": 0, **more})
    assert reply.status == 200, reply.text
    return reply.body["hits"]


def read_block(gateway: Gateway, key: str, query: str, *who: str, **more: object) -> list[str]:
    """The lines of a context's text."""
    reply = post(gateway, "context", key, query, *who, **more)
    assert reply.status == 200, reply.text
    return reply.body["text"].splitlines()


def find_line(lines: list[str], text: str) -> str:
    (line,) = [line for line in lines if text in line]
    return line


def store_file(gateway: Gateway, key: str, name: str) -> Mapping[str, Any]:
    """The events of a file, by key."""
    events = [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
    assert not reply.body["failed"], reply.text
    return {
        event["source_event_key"]: {**event, "event_id": result["event"]["event_id"]}
        for event, result in zip(events, reply.body["results"], strict=True)
    }


def tell_moves(tell: Tell, key: str, *participants: str) -> tuple[str, str]:
    """Two homes of Ann, one after the other, by their ids."""
    who = participants or (ANN, HELPER)
    first = tell(key, "I live in Bergen.", *who, speaker=ANN, occurred_at="2026-01-05T09:00:00Z")
    later = tell(key, "I moved to Oslo.", *who, speaker=ANN, occurred_at="2026-03-02T09:00:00Z")
    return first["event_id"], later["event_id"]


def test_changes_files_are_frozen() -> None:
    frozen = [line.split() for line in (FOLDER / "frozen.sha256").read_text().splitlines()]
    assert len(frozen) == 3
    for digest, name in frozen:
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest, name


@pytest.mark.parametrize("case", _CASES, ids=lambda case: case["name"])
def test_changes_supersede_what_was_said_before(
    gateway: Gateway, tell: Tell, key: str, case: Mapping[str, Any]
) -> None:
    ids = [
        tell(key, text, ANN, HELPER, occurred_at=f"{day}T09:00:00Z", session_id=day)["event_id"]
        for day, text in case["said"]
    ]
    hits = {hit["event_id"]: hit for hit in recall(gateway, key, case["question"])}
    assert ids[-1] in hits, "the newest is told"
    if case["name"] == _UNREAD:
        assert all(hits[one]["occurred_at"] for one in ids), "and all stand with their dates"
        return
    ends = {
        (ids.index(hit["event_id"]), ids.index(hit["superseded_by"]))
        for hit in hits.values()
        if hit["superseded_by"]
    }
    assert ends == {(earlier, later) for earlier, later in case["ends"]}
    lines = read_block(gateway, key, case["question"])
    marks = {
        number
        for number, (_, text) in enumerate(case["said"])
        if "no longer: see" in find_line(lines, text)
    }
    assert marks == {earlier for earlier, _ in case["ends"]}


def test_changes_of_mind_are_told_newest_first(gateway: Gateway, key: str) -> None:
    events = store_file(gateway, key, "reversal.jsonl")
    keys = {event["event_id"]: name for name, event in events.items()}
    for question, newest in _QUESTIONS.items():
        hits = {keys[hit["event_id"]]: hit for hit in recall(gateway, key, question)}
        assert newest in hits, question
        for name, hit in hits.items():
            assert hit["occurred_at"] == events[name]["occurred_at"], "each with its date"
    hits = recall(gateway, key, "What films does Ann like?")
    names = [keys[hit["event_id"]] for hit in hits]
    assert names.index("rev-2") < names.index("rev-0")
    by_name = dict(zip(names, hits, strict=True))
    assert by_name["rev-0"]["superseded_by"] == events["rev-2"]["event_id"]
    assert by_name["rev-2"]["superseded_by"] is None
    homes = {keys[hit["event_id"]]: hit for hit in recall(gateway, key, "Where does Ann live now?")}
    assert homes["rev-5"]["superseded_by"] == events["rev-4"]["event_id"]


def test_changes_stand_in_a_context_in_order_of_time(gateway: Gateway, key: str) -> None:
    store_file(gateway, key, "reversal.jsonl")
    lines = read_block(gateway, key, "Where does Ann live now?")
    old, new = find_line(lines, "in Bergen, near"), find_line(lines, "from Bergen to Oslo")
    assert lines.index(old) < lines.index(new)
    assert "Sun 1 June 2025" in old
    assert "(no longer: see Sun 1 February 2026)" in old
    assert "Sun 1 February 2026" in new
    assert "no longer" not in new
    lines = read_block(gateway, key, "What films does Ann like?")
    old, new = find_line(lines, "fast science fiction"), find_line(lines, "slow, quiet films")
    assert lines.index(old) < lines.index(new)
    assert "(perhaps no longer: see Mon 2 March 2026)" in old, "two likes may go together"


def test_changes_in_a_group_keep_whose_wish_it_is(gateway: Gateway, key: str) -> None:
    events = store_file(gateway, key, "group_chat.jsonl")
    for question in (
        "What does Ann prefer, tabs or spaces?",
        "When can David come?",
        "What does Ann not eat?",
    ):
        hits = recall(gateway, key, question)
        speakers = {event["event_id"]: event.get("speaker") for event in events.values()}
        assert hits
        assert all(hit["speaker"] == speakers[hit["event_id"]] for hit in hits)
        assert not any(hit["superseded_by"] for hit in hits), "nobody's wish ends another's"
        lines = read_block(gateway, key, question)
        for text, speaker in (
            ("I can only do Mondays.", ", david: "),
            ("For me Fridays", ", keely: "),
            ("I prefer tabs over spaces.", ", scout (agent): "),
            ("I hate seafood.", ", ann: "),
            ("you like Mondays, right?", ", helper (agent): "),
        ):
            assert speaker in find_line(lines, text)


def test_changes_of_who_takes_part_lose_no_message(gateway: Gateway, key: str) -> None:
    """Somebody joins the group's session (report F-31): the refusal says what to do, and done so
    the message is stored."""
    store_file(gateway, key, "group_chat.jsonl")
    omar = "user:omar"
    event = {
        "participants": [ANN, "user:david", "user:keely", HELPER, "agent:scout", omar],
        "speaker": omar,
        "role": "user",
        "content": "I am Omar, and I only eat halal.",
        "session_id": "dinner",
    }
    refusal = gateway.call("POST", "/api/v1/events", event, key=key)
    assert (refusal.status, refusal.error["details"]["field"]) == (422, "session_id")
    assert "other participants; use another session_id" in refusal.error["message"]
    reply = gateway.call("POST", "/api/v1/events", {**event, "session_id": "dinner 2"}, key=key)
    assert reply.status == 201, reply.text
    (hit,) = recall(gateway, key, "What does Omar eat?", omar)
    assert (hit["text"], hit["speaker"]) == (event["content"], omar)
    lines = read_block(gateway, key, "What does Omar eat?", ANN)
    assert ", omar: " in find_line(lines, "only eat halal")
    assert ", ann: " in find_line(lines, "I hate seafood")


def test_change_names_only_what_the_reader_sees(gateway: Gateway, tell: Tell, key: str) -> None:
    told = {"speaker": ANN, "occurred_at": "2026-01-05T09:00:00Z"}
    home = tell(key, "I live in Bergen.", ANN, BEN, **told)["event_id"]
    told["occurred_at"] = "2026-03-02T09:00:00Z"
    move = tell(key, "I moved to Oslo.", ANN, HELPER, **told)["event_id"]
    other = gateway.key("other")
    tell(other, "I moved to Rome.", ANN, BEN, **{**told, "occurred_at": "2026-04-02T09:00:00Z"})

    def list_marks(*who: str) -> dict[str, str | None]:
        hits = recall(gateway, key, "Where does Ann live?", *who)
        return {hit["event_id"]: hit["superseded_by"] for hit in hits}

    assert list_marks(ANN) == {home: move, move: None}
    assert list_marks(BEN) == {home: None}, "Ben was not there when she told her helper"
    line = find_line(read_block(gateway, key, "Where does Ann live?", BEN), "in Bergen")
    assert "no longer" not in line
    line = find_line(read_block(gateway, key, "Where does Ann live?", ANN), "in Bergen")
    assert "(no longer: see Mon 2 March 2026)" in line


def test_change_of_one_sentence_leaves_the_rest(gateway: Gateway, tell: Tell, key: str) -> None:
    """Of a message that says more, what was changed is named; of two changed sentences neither."""
    home = "I live in Bergen, near the fish market."
    texts = (f"{home} I love it.", f"Hi! {home}", f"{home} I work at Equinor.")
    more = {"session_id": "home", "occurred_at": "2026-02-01T09:00:00Z"}
    ids = [tell(key, text, ANN, HELPER, **more)["event_id"] for text in texts]
    for text in ("I moved to Oslo.", "I left Equinor and work at Telenor now."):
        tell(key, text, ANN, HELPER, **{**more, "occurred_at": "2026-03-02T09:00:00Z"})
    gateway.sweep()
    hits = {hit["event_id"]: hit for hit in recall(gateway, key, "Where does Ann live now?", ANN)}
    assert all(hits[one]["superseded_by"] for one in ids)
    assert [hits[one]["superseded_sentence"] for one in ids] == [home, None, None]
    lines = read_block(gateway, key, "Where does Ann live now?", ANN)
    old, alone, both = (find_line(lines, text) for text in texts)
    assert f'(no longer "{home}": see Mon 2 March 2026): {texts[0]}' in old
    assert "(no longer: see Mon 2 March 2026)" in alone
    assert "no longer: see Mon 2 March 2026)" in both


def test_change_that_is_erased_supersedes_nothing(gateway: Gateway, tell: Tell, key: str) -> None:
    home, move = tell_moves(tell, key)
    hits = {hit["event_id"]: hit for hit in recall(gateway, key, "Where does Ann live?")}
    assert hits[home]["superseded_by"] == move
    eraser = gateway.key(rights=["erase"])
    reply = gateway.call("DELETE", f"/api/v1/events/{move}", key=eraser)
    assert reply.status < 300, reply.text
    (hit,) = recall(gateway, key, "Where does Ann live?")
    assert (hit["event_id"], hit["superseded_by"]) == (home, None)
    assert "no longer" not in "\n".join(read_block(gateway, key, "Where does Ann live?"))


def test_change_is_named_under_a_filter_but_not_added(
    gateway: Gateway, tell: Tell, key: str
) -> None:
    home, move = tell_moves(tell, key)
    hits = recall(gateway, key, "Where does Ann live?", until="2026-02-01T00:00:00Z")
    assert [(hit["event_id"], hit["superseded_by"]) for hit in hits] == [(home, move)]
    (hit,) = recall(gateway, key, "Bergen", limit=1, until="2026-02-01T00:00:00Z")
    assert hit["superseded_by"] == move


def test_change_of_a_far_hit_takes_no_place(gateway: Gateway, tell: Tell, key: str) -> None:
    coffee = "My coffee is a flat white, and I prefer aisle seats on flights when I leave Utrecht."
    for text in ("I live in Utrecht, close to the canal.", coffee, "I prefer window seats now."):
        tell(key, text, ANN)
    hits = recall(gateway, key, "Which canal does Ann live close to?", limit=2)
    assert ["canal" in hits[0]["text"], hits[1]["text"]] == [True, coffee]
    assert hits[1]["superseded_by"], "it is named all the same"
    hits = recall(gateway, key, "Which seats on flights does Ann prefer?", limit=2)
    assert ["window" in hit["text"] for hit in hits] == [True, False]


def test_changes_as_of_asks_for_what_held_then(gateway: Gateway, tell: Tell, key: str) -> None:
    home, move = tell_moves(tell, key)
    then = "2026-02-01T00:00:00Z"
    hits = recall(gateway, key, "Where does Ann live?", as_of=then)
    assert [(hit["event_id"], hit["superseded_by"]) for hit in hits] == [(home, None)]
    lines = read_block(gateway, key, "Where does Ann live?", as_of=then)
    assert "no longer" not in find_line(lines, "in Bergen")
    assert "Oslo" not in "\n".join(lines)
    assert "Today is Sun 1 February 2026." in lines[1]
    # the moment itself belongs to then, and what was said by then supersedes
    exactly = {"as_of": "2026-03-02T09:00:00Z"}
    hits = recall(gateway, key, "Where does Ann live?", **exactly)
    assert [(hit["event_id"], hit["superseded_by"]) for hit in hits] == [(move, None), (home, move)]
    assert recall(gateway, key, "Where does Ann live?", as_of="2025-12-31T00:00:00Z") == []


def test_changes_as_of_combines_with_filters(gateway: Gateway, tell: Tell, key: str) -> None:
    home, move = tell_moves(tell, key)
    ask = {"as_of": "2026-05-01T00:00:00Z", "until": "2026-02-01T00:00:00Z"}
    hits = recall(gateway, key, "Where does Ann live?", **ask)
    assert [(hit["event_id"], hit["superseded_by"]) for hit in hits] == [(home, move)]
    ask = {"as_of": "2026-02-01T00:00:00Z", "until": "2026-05-01T00:00:00Z", "speaker": ANN}
    hits = recall(gateway, key, "Where does Ann live?", **ask)
    assert [(hit["event_id"], hit["superseded_by"]) for hit in hits] == [(home, None)]
    last = {"as_of": "9999-12-31T23:59:59.999999Z", "now": "9999-12-31T23:59:59.999999Z"}
    assert len(recall(gateway, key, "Where does Ann live?", **last)) == 2


@pytest.mark.parametrize(
    ("path", "body", "reason"),
    [
        ("recall", {"as_of": "2026-02-01"}, "as_of: must be RFC 3339 with a time zone"),
        (
            *("recall", {"as_of": "2026-02-02T00:00:00Z", "now": "2026-02-01T00:00:00Z"}),
            "as_of must not be after now",
        ),
        (
            *("recall", {"as_of": "2026-02-01T00:00:00Z", "since": "2026-02-02T00:00:00Z"}),
            "since must not be after as_of",
        ),
        (
            *("recall", {"since": "2026-02-02T00:00:00Z", "until": "2026-02-01T00:00:00Z"}),
            "until: must be after since: ",
        ),
        ("context", {"query": None, "as_of": "2026-02-01T00:00:00Z"}, "as_of needs a query"),
    ],
)
def test_changes_as_of_refuses_wrong_use(
    gateway: Gateway, key: str, path: str, body: Mapping[str, Any], reason: str
) -> None:
    fields = {"query": "Where?", "participants": [ANN], **body}
    reply = gateway.call("POST", f"/api/v1/{path}", fields, key=key)
    assert reply.status == 422
    assert reason in reply.text


def test_changes_as_of_through_mcp(gateway: Gateway, tell: Tell) -> None:
    key = gateway.key(user=ANN)
    home, move = tell_moves(tell, key)
    ask: dict[str, Any] = {"query": "Where does Ann live?"}
    text, _ = call_tool(gateway, "memory_recall", ask, key=key)
    assert f"superseded by event {move}" in find_line(text.splitlines(), home)
    then = {**ask, "as_of": "2026-02-01T00:00:00Z"}
    for name in ("memory_recall", "memory_context"):
        text, _ = call_tool(gateway, name, then, key=key)
        assert "I live in Bergen." in text
        assert "Oslo" not in text
        assert "superseded" not in text
