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
from functools import partial
from itertools import count, takewhile
from textwrap import wrap
from typing import Any, cast

import psycopg

from strandline.admin import certificates
from strandline.db.database import Caller
from strandline.errors import Unavailable
from strandline.function_specs import FUNCTIONS
from strandline.graph.transfer.import_file import read_graph_file
from strandline.graph.transfer.import_graph import make_statement_events
from strandline.jobs import store_runs
from strandline.log.schemas_append import Receipt
from strandline.tenants.store_audit import AuditContext
from strandline.topics import store_publish, store_snapshot_admin
from strandline.topics.store_publish import NewSnapshot
from tests.chat_service import ScriptedTasks, use_model, waiting_turn
from tests.contract import takes
from tests.graph_files import tell_entity
from tests.prove.append_history import TENANT, WRITER, AckedAppend, AppendOp, History, make_rng
from tests.support import Gateway, Reply, user_message

WRITERS, READERS = 3, 2
PATIENCE_SECONDS = 27.0
"""A request has 25, and an answer is not instant on a busy machine."""
EVENTS = "/api/v1/events"
EVENT = f"{EVENTS}/{{event_id}}"
ERASURES = "/api/v1/erasures"
FORGETFUL = "user:eve"
TENANTS = "/api/v1/admin/tenants"
KEYS = f"{TENANTS}/{{tenant}}/keys"
KEY = f"{KEYS}/{{key_id}}"
CERTIFICATES = f"{TENANTS}/{{tenant}}/certificates"
CERTIFICATE = f"{CERTIFICATES}/{{certificate_id}}"
SESSIONS = "/api/v1/sessions"
GRAPH = "/api/v1/graph"
NODE = f"{GRAPH}/nodes/{{node_id}}"
SESSION = f"{SESSIONS}/{{session_id}}"
JOB = "/api/v1/admin/jobs/{job}"
ANALYTICS = "/api/v1/admin/analytics/trigger"
ACTIVATE = "/api/v1/admin/snapshots/{version}/activate"
CONFIGURATION = {"space": "a space", "model": "a model", "prompt": "a prompt"}
SONAS = "/api/v1/sonas"
SONA = f"{SONAS}/{{uuid}}"
READS = {
    "POST /api/v1/query": {"query": "before"},
    "POST /api/v1/recall": {"query": "before"},
    "POST /api/v1/context": {"query": "before"},
    "POST /api/v1/references/query": {"query": "before"},
    "POST /api/v1/events/query": {},
    "POST /api/v1/graph/search": {"query": "before"},
    "POST /api/v1/graph/traverse": {},  # its node is told when there is one
    "POST /api/v1/graph/analyze": {"content": "before"},
    "POST /api/v1/graph/conflicts": {},
    "POST /api/v1/graph/topics/nearest": {"query": "before"},
    "POST /api/v1/graph/exports": {"participants": ["user:alice"]},
    f"POST {SESSION}/context/search": {"query": "before"},
}
"""Operations that read, and are no GET, with a body."""
type ReadCall = tuple[str, str, object, dict[str, str], int]
"""Method, path, body, query string, and the status of its answer while all is well."""
ROUTES = {route for fn in FUNCTIONS if fn.protocol == "REST" for route in fn.routes}
WRITES = {route for route in ROUTES if not route.startswith("GET ")} - {*READS, f"POST {EVENTS}"}
SCOPES = [("user:alice", "user:bob"), ("user:alice",), ("agent:helper", "user:alice")]
SESSION_MEMBERS = SCOPES[2]
FIRST_EVENT = AppendOp("There before.", ("user:alice",), session="before")
FIRST_LINK = AppendOp("Linked there before.", ("user:alice",), "link before")
"""It cites the first event."""
FIRST_NODES = (
    AppendOp("A fact before.", ("user:alice",), "graph before#0"),
    AppendOp("Topic before", ("user:alice",), "graph before#1"),
)
FIRST_REVISION = AppendOp("Topic before, boat: Petrel.", ("user:alice",), "field before")
FIRST_OPS = {FIRST_EVENT, FIRST_LINK, *FIRST_NODES, FIRST_REVISION}
"""What is there before the load."""


