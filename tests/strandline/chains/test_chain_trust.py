"""A chain shows the least trusted origin of its events, wherever it is shown and however it came
to be."""

import itertools
from typing import Any

from strandline.chains.refold import drop_chains_of_scopes
from strandline.chains.retry_enrichment import retry_enrichment
from strandline.db.database import Caller
from strandline.jobs.worker_resources import WorkerResources
from strandline.log import trust_ranks
from tests.strandline.chains.fold_fixtures import hashes
from tests.strandline.chains.trusted_chains import LATER, ORIGINS, embedder, fold, say, worker
from tests.strandline.embeddings.fake_embedders import process_due
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "worker"]  # fixtures

SESSION = "/api/v1/sessions"


def visible_chains(gateway: Gateway, session: str) -> list[dict[str, Any]]:
    reply = gateway.call("GET", f"{SESSION}/{session}/segments", key=gateway.key())
    return reply.body["segments"]


def test_chain_trust_ranks_agree_in_sql_and_python(scratch_db: ScratchDatabase) -> None:
    names = [*ORIGINS, "", "a later release's"]
    for name in names:
        assert scratch_db.rows("select trust_rank(%s)", name) == [
            (trust_ranks.trust_rank(name),)
        ], name
    assert sorted(ORIGINS, key=trust_ranks.trust_rank) == [
        "document",
        "tool",
        "agent",
        "user",
        "system",
    ]
    assert {trust_ranks.trust_rank(name) for name in names[-2:]} == {0}


def test_chain_trust_is_that_of_least_trusted_event(
    scratch_db: ScratchDatabase, gateway: Gateway, worker: WorkerResources
) -> None:
    sets = [selection for size in (1, 2, 5) for selection in itertools.combinations(ORIGINS, size)]
    for n, choice in enumerate(sets):
        say(gateway, f"s-{n}", f"word{n}", *choice)
    fold(scratch_db, worker)
    origin = dict(scratch_db.rows("select event_id::text, origin from events"))
    visible = dict[str, str]()
    for n in range(len(sets)):
        for chain in visible_chains(gateway, f"s-{n}"):
            visible[chain["chain_id"]] = chain["trust"]
            assert chain["trust"] == trust_ranks.least_trusted(
                origin[one] for one in chain["event_ids"]
            )
    assert set(visible.values()) >= {"document", "tool", "agent", "user"}


def test_chain_trust_is_shown_in_every_answer(
    scratch_db: ScratchDatabase, gateway: Gateway, worker: WorkerResources
) -> None:
    say(gateway, "s-1", "harbour mooring berth", "user", "document", "agent")
    fold(scratch_db, worker)
    say(gateway, "s-1", "sourdough flour", "agent", "tool")
    process_due(worker)
    key, at = gateway.key(), f"{SESSION}/s-1"
    query = {"query": "harbour mooring"}
    latest = gateway.call("GET", f"{at}/context", key=key).body["chains"]
    about = gateway.call("GET", f"{at}/context", key=key, query=query).body["chains"]
    hits = gateway.call("POST", f"{at}/context/search", query, key=key).body["hits"]
    heat = gateway.call("GET", f"{at}/analysis/heat", key=key).body["chains"]
    for chains in (
        latest,
        about,
        [hit["chain"] for hit in hits],
        heat,
        visible_chains(gateway, "s-1"),
    ):
        assert [chain["trust"] for chain in chains] == ["document"]
    topics = gateway.call("GET", f"{at}/analysis/topics", key=key).body["topics"]
    assert [(one["trust"], one["chain_id"] is None) for one in topics] == [
        ("tool", True),
        ("document", False),
    ]


def test_chain_trust_of_merge_is_lower_one(
    scratch_db: ScratchDatabase, gateway: Gateway, worker: WorkerResources
) -> None:
    for session, origin in (("s-1", "user"), ("s-2", "tool"), ("s-3", "system")):
        scope = say(gateway, session, "harbour mooring", origin)
        fold(scratch_db, worker)
    versions = "select version, merged, trust from chain_versions order by version"
    before = scratch_db.rows(versions)
    assert before == [(1, False, "user"), (2, True, "tool"), (3, True, "tool")]
    digest = hashes(scratch_db)
    drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [scope])
    process_due(worker)
    assert (scratch_db.rows(versions), hashes(scratch_db)) == (before, digest)


def test_chain_trust_ignores_removed_events(
    scratch_db: ScratchDatabase, gateway: Gateway, worker: WorkerResources
) -> None:
    """As an erasure leaves a chain that also rests on other events: without the one, said again."""
    say(gateway, "s-1", "harbour mooring", "user", "document")
    fold(scratch_db, worker)
    ((chain_id,),) = scratch_db.rows("select chain_id from chains")
    assert [chain["trust"] for chain in visible_chains(gateway, "s-1")] == ["document"]
    scratch_db.rows(
        "delete from chain_events c using events e"
        " where e.event_id = c.event_id and e.origin = 'document'"
    )
    retry_enrichment(worker, "acme", chain_id, LATER)
    assert [(c["version"], c["trust"]) for c in visible_chains(gateway, "s-1")] == [(2, "user")]
