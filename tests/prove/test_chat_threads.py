"""Many threads at once: no prompt holds another user's words, and a process that is killed leaves
one message and gets one reply."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from strandline.db.database import Caller
from strandline.local.aws import LocalAws
from tests.chat_service import (
    CHAT,
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
from tests.context_block import SAID_HEADING
from tests.model_server import ModelServer
from tests.support import KEY_SECRET, Gateway, ScratchDatabase, user_message

__all__ = ["front", "provider"]  # fixtures
USERS = [f"user:person{n}" for n in range(4)]
HELPER = "agent:helper"
SONAS = ("Accountant", "Dungeon master")


def canary(user: str) -> str:
    return f"canary-{user.partition(':')[2]}-sings"


def foreign(text: str, user: str) -> list[str]:
    """Whose canaries a text holds that are not this user's."""
    return [other for other in USERS if other != user and canary(other) in text]


def tell_all(gateway: Gateway, keys: dict[str, str], count: int) -> None:
    """Memories of each user, a canary in every one."""
    for user, key in keys.items():
        events = [
            user_message(f"The buoy {n} goes out on Friday, {canary(user)}.", user, HELPER)
            for n in range(count)
        ]
        reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
        assert reply.body["failed"] == 0, reply.text


def test_chat_threads_prompt_has_no_words_of_others(
    front: Gateway,
    provider: ModelServer,
    scratch_db: ScratchDatabase,
    proof_size: Callable[[int], int],
) -> None:
    """32 threads (8 in the sample) of 8 sonas of 4 users at once, by keys of their own and by one
    for all, where what was said before has become chains, topics and a graph, in the words of a
    model that repeats what it is shown."""
    provider.otherwise = believe
    keys = {user: front.key(user=user) for user in USERS}
    unbound = front.key()
    tell_all(front, keys, 10)
    turns, threads = max(2, proof_size(10)), max(8, proof_size(32))

    def talk(thread: int, some: range) -> None:
        user, sona = USERS[thread % 4], SONAS[thread // 4 % 2]
        key = keys[user] if thread % 3 else unbound
        for turn in some:
            text = f"{canary(user)} thread {thread} turn {turn}: when does the buoy go out?"
            session = f"thread-{thread}"
            message: dict[str, Any] = {"session_id": session, "sona": sona, "speaker": user}
            reply = chat(front, key, text, user, HELPER, **message)
            assert reply.status == 200, reply.text
            response = query(front, key, text, participants=[user], sona=sona)
            assert response.status == 200, response.text

    def talk_for(some: range) -> list[dict[str, Any]]:
        """The prompts of these turns."""
        provider.requests.clear()
        with ThreadPoolExecutor(threads) as pool:
            for future in [pool.submit(talk, thread, some) for thread in range(threads)]:
                future.result()
        assert len(provider.requests) == threads * len(some) * 2
        return [*provider.requests]

    fold_and_promote(front, scratch_db)
    prompts = talk_for(range(turns // 2))
    if turns > 2:  # at full size what was said in between, too
        fold_and_promote(front, scratch_db)
    prompts += talk_for(range(turns // 2, turns))
    leaks, view = 0, {user: Counter[str]() for user in USERS}
    for request in prompts:
        prompt = json.dumps(request)
        owner = next(user for user in USERS if f"{canary(user)} thread" in prompt)
        leaks += bool(foreign(prompt, owner))
        assert shown_lines(request)
        block, question = read_prompt(request)
        assert canary(owner) in question["text"]
        view[owner].update(name for name, lines in block.parts.items() if owner_in(lines, owner))
    print(f"  {len(prompts)} prompts of {threads} threads, {leaks} with another's words")
    print(f"  with own words under: {dict(view[USERS[0]])}")
    assert leaks == 0
    for user, headings in view.items():
        for heading in ("Topics:", SAID_HEADING, "Latest events:"):
            assert headings[heading] > 0, f"{heading} with {user}'s own words: {headings}"
    for user, key in keys.items():
        names = front.call("GET", "/sonas/list", key=key).body["sonas"]
        assert {name for one in names for name in one["names"]} <= {*SONAS}, user


def owner_in(lines: Sequence[str], owner: str) -> bool:
    """Whether some of these lines hold their owner's canary: what is told of a part is its own."""
    return any(canary(owner) in line for line in lines)


def test_chat_threads_test_detects_wide_viewer(
    front: Gateway, provider: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: recalled for nobody in particular, and so for all. The append still refuses a reply
    whose model was shown what one of its readers does not see, cited or not."""
    keys = {user: front.key(user=user) for user in USERS[:2]}
    tell_all(front, keys, 3)
    monkeypatch.setattr("strandline.personas.chats.Caller", _everybody)
    reply = chat(front, keys[USERS[0]], "When does the buoy go out?", USERS[0], HELPER)
    assert foreign(provider.prompt_text(), USERS[0]) == [USERS[1]]
    assert reply.status == 503, reply.text
    provider.otherwise = lambda _: says("On Friday.")
    reply = chat(front, keys[USERS[0]], "When does the buoy go out?", USERS[0], HELPER)
    assert foreign(provider.prompt_text(), USERS[0]) == [USERS[1]]
    assert reply.status == 503, reply.text


def _everybody(tenant: str, _: object, writer: str) -> Caller:
    return Caller(tenant, (), writer)


KILLED = """
import json, os, signal, sys
import functions.query.handler as query
from strandline.local.lambda_context import LambdaContext
from strandline.personas import chats

setattr(chats, sys.argv[1], lambda *_: os.kill(os.getpid(), signal.SIGKILL))
print(query.lambda_handler(json.load(sys.stdin), LambdaContext("query", 29)))
"""
"""A function that is killed in the middle of a chat: SIGKILL, after which no line of it runs."""


@pytest.mark.proof
@pytest.mark.parametrize("step", ["ask_model", "_make_reply_event"])
def test_chat_threads_killed_process_gets_one_reply(
    front: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, repository: Path, step: str
) -> None:
    """Killed three times before the model is asked, or before its reply is stored; then retried
    twice."""
    user = USERS[0]
    key, body = front.key(user=user), {"message": "Once?", "participants": [user, HELPER]}
    headers = {"Idempotency-Key": "k-1"}
    event = front.make_event("POST", CHAT, body, key=key, headers=headers)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{repository}/shared:{repository}",
        "STRANDLINE_DATABASE_URL": scratch_db.url,
        "STRANDLINE_BUCKET": aws.bucket,
        "STRANDLINE_KEY_SECRET": KEY_SECRET,
    }
    for _ in range(3):
        process = subprocess.run(
            [sys.executable, "-c", KILLED, step],
            input=json.dumps(event),
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert process.returncode == -signal.SIGKILL, process.stdout + process.stderr[-2000:]
    statement = "select role, content from events order by seq"
    assert scratch_db.rows(statement) == [("user", "Once?")]
    replies = [front.call("POST", CHAT, body, key=key, headers=headers) for _ in range(2)]
    assert [reply.status for reply in replies] == [200, 200]
    assert replies[0].body == replies[1].body
    assert [role for role, _ in scratch_db.rows(statement)] == ["user", "agent"]
