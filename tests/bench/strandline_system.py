"""Strandline as its users meet it: every turn through the API, every question to recall."""

import itertools
import logging
import os
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from strandline.config import PREFIX
from strandline.embeddings.embedder import Embedder
from strandline.local.aws import LocalAws
from strandline.local.postgres import EmbeddedPostgres
from strandline.observability import logger
from strandline.resources import Resources
from tests.bench.locomo import DEPTH, Conversation, Turn, TurnId
from tests.support import KEY_SECRET, Gateway, Reply, ScratchDatabase, make_template, wire_handlers

NAME = "strandline"
BATCH = 100
EMBEDDING_SECONDS = 1200.0
"""For one corpus; many times what two cores take that have other work."""


class Strandline:
    """The real handlers over one database; every conversation is a tenant of its own."""

    def __init__(
        self, gateway: Gateway, base: ScratchDatabase, services: Sequence[Resources]
    ) -> None:
        self.gateway = gateway
        self.base = base
        self.services = services

    def ranked(self, conversation: Conversation) -> Iterator[Sequence[TurnId]]:
        """Store and embed a conversation, then give the hits for each of its questions."""
        key = self.gateway.key(conversation.name.lower())
        people = [f"user:{name}" for name in conversation.speakers]
        turns = self.store(conversation, key)
        self.embed()
        for question in conversation.questions:
            query = {
                "query": question.text,
                "participants": people,
                "limit": DEPTH,
                "min_relevance": 0,
            }
            answer = _check_status(self.gateway.call("POST", "/api/v1/recall", query, key=key)).body
            if answer["degraded"] or answer["not_yet_embedded"]:
                raise RuntimeError(f"recall was degraded ({answer['degraded']}): nothing to score")
            yield [turns[hit["event_id"]] for hit in answer["hits"]]

    def store(self, conversation: Conversation, key: str) -> dict[str, TurnId]:
        """Every turn as an event, in batches; gives which turn an event is."""
        people = [f"user:{name}" for name in conversation.speakers]
        rows: dict[str, TurnId] = {}
        for turns in itertools.batched(conversation.turns, BATCH, strict=False):
            body = {"events": [event_of(turn, people) for turn in turns]}
            reply = _check_status(self.gateway.call("POST", "/api/v1/events/batch", body, key=key))
            if reply.body["failed"]:
                raise RuntimeError(f"not every turn was stored: {reply.text[:500]}")
            for turn, result in zip(turns, reply.body["results"], strict=True):
                rows[result["event"]["event_id"]] = turn.turn_id
        return rows

    def embed(self) -> None:
        """Let the worker work until nothing is due."""
        deadline = time.monotonic() + EMBEDDING_SECONDS
        while self.base.rows("select from scope_work limit 1"):
            if time.monotonic() > deadline:
                raise RuntimeError(f"not everything is embedded after {EMBEDDING_SECONDS:.0f} s")
            self.gateway.sweep()

    def fold(self) -> None:
        """Fold everything that is stored, and close all lanes, whatever the time."""
        while self.base.rows(
            "select from lanes union all select from scopes where folded_seq < last_seq limit 1"
        ):
            self.base.rows("update lanes set idle_at = now() - interval '1 second'")
            self.embed()
            self.gateway.sweep()


@contextmanager
def open_strandline(
    server: EmbeddedPostgres, embedder: Embedder, directory: Path, name: str = NAME
) -> Generator[Strandline]:
    """The service on a database of its own, without any setting of this machine."""
    base = ScratchDatabase(server, name)
    make_template(server, name)
    logger.setLevel(logging.WARNING)  # a line a request would bury the table
    with LocalAws(directory / "aws") as aws, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(PREFIX)]:
            patch.delenv(name)
        environment = {
            "STRANDLINE_DATABASE_URL": base.url,
            "STRANDLINE_BUCKET": aws.bucket,
            "STRANDLINE_WORK_QUEUE_URL": aws.work_queue_url,
            "STRANDLINE_KEY_SECRET": KEY_SECRET,
            # A busy machine must not turn into lower quality; how long it takes is another bench.
            "STRANDLINE_QUERY_VECTOR_SECONDS": "20",
            "STRANDLINE_TENANT_REQUESTS_PER_MINUTE": str(10**9),
            "STRANDLINE_TENANT_APPENDS_PER_MINUTE": str(10**9),
        }
        services = wire_handlers(environment, patch, embedder)
        gateway = Gateway(base.url)
        try:
            yield Strandline(gateway, base, services)
        finally:
            for database in [gateway.database, *(service.database for service in services)]:
                database.close()


def event_of(turn: Turn, people: Sequence[str]) -> dict[str, Any]:
    """A turn as the API takes it."""
    return {
        "participants": people,
        "speaker": f"user:{turn.speaker}",
        "role": "user",
        "content": turn.text,
        "session_id": turn.session,
        "occurred_at": turn.said_at.isoformat(),
        "source_event_key": turn.key,
    }


def _check_status(reply: Reply) -> Reply:
    if reply.status != 200:
        raise RuntimeError(f"{reply.status}: {reply.text[:500]}")
    return reply
