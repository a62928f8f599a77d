"""What changes: a later statement ends what was known, or stands beside it."""

from typing import Any

from tests.functions.conftest import Tell
from tests.functions.test_promoter import forget, warm
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase

WHO = ("user:jonas", "agent:helper")
LEIPZIG, DRESDEN = "I live in Leipzig, Karl-Heine-Straße 12.", "We moved to Dresden at the weekend."
QUESTION = "Where does Jonas live now?"
FACTS = """
    select g.name, g.valid_to, g.properties ->> 'reason' from graph_nodes g
    where g.type = 'fact' order by g.valid_from, g.name
"""


def say(tell: Tell, key: str, text: str, day: int, *who: str, **more: object) -> Any:
    fields = {"session_id": f"day-{day}", "occurred_at": f"2026-03-{day:02}T09:00:00Z", **more}
    return tell(key, text, *(who or WHO), **fields)


def recall(gateway: Gateway, key: str, query: str = QUESTION, **fields: object) -> list[str]:
    body = {"query": query, "participants": [WHO[0]], "limit": 8, **fields}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return [hit["text"] for hit in reply.body["hits"]]


def known(gateway: Gateway, key: str, query: str = QUESTION, **fields: object) -> list[str]:
    """The lines of what is known."""
    body = {"query": query, "participants": [WHO[0]], "budget": 2000, **fields}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert reply.status == 200, reply.text
    _, heading, rest = reply.body["text"].partition("What is known:\n")
    lines = rest.split("\n") if heading else []
    return [line for line in lines if line.startswith("- ")]


def test_a_change_ends_what_was_known(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    say(tell, key, LEIPZIG, 2)
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    gateway.run_job("promoter", "acme")
    assert [name for name, _, _ in scratch_db.rows(FACTS)] == [
        "Jonas lives in Leipzig, Karl-Heine-Straße 12."
    ]
    say(tell, key, DRESDEN, 20)
    for text in ("Find me a school route.", "Which shop sells nails?"):
        say(tell, key, text, 21)
    fold_all(gateway, scratch_db)
    gateway.run_job("promoter", "acme")
    rows = scratch_db.rows(FACTS)
    assert [(name, ended is not None) for name, ended, _ in rows] == [
        ("Jonas lives in Leipzig, Karl-Heine-Straße 12.", True),
        ("Jonas lives in Dresden.", False),
    ]
    assert rows[0][2] == f"Jonas: {DRESDEN.rstrip('.')}."
    print(known(gateway, key))
    print(recall(gateway, key))
    forget(scratch_db)
    gateway.run_job("promoter", "acme")
