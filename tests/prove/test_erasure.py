"""P13: what is erased is in no byte of any store, whoever was at work; and it stays so."""

import importlib
import io
import logging
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql

from strandline.chains.refold import refold
from strandline.db.database import Caller
from strandline.erasure import erase, eraser, store_derived
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws, client
from strandline.observability import logger
from strandline.tenants.store_audit import AuditContext
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import cid_of, citing, uploaded

ERASURES = "/api/v1/erasures"
WHO = ("user:alice", "agent:helper")
KEPT, ERASED, EVENTS, SEEDS = "keptword", "zqxkato", 20_000, 300
SAMPLE_SEEDS = 2
REVEALING = 3
"""A seed that always runs: an erasure meets a fold."""


def every_byte(base: ScratchDatabase, aws: LocalAws) -> str:
    """All rows of the database and its statistics of columns as text, and all versions of all
    objects of the bucket."""
    found: list[str] = []
    with psycopg.connect(base.admin_url) as admin:
        tables = admin.execute(
            "select c.relname::text from pg_class c where c.relkind in ('r', 'p')"
            " and c.relnamespace = 'public'::regnamespace"
        ).fetchall()
        for (name,) in tables:
            statement = sql.SQL("select coalesce(string_agg(t::text, '\n'), '') from {} t")
            (text,) = admin.execute(statement.format(sql.Identifier(name))).fetchone() or ("",)
            found.append(text)
        # what the planner keeps of columns
        found += [text for (text,) in admin.execute("select s::text from pg_stats s").fetchall()]
    s3 = client("s3")
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=aws.bucket)
    for page in pages:
        for version in page.get("Versions", []):
            key = {"Key": version["Key"], "VersionId": version["VersionId"]}
            body = s3.get_object(Bucket=aws.bucket, **key)["Body"].read()
            found += [version["Key"], body.decode(errors="replace")]
    return "\n".join(found).lower()


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs beside the last runs of the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser, wait, timedelta(0))


