"""A merged chain whose text an erasure took, folded again: it is described again, and stays."""

from strandline.chains.refold import drop_chains_of_scopes
from strandline.db.database import Caller
from strandline.jobs.worker_resources import WorkerResources
from tests.strandline.chains.trusted_chains import embedder, fold, say, worker
from tests.strandline.embeddings.fake_embedders import process_due
from tests.support import Gateway, ScratchDatabase

__all__ = ["embedder", "worker"]
VERSIONS = """
    select version, merged, event_count, summary <> '' and rejected is distinct from 'erased'
    from chain_versions order by version
"""


def test_erased_merge_is_described_again_and_kept(
    scratch_db: ScratchDatabase, gateway: Gateway, worker: WorkerResources
) -> None:
    for session in ("s-1", "s-2"):
        scope = say(gateway, session, "harbour mooring", "user", "user", "user")
        fold(scratch_db, worker)
    assert scratch_db.rows(VERSIONS) == [(1, False, 3, True), (2, True, 6, True)]
    ((event_id,),) = scratch_db.rows("select event_id from events where seq = 5")
    key = gateway.key(rights=["erase"])
    assert gateway.call("DELETE", f"/api/v1/events/{event_id}", key=key).status == 200
    assert scratch_db.rows(VERSIONS) == [(1, False, 3, False), (2, True, 5, False)]
    for _ in range(2):
        drop_chains_of_scopes(worker.database.connect_as(Caller.background("acme")), [scope])
        process_due(worker)
        assert scratch_db.rows(VERSIONS) == [(1, False, 3, True), (2, True, 5, True)]
    attempts = "select attempt from decisions where kind = 'formed' order by at_seq, attempt"
    assert scratch_db.rows(attempts) == [(0,), (1,), (0,), (1,)]
