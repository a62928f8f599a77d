"""Chains are found by meaning again in a new embedding space, and after the model was away."""

import importlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from strandline.aws.blobs import Blobs
from strandline.background.embed_chains import embed_chains
from strandline.chains import store as chains_store
from strandline.chains.form import close_idle
from strandline.db.database import Asker, Database
from strandline.errors import EmbeddingUnavailable
from strandline.jobs.context import Worker
from strandline.local.aws import LocalAws
from tests.strandline.services.folds import ALICE, Plain, append, tune
from tests.strandline.services.stand_ins import (
    WordEmbedder,
    embed_due,
    refuse,
    unavailable,
    work_for,
)
from tests.support import Base, Gateway

LATER = datetime(2040, 1, 1, tzinfo=UTC)
NOW = datetime.now(UTC)


@pytest.fixture
def embedder() -> WordEmbedder:
    """For the gateway and the worker."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def worker(base: Base, aws: LocalAws, embedder: WordEmbedder) -> Iterator[Worker]:
    """With a minute to work."""
    database = Database(base.url)
    yield work_for(database, Blobs(aws.bucket), embedder, Plain())
    database.close()


def formed(gateway: Gateway, base: Base, worker: Worker, *texts: str) -> None:
    """A chain of each of these."""
    key = gateway.key()
    tune(base)
    for n, text in enumerate(texts):
        said = {"participants": [ALICE, "agent:a"], "role": "user", "speaker": ALICE}
        append(gateway, key, [{**said, "content": text, "session_id": f"s-{n}"}])
    embed_due(worker)
    assert close_idle(worker, "acme", LATER) == len(texts)


def spaces(base: Base) -> list[tuple[Any, ...]]:
    return base.rows("select space, count(*)::int from chain_vectors group by 1 order by 1")


def test_a_new_space_is_filled_by_the_sweep(
    gateway: Gateway, base: Base, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed(gateway, base, worker, "harbour mooring", "sourdough flour", "nebula lens")
    base.rows(
        "update chains set status = 'archived', archived_at = now() where chain_id ="
        " (select min(chain_id::text)::uuid from chains)"
    )
    gateway.tick()
    assert spaces(base) == [("words/64", 3)]
    other: Any = WordEmbedder("other/16", 16)
    sweeper: Any = importlib.import_module("functions.sweeper.handler")
    monkeypatch.setitem(sweeper.service.__dict__, "embedder", other)
    gateway.tick()
    assert spaces(base) == [("other/16", 2), ("words/64", 3)]
    assert base.rows("select swept_for from tenants") == [("other/16",)]
    assert base.rows("select totals ->> 'chains_embedded' from jobs order by created_at desc")[
        0
    ] == ("2",)
    seen = len(other.seen)
    gateway.tick()
    assert len(other.seen) == seen, "once is enough"


def test_a_look_that_ended_early_is_still_due(
    gateway: Gateway, base: Base, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed(gateway, base, worker, "harbour mooring", "sourdough flour")
    other = WordEmbedder("other/16", 16)
    other.before = unavailable("sourdough")
    sweeper: Any = importlib.import_module("functions.sweeper.handler")
    monkeypatch.setitem(sweeper.service.__dict__, "embedder", other)
    gateway.tick()
    assert base.rows("select swept_for from tenants") != [("other/16",)]
    other.before = lambda texts: None
    base.rows("update scope_work set due_at = now() returning 1")
    gateway.tick()
    assert spaces(base) == [("other/16", 2), ("words/64", 2)]
    assert base.rows("select swept_for from tenants") == [("other/16",)]


def test_what_lacks_a_vector_because_the_model_was_away_is_healed(
    gateway: Gateway, base: Base, worker: Worker, embedder: WordEmbedder
) -> None:
    key = gateway.key()
    tune(base)
    said = {"participants": [ALICE, "agent:a"], "role": "user", "speaker": ALICE}
    append(gateway, key, [{**said, "content": "harbour mooring"}])
    embed_due(worker)
    embedder.before = unavailable()
    assert close_idle(worker, "acme", LATER) == 1
    assert base.rows("select state, reason from jobs where kind = 'enrich'") == [
        ("failed", "no_vector")
    ]
    with pytest.raises(EmbeddingUnavailable):
        embed_chains(worker, "acme", NOW)
    embedder.before = lambda texts: None
    assert embed_chains(worker, "acme", NOW) == (1, True)
    assert spaces(base) == [("words/64", 1)]
    states = "select state, reason, advice from jobs where kind = 'enrich'"
    assert base.rows(states) == [("done", "", "")]


def test_a_summary_that_the_model_refuses_holds_up_no_other(
    gateway: Gateway, base: Base, worker: Worker
) -> None:
    formed(gateway, base, worker, "harbour mooring", "sourdough flour", "nebula lens")
    other = WordEmbedder("other/16", 16)
    other.before = refuse("sourdough")
    again = work_for(worker.database, worker.blobs, other, Plain())
    assert embed_chains(again, "acme", NOW) == (2, True)
    late = work_for(worker.database, worker.blobs, other, Plain(), seconds=1)
    assert embed_chains(late, "acme", NOW + timedelta(days=1)) == (0, False)


def test_a_chain_that_says_something_else_by_now_gets_no_old_vector(
    gateway: Gateway, base: Base, worker: Worker
) -> None:
    formed(gateway, base, worker, "harbour mooring")
    access = worker.database.access(Asker.background("acme"))
    (lacking,) = chains_store.without_vector(access, "other", None, 9)
    old = chains_store.Indexed(lacking.chain_id, lacking.version - 1, "[1]")
    with access.transaction():
        assert chains_store.index(access, "other", [old]) == 0
    base.rows("update chains set status = 'archived', archived_at = now()")
    gone = chains_store.Indexed(lacking.chain_id, lacking.version, "[1]")
    with access.transaction():
        assert chains_store.index(access, "other", [gone]) == 0
    assert spaces(base) == [("words/64", 1)]
