"""Calls of the sessions' routes."""

from typing import Any

from tests.support import Gateway, Reply

SESSIONS = "/api/v1/sessions"
ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
WITH_HELPER = {"participants": [ALICE, HELPER]}


def begin(gateway: Gateway, key: str, name: str | None = None, **more: object) -> Any:
    body = (WITH_HELPER if "participants" not in more else {}) | more
    if name is not None:
        body |= {"session_id": name}
    reply = gateway.call("POST", SESSIONS, body, key=key)
    assert reply.status == 201, reply.text
    return reply.body


def interact(gateway: Gateway, key: str, name: str, **more: object) -> Reply:
    body = {"user_message": "Where is the buoy?", "agent_response": "In the harbour.", **more}
    return gateway.call("POST", f"{SESSIONS}/{name}/interactions", body, key=key)
