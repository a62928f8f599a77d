"""Promise: nothing that a caller says comes back in an error, or stands in a log, a metric, a
queued or dead message, or the database's log.

A distinct word goes into every field of every operation, right and wrong, as the routes declare
them: a new field is covered by itself. What an error may name are *names* in the caller's own
request (an unknown field's, a key of metadata), so that a slip can be found; they stand in the
answer alone. What a field holds is never repeated.
"""

import contextlib
import importlib
import io
import json
import logging
import re
import ssl
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from itertools import islice
from typing import Any, cast

import pytest
from botocore.exceptions import EndpointConnectionError
from pydantic import BaseModel

from strandline import participants
from strandline.admin import certificates
from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.config import get_settings
from strandline.context.schemas import ChainSearchRequest
from strandline.db.database import Caller, Database
from strandline.embeddings.embedder import Embedder
from strandline.errors import Invalid, StrandlineError
from strandline.function_specs import FUNCTIONS
from strandline.http.routes_and_responses import Route
from strandline.local import event_sources
from strandline.local.aws import LocalAws, make_local_client
from strandline.local.event_sources import QueuePoller
from strandline.log.schemas_append import AppendRequest, BatchRequest
from strandline.observability import logger
from strandline.personas.schemas import (
    AnswerRequest,
    ChatRequest,
    FindOrMakeSonaRequest,
    SonaNamesPatch,
)
from strandline.recall.schemas import RecallRequest
from strandline.resources import Resources
from strandline.sessions.schemas import InteractionIn, SessionEventIn, SessionIn
from strandline.tenants.store_audit import AuditContext
from tests.certificates import certificate
from tests.chat_service import ScriptedTasks
from tests.graph_files import tell_entity
from tests.strandline.embeddings.fake_embedders import WordEmbedder
from tests.support import Gateway, Reply, ScratchDatabase, user_message, wire_handlers
from tests.tokens import AUDIENCE, ISSUER, SECRET, claims, hmac_by, signed

PATH = "/api/v1/events"
ANY = re.compile(r"(kanari|wellensit)_(\d+)_", re.IGNORECASE)
"""A value's canary, or a name's."""
HEADERS = (
    "Content-Type",
    "User-Agent",
    "X-Amzn-Trace-Id",
    "Referer",
    "Cookie",
    "Accept",
    "X-Other",
)


