"""Four writers at once, in processes of their own: the append service function, the handler, and
the bare transaction that an append cannot do without, by turns."""

import itertools
import multiprocessing
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import SpawnProcess
from statistics import median

import psycopg

from strandline.auth.principals import Principal
from strandline.http.writer import WriterResources
from strandline.log.append import append
from strandline.resources import Resources
from tests.bench.baseline_postgres import BarePostgres
from tests.bench.cost_sides import handler_call, log_to_nowhere
from tests.bench.locomo import Conversation
from tests.bench.strandline_system import Strandline
from tests.support import APP, PASSWORDS

WRITERS = 4
SCOPES = 1000
TENANT = "writers"
KINDS = ("append", "handler", "bare")
_PREPARED = 6000
"""Calls a writer has ready in a round: more than it gets done."""

# What no append can do without: a scope's next seq under its row lock, a key that is stored once,
# row-level security in force, in the driver's own transaction with one pipeline. No text, no words,
# no edges, no answer but the seq.
BARE_TABLES = """
create table logs (tenant text, scope int, last_seq bigint not null default 0,
    primary key (tenant, scope)) with (fillfactor = 70);
create table log_events (tenant text, scope int, seq bigint, channel text, key text, body text,
    recorded_at timestamptz default now(), primary key (tenant, scope, seq),
    unique (tenant, channel, key));
alter table logs enable row level security;
alter table logs force row level security;
alter table log_events enable row level security;
alter table log_events force row level security;
create policy own on logs using (tenant = nullif(current_setting('bench.tenant', true), ''));
create policy own on log_events using (tenant = nullif(current_setting('bench.tenant', true), ''));
grant select, insert, update on logs, log_events to strandline_app;
"""
_TENANT = "select set_config('bench.tenant', %s, true)"
_TRANSACTION = """
with taken as (
    update logs set last_seq = last_seq + 1
    where tenant = %(tenant)s and scope = %(scope)s returning last_seq)
insert into log_events (tenant, scope, seq, channel, key, body)
select %(tenant)s, %(scope)s, last_seq, 'http', %(key)s, %(body)s from taken returning seq
"""


@dataclass(frozen=True)
class Place:
    """What a writer needs: where the bare tables are, an API key, and what to say."""

    bare_url: str
    key: str
    texts: Sequence[str]


def prepare_run(ours: Strandline, bare: BarePostgres, conversation: Conversation) -> Place:
    """Both sides with their scopes made; ours have work waiting, as scopes in use do."""
    bare.connection.execute(BARE_TABLES)
    bare.connection.execute(
        "insert into logs select %s, scope from generate_series(0, %s) scope", (TENANT, SCOPES - 1)
    )
    bare.connection.execute("vacuum analyze logs")
    key = ours.gateway.key(TENANT)
    for scopes in itertools.batched(range(SCOPES), 500, strict=True):
        events = [_body(f"first {scope}", scope, "Hello.") for scope in scopes]
        handler_call("/api/v1/events/batch", {"events": events}, key)()
    ours.base.rows("vacuum analyze")
    texts = [turn.text for turn in conversation.turns]
    return Place(ours.base.server.dsn(bare.connection.info.dbname, APP, PASSWORDS[APP]), key, texts)


def rates(place: Place, *, rounds: int, seconds: float) -> dict[str, float]:
    """Events a second of four writers at each kind: medians of rounds, in which the kinds take
    turns; and what share of the bare rate is ours."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Pipe] = []
    writers: list[SpawnProcess] = []
    for number in range(WRITERS):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        writer = context.Process(target=_work, args=(theirs, number, place), daemon=True)
        writer.start()
        writers.append(writer)
    results: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for n in range(rounds + 1):
        for kind in KINDS:
            rate = _round(pipes, f"{kind} {n}", seconds if n else seconds / 2)
            if n:  # the first is for warming up
                results[kind].append(rate)
    for pipe, writer in zip(pipes, writers, strict=True):
        pipe.send(None)
        writer.join()
    per_second = {kind: round(median(of_kind)) for kind, of_kind in results.items()}
    ratios = {
        f"{kind}_share": round(per_second[kind] / per_second["bare"], 3) for kind in KINDS[:2]
    }
    return {**per_second, **ratios}


def _round(pipes: Sequence[Pipe], name: str, seconds: float) -> float:
    for pipe in pipes:
        pipe.send(name)
    for pipe in pipes:
        pipe.recv()  # ready
    for pipe in pipes:
        pipe.send(seconds)
    return sum(float(pipe.recv()) for pipe in pipes)


def _work(pipe: Pipe, number: int, place: Place) -> None:
    """A writer's life: make calls ready, say so, be told for how long, tell the rate."""
    service = Resources()
    with (
        log_to_nowhere(),
        psycopg.connect(place.bare_url, autocommit=True) as bare,
        closing(service.database),
    ):
        makers: Mapping[str, Callable[[str, int, str], Callable[[], object]]] = {
            "append": lambda key, scope, text: _append(service, key, scope, text),
            "handler": lambda key, scope, text: handler_call(
                "/api/v1/events", _body(key, scope, text), place.key
            ),
            "bare": lambda key, scope, text: _bare(bare, key, scope, text),
        }
        while (name := pipe.recv()) is not None:
            chance = random.Random(f"{name} {number}")
            make = makers[name.partition(" ")[0]]
            calls = [
                make(f"{name} {number} {n}", chance.randrange(SCOPES), chance.choice(place.texts))
                for n in range(_PREPARED)
            ]
            pipe.send("ready")
            pipe.send(_rate(calls, pipe.recv()))


def _rate(calls: Sequence[Callable[[], object]], seconds: float) -> float:
    """Calls done a second."""
    began = time.perf_counter()
    done_count = 0
    for call in calls:
        if time.perf_counter() - began > seconds:
            break
        call()
        done_count += 1
    return done_count / (time.perf_counter() - began)


def _body(key: str, scope: int, text: str) -> dict[str, object]:
    message: dict[str, object] = {
        "participants": ["agent:helper", f"user:{scope}"],
        "role": "user",
        "content": text,
    }
    return {**message, "source_event_key": key}


def _append(service: Resources, key: str, scope: int, text: str) -> Callable[[], object]:
    body = _body(key, scope, text)
    principal = Principal(TENANT, None, frozenset({"write"}))
    writer = WriterResources.from_resources(service, principal)

    def call() -> None:
        (result,) = append(writer, [(body, None)])
        if not result.is_new:
            raise RuntimeError(f"not stored: {result.error!r}")

    return call


def _bare(
    connection: psycopg.Connection[tuple[object, ...]], key: str, scope: int, text: str
) -> Callable[[], object]:
    params = {"tenant": TENANT, "scope": scope, "key": key, "body": text}

    def call() -> None:
        with connection.transaction(), connection.pipeline():
            connection.execute(_TENANT, (TENANT,))
            rows = connection.execute(_TRANSACTION, params)
        if rows.fetchone() is None:
            raise RuntimeError("not stored")

    return call
