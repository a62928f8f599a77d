"""Recall: what do we know about this? Events in view by words and by meaning, each cited."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.db.database import SnapshotRead, TenantDb
from strandline.embeddings import spaces
from strandline.embeddings.embedder import Embedder
from strandline.log.read import fit_to_page, to_event_out
from strandline.observability import logger
from strandline.recall import store
from strandline.recall.schemas import Hit, Piece, RecallAnswer, RecallRequest, Score
from strandline.tuning import DEFAULTS

# A model that does not answer keeps its thread; with a few of them a slow one degrades answers
# instead of stopping them.
_MAX_USED_HITS = 10
"""Of an answer's hits, the best of which count as used."""
_EMBEDDING_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="query-vector")


def recall(
    access: TenantDb, embedder: Embedder, request: RecallRequest, vector_timeout: float
) -> RecallAnswer:
    """The best hits for a question, best first. Without a query vector within `vector_timeout` it
    answers by full text alone and says so in `degraded`; so it does where the best hits fill an
    answer before `limit`."""
    vector, degraded = embed_query(embedder, request.query, vector_timeout)
    result = store.search_ranked(
        access,
        question=request.query,
        vector=vector,
        space=embedder.space,
        filters=request.to_filter(),
        limit=request.limit,
    )
    hits = fit_to_page(map(_to_hit, result.rows))
    return RecallAnswer(
        hits=hits,
        degraded=degraded + (["cut_by_size"] if len(hits) < len(result.rows) else []),
        not_yet_embedded=max((row.fresh for row in result.rows), default=0),
        token=make_token(access, result, embedder.space if vector else None),
    )


def embed_query(
    embedder: Embedder, question: str, timeout: float
) -> tuple[list[float] | None, list[str]]:
    """A question's vector within `timeout`; or none, and what to say of an answer without it."""
    future = _EMBEDDING_POOL.submit(embedder.embed, [question], timeout=timeout)
    try:
        vector = future.result(timeout=timeout)[0]
        if all(map(math.isfinite, vector)):
            return vector, []
        reason = "not finite"
    except Exception as error:  # whatever is wrong with a model, there is an answer without it
        future.cancel()
        reason = type(error).__name__
    logger.warning("recall without a query vector", extra={"error": reason})
    return None, ["no_query_vector"]


def _to_hit(row: store.RankedEvent) -> Hit:
    score = Score.model_validate({**vars(row), "total": row.score})
    piece = None
    if row.blob_cid and row.start_char is not None and row.end_char:  # 0: found by its name alone
        piece = Piece(start_char=row.start_char, end_char=row.end_char)
    return Hit(event=to_event_out(row), piece=piece, score=score)


def record_use(access: TenantDb, answer: RecallAnswer, space: str, now: datetime) -> bool:
    """Record that these events were given as an answer: what keeps their chains warm. The answer
    is made already and is given whatever happens here; tells whether it was recorded."""
    min_similarity = spaces.thresholds_for(space, DEFAULTS).min_relevance
    used_events = [
        hit.event.event_id
        for hit in answer.hits[:_MAX_USED_HITS]
        if hit.score.text_rank
        or (hit.score.cosine is not None and hit.score.cosine >= min_similarity)
    ]
    try:
        if used_events:
            store_recalls.record_events(access, uuid7(), used_events, now)
    except Exception as error:  # the caller has its answer; a lost record makes a chain cool sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def make_token[Row](access: TenantDb, result: SnapshotRead[Row], space: str | None) -> str:
    """What the answer rested on, as one opaque word. With its moment in it, it is never the same
    twice, and so does not tell either whether anything was written in between."""
    token_fields = {
        "v": 1,
        "mark": result.pg_snapshot,
        "now": result.now.isoformat(),
        "space": space,
    }
    return access.sealer.seal("token", access.caller.tenant, token_fields)
