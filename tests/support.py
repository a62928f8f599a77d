"""What tests share: a migrated database a test, and the real handlers behind real proxy events."""

import base64
import contextlib
import importlib
import json
import secrets
import uuid
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
from botocore.config import Config
from psycopg import sql

from strandline.admin.keys import NewKey, make_key
from strandline.aws import client_factory
from strandline.aws.run_requests import MIN_SPACING
from strandline.config import ServiceSettings, get_settings
from strandline.db.database import Caller, Database
from strandline.db.migrate import migrate, prepare_roles
from strandline.embeddings.embedder import Purpose
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.function_specs import FUNCTIONS, route_table
from strandline.jobs import multi_tenant_runs
from strandline.jobs.runner import ShardFailed
from strandline.local.lambda_context import LambdaContext
from strandline.local.postgres import EmbeddedPostgres
from strandline.local.proxy_event import HttpRequest, PathRouter, make_proxy_event
from strandline.local.tls import make_client_cert_of_event
from strandline.resources import Resources
from tests.connections import SESSIONS

KEY_SECRET = "a deployment secret that only tests know"
NO_LIMITS_SETTINGS = ServiceSettings(
    database_url="",
    bucket="",
    key_secret=KEY_SECRET,
    tenant_requests_per_minute=10**9,
    tenant_appends_per_minute=10**9,
)
"""Settings for anyone who is not to meet a quota: of their rates, no more is read."""
OWNER, APP = "strandline_owner", "strandline_app"
PASSWORDS = {OWNER: "owner-password", APP: "app-password"}
TEMPLATE = "strandline_template"


def make_template(server: EmbeddedPostgres, name: str = TEMPLATE) -> None:
    """A database with roles and every migration, run as the owner: no superuser."""
    with psycopg.connect(server.dsn(), autocommit=True) as administrator:
        administrator.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    with psycopg.connect(server.dsn(name), autocommit=True) as administrator:
        prepare_roles(administrator, PASSWORDS)
    with psycopg.connect(server.dsn(name, OWNER, PASSWORDS[OWNER]), autocommit=True) as owner:
        migrate(owner)