@pytest.fixture
def spoken() -> Iterator[io.StringIO]:
    """All that the service logs, metrics included."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger(logger.name)
    root.addHandler(handler)
    yield stream
    root.removeHandler(handler)


def say(gateway: Gateway, key: str, bodies: list[dict[str, object]]) -> list[str]:
    """Append in batches; gives the ids."""
    ids: list[str] = []
    for first in range(0, len(bodies), 250):
        body = {"events": bodies[first : first + 250]}
        reply = gateway.call("POST", "/api/v1/events/batch", body, key=key)
        assert reply.body["failed"] == 0, reply.text
        ids += [item["event"]["event_id"] for item in reply.body["results"]]
    return ids


def canary_bodies(n: int) -> list[dict[str, object]]:
    """An event of every kind, with canaries in all that a caller may fill; two kinds share one."""
    word = f"{ERASED}{n}"
    common = {"metadata": {word: [word]}, "source_event_key": f"{word} key", "channel": word}
    return [
        user_message(f"My sister {word} lives in {word.title()}.", *WHO, **common, session_id=word),
        user_message(f"{word} " * 7000, *WHO, metadata={"n": word}),
        {
            "participants": list(WHO),
            "role": "agent",
            "type": "observation",
            "content": f"The tool returned {word}.",
            "metadata": {"workflow_id": word},
        },
    ]


def plant(gateway: Gateway, key: str, events: int, kinds: int) -> list[str]:
    """A log of so many events, with canaries all over it; gives the ids of what bears them."""
    ids: list[str] = []
    step = max(1, events // kinds)
    for n in range(kinds):
        quiet = [
            user_message(f"{KEPT} {n} {m}: the tide comes at {m}.", *WHO, session_id=f"s{n}")
            for m in range(step)
        ]
        say(gateway, key, quiet)
        ids += say(gateway, key, canary_bodies(n))
        topic = {"type": "topic", "name": f"{ERASED}{n} topic"}
        body = {"participants": list(WHO), "nodes": [topic]}
        node = gateway.call("POST", "/api/v1/graph/nodes", body, key=key).body["nodes"][0]
        path = f"/api/v1/graph/topics/{node['id']}/fields/state"
        body = {"participants": list(WHO), "value": f"{ERASED}{n}"}
        field_ = gateway.call("POST", path, body, key=key).body
        ids += [node["event_id"], field_["event_id"]]
    return ids


def complete(gateway: Gateway, base: ScratchDatabase, key: str) -> None:
    """Let the job end, and the time of payloads pass."""
    for _ in range(12):
        gateway.run_job("eraser", "acme")
        for table in ("blob_removals", "erased_payloads"):
            base.rows(f"update {table} set marked_at = marked_at - interval '1 hour'")  # noqa: S608
        if base.rows("select 1 from erasures where completed_at is null") == []:
            return
    raise AssertionError(base.rows("select * from erased_chains"))


def test_canaries_are_in_no_byte(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    spoken: io.StringIO,
    scaled: Callable[[int], int],
) -> None:
    s3 = client("s3")
    s3.put_bucket_versioning(Bucket=aws.bucket, VersioningConfiguration={"Status": "Enabled"})
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    ids = plant(gateway, key, scaled(EVENTS), scaled(40))
    fold_all(gateway, scratch_db)
    scratch_db.rows("update chains set promote_until = now() + interval '1 day'")
    gateway.run_job("promoter")
    build(gateway)
    recall = {"query": f"sister {ERASED}0", "participants": [WHO[0]]}
    assert ERASED in gateway.call("POST", "/api/v1/recall", recall, key=key).text
    assert ERASED in every_byte(scratch_db, aws)
    scratch_db.rows("analyze")
    for first in range(0, len(ids), 500):
        body = {"event_ids": ids[first : first + 500]}
        reply = gateway.call("POST", ERASURES, body, key=key)
        assert reply.status == 202, reply.text
    complete(gateway, scratch_db, key)
    fold_all(gateway, scratch_db)
    gateway.run_job("promoter")
    build(gateway)
    gateway.run_job("archiver")
    assert ERASED not in every_byte(scratch_db, aws)
    assert ERASED not in spoken.getvalue().lower()
    assert shown(gateway, key) == []
    assert KEPT in every_byte(scratch_db, aws)


def shown(gateway: Gateway, key: str) -> list[str]:
    """The answers that still hold a canary."""
    reads: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("POST", "/api/v1/recall", {"query": "sister"}),
        ("POST", "/api/v1/events/query", {"text": "sister"}),
        ("POST", "/api/v1/references/query", {"query": "sister"}),
        ("POST", "/api/v1/context", {"query": "sister"}),
        ("POST", "/api/v1/graph/search", {"query": "topic", "mode": "exact"}),
        ("GET", "/api/v1/graph/nodes", {}),
        ("GET", "/memories/list", {}),
        ("GET", "/api/v1/sessions", {}),
        ("GET", "/metrics", {}),
    )
    found: list[str] = []
    for method, path, fields in reads:
        body = {**fields, "participants": [WHO[0]]} if method == "POST" else None
        reply = gateway.call(method, path, body, key=key)
        if reply.status != 200 or ERASED in reply.text.lower():
            found.append(f"{path}: {reply.status} {reply.text[:300]}")
    return found


def test_a_forgotten_table_is_found(
    gateway: Gateway, scratch_db: ScratchDatabase, aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Teeth."""
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    ids = plant(gateway, key, 4, 1)

    def forget(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(store_derived, "withdraw_observations", forget)
    body = {"event_ids": ids}
    assert gateway.call("POST", ERASURES, body, key=key).status == 202
    complete(gateway, scratch_db, key)
    assert ERASED in every_byte(scratch_db, aws)


# races --------------------------------------------------------------------------------------------


@dataclass
class Race:
    """Writers, readers, jobs and erasures in one scope, in an order that the chance gives."""

    gateway: Gateway
    base: ScratchDatabase
    key: str
    seed: int
    ids: dict[int, str] = field(default_factory=dict[int, str])
    """Of what was appended, by its number."""
    bodies: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    """Of those that cite an upload."""
    erased: set[int] = field(default_factory=set[int])
    faults: list[str] = field(default_factory=list[str])

    def body(self, n: int) -> dict[str, object]:
        word = self.word(n)
        text = f"My friend {word} sails at {n}." if n % 5 else f"{word} " * 5000
        key = f"key {self.seed} {n}"
        return user_message(text, *WHO, source_event_key=key, session_id=f"race {self.seed}")

    def word(self, n: int) -> str:
        """What event n alone holds."""
        return f"{ERASED}x{self.seed}x{n}x"

    def run(self, worker: int) -> None:
        dice = random.Random(f"{self.seed} {worker}")
        actions = (
            *(self._append, self._append, self._erase, self._replay, self._ask, self._work),
            self._refold,
            self._upload if dice.random() < 0.7 else self._erase_all,
        )
        for turn in range(14):
            try:
                dice.choice(actions)(dice, worker * 1000 + turn)
            except Unavailable:
                continue
            except Exception as error:
                self.faults.append(f"{worker}.{turn}: {error!r}")

    def _call(self, method: str, path: str, body: object = None) -> Any:
        reply = self.gateway.call(method, path, body, key=self.key)
        if reply.status not in (200, 201, 202, 404, 410, 503):
            self.faults.append(f"{method} {path}: {reply.status} {reply.text}")
        return reply

    def _append(self, dice: random.Random, n: int) -> None:
        body = self.body(n)
        if self.ids and dice.random() < 0.3:
            body |= {"edges": [{"event_id": dice.choice([*self.ids.values()]), "weight": 0.5}]}
            reply = self.gateway.call("POST", "/api/v1/events", body, key=self.key)
            if reply.status == 422:  # its target was just erased
                return
        else:
            reply = self._call("POST", "/api/v1/events", body)
        if reply.status == 201:
            self.ids[n] = reply.body["event_id"]

    def _upload(self, _: random.Random, n: int) -> None:
        data = f"{self.word(n)} in a file".encode()
        uploaded(self.gateway, self.key, data, mime_type="text/plain")
        key = f"key {self.seed} {n}"
        body = citing(cid_of(data), *WHO, source_event_key=key, session_id=f"race {self.seed}")
        self.bodies[n] = body
        reply = self._call("POST", "/api/v1/events", body)
        if reply.status == 201:
            self.ids[n] = reply.body["event_id"]

    def _erase(self, dice: random.Random, _: int) -> None:
        if not self.ids:
            return
        n = dice.choice([*self.ids])
        if self._call("DELETE", f"/api/v1/events/{self.ids[n]}").status == 200:
            self.erased.add(n)

    def _erase_all(self, _: random.Random, __: int) -> None:
        """More than one transaction takes: what was said so far, by the session's name."""
        said = set(self.ids)
        path = "/api/v1/erasures"
        body = {"session_id": f"race {self.seed}"}
        if self._call("POST", path, body).status == 202:
            self.erased |= said

    def _replay(self, dice: random.Random, _: int) -> None:
        if not self.erased:
            return
        n = dice.choice([*self.erased])
        body = self.bodies.get(n) or self.body(n)
        reply = self._call("POST", "/api/v1/events", body)
        if reply.status not in (410, 503):
            self.faults.append(f"replay of {n}: {reply.status} {reply.text}")

    def _ask(self, dice: random.Random, _: int) -> None:
        gone = set(self.erased)
        body = {"query": f"friend {ERASED}", "participants": [WHO[0]], "limit": 50}
        path = dice.choice(("/api/v1/recall", "/api/v1/references/query", "/api/v1/context"))
        body = body if path.endswith("recall") else {k: body[k] for k in ("query", "participants")}
        text = self._call("POST", path, body).text
        self.faults += [f"{path} shows {n}" for n in gone if self.word(n) in text]

    def _work(self, dice: random.Random, _: int) -> None:
        job = dice.choice(("sweeper", "sweeper", "builder", "promoter", "archiver", "eraser"))
        importlib.import_module(f"functions.{job}.handler")
        self.gateway.run_job(job, "acme")

    def _refold(self, dice: random.Random, n: int) -> None:
        """An erasure while what was folded is dropped, and waits for a sweep."""
        for statement in (
            "update scope_work set due_at = least(due_at, now())",
            "update lanes set idle_at = now() - interval '1 second'",
        ):
            self.base.rows(statement)
            self.gateway.run_job("sweeper", "acme")
        access = self.gateway.database.connect_as(Caller.background("acme"))
        refold(access, AuditContext("a test"), None)
        self._erase(dice, n)


DANGLING = """
    select 'chain_events', count(*) from chain_events join events using (tenant_id, event_id)
    where erased_at is not null
    union all
    select 'topic_events', count(*) from topic_events join events using (tenant_id, event_id)
    where erased_at is not null
    union all
    select 'graph_sources', count(*) from graph_sources join events using (tenant_id, event_id)
    where erased_at is not null
    union all
    select 'marks', count(*) from erasure_marks
    union all
    select 'event_vectors', count(*) from event_vectors join events using (tenant_id, event_id)
    where erased_at is not null
    union all
    select 'observations', count(*) from graph_observations o where not exists (
        select from graph_sources s where s.target_id = o.target_id and s.source_id = o.source_id)
    union all
    select 'seqs', count(*) from scopes s where s.last_seq <> (
        select count(*) from events e where e.scope_id = s.scope_id)
"""


def race(gateway: Gateway, base: ScratchDatabase, aws: LocalAws, seed: int) -> list[str]:
    """One seed; gives what is wrong after it."""
    key = gateway.key(rights=["read", "write", "admin", "erase"])
    raced = Race(gateway, base, key, seed)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(raced.run, range(3)))
    complete(gateway, base, key)
    fold_all(gateway, base)
    build(gateway)
    gateway.run_job("promoter", "acme")
    # and folded again from the log
    access = gateway.database.connect_as(Caller.background("acme"))
    refold(access, AuditContext("a test"), None)
    fold_all(gateway, base)
    build(gateway)
    text = every_byte(base, aws)
    raced.faults += [f"{n} is back" for n in raced.erased if raced.word(n) in text]
    raced.faults += [f"{name}: {n}" for name, n in base.rows(DANGLING) if n]
    return raced.faults


def test_erasure_races_everybody(
    gateway: Gateway,
    scratch_db: ScratchDatabase,
    aws: LocalAws,
    scaled: Callable[[int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(erase, "EVENTS_AT_ONCE", 3)
    seeds = SEEDS if scaled(SEEDS) == SEEDS else SAMPLE_SEEDS
    for seed in range(REVEALING, REVEALING + seeds):
        assert race(gateway, scratch_db, aws, seed) == [], seed