class Hunt:
    """Sends canaries everywhere, and knows where each was put."""

    def __init__(self, gateway: Gateway, log: io.StringIO) -> None:
        self.gateway, self.log = gateway, log
        self.places: list[str] = []
        self.refusals: list[tuple[str, str]] = []
        """Errors' text, and what was asked."""
        self.statuses: Counter[int] = Counter()
        self.secrets: list[str] = []
        """Credentials, which say their canaries in base64."""
        self.operator = gateway.key(rights=["read", "write", "admin", "operator"])
        self.bound = gateway.key(
            user=f"user:{self.value('the key user')}", label=self.value("label")
        )
        gateway.key("globex")
        first = gateway.call("POST", PATH, user_message("Known."), key=self.operator).body
        self.known = {n: str(first[n]) for n in ("event_id", "scope_id", "cid")}
        self.known["tenant"] = "globex"

    def value(self, place: str) -> str:
        """A word for what a field holds: no tenant can be called so."""
        self.places.append(place)
        return f"kanari_{len(self.places) - 1}_"

    def name(self, place: str) -> str:
        """A word for a name that the caller makes up."""
        self.places.append(f"name in {place}")
        return f"wellensit_{len(self.places) - 1}_"

    def send(self, method: str, path: str, body: object = None, **more: Any) -> Reply:
        """One request; what it is refused with is kept."""
        more = {"key": self.operator} | more
        reply = self.gateway.call(method, path, body, **more)
        self.statuses[reply.status] += 1
        if reply.status >= 400:
            self.refusals.append((f"{method} {path}", reply.text + json.dumps(dict(reply.headers))))
        elif '"results"' in reply.text and "results" in reply.body:
            errors = [item["error"] for item in reply.body["results"]]
            self.refusals.append((f"{method} {path}", json.dumps(errors)))
        return reply

    def leaks(self, text: str, *, names: bool = True) -> set[str]:
        """The places whose canaries stand in a text."""
        results = {(kind.lower(), int(n)) for kind, n in ANY.findall(text)}
        return {self.places[n] for kind, n in results if names or kind == "kanari"}

    def leaks_in_errors(self) -> set[str]:
        """The places whose values came back in an error."""
        return {
            f"{place} in {request}"
            for request, text in self.refusals
            for place in self.leaks(text, names=False)
        }

    def filled(self, path: str) -> str:
        """A path whose parameters name something, where we know it; a session that is fresh, since
        one of the calls ends it."""
        if "{session_id}" in path:
            upload = {"user_id": "alice", "agent_id": "helper"}
            reply = self.gateway.call("POST", "/api/v1/sessions", upload, key=self.operator)
            self.known["session_id"] = reply.body["session_id"]
        return re.sub(r"{(\w+)\+?}", lambda m: self.known.get(m[1]) or self.value(path), path)

    def candidates(self, model: type[BaseModel], field: str, place: str) -> Iterator[object]:
        """Values for one field, of every type and shape there is in its model: some are right."""
        v, n = (lambda: self.value(place)), (lambda: self.name(place))
        yield from (
            v(),
            f" {v()} ",
            v() * 60,
            v() * 600,
            f"user:{v()}",
            f"agent:{v()}",
            f"text/{v()}",
        )
        yield from (f"user:{v()}\n", f"{v()}\0", f"{v()}\ud800", f"b{v()}"[:59].ljust(59, "a"))
        yield from (
            [v()],
            [f"user:{v()}", f"user:{v()}"],
            [f"user:{v()}"] * 300,
            {n(): v()},
            [v()] * 70,
        )
        yield from ({n(): {n(): [v(), 1e999]}}, {n(): v() * 3000}, [[v()]], f"2026-05-08 {v()}")
        yield from (7, -1, True, None, [], {})
        for definition in parts(model.model_json_schema(), field):
            yield from definition.get("enum", [])
            nested = {name: v() for name in definition.get("properties", {})}
            yield from (nested, [nested], [nested | {n(): v()}])
            yield from ([nested | {name: 7}] for name in nested)

    def variants(self, model: type[BaseModel], place: str) -> Iterator[object]:
        """Bodies of this model with canaries everywhere."""
        whole = WHOLE.get(model, lambda hunt: {})(self)
        yield whole
        for field in model.model_fields:
            for value in self.candidates(model, field, f"{place} {field}"):
                yield {**whole, field: value}
            yield {name: value for name, value in whole.items() if name != field}
        yield from ({**whole, self.name(place): self.value(place)}, [self.value(place)])
        yield self.value(place)


def parts(schema: dict[str, Any], field: str) -> list[dict[str, Any]]:
    """What a field's type is made of, at any depth."""
    results, todo = list[str](), [schema["properties"].get(field, {})]
    items: list[dict[str, Any]] = []
    while todo:
        items.append(todo.pop())
        names = re.findall(r"#/\$defs/(\w+)", str(items[-1]))
        todo += [schema["$defs"][name] for name in set(names) - set(results)]
        results += names
    return items


def _event(hunt: Hunt, **more: object) -> dict[str, object]:
    who = [f"user:{hunt.value('participants')}", f"agent:{hunt.value('participants')}"]
    event = user_message(hunt.value("content"), *who)
    for name in ("session_id", "channel", "source_event_key", "name"):
        event[name] = hunt.value(name)
    event["metadata"] = {hunt.name("metadata"): hunt.value("metadata")}
    return {**event, "speaker": who[0], "mime_type": f"text/{hunt.value('mime_type')}", **more}


WHOLE: Mapping[type[BaseModel], Callable[[Hunt], dict[str, Any]]] = {
    AppendRequest: _event,
    BatchRequest: lambda hunt: {"events": [_event(hunt), _event(hunt, role=hunt.value("role"))]},
    RecallRequest: lambda hunt: {"query": hunt.value("query")},
    SessionIn: lambda hunt: {
        "participants": [f"user:{hunt.value('participants')}", "agent:helper"],
        "session_id": hunt.value("session_id"),
        "metadata": {hunt.name("metadata"): hunt.value("metadata")},
    },
    InteractionIn: lambda hunt: {
        name: hunt.value(name)
        for name in ("user_message", "agent_response", "source_event_key", "channel")
    },
    SessionEventIn: lambda hunt: {
        name: value
        for name, value in _event(hunt).items()
        if name not in ("participants", "session_id", "speaker")
    },
    ChainSearchRequest: lambda hunt: {"query": hunt.value("query")},
    FindOrMakeSonaRequest: lambda hunt: {"name": hunt.value("sona")},
    SonaNamesPatch: lambda hunt: {"names": [hunt.value("sona")]},
    AnswerRequest: lambda hunt: {"query": hunt.value("question")},
    ChatRequest: lambda hunt: {
        "message": hunt.value("message"),
        "participants": [f"user:{hunt.value('participants')}", "agent:helper"],
        "metadata": {hunt.name("metadata"): hunt.value("metadata")},
    },
}
"""Bodies that are right but for what a variant changes; of other models all fields are left out."""


