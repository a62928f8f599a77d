"""Sonas, and acts that are pushed to them."""

from tests.support import Gateway, Reply

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
SONAS = "/api/v1/sonas"


def push(gateway: Gateway, key: str, sona: str, event: str, after: str | None) -> Reply:
    body = {"event_id": event, **({"after": after} if after else {})}
    return gateway.call("POST", f"{SONAS}/{sona}/acts", body, key=key)


def make_sona(gateway: Gateway, key: str) -> str:
    return gateway.call("POST", SONAS, {"name": "Harbour master"}, key=key).body["uuid"]