@dataclass(frozen=True)
class ScratchDatabase:
    """One test's own database."""

    server: EmbeddedPostgres
    name: str

    @property
    def url(self) -> str:
        """As the application role."""
        return self.server.dsn(self.name, APP, PASSWORDS[APP])

    @property
    def owner_url(self) -> str:
        """As the owner of the tables."""
        return self.server.dsn(self.name, OWNER, PASSWORDS[OWNER])

    @property
    def admin_url(self) -> str:
        """As the superuser, who sees everything: for looking, never for the code under test."""
        return self.server.dsn(self.name)

    def rows(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """What really lies in the database."""
        with SESSIONS.connect(self.admin_url) as administrator:
            cursor = administrator.execute(statement.encode(), params)
            gives_rows = cursor.pgresult is not None and cursor.pgresult.status == 2
            return cursor.fetchall() if gives_rows else []  # 2 is libpq's PGRES_TUPLES_OK

    def count_rows_read(self) -> int:
        """Rows of all tables that sessions have read and reported: when they end, or when told to
        by `pg_stat_force_next_flush()`."""
        ((count,),) = self.rows(
            "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint"
            " from pg_stat_user_tables"
        )
        return count


@dataclass(frozen=True)
class Reply:
    """A handler's answer, with its body parsed where it is JSON."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def body(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> Any:
        return self.body["error"]


type Tell = Callable[..., Any]
"""The fixture `tell`."""


class Gateway:
    """The real handlers, called with the events that API Gateway would send. Safe for threads."""

    def __init__(self, database_url: str) -> None:
        self.database = Database(database_url)
        self._routes = PathRouter(
            {
                route: importlib.import_module(f"functions.{name}.handler").lambda_handler
                for route, name in route_table().items()
            }
        )

    def key(self, tenant: str = "acme", user: str | None = None, **options: Any) -> str:
        """A fresh API key's token."""
        return self.new_key(tenant, user, **options).token

    def new_key(self, tenant: str = "acme", user: str | None = None, **options: Any) -> NewKey:
        """A fresh API key."""
        access = self.database.connect_as(Caller(tenant, ()))
        return make_key(access, KEY_SECRET, user=user, **options)

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        certificate: bytes | None = None,
    ) -> Reply:
        """One request. `raw` is sent as it is, instead of `body` as JSON; `certificate` is what
        the handshake proved, as DER."""
        handler, event = self._prepare(
            method,
            path,
            body,
            key=key,
            query=query,
            headers=headers,
            raw=raw,
            certificate=certificate,
        )
        result = handler(event, LambdaContext("test", 29))
        text = result["body"]
        if result["isBase64Encoded"] and "json" in result["headers"]["Content-Type"]:
            text = base64.b64decode(text).decode()  # as API Gateway does with all of them
        return Reply(result["statusCode"], result["headers"], text)

    def make_event(self, method: str, path: str, body: object, **more: Any) -> dict[str, Any]:
        """The event of a request, as `call` would send it."""
        return self._prepare(method, path, body, **more)[1]

    def _prepare(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        key: str | None = None,
        query: Mapping[str, object] | None = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
        certificate: bytes | None = None,
    ) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The handler of a request, and its event."""
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            all_headers["X-API-Key"] = key
        request = HttpRequest(
            method=method,
            path=path,
            query=urlencode(query or {}, doseq=True, errors="surrogateescape"),
            headers=list(all_headers.items()),
            body=data,
            client="127.0.0.1",
            port=80,
            protocol="HTTP/1.1",
            request_id=str(uuid.uuid4()),
            certificate=make_client_cert_of_event(certificate) if certificate else None,
        )
        match = self._routes.find(path)
        assert match is not None, f"no route for {path}"
        handler = match.resource.handler(method)
        assert handler is not None, f"no route for {method} {path}"
        return handler, json.loads(json.dumps(make_proxy_event(request, match)))

    def sweep(self) -> dict[str, Any]:
        """A sweep of everything that is due."""
        return self.run_job("sweeper")

    def run_job(self, job: str, tenant: str | None = None) -> dict[str, Any]:
        """A run of a job as the state machine does it, its shards one by one; each fails alone."""
        handler = importlib.import_module(f"functions.{job}.handler")
        run_id = str(uuid.uuid4())

        def step(verb: str, **fields: object) -> dict[str, Any]:
            event = {"verb": verb, "run": run_id, "input": {**fields, "job": job}}
            return handler.lambda_handler(event, LambdaContext(job, 900))

        if not step("plan", tenant=tenant)["shards"]:
            return {}
        for item in planned_items(run_id):
            with contextlib.suppress(ShardFailed):
                step("shard", **item)
        return step("finish")


def planned_items(run: str) -> list[dict[str, Any]]:
    """The items of a run, as the state machine reads them from the bucket."""
    s3 = client_factory.make_client("s3", Config())
    shards = s3.get_object(Bucket=get_settings().bucket, Key=f"_jobs/{run}/shards.json")
    return json.loads(shards["Body"].read())


def begin_run(database: Database, kind: str, run: str, shards: int, now: datetime) -> bool:
    """Begin a run's job in acme, as its plan would; False where it belongs to another run. Outside
    of a transaction."""
    (outcome,) = multi_tenant_runs.begin_run_in_one_transaction(
        database.connection(), kind, run, {"acme": shards}, now
    )
    assert outcome.error is None, outcome
    return outcome.is_claimed


class NullJobQueue:
    """A queue of runs that nobody listens to."""

    spacing = MIN_SPACING

    def start_run(self, job: str, tenant: str, run: str) -> None:
        """Told, and forgotten."""

    def request_run(self, job: str, due: datetime, now: datetime) -> bool:
        """Told, and forgotten."""
        return True

    def is_run_requested(self, job: str, now: datetime) -> bool:
        """Nobody comes."""
        return False


class CachedEmbedder:
    """The English model that ships. It embeds no text twice: a text has the same vector whatever it
    is embedded with, and as a question. One thread: the tests' processes use all cores, and idle
    threads of the model spin."""

    space, dimensions = EnglishEmbedder.space, EnglishEmbedder.dimensions

    def __init__(self) -> None:
        self._model = EnglishEmbedder(threads=1)
        self._vectors: dict[str, array[float]] = {}

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """A vector for each text."""
        missing = list(dict.fromkeys(text for text in texts if text not in self._vectors))
        vectors = self._model.embed(missing, timeout=timeout)
        self._vectors.update(
            (text, array("f", vector)) for text, vector in zip(missing, vectors, strict=True)
        )
        return [list(self._vectors[text]) for text in texts]


def wire_handlers(
    environment: Mapping[str, str], monkeypatch: Any, embedder: object
) -> list[Resources]:
    """Give every handler a fresh service under these settings, sharing one loaded model."""
    services: list[Resources] = []
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    for name in [fn.name for fn in FUNCTIONS if "database" in fn.needs]:
        service = Resources()
        service.__dict__ |= {"embedder": embedder, "job_queue": NullJobQueue()}
        services.append(service)
        monkeypatch.setattr(
            importlib.import_module(f"functions.{name}.handler"), "resources", service
        )
    return services


def user_message(text: str, *participants: str, **fields: object) -> dict[str, object]:
    """A user's message among `participants` (by default alice and her helper)."""
    return {
        "participants": list(participants) or ["user:alice", "agent:helper"],
        "role": "user",
        "content": text,
        **fields,
    }


def unique_name() -> str:
    """A database name that no other test has."""
    return f"t_{secrets.token_hex(6)}"


EVENTS = Path(__file__).parent.parent / "events"
