"""The two sides of the cost of a call, and how each is called."""

import functools
import importlib
import itertools
import json
import logging
import os
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from strandline.embeddings.embedder import Embedder
from strandline.function_specs import FUNCTIONS
from strandline.local.lambda_context import LambdaContext
from strandline.local.proxy_event import HttpRequest, PathRouter, make_proxy_event
from strandline.observability import logger
from tests.bench.baseline_postgres import SEARCH, STORE, STORE_NEXT, TAKE, rows_of
from tests.bench.cost import Call
from tests.bench.locomo import DEPTH, Conversation, Turn
from tests.bench.strandline_system import Strandline, event_of

Row = Mapping[str, object]


def handler_call(path: str, body: object, key: str) -> Callable[[], dict[str, Any]]:
    """A call of the real handler with the event that API Gateway would send for a POST."""
    match = _routes().find(path)
    assert match is not None, path
    handler = match.resource.methods["POST"]
    request = HttpRequest(
        method="POST",
        path=path,
        query="",
        headers=[("Content-Type", "application/json"), ("X-API-Key", key)],
        body=json.dumps(body).encode(),
        client="127.0.0.1",
        port=80,
        protocol="HTTP/1.1",
        request_id=str(uuid.uuid4()),
    )
    event = json.loads(json.dumps(make_proxy_event(request, match)))

    def call() -> dict[str, Any]:
        answer = handler(event, LambdaContext("bench", 29))
        if answer["statusCode"] not in (200, 201):
            raise RuntimeError(f"{answer['statusCode']}: {answer['body'][:500]}")
        return answer

    return call


@functools.cache
def _routes() -> PathRouter:
    return PathRouter(
        {
            route: importlib.import_module(f"functions.{fn.name}.handler").lambda_handler
            for fn in FUNCTIONS
            if fn.name in ("ingest", "query")
            for route in fn.routes
        }
    )


@contextmanager
def log_to_nowhere() -> Generator[None]:
    """The service writes its line a request, as it does in Lambda, and nobody reads it."""
    handler: Any = logger.registered_handler
    level = logger.log_level
    with Path(os.devnull).open("w") as nowhere:
        before = handler.setStream(nowhere)
        logger.setLevel(logging.INFO)
        try:
            yield
        finally:
            handler.setStream(before)
            logger.setLevel(level)


class StrandlineSide:
    """The real handlers, called with real events. A conversation is one tenant's only scope; its
    first append also sends the message of a scope that turned dirty, the others find it dirty."""

    def __init__(self, system: Strandline, speakers: Sequence[str]) -> None:
        self._system = system
        self._people = [f"user:{name}" for name in speakers]

    def writes(self, lane: str, turns: Sequence[Turn], size: int) -> list[Call]:
        """Through POST /events, or /events/batch."""
        key = self._system.gateway.key(lane)
        events = [
            event_of(turn, self._people) | {"source_event_key": f"{n} {turn.key}"}
            for n, turn in enumerate(turns)
        ]
        if size == 1:
            return [handler_call("/api/v1/events", event, key) for event in events]
        return [
            handler_call("/api/v1/events/batch", {"events": part}, key)
            for part in itertools.batched(events, size, strict=False)
        ]

    def searches(self, lane: str, conversation: Conversation) -> list[Call]:
        """Through POST /recall."""
        key = self._system.gateway.key(lane)
        for call in self.writes(lane, conversation.turns, 100):
            call()
        self._system.embed()
        questions = [
            handler_call(
                "/api/v1/recall",
                {"query": question.text, "participants": self._people, "limit": DEPTH},
                key,
            )
            for question in conversation.questions
        ]
        for call in questions:  # its vector is known from here on
            if json.loads(call()["body"])["degraded"]:
                raise RuntimeError("recall was degraded: nothing to time")
        return [*questions]

    def analyze(self) -> None:
        """All tables."""
        self._system.base.rows("vacuum analyze")


class BareSide:
    """Plain statements on one table, prepared by the driver.

    In order, it does what no log can do without: a turn's place is taken under the lock of its
    conversation. Else the caller gives places, and the turn before each: a plain insert.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], embedder: Embedder, *, in_order: bool = True
    ) -> None:
        self._connection = connection
        self._embedder = embedder
        self._in_order = in_order

    def writes(self, lane: str, turns: Sequence[Turn], size: int) -> list[Call]:
        """One statement; or, in one transaction, many in one pipeline."""
        lane = f"{lane} {self._in_order}"
        self._connection.execute("insert into conversations values (%s)", (lane,))

        def store(part: Sequence[Row]) -> Call:
            return lambda: self._store(part)

        rows = rows_of(lane, turns)
        return [store(part) for part in itertools.batched(rows, size, strict=False)]

    def searches(self, lane: str, conversation: Conversation) -> list[Call]:
        """One statement that gives the turns themselves."""
        lane = f"{lane} {self._in_order}"
        rows = rows_of(lane, conversation.turns)
        vectors = self._embedder.embed([str(row["dated"]) for row in rows], timeout=60.0)
        pairs = zip(rows, vectors, strict=True)
        self._store([{**row, "embedding": str(vector)} for row, vector in pairs])

        def ask(question: str) -> Call:
            vector = str(self._embedder.embed([question], timeout=60.0, purpose="question")[0])
            params = {"conversation": lane, "question": question, "embedding": vector}
            return lambda: self._connection.execute(
                _SEARCH_QUERY, {**params, "limit": DEPTH}
            ).fetchall()

        return [ask(question.text) for question in conversation.questions]

    def analyze(self) -> None:
        """Its one table."""
        self._connection.execute("vacuum analyze turns")

    def _store(self, part: Sequence[Row]) -> None:
        if len(part) == 1:
            self._connection.execute(STORE_NEXT if self._in_order else STORE, part[0])
            return
        with self._connection.transaction(), self._connection.cursor() as cursor:
            if self._in_order:
                cursor.execute(TAKE, {**part[0], "count": len(part)})
            cursor.executemany(STORE, part)


_SEARCH_QUERY = (
    "with found as (" + SEARCH + ")"  # noqa: S608 - constants of ours
    " select t.position, t.key, t.session, t.speaker, t.said_at, t.recorded_at, t.text, found.score"
    " from found join turns t on t.conversation = %(conversation)s and t.position = found.position"
    " order by found.score desc, t.position"
)
