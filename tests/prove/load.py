"""A load of every operation of every function, for what befalls the database meanwhile."""

import hashlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from typing import Any

import psycopg

from strandline.admin import certificates
from strandline.db.database import Asker
from strandline.deployment import FUNCTIONS
from strandline.errors import Unavailable
from strandline.jobs import store as jobs_store
from strandline.log.schemas import Receipt
from strandline.tenants.store_audit import Act
from tests.prove.history import TENANT, Acked, History, Op, seeded
from tests.support import Gateway, Reply

WRITERS, READERS = 3, 2
PATIENCE_SECONDS = 27.0
"""A request has 25, and an answer is not instant on a busy machine."""
EVENTS = "/api/v1/events"
TENANTS = "/api/v1/admin/tenants"
KEYS = f"{TENANTS}/{{tenant}}/keys"
KEY = f"{KEYS}/{{key_id}}"
CERTIFICATES = f"{TENANTS}/{{tenant}}/certificates"
CERTIFICATE = f"{CERTIFICATES}/{{certificate_id}}"
SESSIONS = "/api/v1/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"
JOB = "/api/v1/admin/jobs/{job}"
READS = {
    "POST /api/v1/recall": {"query": "before"},
    "POST /api/v1/events/query": {},
    f"POST {SESSION}/context/search": {"query": "before"},
}
"""Operations that read, and are no GET, with a body."""
ROUTES = {route for fn in FUNCTIONS for route in fn.routes}
WRITES = {route for route in ROUTES if not route.startswith("GET ")} - {*READS, f"POST {EVENTS}"}
SCOPES = [("user:alice", "user:bob"), ("user:alice",), ("agent:helper", "user:alice")]
TALKING = SCOPES[2]
BEFORE = Op("There before.", ("user:alice",), session="before")
"""What is there before the load."""


