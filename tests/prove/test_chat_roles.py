"""One user, two sonas, and two conversations in each, all at once: what belongs to one sona or
session does not mix, though the user may see all of it."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import product
from typing import Any
from uuid import UUID

import pytest

from strandline.db.database import TenantDb
from strandline.personas import sona_mentions, store_acts
from strandline.personas.store_memories import SonaMention
from strandline.recall import store as recall_store
from strandline.sessions import store as session_store
from tests.chat_service import SONAS, believe, chat, front, provider, says, shown_lines
from tests.context_block import read_block
from tests.model_server import ModelServer, Says, task_of
from tests.support import Gateway, ScratchDatabase

__all__ = ["front", "provider"]  # fixtures
USER, HELPER = "user:alice", "agent:helper"
ROLES = ("Accountant", "Dungeon master")
SESSIONS = tuple(product(range(2), range(2)))
"""Role and conversation."""
_MARK = re.compile(r"role-\d-talk-\d")
ACTS_PER_PAGE = 500


def mark(role: int, talk: int) -> str:
    """What every message and every reply of a conversation holds; its session's name too."""
    return f"role-{role}-talk-{talk}"


def echo(request: dict[str, Any]) -> Says:
    """A model that says in which conversation it is asked, and cites what it is shown."""
    if task_of(request) != "reply":
        return believe(request)
    question = request["messages"][1]["content"].rpartition("</memory-")[2]
    (own,) = set(_MARK.findall(question))
    return says(f"Noted in {own}.", *shown_lines(request))


def push(gateway: Gateway, key: str, sona: str, event_id: str) -> None:
    """An act after whatever is the head by then."""
    head: dict[str, str] = {}
    while True:
        body = {"event_id": event_id, **head}
        reply = gateway.call("POST", f"{SONAS}/{sona}/acts", body, key=key)
        if reply.status == 201:
            return
        assert reply.status == 409, reply.text
        head = {"after": reply.error["details"]["head"]}


def converse(gateway: Gateway, key: str, turns: int) -> list[str]:
    """All conversations at once: each turn is a chat whose reply becomes an act of its sona. Gives
    the sonas' ids."""
    sonas = [gateway.call("POST", SONAS, {"name": name}, key=key).body["uuid"] for name in ROLES]

    def talk(place: tuple[int, int]) -> None:
        own, sona = mark(*place), sonas[place[0]]
        for turn in range(turns):
            text = f"{own}, turn {turn}: what comes next?"
            reply = chat(gateway, key, text, USER, HELPER, session_id=own, sona=sona)
            assert reply.status == 200, reply.text
            push(gateway, key, sona, reply.body["answer_id"])

    with ThreadPoolExecutor(len(SESSIONS)) as pool:
        list(pool.map(talk, SESSIONS))
    gateway.sweep()
    return sonas


def mix(
    gateway: Gateway, key: str, provider: ModelServer, base: ScratchDatabase, sonas: Sequence[str],
    turns: int,
) -> set[str]:  # fmt: skip
    """What holds something of another sona or another session: prompts, acts, recall, members."""
    results = set[str]()
    for request in replies_of(provider):
        block, _, question = request["messages"][1]["content"].rpartition("\n<message>")
        (own,) = set(_MARK.findall(question))
        latest = read_block(block).parts.get("Latest events:", [])
        first = "turn 0:" in question
        if {*_MARK.findall("\n".join(latest))} != (set() if first else {own}):
            results.add("prompts")
        assert ROLES[int(own[5])] in question, "the sona in which it is asked"
    for role, sona in enumerate(sonas):
        query = {"participants": USER, "limit": ACTS_PER_PAGE}
        page = gateway.call("GET", f"{SONAS}/{sona}/acts", key=key, query=query).body
        acts = [act["event_id"] for act in page["acts"]]
        if _contents(base, acts) != sorted(turns * _replies(role)):
            results.add("acts")
        place = gateway.call("GET", f"/sona/{sona}", key=key).body["memories"]
        if place != 2 * 2 * turns:
            results.add("members")
    for place in SESSIONS:
        own = mark(*place)
        body = {"query": "What comes next?", "session_id": own, "min_relevance": 0, "limit": 100}
        hits = gateway.call("POST", "/api/v1/recall", body, key=key).body["hits"]
        assert hits
        if not all(own in hit["text"] for hit in hits) or len(hits) != min(100, 2 * turns):
            results.add("recall")
    return results


