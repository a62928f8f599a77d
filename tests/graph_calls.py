"""Calls of the graph's routes, as tests make them."""

from dataclasses import dataclass
from typing import Any

from tests.support import Gateway, Reply

WHO = ("user:ada", "agent:helper")


@dataclass(frozen=True)
class Graph:
    """The graph's routes, for one key and one scope."""

    gateway: Gateway
    key: str
    who: tuple[str, ...] = WHO

    def send(
        self,
        method: str,
        path: str,
        fields: dict[str, Any] | None = None,
        request_key: str | None = None,
    ) -> Reply:
        """A write within the scope."""
        headers = {"Idempotency-Key": request_key} if request_key else {}
        speaker = {"speaker": self.who[0]} if self.who[0].startswith("user:") else {}
        body = {"participants": self.who, **speaker, **(fields or {})}
        return self.gateway.call(
            method, f"/api/v1/graph/{path}", body, key=self.key, headers=headers
        )

    def write(self, method: str, path: str, **fields: Any) -> Any:
        """A write that is taken; gives its answer."""
        reply = self.send(method, path, fields)
        assert reply.status in (200, 201), reply.text
        return reply.body

    def create(self, *nodes: dict[str, Any]) -> list[str]:
        """State nodes; gives their ids."""
        return [node["id"] for node in self.write("POST", "nodes", nodes=list(nodes))["nodes"]]

    def relate(self, edge: str, from_id: str, to_id: str, **fields: Any) -> Any:
        """State one edge; gives it as the answer has it."""
        link = {"edge": edge, "from_id": from_id, "to_id": to_id, **fields}
        return self.write("POST", "edges", edges=[link])["edges"][0]

    def read(self, path: str, **query: Any) -> Any:
        """A read that finds something; gives its answer."""
        reply = self.ask(path, **query)
        assert reply.status == 200, reply.text
        return reply.body

    def ask(self, path: str, **query: Any) -> Reply:
        """A read on behalf of the scope's participants."""
        plain = {n: str(v).lower() if isinstance(v, bool) else v for n, v in query.items()}
        query = {"participants": self.who, **plain}
        return self.gateway.call("GET", f"/api/v1/graph/{path}", key=self.key, query=query)

    def recorded_at(self, event_id: str) -> str:
        """When a statement was stored."""
        query = {"participants": self.who}
        path = f"/api/v1/events/{event_id}"
        return self.gateway.call("GET", path, key=self.key, query=query).body["recorded_at"]


def entity(name: str, **fields: Any) -> dict[str, Any]:
    """An entity to state."""
    return {"type": "entity", "name": name, **fields}


def fact(content: str, **fields: Any) -> dict[str, Any]:
    """A fact to state."""
    return {"type": "fact", "content": content, **fields}


def topic(name: str, **fields: Any) -> dict[str, Any]:
    """A topic to state."""
    return {"type": "topic", "name": name, **fields}
