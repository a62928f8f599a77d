"""Give chains the vectors that they lack: in a new embedding space, and where a model was away."""

from datetime import datetime

from strandline.background.embed import BATCH, embed_texts
from strandline.chains import store as chains_store
from strandline.chains.store import Indexed
from strandline.db.database import Access, Asker
from strandline.jobs import store as jobs_store
from strandline.jobs.context import Worker
from strandline.log import store_work


def embed_chains(worker: Worker, tenant: str, now: datetime) -> tuple[int, bool]:
    """Embed the summaries of a tenant's active chains that have no vector in the present space;
    gives of how many, and whether that was all. A summary that the model refuses has none.

    Raises EmbeddingUnavailable; what was stored before stays.
    """
    access = worker.database.access(Asker.background(tenant))
    space, after, embedded = worker.embedder.space, None, 0
    while lacking := chains_store.without_vector(access, space, after, BATCH):
        if worker.out_of_time():
            return embedded, False
        found = embed_texts(worker, {chain.chain_id: chain.summary for chain in lacking})
        embedded += _store(
            access,
            space,
            [
                Indexed(chain.chain_id, chain.version, store_work.as_text(vector))
                for chain in lacking
                if not isinstance(vector := found[chain.chain_id], str)
            ],
            now,
        )
        worker.renew()
        after = lacking[-1].chain_id
    return embedded, True


def _store(access: Access, space: str, vectors: list[Indexed], now: datetime) -> int:
    with access.transaction():
        stored = chains_store.index(access, space, vectors)
        jobs_store.healed(access, "enrich", "no_vector", [one.chain_id for one in vectors], now)
    return stored