def replies_of(provider: ModelServer) -> list[dict[str, Any]]:
    """The prompts of chats."""
    return [request for request in provider.requests if task_of(request) == "reply"]


def _replies(role: int) -> list[str]:
    return [f"Noted in {mark(role, talk)}." for talk in range(2)]


def _contents(base: ScratchDatabase, event_ids: Sequence[str]) -> list[str]:
    rows = base.rows("select event_id::text, content from events")
    texts = dict(rows)
    return sorted(texts[event_id] for event_id in event_ids)


def test_chat_roles_of_one_user_do_not_mix(
    front: Gateway,
    provider: ModelServer,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
) -> None:
    """Twenty turns of each conversation at full size."""
    provider.otherwise = echo
    turns, key = max(2, proof_size(20)), front.key(user=USER)
    sonas = converse(front, key, turns)
    assert len(replies_of(provider)) == len(SESSIONS) * turns
    assert mix(front, key, provider, scratch_db, sonas, turns) == set()
    print(f"  {len(replies_of(provider))} turns of {len(SESSIONS)} conversations in two sonas")


# planted ------------------------------------------------------------------------------------------


def forget_sessions(patch: pytest.MonkeyPatch) -> None:
    """The latest events are those of everything in view."""

    def list_recent(access: TenantDb, _: str, __: UUID, since: datetime) -> Any:
        return session_store.list_recent_visible_events(access, since)

    patch.setattr(session_store, "list_recent_session_events", list_recent)


def join_threads(patch: pytest.MonkeyPatch) -> None:
    """A thread is all acts in view."""

    def list_after(access: TenantDb, _: UUID, step: int, limit: int) -> Any:
        return access.fetch(
            store_acts.ThreadAct,
            "select a.act_id, a.previous_id, a.event_id, a.scope_id, a.pushed_at, a.step"
            " from acts a where a.step > %(step)s order by a.step limit %(limit)s",
            {"step": step, "limit": limit},
        )

    patch.setattr(store_acts, "list_acts_after", list_after)


def join_members(patch: pytest.MonkeyPatch) -> None:
    """Each sona that events name was active in all of them."""

    def group(names: Sequence[SonaMention]) -> list[tuple[str, UUID, list[UUID]]]:
        places = {(row.writer, UUID(row.sona)) for row in names}
        return [(*place, [row.event_id for row in names]) for place in places]

    patch.setattr(sona_mentions, "_group_by_writer_and_sona", group)


def drop_filters(patch: pytest.MonkeyPatch) -> None:
    """A search is never limited."""
    search = recall_store.search_candidate_events

    def search_candidates(access: TenantDb, **arguments: Any) -> Any:
        arguments["filters"] = {}
        return search(access, **arguments)

    patch.setattr(recall_store, "search_candidate_events", search_candidates)


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (forget_sessions, "prompts"),
        (join_threads, "acts"),
        (join_members, "members"),
        (drop_filters, "recall"),
    ],
)
def test_chat_roles_test_detects_mixing(
    front: Gateway,
    provider: ModelServer,
    scratch_db: ScratchDatabase,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    fault: str,
) -> None:
    provider.otherwise = echo
    plant(monkeypatch)
    key = front.key(user=USER)
    sonas = converse(front, key, 2)
    assert mix(front, key, provider, scratch_db, sonas, 2) == {fault}
