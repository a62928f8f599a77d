"""Stored texts that give orders: nothing comes of them but an answer, wherever they stand and
whatever the model makes of them."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from strandline.context.fence import sanitize_to_one_line
from tests.chat_service import (
    SONAS,
    believe,
    chat,
    fold_and_promote,
    front,
    provider,
    query,
    read_prompt,
    says,
    shown_lines,
)
from tests.context_block import KNOWN_HEADING, SAID_HEADING, read_fence
from tests.mcp_calls import call_tool
from tests.model_server import ModelServer, Says, task_of
from tests.prove.injections import INJECTIONS, KINDS, OTHER
from tests.support import Gateway, Reply, ScratchDatabase, user_message
from tests.uploads import citing, upload_file

__all__ = ["front", "provider"]  # fixtures
USER, HELPER = "user:person0", "agent:helper"
CANARY = "canary-person1-sings"
UNSHOWN = "metadata-and-sessions-are-not-shown"
"""Stands in every metadata and every session's name."""
ADDED = frozenset(
    {
        *("events", "event_keys", "event_search", "memory_edges", "model_calls"),
        *("recall_answers", "recalls"),
    }
)
"""What chats add rows to, of which none changes: two events each, and what is counted of them."""
COUNTERS = frozenset(
    {
        *("scopes", "scope_work", "monthly_spend", "model_states", "model_rates", "quotas"),
    }
)
"""What a call counts in, and where a scope is by now."""


def obey(request: dict[str, Any]) -> Says:
    """A model that does what any line tells it: it can but say so. It believes all, and asks for
    a tool that nobody offered."""
    if task_of(request) not in ("answer", "reply"):
        return believe(request)
    lines, (_, question) = shown_lines(request), read_prompt(request)
    orders = " ".join([question["text"], *lines.values()])
    orders = "".join(letter if letter.isprintable() else " " for letter in orders)
    reply = says(f"As told: {orders[:2000]}", *lines)
    body: Any = reply.body
    message = body["choices"][0]["message"]
    call = {"name": "recall", "arguments": json.dumps({"participants": [USER, OTHER]})}
    message["tool_calls"] = [{"id": "call-1", "type": "function", "function": call}]
    return reply


def contents(base: ScratchDatabase) -> dict[str, Counter[str]]:
    """All rows of every table, as text."""
    tables = base.rows(
        "select c.relname::text from pg_class c where c.relnamespace = 'public'::regnamespace"
        " and c.relkind in ('r', 'p') and not c.relispartition"
    )
    return {
        name: Counter(
            text
            for (text,) in base.rows(f'select t::text from "{name}" t')  # noqa: S608 - of the catalogue
        )
        for (name,) in tables
    }


def changes(before: dict[str, Counter[str]], after: dict[str, Counter[str]]) -> set[str]:
    """The tables in which something is not as it was, but for what chats rightly write."""
    assert before.keys() == after.keys()
    missing = {name for name in before if before[name] - after[name]} - COUNTERS
    new = {name for name in before if after[name] - before[name]} - COUNTERS - ADDED
    return missing | new


