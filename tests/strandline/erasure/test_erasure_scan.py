"""What an erasure leaves: nowhere a word of what was erased, and all else as it was."""

import re
from typing import Any

import psycopg
from psycopg import sql

from strandline.local.aws import LocalAws
from tests.chains import warm
from tests.graph_files import export
from tests.strandline.db.isolation import TENANTS_TABLES
from tests.strandline.erasure.erasure_calls import ERASURES, HELPER
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import cid_of, citing, objects, upload_file

ALICE, BOB = ("user:alice", HELPER), ("user:bob", HELPER)
COUNTS = {
    *(
        "erasures",
        "erased_events",
        "erased_keys",
        "erased_acts",
        "audit_log",
        "jobs",
        "job_shards",
        "quotas",
    ),
    *("tenants", "tenant_due_times"),
}
"""Of acme: what an erasure records, and what counts requests."""


def fill(gateway: Gateway, key: str, who: tuple[str, ...], word: str) -> dict[str, str]:
    """Events of every kind with a word of their own in all that a caller can fill; ids by word."""
    ids: dict[str, str] = {}

    def post(path: str, body: dict[str, Any]) -> Any:
        reply = gateway.call("POST", path, {**body, "participants": list(who)}, key=key)
        assert reply.status == 201, reply.text
        return reply.body

    for n in range(6):
        one = f"{word}m{n}"
        body = user_message(
            f"My sister {one} lives in {one.title()} near the harbour.",
            metadata={one: [one]},
            source_event_key=f"{one} key",
            channel=one,
            session_id=f"{word} {one}" if n % 2 else f"{word}kept",
        )
        ids[one] = post("/api/v1/events", body)["event_id"]
    ids[f"{word}l"] = post("/api/v1/events", user_message(f"{word}l " * 12_000))["event_id"]
    data = f"{word}u in a file".encode()
    upload_file(gateway, key, data, mime_type="text/plain", name=f"{word}u.txt")
    ids[f"{word}u"] = post("/api/v1/events", citing(cid_of(data)))["event_id"]
    edges = [{"event_id": ids[f"{word}m2"], "weight": 0.7}]
    citation = user_message(f"{word}c rests on it", edges=edges, session_id=f"{word}kept")
    ids[f"{word}c"] = post("/api/v1/events", citation)["event_id"]
    for n in range(2):
        topic = {"type": "topic", "name": f"{word}t{n} topic"}
        node = post("/api/v1/graph/nodes", {"nodes": [topic]})["nodes"][0]
        ids[f"{word}t{n}"] = node["event_id"]
        path = f"/api/v1/graph/topics/{node['id']}/fields/state"
        ids[f"{word}f{n}"] = post(path, {"value": f"{word}f{n}"})["event_id"]
    return ids


def use(gateway: Gateway, key: str, who: tuple[str, ...], word: str) -> None:
    """Answers that are recorded, and a file of the graph."""
    for path in ("/api/v1/recall", "/api/v1/references/query"):
        body = {"query": f"where does my sister {word}m2 live", "participants": [who[0]]}
        assert gateway.call("POST", path, body, key=key).status == 200
    export(gateway, key, *who)


def dump(base: ScratchDatabase) -> dict[str, list[str]]:
    """All rows of all tables as text."""
    results: dict[str, list[str]] = {}
    with psycopg.connect(base.admin_url) as admin:
        for (name,) in admin.execute(TENANTS_TABLES).fetchall():
            statement = sql.SQL("select t::text from {} t order by 1").format(sql.Identifier(name))
            results[name] = [text for (text,) in admin.execute(statement).fetchall()]
    return results


def words_in(texts: list[str]) -> set[str]:
    """The words of `fill` in these texts."""
    return {word for text in texts for word in re.findall(r"zq[a-z]+x[a-z]\d?", text.lower())}


def test_erasure_scan_finds_no_erased_word_and_all_else(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, eraser: str
) -> None:
    foreign = gateway.key("globex", rights=["read", "write", "admin"])
    ids = fill(gateway, eraser, ALICE, "zqax")
    worlds = ((eraser, BOB, "zqbx"), (foreign, ALICE, "zqgx"))
    remaining = set[str]().union(*(fill(gateway, *world).keys() for world in worlds))
    fold_all(gateway, scratch_db)
    warm(scratch_db)
    gateway.run_job("promoter")
    for tenant in ("acme", "globex"):
        build(gateway, tenant)
    for world in ((eraser, ALICE, "zqax"), *worlds):
        use(gateway, *world)
    before, receipt = dump(scratch_db), objects(aws)
    all_texts = [*(row for rows in before.values() for row in rows)]
    all_texts += [*receipt, *(data.decode() for data in receipt.values())]
    assert words_in(all_texts) >= {*remaining, *ids}

    removed_ids = {"zqaxm2", "zqaxm3", "zqaxl", "zqaxu", "zqaxt0", "zqaxf0"}
    body = {"event_ids": [ids[word] for word in removed_ids]}
    assert gateway.call("POST", ERASURES, body, key=eraser).status == 202
    gateway.run_job("eraser", "acme")
    scratch_db.rows("update blob_removals set marked_at = marked_at - interval '1 hour'")
    scratch_db.rows("update erased_payloads set marked_at = marked_at - interval '1 hour'")
    gateway.run_job("eraser", "acme")
    assert scratch_db.rows("select count(*) from erasures where completed_at is null") == [(0,)]

    after, left_objects = dump(scratch_db), objects(aws)
    texts = [*(row for rows in after.values() for row in rows)]
    texts += [*left_objects, *(data.decode() for data in left_objects.values())]
    words_left = words_in(texts)
    assert words_left & removed_ids == set()
    assert words_left >= {*remaining, *ids} - removed_ids

    ((bobs,),) = scratch_db.rows(
        "select scope_id::text from scopes where tenant_id = 'acme' and 'user:bob' = any"
        " (participants)"
    )
    for name, rows in before.items():
        for mark in ("globex", bobs):
            was = [row for row in rows if mark in row]
            now = [row for row in after[name] if mark in row]
            assert was == now or (mark == bobs and name in COUNTS), (name, mark)
    events = {row for row in before["events"] if not any(ids[word] in row for word in removed_ids)}
    assert events <= set(after["events"]), "no other event is touched"
    removals = receipt.keys() - left_objects.keys()
    others = {
        key for key in removals if not key.startswith(("_exports/acme/", "_uploads/acme/", "acme/"))
    }
    assert others == set(), "neither the other tenant's objects nor its exports"
    assert len([key for key in removals if key.startswith("acme/")]) == 2
