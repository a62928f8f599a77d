"""Nodes that are stored and searched for."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import Gateway, Reply

WHO, OTHERS = ["user:ada", "agent:helper"], ["user:ada", "user:bo"]


def store(
    gateway: Gateway, key: str, nodes: Sequence[Mapping[str, Any]], who: Sequence[str] = WHO
) -> list[str]:
    """Store nodes and give their ids."""
    body = {"participants": who, "speaker": who[0], "nodes": nodes}
    reply = gateway.call("POST", "/api/v1/graph/nodes", body, key=key)
    assert reply.status == 201, reply.text
    return [node["id"] for node in reply.body["nodes"]]


def ask(gateway: Gateway, key: str, path: str, **body: object) -> Any:
    reply = call(gateway, key, path, **body)
    assert reply.status == 200, reply.text
    return reply.body


def call(gateway: Gateway, key: str, path: str, **body: object) -> Reply:
    query = {"participants": ["user:ada"], **body}
    return gateway.call("POST", f"/api/v1/graph/{path}", query, key=key)


def names(answer: Any) -> list[str]:
    return [node["name"] for node in answer["nodes"]]