def is_unknown_without_key(method: str, headers: Mapping[str, str] | None, reply: Reply) -> bool:
    """Whether the write may be done, so that it must not be sent again: it has no key."""
    if method != "POST" or headers or reply.status != 503 or "Retry-After" in reply.headers:
        return False
    return (reply.error["code"], reply.error["retryable"]) == ("outcome_unknown", False)


@dataclass
class Load:
    """Writers, readers and the worker's sweep, which go on whatever becomes of the database."""

    gateway: Gateway
    key: str
    reads: list[ReadCall]
    """Method, path, body, and the status while the database is up."""
    history: History = field(default_factory=History)
    faults: list[str] = field(default_factory=list[str])
    """Answers that are neither a success nor a proper 503, and late ones."""
    unavailable: Counter[str] = field(default_factory=Counter[str])
    """Proper 503s, by what was asked."""
    served_count: int = 0
    """Writes acknowledged: surely by the database."""
    expected_rows: list[tuple[str, tuple[object, ...]]] = field(default_factory=list[Any])
    """A statement that gives a row each for what else was acknowledged, with its parameters."""
    acknowledged_writes: Counter[str] = field(default_factory=Counter[str])
    """Operations that write, as often as they were acknowledged."""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Generator[None]:
        """Load while the block runs."""
        loops = (
            *(self._sweep, self._write_more, self._converse, self._operate, self._run_jobs),
            self._forget,
        )
        with ThreadPoolExecutor(WRITERS + READERS + len(loops)) as pool:
            futures = [pool.submit(self._write, n) for n in range(WRITERS)]
            futures += [pool.submit(self._read, n) for n in range(READERS)]
            futures += [pool.submit(loop) for loop in loops]
            try:
                yield
            finally:
                self._stop.set()
            for loop in futures:
                loop.result()

    def await_more(self, appends: int) -> None:
        """Return once so many more were acknowledged, or something is wrong."""
        target_count = self.served_count + appends
        self._wait_until(lambda: self.served_count >= target_count)

    def await_every_write(self) -> None:
        """Return once every operation that writes was acknowledged, or something is wrong."""
        self._wait_until(lambda: self.acknowledged_writes.keys() >= WRITES)

    def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not is_reached() and not self.faults:
            assert time.monotonic() < deadline, "nobody gets anywhere"
            time.sleep(0.002)

    def _iterations(self) -> Iterator[int]:
        """0, 1, 2 … for as long as the load runs."""
        return takewhile(lambda _: not self._stop.is_set(), count())

    def _call(
        self,
        method: str,
        path: str,
        body: object,
        expected: int,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
        **ids: str,
    ) -> Reply:
        """One call, judged; the path is a route's, filled in with these ids."""
        operation, start = f"{method} {path}", time.monotonic()
        url_path = path.format(**ids)
        reply = self.gateway.call(
            method, url_path, body, key=self.key, headers=headers, query=query
        )
        if time.monotonic() - start > PATIENCE_SECONDS:
            self.faults.append(f"{operation}: {time.monotonic() - start:.0f} s")
        if reply.status == expected:
            self.served_count += operation == f"POST {EVENTS}"
        elif is_unknown_without_key(method, headers, reply):
            self.unavailable[operation] += 1
        elif reply.status == 503 and reply.headers.get("Retry-After", "").isdecimal():
            self.unavailable[operation] += 1
            if "error" in reply.body and reply.error["retryable"] is not True:
                self.faults.append(f"{operation}: a 503 that is not retryable")
        else:
            self.faults.append(f"{operation}: {reply.status} {reply.text[:200]}")
        return reply

    def _write(self, number: int) -> None:
        rng = make_rng("restarts", number)
        retried_op: AppendOp | None = None
        for turn in self._iterations():
            name = f"{number} {turn}"
            key_text = f"key of {name}" if turn % 2 else None
            op = retried_op or AppendOp(name, SCOPES[rng.randrange(len(SCOPES))], key_text)
            body, key = op.request()
            self.history.invocations.add(op)
            headers = {} if key is None else {"Idempotency-Key": key}
            reply = self._call("POST", EVENTS, body, 201, headers)
            if reply.status == 201:
                receipt = Receipt.model_validate(reply.body)
                replayed = "Idempotent-Replayed" in reply.headers
                self.history.acks.append(AckedAppend(op, receipt, replayed))
                retried_op = None
            else:
                self.history.unknown.append(op)
                retried_op = op if key is not None else None
                time.sleep(0.02)

    def _write_more(self) -> None:
        """Batches and uploads."""
        for turn in self._iterations():
            ops = [AppendOp(f"batch {turn} {n}", SCOPES[n], f"batch {turn}#{n}") for n in range(3)]
            body = {"events": [op.request()[0] for op in ops], "atomic": True}
            reply = self._call_append(ops, f"{EVENTS}/batch", body, 200, f"batch {turn}")
            if reply is not None:
                self._record_acknowledged(ops, [item["event"] for item in reply["results"]])
            insertion = self._insert(turn)
            if insertion is not None:
                self._play(turn, insertion)
            self._chat(turn)
            self._state(turn)
            self._import(turn)
            sha256 = hashlib.sha256(b"%d" % turn).hexdigest()
            upload = self._call_write("POST", "/api/v1/uploads", {"size": 9, "sha256": sha256}, 201)
            if upload is not None:
                self._expect_row("select from uploads where upload_id = %s", upload["upload_id"])

    def _insert(self, turn: int) -> str | None:
        """An append that recall goes before; gives its event."""
        op = AppendOp(f"insert {turn}", SCOPES[0], f"insert {turn}")
        path, (body, key) = "/api/v1/insert", op.request()
        assert key is not None
        receipt = self._call_append([op], path, body, 201, key)
        if receipt is not None:
            fields = {name: receipt[name] for name in Receipt.model_fields}
            self._record_acknowledged([op], [fields])
        return receipt and str(receipt["event_id"])

    def _play(self, turn: int, event_id: str) -> None:
        """Two sonas: named, renamed, active, continued and merged. It stops where the outcome of
        one is not known."""
        ids: list[str] = []
        for name in (f"Keeper {turn}", f"Pilot {turn}"):
            # Words of its own: a name that means an earlier one is answered with that one's sona.
            name += " " + " ".join(wrap(hashlib.sha256(name.encode()).hexdigest()[:32], 4))
            sona = self._call_write("POST", SONAS, {"name": name}, 201)
            if sona is None:
                return
            ids.append(sona["uuid"])
            self._expect_row("select from sonas where sona_id = %s", sona["uuid"])
        calls: list[tuple[str, str, dict[str, Any], int, str]] = [
            (
                *("PATCH", SONA, {"names": [f"Guard {turn}"]}, 200),
                "select from sona_names where sona_id = %s and name like 'Guard%%'",
            ),
            (
                *("POST", f"{SONA}/memories", {"event_ids": [event_id]}, 200),
                "select from sona_members where sona_id = %s",
            ),
            (
                *("POST", f"{SONA}/acts", {"event_id": event_id}, 201),
                "select from acts where sona_id = %s",
            ),
            (
                *("POST", f"{SONA}/merge", {"into": ids[1]}, 200),
                "select from sonas where sona_id = %s and merged_into is not null",
            ),
        ]
        for method, path, body, status, statement in calls:
            if self._call_write(method, path, body, status, uuid=ids[0]) is None:
                return
            self._expect_row(statement, ids[0])

    def _chat(self, turn: int) -> None:
        """A message, and a reply to it."""
        key, scope = f"chat {turn}", SESSION_MEMBERS
        turn_texts = {"input": f"Message {turn}.", "answer": f"You said: Message {turn}."}
        ops = [AppendOp(text, scope, f"{key}#{part}") for part, text in turn_texts.items()]
        body = {"participants": scope, "message": turn_texts["input"], "speaker": "user:alice"}
        answer = self._call_append(ops, "/api/v1/chat", body, 200, key)
        if answer is not None:
            for name in ("input_id", "answer_id"):
                self._expect_row("select from events where event_id = %s", answer[name])

    def _state(self, turn: int) -> None:
        """A fact of the graph."""
        op = AppendOp(f"Fact {turn}.", SCOPES[0], f"fact {turn}#0")
        fact = {"type": "fact", "content": op.content}
        body = {"participants": SCOPES[0], "speaker": SCOPES[0][0], "nodes": [fact]}
        answer = self._call_append([op], "/api/v1/graph/nodes", body, 201, f"fact {turn}")
        if answer is not None:
            self._expect_row(
                "select from graph_nodes n join graph_sources s on s.target_id = n.node_id"
                " where n.name = %s and s.event_id = %s",
                *(op.content, answer["nodes"][0]["event_id"]),
            )
            self._correct(turn, op.content, answer["nodes"][0]["id"])
        self._revise(turn)

    def _import(self, turn: int) -> None:
        """A file of a graph with one entity."""
        data = tell_entity(f"Imported {turn}", SCOPES[1])
        graph = read_graph_file(data, lambda _: True)
        (statement,) = make_statement_events(WRITER, graph, [one.line for one in graph.statements])
        op = AppendOp(statement.content, SCOPES[1], statement.key)
        self.history.invocations.add(op)
        body = {"content": data.decode()}
        if self._call_write("POST", f"{GRAPH}/imports", body, 201) is None:
            self.history.unknown.append(op)
            return
        self._expect_row(
            "select from graph_nodes n join graph_sources s on s.target_id = n.node_id"
            " join event_keys k on k.event_id = s.event_id"
            " where n.name = %s and k.source_event_key = %s",
            *(statement.content, statement.key),
        )

    def _correct(self, turn: int, fact: str, fact_id: str) -> None:
        """Changes of the graph: two topics, related, separated, merged and apart again, and a fact
        that ends. It stops where the outcome of one is not known."""
        names = [f"Topic {turn} {letter}" for letter in "ab"]
        topics = [{"type": "topic", "name": name} for name in names]
        ops = [AppendOp(name, SCOPES[0], f"topics {turn}#{n}") for n, name in enumerate(names)]
        who = {"participants": SCOPES[0], "speaker": SCOPES[0][0]}
        body = {**who, "nodes": topics}
        answer = self._call_append(ops, f"{GRAPH}/nodes", body, 201, f"topics {turn}")
        if answer is None:
            return
        a, b = (node["id"] for node in answer["nodes"])
        edge = {"edge": "RELATES_TO", "from_id": a, "to_id": b}
        related = f"{names[0]} relates to {names[1]}."
        quotes = [f"\u201c{name}\u201d" for name in names]
        change = partial(self._change, turn, who)
        patch = {"description": "Wet"}
        reason = {"reason": "It is over."}
        calls: list[tuple[str, str, dict[str, Any], str]] = [
            ("PATCH", NODE, patch, f"{names[0]}: description is Wet."),
            ("POST", f"{GRAPH}/edges", {"edges": [edge]}, related),
            ("POST", f"{GRAPH}/edges/{{edge_id}}/end", {}, f"No longer so: {related}"),
            (
                *("POST", f"{GRAPH}/merges", {"from_id": a, "into_id": b}),
                f"{quotes[0]} and {quotes[1]} are the same.",
            ),
            (
                *("POST", f"{GRAPH}/merges/{{merge_id}}/undo", {}),
                f"{quotes[0]}: not the same as what they were merged into.",
            ),
            (
                *("POST", f"{NODE}/invalidate", reason),
                f"No longer so: \u201c{fact}\u201d. It is over.",
            ),
        ]
        ids = {"node_id": a}
        for method, path, fields, content in calls:
            arguments = {**ids, "node_id": fact_id} if path.endswith("/invalidate") else ids
            reply = change(method, path, fields, content, arguments)
            if reply is None:
                return
            if path.endswith("/edges"):
                ids["edge_id"] = reply["edges"][0]["id"]
            if path.endswith("/merges"):
                ids["merge_id"] = reply["merge_id"]

    def _change(
        self,
        turn: int,
        who: Mapping[str, object],
        method: str,
        path: str,
        fields: Mapping[str, object],
        content: str,
        ids: Mapping[str, str],
    ) -> Any:
        """One change of the graph, whose statement has this content; None as of any write."""
        key = f"{method} {path} {turn}"
        stored_key = f"{key}#0" if path.endswith("/edges") else key
        op = AppendOp(content, SCOPES[0], stored_key)
        self.history.invocations.add(op)
        status = 200 if method == "PATCH" else 201
        headers = {"Idempotency-Key": key}
        reply = self._call_write(method, path, {**who, **fields}, status, headers=headers, **ids)
        if reply is None:
            self.history.unknown.append(op)
            return None
        first = reply["edges"][0] if "edges" in reply else reply
        event_id = first["event_id"] if "event_id" in first else first["merge_id"]
        self._expect_row("select from graph_sources where event_id = %s", event_id)
        return reply

    def _revise(self, turn: int) -> None:
        """A topic of the graph, and a revision of its field."""
        scope, name = SCOPES[0], f"Berth {turn}"
        op = AppendOp(name, scope, f"topic {turn}#0")
        topic = {"type": "topic", "name": name}
        body = {"participants": scope, "speaker": scope[0], "nodes": [topic]}
        answer = self._call_append([op], "/api/v1/graph/nodes", body, 201, f"topic {turn}")
        if answer is None:
            return
        key = f"revision {turn}"
        op = AppendOp(f"{name}, boat: Petrel.", scope, key)
        body = {"participants": scope, "speaker": scope[0], "value": "Petrel"}
        path = "/api/v1/graph/topics/{topic_id}/fields/{field}"
        parts = {"topic_id": answer["nodes"][0]["id"], "field": "boat"}
        receipt = self._call_append([op], path, body, 201, key, **parts)
        if receipt is not None:
            self._expect_row(
                "select from topic_field_revisions where event_id = %s and value = %s::jsonb",
                *(receipt["event_id"], '"Petrel"'),
            )

    def _converse(self) -> None:
        """Sessions: begun, spoken in, and ended."""
        for turn in self._iterations():
            name = f"talk-{turn}"
            session = {
                "session_id": name,
                "participants": SESSION_MEMBERS,
                "metadata": {"turn": turn},
            }
            if self._call_write("POST", SESSIONS, session, 201) is None:
                continue
            self._expect_row(
                "select from sessions where session_id = %s and metadata = %s::jsonb",
                *(name, f'{{"turn": {turn}}}'),
            )
            self._speak(name)
            answer = self._call_write("DELETE", SESSION, None, 200, session_id=name)
            if answer is not None:
                self._expect_row(
                    "select from sessions s where session_id = %s and ended_at is not null"
                    " and %s = (select count(*) from events e where e.session_id = s.session_id)",
                    *(name, answer["events_kept"]),
                )

    def _forget(self) -> None:
        """Events that are appended and erased, by their ids and by a selector."""
        for turn in self._iterations():
            op = AppendOp(f"Forget {turn}.", (FORGETFUL,))
            self.history.invocations.add(op)
            reply = self._call("POST", EVENTS, op.request()[0], 201)
            if reply.status != 201:
                time.sleep(0.02)
                continue
            event_id = reply.body["event_id"]
            erasure: Any = None
            if turn % 2:
                erasure = self._call_write("DELETE", EVENT, None, 200, event_id=event_id)
            else:
                selector = {"event_ids": [event_id]}
                erasure = self._call_write("POST", ERASURES, selector, 202)
            if erasure is not None:
                self._expect_row(
                    "select from events e join erased_events d using (tenant_id, event_id)"
                    " where e.event_id = %s and e.erased_at is not null and d.erasure_id = %s",
                    *(event_id, erasure["erasure_id"]),
                )

    def _speak(self, name: str) -> None:
        """An interaction and an event, in the session of this name."""
        key = f"in {name}"
        ops = [
            AppendOp(f"{name} {role}", SESSION_MEMBERS, f"{key}#{role}", name)
            for role in ("user", "agent")
        ]
        body = {"user_message": ops[0].content, "agent_response": ops[1].content}
        path = f"{SESSION}/interactions"
        reply = self._call_append(ops, path, body, 201, key, session_id=name)
        if reply is not None:
            self._record_acknowledged(ops, [reply["user"], reply["agent"]])
        ops = [AppendOp(f"{name} thought", SESSION_MEMBERS, key, name)]
        body = {"role": "agent", "type": "thought", "content": ops[0].content}
        reply = self._call_append(ops, f"{SESSION}/events", body, 201, key, session_id=name)
        if reply is not None:
            self._record_acknowledged(ops, [reply])

    def _operate(self) -> None:
        """An operator's work: tenants, limits and keys."""
        for turn in self._iterations():
            name = f"made-{turn}"
            if self._call_write("POST", TENANTS, {"tenant_id": name}, 201) is None:
                continue
            self._expect_row("select from tenants where tenant_id = %s", name)
            limit = {"requests_per_minute": turn}
            if (
                self._call_write("PATCH", f"{TENANTS}/{{tenant}}", limit, 200, tenant=name)
                is not None
            ):
                self._expect_row(
                    "select from tenants where tenant_id = %s and requests_per_minute = %s",
                    *(name, turn),
                )
            new_key = self._call_write("POST", KEYS, {}, 201, tenant=name)
            if new_key is None:
                continue
            old_key_id = new_key["key_id"]
            self._expect_row("select from api_keys where key_id = %s", old_key_id)
            new_key = self._call_write(
                "POST", f"{KEY}/rotate", {}, 201, tenant=name, key_id=old_key_id
            )
            if new_key is not None:
                self._expect_row(
                    "select from api_keys where key_id = %s and rotated_to = %s",
                    *(old_key_id, new_key["key"]["key_id"]),
                )
            if (
                self._call_write("DELETE", KEY, None, 200, tenant=name, key_id=old_key_id)
                is not None
            ):
                self._expect_row(
                    "select from api_keys where key_id = %s and revoked_at is not null", old_key_id
                )
            certificate_request = {"subject": f"CN=made-{turn}"}
            certificate = self._call_write(
                "POST", CERTIFICATES, certificate_request, 201, tenant=name
            )
            if certificate is None:
                continue
            statement = "select from certificate_principals where certificate_id = %s"
            self._expect_row(statement, certificate["certificate_id"])
            ids = {"tenant": name, "certificate_id": certificate["certificate_id"]}
            if self._call_write("DELETE", CERTIFICATE, None, 200, **ids) is not None:
                self._expect_row(
                    f"{statement} and revoked_at is not null", certificate["certificate_id"]
                )

    def _run_jobs(self) -> None:
        """An admin's work: jobs started, and tried again, whose runs nobody ever hears of."""
        for _ in self._iterations():
            # also those whose start nobody knows of
            if not (self._expire_jobs() and self._expire_jobs("analytics")):
                continue
            active_version = self._publish()
            if active_version is not None:
                snapshot = self._call_write(
                    "POST", ACTIVATE, None, 201, version=str(active_version - 1)
                )
                if snapshot is not None:
                    self._expect_row(
                        "select from snapshots where version = %s and repeats_version = %s",
                        *(snapshot["version"], active_version - 1),
                    )
            self._trigger_analytics()
            job = self._call_write("POST", JOB, None, 202, job="archiver")
            if job is None:
                continue
            job_id = job["job_id"]
            self._expect_row("select from jobs where job_id = %s and kind = 'archiver'", job_id)
            if not self._expire_jobs():
                continue
            if self._call_write("POST", f"{JOB}/retry", None, 202, job=job_id) is not None:
                self._expect_row("select from jobs where job_id = %s and attempts = 2", job_id)

    def _trigger_analytics(self) -> None:
        """The other way to start a job."""
        job = self._call_write("POST", ANALYTICS, None, 202)
        if job is not None:
            self._expect_row("select from jobs where job_id = %s", job["job_id"])

    def _publish(self) -> int | None:
        """Publish a version after another; returns the last, or None while nobody can."""
        try:
            return publish_two(self.gateway)
        except (Unavailable, psycopg.Error):
            time.sleep(0.02)
            return None

    def _expire_jobs(self, kind: str = "archiver") -> bool:
        """Have the lease of a job of this kind be over, as time would; False while nobody can."""
        after_lease = datetime.now(UTC) + timedelta(
            seconds=2 * max(store_runs.LEASE_SECONDS, store_runs.PLAN_LEASE_SECONDS)
        )
        try:
            access = self.gateway.database.connect_as(Caller.background(TENANT))
            with access.transaction():
                store_runs.fail_expired_jobs(access, kind, after_lease)
        except (Unavailable, psycopg.Error):  # the driver's own: where a planted fault leaves it so
            time.sleep(0.02)
            return False
        return True

    def _call_write(
        self, method: str, path: str, body: object, expected: int, **options: Any
    ) -> Any:
        """The answer to a write, or None where it is not known whether it happened."""
        reply = self._call(method, path, body, expected, **options)
        if reply.status != expected:
            time.sleep(0.02)
            return None
        self.acknowledged_writes[f"{method} {path}"] += 1
        return reply.body

    def _call_append(
        self, ops: Sequence[AppendOp], path: str, body: object, expected: int, key: str, **ids: str
    ) -> Any:
        """The answer to a write that appends all of these or none; None as of any write."""
        self.history.invocations.update(ops)
        headers = {"Idempotency-Key": key}
        reply = self._call_write("POST", path, body, expected, headers=headers, **ids)
        if reply is None:
            self.history.unknown.extend(ops)
        return reply

    def _record_acknowledged(self, ops: Sequence[AppendOp], receipts: Sequence[object]) -> None:
        for op, receipt in zip(ops, receipts, strict=True):
            self.history.acks.append(
                AckedAppend(op, Receipt.model_validate(receipt), is_replay=False)
            )

    def _expect_row(self, statement: str, *params: object) -> None:
        self.expected_rows.append((statement, params))

    def _read(self, number: int) -> None:
        for turn in self._iterations():
            method, path, body, query, expected = self.reads[(turn + number * 3) % len(self.reads)]
            if self._call(method, path, body, expected, query=query).status == 503:
                time.sleep(0.02)

    def _sweep(self) -> None:
        """A schedule goes on after a failed run; the run says what failed it."""
        while not self._stop.wait(0.05):
            try:
                self.gateway.sweep()
            except Unavailable:
                self.unavailable["sweep"] += 1
            except Exception as error:
                self.faults.append(f"sweep: {error!r}")