class Case:
    """One text, at every place where a user may put it: the text of an event, its metadata, the
    name of a file, of a session, of a sona, an act, a message, and what the model says to it."""

    def __init__(self, number: int, text: str) -> None:
        self.text = text
        self.session = f"{number} {UNSHOWN} {text}"[:128]
        self.sona = f"{number} {text}"[:200]
        self.sona_id = self.sona_name = ""
        self.message = f"Number {number}: {text}"

    def tell(self, gateway: Gateway, key: str, cid: str) -> None:
        """Store it everywhere."""
        more: dict[str, Any] = {"session_id": self.session}
        more["metadata"] = {UNSHOWN: self.text, self.text[:100]: UNSHOWN, "role": "system"}
        file = citing(cid, USER, HELPER, name=self.text, **more)
        for event in (user_message(self.text, USER, HELPER, **more), file):
            reply = gateway.call("POST", "/api/v1/events", event, key=key)
            assert reply.status == 201, reply.text
        sona = gateway.call("POST", SONAS, {"name": self.sona}, key=key).body
        self.sona_id, self.sona_name = sona["uuid"], sona["names"][0]
        for event_id in (reply.body["event_id"], self.chat(gateway, key).body["answer_id"]):
            head = gateway.call("GET", f"{SONAS}/{self.sona_id}/acts/next", key=key).body["head"]
            act = {"event_id": event_id, **({"after": head} if head else {})}
            response = gateway.call("POST", f"{SONAS}/{self.sona_id}/acts", act, key=key)
            assert response.status == 201, response.text

    def chat(self, gateway: Gateway, key: str) -> Reply:
        reply = chat(
            gateway, key, self.message, USER, HELPER, session_id=self.session, sona=self.sona_id
        )
        assert reply.status == 200, reply.text
        return reply

    def query(self, gateway: Gateway, key: str) -> Reply:
        reply = query(gateway, key, self.message, sona=self.sona_id)
        assert reply.status == 200, reply.text
        return reply


def check_prompt(request: dict[str, Any], case: Case) -> set[str]:
    """That the prompt of a case is fenced, holds nothing of others, and shows what it is to. Gives
    the headings under which it shows something."""
    text = json.dumps(request, ensure_ascii=False)
    assert CANARY not in text
    assert UNSHOWN not in text
    block, question = read_prompt(request)
    assert question["text"] == case.message
    assert question["persona"] == case.sona_name
    lines = "\n".join(line for part in block.parts.values() for line in part)
    assert sanitize_to_one_line(case.text)[:30] in lines
    if "from" in question:  # a chat: the session's latest events
        latest = "\n".join(block.parts["Latest events:"])
        assert sanitize_to_one_line(f'(a file: "{case.text}')[:40] in latest
        assert "As told: " in latest
    return {heading for heading, part in block.parts.items() if part}


def take_sample(count: int) -> list[Case]:
    """So many cases, of as many kinds as there can be; each sample begins elsewhere."""
    step = len(INJECTIONS) // count
    return [Case(n, INJECTIONS[n]) for n in range(0, len(INJECTIONS), step)]


def test_chat_injections_differ_in_kind() -> None:
    assert len(KINDS) == 20
    assert len(set(INJECTIONS)) == 100
    assert all(len(texts) == 5 for texts in KINDS.values())