def routes() -> Iterator[tuple[str, str, Route]]:
    """Every operation as (method, path, route). MCP's tools are tried in test_mcp.py."""
    for fn in FUNCTIONS:
        if fn.routes and fn.protocol == "REST":
            module = importlib.import_module(f"functions.{fn.name}.handler")
            for name, route in module.ROUTES.items():
                method, path = name.split()
                yield method, path, route


def everywhere(hunt: Hunt, step: int) -> None:
    """Canaries into everything that every route declares; of a body's variants one of `step`."""
    for method, path, route in routes():
        place = f"{method} {path}"
        body = hunt.filled(path)
        whole = WHOLE.get(route.body, lambda hunt: {})(hunt) if route.body else None
        for parameter, many in re.findall(r"{(\w+)(\+?)}", path):
            strange = hunt.value(f"{place} {parameter}")
            one = path.replace(f"{{{parameter}{many}}}", strange)
            hunt.send(method, hunt.filled(one), whole)
        hunt.send(method, body, whole, key=hunt.bound)
        token = hunt.value(f"{place} API key")
        hunt.send(method, body, whole, key=token)
        hunt.send(method, body, whole, key=f"strandline_{token}")
        hunt.send(method, body, whole, key=None, headers={"Authorization": f"Bearer {token}"})
        own = (
            [str(field.alias) for field in route.headers.model_fields.values()]
            if route.headers
            else []
        )
        for name in (*HEADERS, *own):
            word = hunt.value(f"{place} {name}")
            for value in (word, f"{word}\u00e9", word * 100):
                hunt.send(method, body, whole, headers={name: value})
        if route.query:
            for name, info in route.query.model_fields.items():
                field = info.alias or name
                word = hunt.value(f"{place} ?{field}")
                for value in (word, word * 500, f"user:{word}", [word, f"user:{word}"]):
                    hunt.send(method, body, whole, query={field: value})
            hunt.send(method, body, whole, query={hunt.name(place): hunt.value(place)})
        if route.body:
            every_body(hunt, method, body, route.body, place, step)


def every_body(
    hunt: Hunt, method: str, path: str, model: type[BaseModel], place: str, step: int
) -> None:
    """The variants of a body, as two callers; what was taken once again under a key of another."""
    key = {"Idempotency-Key": hunt.value("Idempotency-Key")}
    for body in islice(hunt.variants(model, place), 0, None, step):
        reply = hunt.send(method, path, body)
        if reply.status == 201 and isinstance(body, dict):
            fields = cast("dict[str, object]", body)
            hunt.send(method, path, fields, key=hunt.bound)
            fields.pop("source_event_key", None)
            hunt.send(method, path, fields, headers=key)
    for raw in (f'{{"{hunt.value(place)}', f'{{"{hunt.name(place)}": 1}} {hunt.value(place)}'):
        hunt.send(method, path, raw=raw.encode())
    twice = hunt.name(place)
    hunt.send(method, path, raw=f'{{"{twice}": 1, "{twice}": "{hunt.value(place)}"}}'.encode())


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What any logger of this process writes; ours as our formatter writes it, metrics and all."""
    stream = io.StringIO()
    ours, everybody = logging.getLogger("strandline"), logging.getLogger()
    level, handlers = ours.level, [logging.StreamHandler(stream), logging.StreamHandler(stream)]
    handlers[0].setFormatter(logger.registered_formatter)
    ours.addHandler(handlers[0])
    everybody.addHandler(handlers[1])
    ours.setLevel(logging.DEBUG)
    yield stream
    ours.setLevel(level)
    ours.removeHandler(handlers[0])
    everybody.removeHandler(handlers[1])


@pytest.fixture
def words(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> WordEmbedder:
    """Every function's embedder."""
    del gateway  # which wired the handlers before
    embedder = WordEmbedder()
    for name in ("ingest", "query", "worker", "sweeper"):
        monkeypatch.setitem(service_of(name).__dict__, "embedder", embedder)
    # without a model an error would hold the block that its caller may put into a prompt
    monkeypatch.setitem(service_of("query").__dict__, "llm", ScriptedTasks())
    return embedder


