"""Promise: every derived row dropped and the log replayed, vectors, chains and trees are the same,
with other builds: 20 random lives with merges, several sessions, vectors that are refused, retried
and given up."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from strandline.aws.blobs import BlobStore
from strandline.background.missing_vectors import retry_refused_vectors
from strandline.chains.fold_scope import close_idle_lanes, fold_scope
from strandline.chains.refold import drop_chains_of_scopes
from strandline.db.database import Caller, Database
from strandline.errors import EmbeddingRefused
from strandline.jobs.worker_resources import WorkerResources
from strandline.local.aws import LocalAws
from strandline.topics import build_limits
from tests.strandline.chains.fold_fixtures import EventGenerator, append, set_tuning
from tests.strandline.embeddings.fake_embedders import (
    WordEmbedder,
    fail_texts,
    make_worker,
    process_due,
    refuse_texts,
)
from tests.strandline.topics.outline import build, drop_index, read_tree
from tests.support import Gateway, ScratchDatabase

SEEDS = [seed if seed < 1 else pytest.param(seed, marks=pytest.mark.proof) for seed in range(20)]
SCOPES, EVENTS = 2, 200
LATER = datetime(2040, 1, 1, tzinfo=UTC)
BACKGROUND = Caller.background("acme")
CHAINS = "select chain_id, version, position, content_hash from chain_versions order by 1, 2"
DROP_VECTORS = (
    "delete from event_vectors",
    "delete from embedding_cache",
    "delete from event_search",
    "update embedding_progress set embedded_seq = 0",
)


@pytest.fixture
def embedder() -> WordEmbedder:
    """For the gateway and the worker."""
    return WordEmbedder("words/64", 64)


@pytest.fixture
def worker(
    scratch_db: ScratchDatabase, aws: LocalAws, embedder: WordEmbedder
) -> Iterator[WorkerResources]:
    """With the heuristic model."""
    database = Database(scratch_db.url)
    yield make_worker(database, BlobStore(aws.bucket), embedder, seconds=300)
    database.close()


class Life:
    """A tenant's conversations, and what is derived of them, by seed."""

    def __init__(
        self, gateway: Gateway, base: ScratchDatabase, worker: WorkerResources, seed: int
    ) -> None:
        assert isinstance(worker.embedder, WordEmbedder)
        self.gateway, self.base, self.worker = gateway, base, worker
        self.embedder, self.key = worker.embedder, gateway.key()
        self.dice, self.chat = random.Random(seed), EventGenerator(seed)
        self.scopes: set[UUID] = set()
        self.done: Counter[str] = Counter()
        set_tuning(base)

    def live(self, events: int) -> None:
        """Say so much, while all of it is folded and built now and then."""
        dice = self.dice
        while len(self.chat.events) < events:
            batch = self.chat.generate(SCOPES, dice.randint(5, 25))
            self.scopes |= {UUID(scope) for scope in append(self.gateway, self.key, batch)}
            self._fold_with_hindrance()
            if dice.random() < 0.2:
                close_idle_lanes(self.worker, "acme", LATER)
            if dice.random() < 0.3:
                self.retry_refused()
            if dice.random() < 0.4:
                self.build_some(dice.choice((1, 3, 2000)))
        self.retry_refused()
        self.fold()
        self.build_all(2000)

    def _fold_with_hindrance(self) -> None:
        """Some vectors are refused, or do not come for more than a day."""
        hindrance, word = self.dice.random(), self.dice.choice(("mooring", "oven", "lens", "audit"))
        if hindrance < 0.25:
            self.embedder.before_embed = refuse_texts(word)
        elif hindrance < 0.4:
            self.embedder.before_embed = fail_texts(word)
        process_due(self.worker)
        if 0.25 <= hindrance < 0.4:
            for scope_id in sorted(self.scopes):
                fold_scope(
                    self.worker, self.worker.database.connect_as(BACKGROUND), scope_id, LATER
                )
            self.base.rows("update topic_work set oldest_at = now() - interval '25 hours'")
            self.build_some(2000)
        self.embedder.before_embed = lambda texts: None
        self.fold()

    def fold(self) -> None:
        """Embed and fold what there is."""
        self.base.rows("update scope_work set due_at = now()")
        process_due(self.worker)
        rows = self.base.rows("select scope_id from scopes where folded_seq < last_seq")
        assert rows == []

    def retry_refused(self) -> None:
        """Ask for the vectors that were refused once more."""
        for scope_id in sorted(self.scopes):
            try:
                self.done["retried"] += retry_refused_vectors(self.worker, "acme", scope_id)
            except EmbeddingRefused:
                self.done["refused again"] += 1

    def build_some(self, versions: int) -> None:
        """A build that takes in at most so many chain versions of a scope."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(build_limits, "MAX_VERSIONS", versions)
            totals = build(self.gateway)
        assert not totals.get("scopes_failed"), totals
        self.done["builds"] += totals.get("snapshots_published", 0)

    def build_all(self, versions: int) -> None:
        """Builds until nothing waits."""
        while waiting := self.base.rows("select sum(waiting) from topic_work")[0][0]:
            self.build_some(versions)
            (row,) = self.base.rows("select coalesce(sum(waiting), 0) from topic_work")[0]
            assert row < waiting, "a build takes in something"

    def replay(self, versions: int) -> None:
        """Drop every derived row but decisions, and derive all of it again, in builds of so many
        chain versions."""
        drop_index(self.base)
        drop_chains_of_scopes(self.worker.database.connect_as(BACKGROUND), sorted(self.scopes))
        for statement in DROP_VECTORS:
            self.base.rows(statement)
        assert read_tree(self.base) == self.base.rows(CHAINS) == []
        self.fold()
        self.done["builds"] = 0
        self.build_all(versions)

    def state(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Chain versions with their hashes; trees with slots, node ids and hashes."""
        return self.base.rows(CHAINS), read_tree(self.base)


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_gives_same_hashes_and_nodes(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources, seed: int
) -> None:
    life = Life(gateway, scratch_db, worker, seed)
    life.live(EVENTS)
    chains, tree = life.state()
    builds = life.done["builds"]
    ((merge, given_up),) = scratch_db.rows(
        "select (select count(*)::int from chain_versions where version > 1),"
        " (select count(*)::int from decisions where kind = 'vector_given_up')"
    )
    life.replay(life.dice.choice((1, 2, 3, 5)))
    print(
        f"seed {seed}: {len(chains)} chain versions, {merge} of them by merges, {len(tree)} nodes;"
        f" {given_up} vectors given up, {life.done['retried']} retried;"
        f" {builds} builds, replayed in {life.done['builds']}"
    )
    assert life.state() == (chains, tree)
    assert merge
    assert given_up
    assert life.done["builds"] != builds


@pytest.mark.proof
def test_replay_test_detects_unstored_vector_loss(
    gateway: Gateway, scratch_db: ScratchDatabase, worker: WorkerResources
) -> None:
    """Planted: without the decision, a vector that came too late is in the replayed tree."""
    life = Life(gateway, scratch_db, worker, 0)
    life.live(80)
    chains, tree = life.state()
    assert scratch_db.rows("delete from decisions where kind = 'vector_given_up' returning 1")
    life.replay(2000)
    assert life.state()[1] != tree
    assert chains