def publish_two(gateway: Gateway) -> int:
    """Publish two versions of the topic index without trees; returns the last."""
    access = gateway.database.connect_as(Caller.background(TENANT))
    with access.transaction():
        base = store_snapshot_admin.read_active_version(access)
        for version in (base + 1, base + 2):
            assert store_publish.activate_next_version(access, version - 1) == version
            snapshot = NewSnapshot(
                version, version - 1, None, None, datetime.now(UTC), 0, [], CONFIGURATION
            )
            store_publish.insert_snapshot(access, snapshot)
    return base + 2


def _state_first(gateway: Gateway, key: str) -> dict[str, str]:
    """A fact and a topic with a field, in one community; gives their ids, as paths name them."""
    fact, topic = FIRST_NODES
    who = {"participants": fact.participants}
    about = [{"edge": "fact_topic", "target": "topic"}]
    nodes = [
        {"type": "fact", "content": fact.content, "relationships": about},
        {"type": "topic", "name": topic.content, "ref": "topic"},
    ]
    headers = {"Idempotency-Key": "graph before"}
    body = {**who, "nodes": nodes}
    reply = gateway.call("POST", f"{GRAPH}/nodes", body, key=key, headers=headers)
    node_id, topic_id = (node["id"] for node in reply.body["nodes"])
    path, body = f"{GRAPH}/topics/{topic_id}/fields/boat", {**who, "value": "Petrel"}
    headers = {"Idempotency-Key": FIRST_REVISION.key or ""}
    assert gateway.call("POST", path, body, key=key, headers=headers).status == 201
    gateway.run_job("analytics", TENANT)
    query = {"participants": fact.participants[0]}
    reply_body = gateway.call("GET", f"{GRAPH}/communities", key=key, query=query).body
    community_id = reply_body["communities"][0]["community_id"]
    return {"node_id": node_id, "topic_id": topic_id, "community_id": community_id}