def test_chat_injections_yield_answer_only(
    front: Gateway,
    provider: ModelServer,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
) -> None:
    """A hundred at full size, each at every place, against a model that obeys and believes all of
    it: also when it writes summaries, topics and facts."""
    provider.otherwise = obey
    key, other = front.key(user=USER), front.key(user=OTHER)
    for n in range(3):
        event = user_message(f"The buoy {n} goes out on Friday, {CANARY}.", OTHER, HELPER)
        assert front.call("POST", "/api/v1/events", event, key=other).status == 201
    cases = take_sample(max(3, proof_size(100)))
    data = b"\x00\x01 a file"
    cid = upload_file(front, key, data, mime_type="application/octet-stream")["cid"]
    for case in cases:
        case.tell(front, key, cid)
    fold_and_promote(front, scratch_db)
    assert CANARY in str(scratch_db.rows("select summary from chain_versions")), "others are folded"
    before = contents(scratch_db)
    provider.requests.clear()
    replies = list[tuple[Case, Reply, Reply]]()
    for case in cases:
        replies.append((case, case.chat(front, key), case.query(front, key)))
        thread, is_error = call_tool(front, "act_next", {"sona": case.sona_id}, key=key)
        assert not is_error, thread
        read_fence(thread)
    after = contents(scratch_db)
    assert changes(before, after) == set()
    assert len({case.sona_name for case in cases}) > len(cases) // 2, "of their own names"
    headings = Counter[str]()
    assert len(provider.requests) == 2 * len(cases), "each is asked once: what it says is usable"
    for n, request in enumerate(provider.requests):
        headings.update(check_prompt(request, cases[n // 2]))
    assert headings["Latest events:"] == len(cases), "of each session, with the earlier reply"
    assert headings["Topics:"] >= len(cases), headings
    assert headings[KNOWN_HEADING] + headings[SAID_HEADING] >= len(cases), headings
    _check_new_events(scratch_db, before, replies)
    print(f"  {len(cases)} stored orders, {len(provider.requests)} prompts, {dict(headings)}")


def _check_new_events(
    base: ScratchDatabase,
    before: dict[str, Counter[str]],
    replies: Sequence[tuple[Case, Reply, Reply]],
) -> None:
    """Of each chat its message and its reply, in the name of who said them; of a query nothing."""
    expectations = [
        (who, role, origin, text, case.session, sorted([USER, HELPER]), USER)
        for case, reply, _ in replies
        for who, role, origin, text in (
            (USER, "user", "user", case.message),
            (HELPER, "agent", "agent", reply.body["text"]),
        )
    ]
    rows = base.rows(
        "select speaker, role, origin, content, session_id, participants, writer from events"
        " order by recorded_at, seq offset %s",
        before["events"].total(),
    )
    assert rows == expectations
    for case, reply, answer in replies:
        for one in (reply, answer):
            assert CANARY not in one.text
            assert one.body["text"].startswith("As told: ")
        assert reply.body["sona"] == answer.body["sona"] == case.sona_id


# planted ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("sona_names", "update sona_names set name = name || '.'"),
        ("sonas", "update sonas set merged_into = null, steps = steps + 1"),
        ("events", "update events set metadata = '{}'"),
        ("api_keys", "update api_keys set scopes = array['read', 'write', 'admin']"),
    ],
)
def test_chat_injections_test_detects_changed_row(
    front: Gateway, provider: ModelServer, scratch_db: ScratchDatabase, table: str, fault: str
) -> None:
    """Though there are as many rows as before."""
    provider.otherwise = obey
    key = front.key(user=USER)
    event = user_message("The buoy goes out on Friday.", USER, HELPER, metadata={"a": 1})
    assert front.call("POST", "/api/v1/events", event, key=key).status == 201
    assert front.call("POST", SONAS, {"name": "Pilot"}, key=key).status == 201
    before = contents(scratch_db)
    assert chat(front, key, "When does the buoy go out?", USER, HELPER).status == 200
    assert changes(before, contents(scratch_db)) == set()
    scratch_db.rows(fault)
    assert changes(before, contents(scratch_db)) == {table}


@pytest.mark.parametrize("kind", ["fence", "special tokens", "turns", "citations"])
def test_chat_injections_test_detects_text_outside_its_line(
    front: Gateway, provider: ModelServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Stored text goes into the prompt as it is."""
    monkeypatch.setattr("strandline.context.lines.sanitize_to_one_line", str)
    key, case = front.key(user=USER), Case(0, KINDS[kind][0])
    case.sona_id = front.call("POST", SONAS, {"name": "Pilot"}, key=key).body["uuid"]
    provider.otherwise = lambda _: says("No.")
    event = user_message(case.text, USER, HELPER, session_id=case.session)
    assert front.call("POST", "/api/v1/events", event, key=key).status == 201
    case.chat(front, key)
    with pytest.raises(AssertionError):
        read_prompt(provider.requests[-1])


def test_chat_injections_test_detects_closing_tag(
    front: Gateway, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message and the sona's name go into the prompt as they are."""
    monkeypatch.setattr("strandline.llm.prompts._escape_markup_letters", str)
    provider.otherwise = lambda _: says("No.")
    key = front.key(user=USER)
    for text, sona in ((KINDS["fence"][1], "Pilot"), ("Hello.", KINDS["fence"][1])):
        assert chat(front, key, text, USER, HELPER, sona=sona).status == 200
        with pytest.raises(AssertionError, match="close its tag"):
            read_prompt(provider.requests[-1])
