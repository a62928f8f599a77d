"""What changes: a later statement ends what was known, or stands beside it."""

from typing import Any

from strandline.chains.refold import drop_chains_to_refold
from strandline.db.database import Caller
from strandline.tenants.store_audit import AuditContext
from tests.chains import warm
from tests.context_block import KNOWN_HEADING, SAID_HEADING
from tests.graph_calls import Graph, fact
from tests.strandline.graph.promotions import forget
from tests.strandline.topics.outline import fold_all
from tests.support import Gateway, ScratchDatabase, Tell

USER = "user:jonas"
WHO = (USER, "agent:helper")
OTHERS = (USER, "agent:planner")
LEIPZIG, DRESDEN = "I live in Leipzig, Karl-Heine-Straße 12.", "We moved to Dresden at the weekend."
QUESTION = "Where does Jonas live now?"
OLD, NEW = "Jonas lives in Leipzig, Karl-Heine-Straße 12.", "Jonas lives in Dresden."
KNOWN_BOTH = (
    "- Fri 20 March 2026, said since: jonas: We moved to Dresden at the weekend. (before,"
    " Mon 2 March 2026: Jonas lives in Leipzig, Karl-Heine-Straße 12)"
)
FACTS = """
    select g.name, g.valid_to::date::text, g.properties ->> 'reason' from graph_nodes g
    where g.type = 'fact' order by g.valid_from, g.name
"""
GRAPH = """
    select n.name, n.valid_from, n.valid_to, n.properties, n.confidence, n.weight, n.trust
    from graph_nodes n
    union all
    select f.name || ' ' || e.type || ' ' || t.name, e.valid_from, e.valid_to, e.properties,
        e.confidence, e.weight, e.trust
    from graph_edges e
    join graph_nodes f on f.node_id = e.from_id join graph_nodes t on t.node_id = e.to_id
    order by 1, 2
"""


def say(tell: Tell, key: str, text: str, day: int, *who: str, **more: object) -> Any:
    fields = {"session_id": f"day-{day}", "occurred_at": f"2026-03-{day:02}T09:00:00Z", **more}
    return tell(key, text, *(who or WHO), **fields)


def recall(gateway: Gateway, key: str, *who: str, **fields: object) -> list[tuple[str, list[str]]]:
    """The texts of the hits, and why each was found."""
    body = {"query": QUESTION, "participants": who or [USER], "limit": 8, **fields}
    reply = gateway.call("POST", "/api/v1/recall", body, key=key)
    assert reply.status == 200, reply.text
    return [(hit["text"], hit["why"]) for hit in reply.body["hits"]]


def context(gateway: Gateway, key: str, *who: str, **fields: object) -> str:
    body = {"query": QUESTION, "participants": who or [USER], "budget": 1500, **fields}
    reply = gateway.call("POST", "/api/v1/context", body, key=key)
    assert reply.status == 200, reply.text
    return reply.body["text"]


def known(gateway: Gateway, key: str, *who: str) -> list[str]:
    """The lines of what is drawn from what was said, without citations."""
    text = context(gateway, key, *who)
    assert KNOWN_HEADING not in text, "nobody stated anything to the graph"
    _, _, rest = text.partition(f"{SAID_HEADING}\n")
    return [line.partition(" [")[0] for line in rest.split("\n") if line.startswith("- ")]


def know_leipzig(base: ScratchDatabase, gateway: Gateway, tell: Tell, key: str) -> None:
    """The first home is a fact of the graph."""
    say(tell, key, LEIPZIG, 2)
    fold_all(gateway, base)
    warm(base)
    gateway.run_job("promoter", "acme")
    assert base.rows(FACTS) == [(OLD, None, None)]