@dataclass
class Load:
    """Writers, readers and the worker's sweep, which go on whatever becomes of the database."""

    gateway: Gateway
    key: str
    reads: list[tuple[str, str, object, int]]
    """Method, path, body, and the status while the database is up."""
    history: History = field(default_factory=History)
    wrong: list[str] = field(default_factory=list[str])
    """Answers that are neither a success nor a proper 503, and late ones."""
    away: Counter[str] = field(default_factory=Counter[str])
    """Proper 503s, by what was asked."""
    served: int = 0
    """Writes acknowledged: surely by the database."""
    done: list[tuple[str, tuple[object, ...]]] = field(default_factory=list[Any])
    """A statement that gives a row each for what else was acknowledged, with its parameters."""
    asked: Counter[str] = field(default_factory=Counter[str])
    """Operations that write, as often as they were acknowledged."""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Generator[None]:
        """Load while the block runs."""
        loops = (self._sweep, self._write_more, self._converse, self._operate, self._run_jobs)
        with ThreadPoolExecutor(WRITERS + READERS + len(loops)) as pool:
            under_way = [pool.submit(self._write, n) for n in range(WRITERS)]
            under_way += [pool.submit(self._read, n) for n in range(READERS)]
            under_way += [pool.submit(loop) for loop in loops]
            try:
                yield
            finally:
                self._stop.set()
            for loop in under_way:
                loop.result()

    def await_more(self, appends: int) -> None:
        """Return once so many more were acknowledged, or something is wrong."""
        wanted = self.served + appends
        self._await(lambda: self.served >= wanted)

    def await_every_write(self) -> None:
        """Return once every operation that writes was acknowledged, or something is wrong."""
        self._await(lambda: self.asked.keys() >= WRITES)

    def _await(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not reached() and not self.wrong:
            assert time.monotonic() < deadline, "nobody gets anywhere"
            time.sleep(0.002)

    def _turns(self) -> Iterator[int]:
        """0, 1, 2 … for as long as the load runs."""
        return takewhile(lambda _: not self._stop.is_set(), count())

    def _asked(
        self,
        method: str,
        path: str,
        body: object,
        expected: int,
        headers: Mapping[str, str] | None = None,
        **ids: str,
    ) -> Reply:
        """One call, judged; the path is a route's, filled in with these ids."""
        asked, started = f"{method} {path}", time.monotonic()
        there = path.format(**ids)
        reply = self.gateway.call(method, there, body, key=self.key, headers=headers)
        if time.monotonic() - started > PATIENCE_SECONDS:
            self.wrong.append(f"{asked}: {time.monotonic() - started:.0f} s")
        if reply.status == expected:
            self.served += asked == f"POST {EVENTS}"
        elif reply.status == 503 and reply.headers.get("Retry-After", "").isdecimal():
            self.away[asked] += 1
            if "error" in reply.body and reply.error["retryable"] is not True:
                self.wrong.append(f"{asked}: a 503 that is not retryable")
        else:
            self.wrong.append(f"{asked}: {reply.status} {reply.text[:200]}")
        return reply

    def _write(self, number: int) -> None:
        chance = seeded("restarts", number)
        again: Op | None = None
        for turn in self._turns():
            name = f"{number} {turn}"
            keyed = f"key of {name}" if turn % 2 else None
            op = again or Op(name, SCOPES[chance.randrange(len(SCOPES))], keyed)
            body, key = op.request()
            self.history.invoked.add(op)
            headers = {} if key is None else {"Idempotency-Key": key}
            reply = self._asked("POST", EVENTS, body, 201, headers)
            if reply.status == 201:
                receipt = Receipt.model_validate(reply.body)
                replayed = "Idempotent-Replayed" in reply.headers
                self.history.acked.append(Acked(op, receipt, replayed))
                again = None
            else:
                self.history.unknown.append(op)
                again = op if key is not None else None
                time.sleep(0.02)

    def _write_more(self) -> None:
        """Batches and uploads."""
        for turn in self._turns():
            ops = [Op(f"batch {turn} {n}", SCOPES[n], f"batch {turn}#{n}") for n in range(3)]
            body = {"events": [op.request()[0] for op in ops], "atomic": True}
            reply = self._appended(ops, f"{EVENTS}/batch", body, 200, f"batch {turn}")
            if reply is not None:
                self._acknowledged(ops, [item["event"] for item in reply["results"]])
            sha256 = hashlib.sha256(b"%d" % turn).hexdigest()
            begun = self._wrote("POST", "/api/v1/uploads", {"size": 9, "sha256": sha256}, 201)
            if begun is not None:
                self._stored("select from uploads where upload_id = %s", begun["upload_id"])

    def _converse(self) -> None:
        """Sessions: begun, spoken in, and ended."""
        for turn in self._turns():
            name = f"talk-{turn}"
            begun = {"session_id": name, "participants": TALKING, "metadata": {"turn": turn}}
            if self._wrote("POST", SESSIONS, begun, 201) is None:
                continue
            self._stored(
                "select from sessions where session_id = %s and metadata = %s::jsonb",
                *(name, f'{{"turn": {turn}}}'),
            )
            self._speak(name)
            ended = self._wrote("DELETE", SESSION, None, 200, session_id=name)
            if ended is not None:
                self._stored(
                    "select from sessions s where session_id = %s and ended_at is not null"
                    " and %s = (select count(*) from events e where e.session_id = s.session_id)",
                    *(name, ended["events_kept"]),
                )

    def _speak(self, name: str) -> None:
        """An interaction and an event, in the session of this name."""
        key = f"in {name}"
        ops = [Op(f"{name} {role}", TALKING, f"{key}#{role}", name) for role in ("user", "agent")]
        body = {"user_message": ops[0].content, "agent_response": ops[1].content}
        path = f"{SESSION}/interactions"
        reply = self._appended(ops, path, body, 201, key, session_id=name)
        if reply is not None:
            self._acknowledged(ops, [reply["user"], reply["agent"]])
        ops = [Op(f"{name} thought", TALKING, key, name)]
        body = {"role": "agent", "type": "thought", "content": ops[0].content}
        reply = self._appended(ops, f"{SESSION}/events", body, 201, key, session_id=name)
        if reply is not None:
            self._acknowledged(ops, [reply])

    def _operate(self) -> None:
        """An operator's work: tenants, limits and keys."""
        for turn in self._turns():
            name = f"made-{turn}"
            if self._wrote("POST", TENANTS, {"tenant_id": name}, 201) is None:
                continue
            self._stored("select from tenants where tenant_id = %s", name)
            limit = {"requests_per_minute": turn}
            if self._wrote("PATCH", f"{TENANTS}/{{tenant}}", limit, 200, tenant=name) is not None:
                self._stored(
                    "select from tenants where tenant_id = %s and requests_per_minute = %s",
                    *(name, turn),
                )
            made = self._wrote("POST", KEYS, {}, 201, tenant=name)
            if made is None:
                continue
            old = made["key_id"]
            self._stored("select from api_keys where key_id = %s", old)
            made = self._wrote("POST", f"{KEY}/rotate", {}, 201, tenant=name, key_id=old)
            if made is not None:
                self._stored(
                    "select from api_keys where key_id = %s and rotated_to = %s",
                    *(old, made["key"]["key_id"]),
                )
            if self._wrote("DELETE", KEY, None, 200, tenant=name, key_id=old) is not None:
                self._stored(
                    "select from api_keys where key_id = %s and revoked_at is not null", old
                )
            entered = {"subject": f"CN=made-{turn}"}
            one = self._wrote("POST", CERTIFICATES, entered, 201, tenant=name)
            if one is None:
                continue
            found = "select from certificate_principals where certificate_id = %s"
            self._stored(found, one["certificate_id"])
            ids = {"tenant": name, "certificate_id": one["certificate_id"]}
            if self._wrote("DELETE", CERTIFICATE, None, 200, **ids) is not None:
                self._stored(f"{found} and revoked_at is not null", one["certificate_id"])

    def _run_jobs(self) -> None:
        """An admin's work: jobs started, and tried again, whose runs nobody ever hears of."""
        for _ in self._turns():
            if not self._jobs_given_up():  # also one whose start nobody knows of
                continue
            started = self._wrote("POST", JOB, None, 202, job="archiver")
            if started is None:
                continue
            job_id = started["job_id"]
            self._stored("select from jobs where job_id = %s and kind = 'archiver'", job_id)
            if not self._jobs_given_up():
                continue
            if self._wrote("POST", f"{JOB}/retry", None, 202, job=job_id) is not None:
                self._stored("select from jobs where job_id = %s and attempts = 2", job_id)

    def _jobs_given_up(self) -> bool:
        """Have the lease of the archiver's job be over, as time would; False while nobody can."""
        later = datetime.now(UTC) + timedelta(
            seconds=2 * max(jobs_store.LEASE_SECONDS, jobs_store.PLANNED_SECONDS)
        )
        try:
            access = self.gateway.database.access(Asker.background(TENANT))
            with access.transaction():
                jobs_store.expire(access, "archiver", later)
        except (Unavailable, psycopg.Error):  # the driver's own: where a planted fault leaves it so
            time.sleep(0.02)
            return False
        return True

    def _wrote(self, method: str, path: str, body: object, expected: int, **more: Any) -> Any:
        """The answer to a write, or None where it is not known whether it happened."""
        reply = self._asked(method, path, body, expected, **more)
        if reply.status != expected:
            time.sleep(0.02)
            return None
        self.asked[f"{method} {path}"] += 1
        return reply.body

    def _appended(
        self, ops: Sequence[Op], path: str, body: object, expected: int, key: str, **ids: str
    ) -> Any:
        """The answer to a write that appends all of these or none; None as of any write."""
        self.history.invoked.update(ops)
        headers = {"Idempotency-Key": key}
        reply = self._wrote("POST", path, body, expected, headers=headers, **ids)
        if reply is None:
            self.history.unknown.extend(ops)
        return reply

    def _acknowledged(self, ops: Sequence[Op], receipts: Sequence[object]) -> None:
        for op, receipt in zip(ops, receipts, strict=True):
            self.history.acked.append(Acked(op, Receipt.model_validate(receipt), replayed=False))

    def _stored(self, statement: str, *params: object) -> None:
        self.done.append((statement, params))

    def _read(self, number: int) -> None:
        for turn in self._turns():
            method, path, body, expected = self.reads[(turn + number * 3) % len(self.reads)]
            if self._asked(method, path, body, expected).status == 503:
                time.sleep(0.02)

    def _sweep(self) -> None:
        """A schedule goes on after a failed run; the run says what failed it."""
        while not self._stop.wait(0.05):
            try:
                self.gateway.tick()
            except Unavailable:
                self.away["sweep"] += 1
            except Exception as error:
                self.wrong.append(f"sweep: {error!r}")


def every_read(gateway: Gateway, key: str) -> list[tuple[str, str, object, int]]:
    """Every operation that reads, of whatever function, with its answer while all is well."""
    first = gateway.call("POST", EVENTS, BEFORE.request()[0], key=key).body
    job = gateway.call("POST", JOB.format(job="archiver"), key=key).body["job_id"]
    known = {name: first[name] for name in ("event_id", "scope_id", "cid")}
    known |= {"tenant": TENANT, "key_id": gateway.new_key().key.key_id, "file": "page.js"}
    access = gateway.database.access(Asker.background(TENANT))
    entered = certificates.enter(access, Act("a load"), subject="CN=before")
    known |= {"session_id": "before", "job": job, "certificate_id": str(entered.certificate_id)}
    found: list[tuple[str, str, object, int]] = []
    for route in sorted(ROUTES - WRITES - {f"POST {EVENTS}"}):
        method, path = route.format(**known).split()
        body = READS.get(route)
        found.append((method, path, body, gateway.call(method, path, body, key=key).status))
    return found
