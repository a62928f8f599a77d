"""Recall: find visible events by words and by meaning, each with its source."""

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

_MAX_USED_HITS = 10
"""How many of the best hits of an answer count as used."""
# A call to an unresponsive model occupies its thread. With a few threads a slow model degrades
# answers but does not block them.
_EMBEDDING_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="query-vector")


def recall(
    access: TenantDb, embedder: Embedder, request: RecallRequest, vector_timeout: float
) -> RecallAnswer:
    """The best hits for a question, best first.

    Without a query vector within `vector_timeout` seconds it searches by full text alone and says
    so in `degraded`. It also says there if the response is full before `limit` hits.
    """
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
    """The vector of a question, or None if the model fails or takes longer than `timeout` seconds;
    and the codes for `degraded`."""
    future = _EMBEDDING_POOL.submit(embedder.embed, [question], timeout=timeout)
    try:
        vector = future.result(timeout=timeout)[0]
        if all(map(math.isfinite, vector)):
            return vector, []
        reason = "not finite"
    except Exception as error:  # recall answers even if the model fails
        future.cancel()
        reason = type(error).__name__
    logger.warning("recall without a query vector", extra={"error": reason})
    return None, ["no_query_vector"]


def _to_hit(row: store.RankedEvent) -> Hit:
    score = Score.model_validate({**vars(row), "total": row.score})
    piece = None
    if row.blob_cid and row.start_char is not None and row.end_char:  # 0: only its name matched
        piece = Piece(start_char=row.start_char, end_char=row.end_char)
    return Hit(event=to_event_out(row), piece=piece, score=score)


def record_use(access: TenantDb, answer: RecallAnswer, space: str, now: datetime) -> bool:
    """Record that an answer contained these events, which keeps their chains warm. A failure here
    does not affect the answer, which is already built; returns False if nothing was recorded."""
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
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True


def make_token[Row](access: TenantDb, result: SnapshotRead[Row], space: str | None) -> str:
    """An opaque token of what an answer was based on: database snapshot, clock, embedding space. It
    contains the time and so always differs: it does not reveal whether anything was written in
    between."""
    token_fields = {
        "v": 1,
        "mark": result.pg_snapshot,
        "now": result.now.isoformat(),
        "space": space,
    }
    return access.sealer.seal("token", access.caller.tenant, token_fields)