def list_reads(gateway: Gateway, key: str) -> list[ReadCall]:
    """Every operation that reads, of whatever function, with its answer while all is well. From
    then on there is a language model that answers."""
    use_model(ScriptedTasks())
    sona = gateway.call("POST", SONAS, {"name": "before"}, key=key).body["uuid"]
    first = gateway.call("POST", EVENTS, FIRST_EVENT.request()[0], key=key).body
    reply_body = gateway.call("POST", EVENTS, user_message("Forget me.", FORGETFUL), key=key).body
    erasure = gateway.call("DELETE", f"{EVENTS}/{reply_body['event_id']}", key=key).body
    body, link_key = FIRST_LINK.request()
    body = {**cast("dict[str, object]", body), "edges": [{"event_id": first["event_id"]}]}
    headers = {"Idempotency-Key": str(link_key)}
    link = gateway.call("POST", EVENTS, body, key=key, headers=headers).body
    publish_two(gateway)
    job = gateway.call("POST", JOB.format(job="archiver"), key=key).body["job_id"]
    path_values = {name: first[name] for name in ("event_id", "scope_id")}
    path_values |= {"cid": link["cid"], "path+": "edges/0/target"}
    path_values |= {"tenant": TENANT, "key_id": gateway.new_key().key.key_id, "file": "page.js"}
    access = gateway.database.connect_as(Caller.background(TENANT))
    certificate = certificates.add_certificate(access, AuditContext("a load"), subject="CN=before")
    path_values |= {
        "session_id": "before",
        "job": job,
        "version": "1",
        "row_id": first["event_id"],
        "erasure_id": erasure["erasure_id"],
        **_state_first(gateway, key),
        "field": "boat",
        "certificate_id": str(certificate.certificate_id),
        "uuid": sona,
        "turn_id": waiting_turn(gateway, "user:alice", "*", TENANT),
    }
    reads: list[ReadCall] = []
    for route in sorted(ROUTES - WRITES - {f"POST {EVENTS}"}):
        method, path = route.format(**path_values).split()
        body = READS.get(route)
        if route.endswith("/traverse"):
            body = {"node_id": path_values["node_id"]}
        query = {"everybody": "true"} if takes(method, path, "everybody") else {}
        status = gateway.call(method, path, body, key=key, query=query).status
        reads.append((method, path, body, query, status))
    return reads
