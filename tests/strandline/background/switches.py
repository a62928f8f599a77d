"""A service that is started again with another embedding model."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background.process_events import embed_and_fold_due_scopes
from strandline.config import get_settings
from strandline.embeddings.embedder import Embedder
from strandline.function_specs import FUNCTIONS
from strandline.jobs.worker_resources import WorkerResources
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder, make_worker
from tests.support import Gateway, ScratchDatabase

WHO = ["user:alice", "agent:helper"]
TEXTS = (
    "harbour mooring rope",
    "sourdough flour starter",
    "nebula lens tripod",
    "Where is the mooring rope?",
    "What does the starter need?",
)


def configure(patch: pytest.MonkeyPatch, embedder: Embedder, *reachable: Embedder) -> None:
    """Every function now has this model, reaches these others, and knows no credential yet."""
    for name in [fn.name for fn in FUNCTIONS if "database" in fn.needs]:
        handler: Any = importlib.import_module(f"functions.{name}.handler")
        resources = handler.resources.__dict__
        patch.setitem(resources, "embedder", embedder)
        patch.setitem(resources, "embedders", KnownEmbedders(*reachable))
        resources.pop("authenticator", None)


def say(gateway: Gateway, key: str, *texts: str, session: str = "s-1") -> list[str]:
    """Messages of alice in one batch; gives their ids."""
    events = [
        {
            "participants": WHO,
            "role": "user",
            "speaker": WHO[0],
            "content": text,
            "session_id": session,
        }
        for text in texts
    ]
    reply = gateway.call("POST", "/api/v1/events/batch", {"events": events}, key=key)
    assert reply.body["failed"] == 0, reply.text
    return [item["event"]["event_id"] for item in reply.body["results"]]


def ask(gateway: Gateway, key: str, question: str, **more: object) -> dict[str, Any]:
    """The answer of recall, with what it rests on."""
    body = {"query": question, "participants": WHO[:1], "explain": True, "min_relevance": 0}
    reply = gateway.call("POST", "/api/v1/recall", {**body, **more}, key=key)
    assert reply.status == 200, reply.text
    return reply.body


def found_by_meaning(answer: dict[str, Any]) -> list[str]:
    """The hits that are there for their meaning, best first."""
    return [hit["event_id"] for hit in answer["hits"] if "meaning" in hit["why"]]


def found_by_vector(answer: dict[str, Any]) -> list[str]:
    """The hits that were compared with the question's vector, best first."""
    return [hit["event_id"] for hit in answer["hits"] if hit["features"]["cosine"] != 0]


def read_space(base: ScratchDatabase, tenant: str = "acme") -> str:
    ((space,),) = base.rows("select reading_space from tenants where tenant_id = %s", tenant)
    return space


def count_vectors(base: ScratchDatabase) -> dict[str, int]:
    """How many events have a vector in each space."""
    rows = base.rows("select space, count(embedding)::int from event_vectors group by 1")
    return dict(rows)


def make_filler(gateway: Gateway, embedder: Embedder) -> WorkerResources:
    """A worker of a process with this model."""
    return make_worker(gateway.database, BlobStore(get_settings().bucket), embedder, seconds=300.0)


def process_due_work(gateway: Gateway, tenant: str = "acme") -> None:
    """What messages of the queue have the worker do."""
    handler: Any = importlib.import_module("functions.worker.handler")
    resources = handler.resources
    worker = make_worker(
        resources.database, resources.blobs, resources.embedder, resources.llm, seconds=300.0
    )
    embed_and_fold_due_scopes(
        replace(worker, embedders=resources.embedders), tenant, scan_all=False
    )


FILLER = """
import os, signal, sys, time
from dataclasses import replace
from datetime import UTC, datetime
from strandline.aws.blobs import BlobStore
from strandline.background import store_switches, switch_spaces
from strandline.config import get_settings
from strandline.db.database import Database
from strandline.log import store_work
from tests.strandline.embeddings.fake_embedders import KnownEmbedders, WordEmbedder, make_worker

step, batches = sys.argv[1], int(sys.argv[2])
module = {"store_event_vectors": store_work, "try_switch": store_switches}[step]
real, calls = getattr(module, step), []

def kill(*args, **more):
    result = real(*args, **more)
    calls.append(step)
    if len(calls) > batches:
        os.kill(os.getpid(), signal.SIGKILL)  # within its transaction
    return result

setattr(module, step, kill)
settings = get_settings()
old, new = WordEmbedder("words/64", 64), WordEmbedder("other/96", 96)
database, blobs = Database(settings.database_url), BlobStore(settings.bucket)
worker = replace(make_worker(database, blobs, new, seconds=300.0), embedders=KnownEmbedders(old))
switch_spaces.advance(worker, "acme", datetime.now(UTC))
"""


def run_filler(base: ScratchDatabase, step: str, batches: int) -> subprocess.CompletedProcess[str]:
    """A process that goes on with the tenant's switch and kills itself within the call of this
    step after so many of it."""
    return subprocess.run(
        [sys.executable, "-c", FILLER, step, str(batches)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def embedder() -> WordEmbedder:
    """The model before."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def new() -> WordEmbedder:
    """The model that is configured now."""
    return WordEmbedder("other/96", 96)


@pytest.fixture
def key(gateway: Gateway) -> str:
    """Of a tenant that has vectors of the model before."""
    key = gateway.key()
    say(gateway, key, *TEXTS)
    gateway.sweep()
    return key
