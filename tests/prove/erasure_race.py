"""What races with erasures: writers, readers and jobs of one tenant, in an order that chance gives;
and what is to hold after it."""

import importlib
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from strandline.chains.refold import drop_chains_to_refold
from strandline.db.database import Caller
from strandline.errors import Unavailable
from strandline.local.aws import LocalAws
from strandline.tenants.store_audit import AuditContext
from tests.prove.erasure_stores import ERASED_WORD, ERASURES, WHO, complete, every_byte
from tests.strandline.topics.outline import build, fold_all
from tests.support import Gateway, ScratchDatabase, user_message
from tests.uploads import cid_of, citing, upload_file

WORKERS, TURNS = 3, 14


@dataclass
class Race:
    """Writers, readers, jobs and erasures in one scope of a tenant of its own, in an order that
    chance gives."""

    gateway: Gateway
    base: ScratchDatabase
    aws: LocalAws
    seed: int
    ids: dict[int, str] = field(default_factory=dict[int, str])
    """Of what was appended, by its number."""
    bodies: dict[int, dict[str, object]] = field(default_factory=dict[int, dict[str, object]])
    """Of those that cite an upload."""
    erased: set[int] = field(default_factory=set[int])
    faults: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.tenant = f"race{self.seed}"
        self.key = self.gateway.key(self.tenant, rights=["read", "write", "admin", "erase"])

    def race(self) -> list[str]:
        """All workers at once; gives what is wrong afterwards."""
        with ThreadPoolExecutor(WORKERS) as threads:
            list(threads.map(self._run, range(WORKERS)))
        return self.settle()

    def settle(self) -> list[str]:
        """Let all jobs end, and fold again from the log; gives what is wrong then."""
        complete(self.gateway, self.base, self.tenant)
        self._fold()
        self.gateway.run_job("promoter", self.tenant)
        self._drop_folded()
        self._fold()
        text = every_byte(self.base, self.aws)
        self.faults += [f"{n} is back" for n in self.erased if self.word(n) in text]
        self.faults += [f"{name}: {n}" for name, n in self.base.rows(DANGLING) if n]
        return self.faults

    def word(self, n: int) -> str:
        """What event n alone holds."""
        return f"{ERASED_WORD}x{self.seed}x{n}x"

    def append(self, dice: random.Random, n: int) -> None:
        """Append event n, which may cite another one."""
        body = self._body(n)
        if self.ids and dice.random() < 0.3:
            body |= {"edges": [{"event_id": dice.choice([*self.ids.values()]), "weight": 0.5}]}
            reply = self.gateway.call("POST", "/api/v1/events", body, key=self.key)
            if reply.status == 422:  # its target was just erased
                return
        else:
            reply = self._call("POST", "/api/v1/events", body)
        if reply.status == 201:
            self.ids[n] = reply.body["event_id"]

    def erase(self, n: int) -> None:
        """Erase event n."""
        if self._call("DELETE", f"/api/v1/events/{self.ids[n]}").status == 200:
            self.erased.add(n)

    def fold_and_drop(self) -> None:
        """Fold what was said, and drop what was folded: it waits for a sweep."""
        for statement in (
            "update scope_work set due_at = least(due_at, now())",
            "update lanes set idle_at = now() - interval '1 second'",
        ):
            self.base.rows(statement)
            self.gateway.run_job("sweeper", self.tenant)
        self._drop_folded()

    def _run(self, worker: int) -> None:
        dice = random.Random(f"{self.seed} {worker}")
        actions = (
            *(self.append, self.append, self._erase, self._replay, self._ask, self._work),
            self._refold,
            self._upload if dice.random() < 0.7 else self._erase_all,
        )
        for turn in range(TURNS):
            try:
                dice.choice(actions)(dice, worker * 1000 + turn)
            except Unavailable:
                continue
            except Exception as error:
                self.faults.append(f"{worker}.{turn}: {error!r}")

    def _body(self, n: int) -> dict[str, object]:
        text = f"My friend {self.word(n)} sails at {n}." if n % 5 else f"{self.word(n)} " * 5000
        return user_message(text, *WHO, **self._names(n))

    def _names(self, n: int) -> dict[str, object]:
        return {"source_event_key": f"key {self.seed} {n}", "session_id": f"race {self.seed}"}

    def _call(self, method: str, path: str, body: object = None) -> Any:
        reply = self.gateway.call(method, path, body, key=self.key)
        if reply.status not in (200, 201, 202, 404, 410, 503):
            self.faults.append(f"{method} {path}: {reply.status} {reply.text}")
        return reply

    def _upload(self, _: random.Random, n: int) -> None:
        data = f"{self.word(n)} in a file".encode()
        upload_file(self.gateway, self.key, data, mime_type="text/plain")
        body = citing(cid_of(data), *WHO, **self._names(n))
        self.bodies[n] = body
        reply = self._call("POST", "/api/v1/events", body)
        if reply.status == 201:
            self.ids[n] = reply.body["event_id"]

    def _erase(self, dice: random.Random, _: int) -> None:
        if self.ids:
            self.erase(dice.choice([*self.ids]))

    def _refold(self, dice: random.Random, n: int) -> None:
        """An erasure while what was folded is dropped."""
        self.fold_and_drop()
        self._erase(dice, n)

    def _erase_all(self, _: random.Random, __: int) -> None:
        """More than one transaction takes: what was said so far, by the session's name."""
        ids = set(self.ids)
        body = {"session_id": f"race {self.seed}"}
        if self._call("POST", ERASURES, body).status == 202:
            self.erased |= ids

    def _replay(self, dice: random.Random, _: int) -> None:
        if not self.erased:
            return
        n = dice.choice([*self.erased])
        reply = self._call("POST", "/api/v1/events", self.bodies.get(n) or self._body(n))
        if reply.status not in (410, 503):
            self.faults.append(f"replay of {n}: {reply.status} {reply.text}")

    def _ask(self, dice: random.Random, _: int) -> None:
        removed_ids = set(self.erased)
        body = {"query": f"friend {ERASED_WORD}", "participants": [WHO[0]], "limit": 50}
        path = dice.choice(("/api/v1/recall", "/api/v1/references/query", "/api/v1/context"))
        body = body if path.endswith("recall") else {k: body[k] for k in ("query", "participants")}
        text = self._call("POST", path, body).text
        self.faults += [f"{path} shows {n}" for n in removed_ids if self.word(n) in text]

    def _work(self, dice: random.Random, _: int) -> None:
        job = dice.choice(("sweeper", "sweeper", "builder", "promoter", "archiver", "eraser"))
        importlib.import_module(f"functions.{job}.handler")
        self.gateway.run_job(job, self.tenant)

    def _drop_folded(self) -> None:
        access = self.gateway.database.connect_as(Caller.background(self.tenant))
        drop_chains_to_refold(access, AuditContext("a test"), None)

    def _fold(self) -> None:
        fold_all(self.gateway, self.base)
        build(self.gateway, self.tenant)


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
        select count(*) from events e where e.tenant_id = s.tenant_id and e.scope_id = s.scope_id)
"""
"""References to what is erased, and what lost what it rests on; all counts are to be 0."""
