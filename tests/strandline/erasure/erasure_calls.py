"""Erasures that tests ask for, what was said before, and what is left of it."""

from typing import Any

import psycopg
from psycopg import sql

from tests.chains import warm
from tests.strandline.db.isolation import TENANTS_TABLES
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, Tell

ALICE, BOB, HELPER = "user:alice", "user:bob", "agent:helper"
CANARY, STEM = "zyxcanary", "zyxcanar"
"""A word, and what an index of words has of it."""
ERASURES = "/api/v1/erasures"
MAY_ERASE = ["read", "write", "erase"]
EVERYBODY = {"everybody": "true"}


def traces(base: ScratchDatabase, text: str = STEM) -> list[str]:
    """The tables in which this text stands, in any row and column."""
    results: list[str] = []
    with psycopg.connect(base.admin_url) as admin:
        for (name,) in admin.execute(TENANTS_TABLES).fetchall():
            statement = sql.SQL("select count(*) from {} t where strpos(lower(t::text), {}) > 0")
            row = admin.execute(
                statement.format(sql.Identifier(name), sql.Literal(text))
            ).fetchone()
            if row and row[0]:
                results.append(name)
    return results


def erase(gateway: Gateway, key: str, event_id: str, status: int = 200) -> Any:
    reply = gateway.call("DELETE", f"/api/v1/events/{event_id}", key=key)
    assert reply.status == status, reply.text
    return reply.body


def talk(gateway: Gateway, base: ScratchDatabase, tell: Tell, key: str) -> list[str]:
    """A conversation of which the third event bears canaries, with all that is made of it."""
    ids = [
        tell(key, text, session_id="harbour", source_event_key=f"key {n}")["event_id"]
        for n, text in enumerate(
            (
                "I live in Lisbon now, near the river.",
                "I'm allergic to penicillin.",
                "My sister Zyxcanary comes on Friday, and Zyxcanary likes boats.",
                "We decided to use Postgres because it is boring.",
                "The harbour opens at nine.",
            )
        )
    ]
    fold_all(gateway, base)
    warm(base)
    gateway.run_job("promoter")
    build(gateway)
    return ids


READS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/api/v1/recall", {"query": "zyxcanary sister friday"}),
    ("POST", "/api/v1/events/query", {"text": "zyxcanary"}),
    ("POST", "/api/v1/events/query", {"text": "zyxcanary", "mode": "exact"}),
    ("POST", "/api/v1/context", {"query": "zyxcanary sister friday"}),
    ("POST", "/api/v1/references/query", {"query": "zyxcanary sister friday"}),
    ("POST", "/api/v1/graph/search", {"query": "zyxcanary"}),
    ("GET", "/memories/list", {}),
    ("GET", "/api/v1/sessions/harbour/context", {}),
    ("GET", "/api/v1/sessions/harbour/segments", {}),
    ("GET", "/api/v1/graph/nodes", {}),
)


def read_all(gateway: Gateway, key: str, who: str = ALICE) -> list[tuple[str, str]]:
    """Every read, by path."""
    answers: list[tuple[str, str]] = []
    for method, path, fields in READS:
        query = None if method == "POST" or "sessions" in path else {"participants": who}
        body = {**fields, "participants": [who]} if method == "POST" else None
        reply = gateway.call(method, path, body, key=key, query=query)
        assert reply.status == 200, (path, reply.text)
        # what a caller asked is in its answer
        answers.append((path, reply.text.lower().replace("zyxcanary sister friday", "")))
    return answers


def forget(gateway: Gateway, tell: Tell, key: str, text: str = "Forget me.") -> str:
    """Erase an event of alice's; the erasure's id."""
    return erase(gateway, key, tell(key, text, ALICE, HELPER)["event_id"])["erasure_id"]


def state_of(gateway: Gateway, key: str, erasure: Any) -> Any:
    return gateway.call("GET", f"{ERASURES}/{erasure['erasure_id']}", key=key).body