@pytest.fixture
def hunt(
    gateway: Gateway, log: io.StringIO, words: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> Hunt:
    """A hunt in a fresh database, which no quota stops."""
    del words
    for name in ("REQUESTS", "APPENDS"):
        monkeypatch.setenv(f"STRANDLINE_TENANT_{name}_PER_MINUTE", "1000000000")
    get_settings.cache_clear()
    return Hunt(gateway, log)


def service_of(name: str) -> Resources:
    """What a function works with."""
    return importlib.import_module(f"functions.{name}.handler").resources


@pytest.mark.proof
def test_leak_canary_of_caller_is_in_no_error_or_log(
    hunt: Hunt,
    scratch_db: ScratchDatabase,
    capfd: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    server_log = scratch_db.server.directory / "postgres.log"
    before = server_log.stat().st_size
    everywhere(hunt, 1 if request.config.getoption("--full") else 7)
    hunt.gateway.sweep()
    print_out, print_err = capfd.readouterr()
    assert set(hunt.statuses) >= {200, 201, 400, 401, 404, 409, 422}
    assert not set(hunt.statuses) & {429, 500, 503}
    assert hunt.log.getvalue().count('"request"') > hunt.statuses.total()
    assert hunt.leaks_in_errors() == set()
    outputs = (hunt.log.getvalue(), print_out, print_err, server_log.read_text()[before:])
    assert [hunt.leaks(text) for text in outputs] == [set()] * 4
    print(f"\n{len(hunt.places)} canaries; answers by status: {dict(hunt.statuses)}")


def credentials(hunt: Hunt) -> Iterator[dict[str, Any]]:
    """JWTs in both headers and certificates, right and wrong, that say canaries."""
    v = hunt.value
    header = {"alg": "HS256", "kid": v("kid"), "typ": "JWT"}
    sign = hmac_by(SECRET.encode())
    results = [
        signed(header, claims(user_id=v("user_id"), scope=f"read write {v('scope')}"), sign),
        signed(header, claims(tenant_id=v("tenant_id"), sub=v("sub")), sign),
        signed(header, claims(user_id=f"{v('user_id')} "), sign),
        signed(header, claims(user_id=f"{v('user_id')}\ud800"), sign),
        signed(header, {**claims(user_id=v("user_id")), "scope": None}, sign),
        signed(header, claims(user_id=v("user_id"), exp=1), sign),
        signed(header, claims(iss=v("iss")), sign),
        signed(header, claims(aud=v("aud"), jti=v("jti")), sign),
        signed({**header, "typ": v("typ")}, claims(), sign),
        signed({**header, "alg": v("alg")}, claims(), sign),
        signed(header, claims(user_id=v("user_id")), hmac_by(b"another")),
        f"{v('a JWT')}.{v('a JWT')}.{v('a JWT')}",
    ]
    for token in results:
        hunt.secrets += [part for part in token.split(".") if len(part) > 20]
        yield {"headers": {"Authorization": f"Bearer {token}"}}
        yield {"headers": {"X-JWT-Token": token}}
    subject, issuer = f"CN={v('subject')},O={v('subject')}", f"CN={v('issuer')}"
    access = hunt.gateway.database.connect_as(Caller("acme", ()))
    certificates.add_certificate(access, AuditContext("a test"), subject=subject, label=v("label"))
    for name, ends in ((subject, 1), (f"CN={v('subject')}", 1), (subject, -1)):
        times = {"begins": timedelta(hours=-2), "ends": timedelta(hours=ends)}
        certificate_pem = certificate(name, issuer=issuer, **times)
        hunt.secrets.append(ssl.DER_cert_to_PEM_cert(certificate_pem).split("\n")[3])
        yield {"certificate": certificate_pem}


def test_leak_canary_of_credential_is_in_no_error_or_log(
    hunt: Hunt,
    scratch_db: ScratchDatabase,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """JWTs and certificates: neither their words nor they themselves."""
    ways = {"JWT_SECRET": SECRET, "JWT_ISSUER": ISSUER, "JWT_AUDIENCE": AUDIENCE}
    ways |= {"CLIENT_CERTIFICATES": "true"}
    fields = {f"STRANDLINE_{name}": value for name, value in ways.items()}
    services = wire_handlers(fields, monkeypatch, embedder)
    server_log = scratch_db.server.directory / "postgres.log"
    before = server_log.stat().st_size
    for more in credentials(hunt):
        for method, path in (("GET", "/memories/list"), ("GET", "/api/v1/health")):
            hunt.send(method, path, key=None, **more)
        hunt.send("POST", PATH, _event(hunt), key=None, **more)
        hunt.send("POST", PATH, {"content": "x"}, key=None, **more)
    for service in services:
        service.database.close()
    assert set(hunt.statuses) >= {200, 401, 403, 422}
    assert not set(hunt.statuses) & {500, 503}
    assert hunt.leaks_in_errors() == set()
    document_text = json.dumps(hunt.refusals)
    outputs = (hunt.log.getvalue(), *capfd.readouterr(), server_log.read_text()[before:])
    assert [hunt.leaks(text) for text in outputs] == [set()] * 4
    assert not [one for one in hunt.secrets for text in (document_text, *outputs) if one in text]


def failing(hunt: Hunt) -> None:
    """A request of each kind, with canaries, and a sweep, where something fails."""
    hunt.send("POST", PATH, _event(hunt))
    hunt.send("POST", PATH, _event(hunt, content=hunt.value("large content") * 7000))
    hunt.send("POST", f"{PATH}/batch", {"events": [_event(hunt), _event(hunt)]})
    hunt.send("POST", "/api/v1/insert", _event(hunt))
    hunt.send("POST", "/api/v1/recall", {"query": hunt.value("query")})
    hunt.send("POST", "/api/v1/context", {"query": hunt.value("question")})
    hunt.send("POST", "/api/v1/references/query", {"query": hunt.value("question")})
    hunt.send("POST", f"{PATH}/query", {"text": hunt.value("text")})
    who = {"participants": [f"user:{hunt.name('the fact')}"]}
    fact = {"type": "fact", "content": hunt.value("fact")}
    hunt.send("POST", "/api/v1/graph/nodes", {**who, "nodes": [fact]})
    hunt.send("POST", "/api/v1/graph/search", {"query": hunt.value("question")})
    hunt.send("POST", "/api/v1/graph/conflicts", {"content": hunt.value("statement")})
    hunt.send("POST", "/api/v1/graph/imports", {"content": hunt.value("file")})
    file = tell_entity(hunt.name("the entity"), ["user:the importer"])
    hunt.send("POST", "/api/v1/graph/imports", {"content": file.decode()})
    topic = f"/api/v1/graph/topics/topic:{uuid.uuid4()}/fields"
    hunt.send("POST", f"{topic}/state", {**who, "value": hunt.value("value")})
    hunt.send("POST", "/api/v1/sonas", {"name": hunt.value("sona")})
    hunt.send("POST", "/api/v1/query", {"query": hunt.value("question")})
    chat = {"participants": [f"user:{hunt.name('the chat')}", "agent:helper"]}
    hunt.send("POST", "/api/v1/chat", {**chat, "message": hunt.value("message")})
    hunt.send("GET", f"/memory/{hunt.value('cid')}")
    with contextlib.suppress(StrandlineError, EndpointConnectionError):
        hunt.gateway.sweep()


def test_leak_canary_is_in_no_error_or_log_on_failure(
    hunt: Hunt,
    scratch_db: ScratchDatabase,
    words: WordEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A model that raises with the text in its words, payloads away, a fault of ours, a row that
    the database refuses and quotes, and the database away."""
    server_log = scratch_db.server.directory / "postgres.log"
    before = server_log.stat().st_size

    def quote(texts: Any) -> None:
        raise RuntimeError(f"this text is odd: {texts}") from ValueError(texts)

    def refuse(*_: object, **__: object) -> str:
        return "no-such-origin"

    def fail(*args: object, **__: object) -> Any:
        raise RuntimeError(f"the row holds {args}")

    words.before_embed = quote
    failing(hunt)
    words.before_embed = lambda texts: None
    with monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
        for name in ("ingest", "worker"):
            patch.setitem(service_of(name).__dict__, "blobs", BlobStore("none"))
            patch.setitem(
                service_of(name).__dict__, "work_queue", WorkQueue("http://127.0.0.1:1/q")
            )
        failing(hunt)
    for place, fault in (
        ("strandline.log.event_draft._derive_origin", refuse),
        ("strandline.log.store.append_events", fail),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, fault)
            failing(hunt)
    with monkeypatch.context() as patch:
        for name in ("ingest", "query", "worker"):
            away = Database("postgresql://strandline_app@127.0.0.1:1/none")
            patch.setitem(service_of(name).__dict__, "database", away)
        failing(hunt)
    assert set(hunt.statuses) >= {201, 500, 503}
    assert "23514" in hunt.log.getvalue(), "the database refused a row"
    assert hunt.leaks_in_errors() == set()
    outputs = (hunt.log.getvalue(), *capfd.readouterr(), server_log.read_text()[before:])
    assert [hunt.leaks(text) for text in outputs] == [set()] * 4


def test_leak_canary_is_in_no_error_without_language_model(
    hunt: Hunt, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """That error holds the block for a prompt: of what is stored, which is nothing here, and not of
    the request."""
    monkeypatch.delitem(service_of("query").__dict__, "llm")
    who = [f"user:{hunt.name('the chat')}", "agent:helper"]
    readers: tuple[dict[str, object], ...] = ({}, {}, {"participants": who})
    for reader in readers:
        body = {"query": hunt.value("question"), **reader}
        query = {} if reader else {"everybody": "true"}
        hunt.send("POST", "/api/v1/query", body, query=query)
    chat = {"participants": who, "message": hunt.value("message"), "sona": hunt.value("sona")}
    fields = {"session_id": hunt.name("the session"), "metadata": {"note": hunt.value("note")}}
    key = {"Idempotency-Key": hunt.value("Idempotency-Key")}
    for more in ({}, fields):
        hunt.send("POST", "/api/v1/chat", {**chat, **more}, headers=key)
    assert (set(hunt.statuses), hunt.statuses.total()) == ({409}, 5)
    assert all('"block": "<memory-' in text for _, text in hunt.refusals)
    assert hunt.leaks_in_errors() == set()
    assert [hunt.leaks(text) for text in (hunt.log.getvalue(), *capfd.readouterr())] == [set()] * 3


def test_leak_canary_is_in_no_queue_or_dead_letter_message(
    hunt: Hunt, aws: LocalAws, words: WordEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a model that raises with the text in its words, and a database that stays away."""
    monkeypatch.setattr(event_sources, "POLL_SECONDS", 0)
    monkeypatch.setattr(event_sources, "RETRY_SECONDS", 0)
    ids: list[str] = []
    worker = importlib.import_module("functions.worker.handler").lambda_handler

    def watch(event: Any, context: Any) -> Any:
        ids.append(json.dumps(event))
        return worker(event, context)

    def quote(texts: Any) -> None:
        raise OSError(f"this text is odd: {texts}")  # what would come again is decided

    words.before_embed = quote
    hunt.send("POST", PATH, _event(hunt))
    hunt.send("POST", f"{PATH}/batch", {"events": [_event(hunt), _event(hunt)]})
    poller, dead, until = (
        QueuePoller(aws.work_queue_url, watch),
        list[str](),
        time.monotonic() + 20,
    )
    with closing(make_local_client("sqs")) as sqs, monkeypatch.context() as patch:
        poller.start()
        while "scopes postponed" not in hunt.log.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
        away = Database("postgresql://strandline_app@127.0.0.1:1/none")
        patch.setitem(service_of("worker").__dict__, "database", away)
        hunt.send("POST", PATH, _event(hunt))
        query = {"QueueUrl": aws.work_dead_letter_url, "MaxNumberOfMessages": 10}
        more = {"MessageAttributeNames": ["All"], "MessageSystemAttributeNames": ["All"]}
        while not dead and time.monotonic() < until:
            dead += [
                json.dumps(m) for m in sqs.receive_message(**query, **more).get("Messages", [])
            ]
            time.sleep(0.05)
        poller.stop()
    assert ids
    assert dead
    assert hunt.leaks("".join(ids + dead)) == set()
    assert hunt.leaks(hunt.log.getvalue()) == set()


def test_leak_canary_check_finds_error_that_quotes_value(
    hunt: Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: participants are told back."""

    def quoting(name: str, field: str = "participants") -> str:
        if "wrong" in name:
            raise Invalid(f"{field}: {name!r} is no participant", field=field)
        return name

    monkeypatch.setattr(participants, "normalize_participant", quoting)
    hunt.send("POST", PATH, _event(hunt, participants=[f"wrong {hunt.value('participants')}"]))
    assert hunt.leaks_in_errors() == {f"participants in POST {PATH}"}


def test_leak_canary_check_finds_log_line_that_quotes_value(
    hunt: Hunt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: somebody logs what is embedded."""
    hunt.send("POST", PATH, _event(hunt))
    words = service_of("worker").embedder
    assert isinstance(words, WordEmbedder)
    words.before_embed = lambda texts: logger.info("embedding", extra={"texts": texts})
    hunt.gateway.sweep()
    assert "content" in hunt.leaks(hunt.log.getvalue())