def test_fact_change_ends_known_fact(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key(rights=["read", "write", "erase"])
    know_leipzig(scratch_db, gateway, tell, key)
    moved = say(tell, key, DRESDEN, 20)
    assert known(gateway, key) == [KNOWN_BOTH], "in the open tail"
    fold_all(gateway, scratch_db)
    assert known(gateway, key) == [KNOWN_BOTH], "folded, but not promoted"
    scratch_db.rows("update chains set promote_until = now() - interval '1 day'")
    assert gateway.run_job("promoter")["facts_ended"] == 1, "due at once, whatever its heat"
    ended = [(OLD, "2026-03-20", f"Jonas: {DRESDEN.rstrip('.')}."), (NEW, None, None)]
    assert scratch_db.rows(FACTS) == ended
    assert known(gateway, key) == [f"- Fri 20 March 2026: {NEW}"]
    graph = scratch_db.rows(GRAPH)
    assert [row for row in graph if " invalidates " in row[0]]

    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(GRAPH) == graph, "nothing is said twice"
    drop_chains_to_refold(
        gateway.database.connect_as(Caller.background("acme")), AuditContext("a test"), None
    )
    scratch_db.rows("truncate graph_nodes, graph_edges, graph_observations, graph_sources cascade")
    fold_all(gateway, scratch_db)
    forget(scratch_db)
    warm(scratch_db)
    gateway.run_job("promoter", "acme")
    assert scratch_db.rows(GRAPH) == graph, "a replay ends the same"

    reply = gateway.call("DELETE", f"/api/v1/events/{moved['event_id']}", key=key)
    assert reply.status == 200, reply.text
    assert scratch_db.rows(FACTS) == [(OLD, None, None)], "without the change the fact holds"
    assert known(gateway, key) == [f"- Mon 2 March 2026: {OLD}"]
    assert "Dresden" not in context(gateway, key)


def test_fact_change_in_other_scope_stands_beside_known(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    know_leipzig(scratch_db, gateway, tell, key)
    say(tell, key, DRESDEN, 20, *OTHERS)
    say(tell, gateway.key("globex"), "We moved to Kassel.", 21)
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    for tenant in ("acme", "globex"):
        gateway.run_job("promoter", tenant)
    assert (OLD, None, None) in scratch_db.rows(FACTS), "a row rests on its scope alone"
    assert KNOWN_BOTH in known(gateway, key)
    assert [text for text, _ in recall(gateway, key)][:2] == [DRESDEN, LEIPZIG]
    held = f"- Mon 2 March 2026: {OLD}"
    assert known(gateway, key, *WHO) == [held], "not for a reader who does not see it"
    assert [text for text, _ in recall(gateway, key, *WHO)] == [LEIPZIG]
    assert "Dresden" not in context(gateway, key, *WHO)


def test_fact_change_precedes_changed_hit_in_recall(
    scratch_db: ScratchDatabase, gateway: Gateway, tell: Tell
) -> None:
    key = gateway.key()
    say(tell, key, LEIPZIG, 2)
    for n in range(12):
        say(tell, key, f"Where in Leipzig do we meet number {n} of those who live there now?", 1)
    say(tell, key, "Boxes everywhere. We moved at the weekend. It is called Dresden.", 19)
    say(tell, key, DRESDEN, 20)
    gateway.sweep()
    hits = recall(gateway, key)
    texts = [text for text, _ in hits]
    assert texts.index(DRESDEN) == texts.index(LEIPZIG) - 1
    assert len(hits) == 8
    assert "later" in dict(hits)[DRESDEN]
    assert recall(gateway, key, limit=1)[0][0] in (DRESDEN, texts[0])
    text = context(gateway, key, budget=300)
    assert DRESDEN in text
    until = "2026-03-10T00:00:00Z"
    filtered = recall(gateway, key, until=until)
    assert DRESDEN not in [text for text, _ in filtered], "a filter holds"
    in_order = [text for text, _ in recall(gateway, key, order="time")]
    assert in_order.index(LEIPZIG) < in_order.index(DRESDEN)


def test_fact_change_marks_ended_statement_and_shows_it_once(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    graph = Graph(gateway, gateway.key(), WHO)
    (old,) = graph.create(fact("Jonas lives in Leipzig by the lake."))
    graph.create(fact("Jonas lives in Leipzig by the lake."))
    graph.write(
        "POST",
        f"nodes/{old}/invalidate",
        reason="He moved.",
        replacement={"content": "Jonas lives in Ulm by the river.", "category": "personal"},
    )
    gateway.sweep()
    text = context(gateway, graph.key)
    (line,) = [
        one for one in text.split("\n") if one.endswith("Jonas lives in Leipzig by the lake.")
    ]
    assert "(no longer so, and 1 more like it)" in line
    assert [one for one in text.split("\n") if "in Ulm" in one and "(no longer so)" in one] == []
