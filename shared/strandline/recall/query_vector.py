"""The vector of a question, if the model gives one in time."""

import math
from concurrent.futures import ThreadPoolExecutor

from strandline.embeddings.embedder import Embedder, Purpose
from strandline.observability import logger

# A call to an unresponsive model occupies its thread. With a few threads, a slow model degrades
# answers but does not block them.
_EMBEDDING_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="query-vector")

NO_QUERY_VECTOR = "no_query_vector"
"""The code for `degraded` of an answer by words alone."""


def embed_query(
    embedder: Embedder, question: str, timeout: float, purpose: Purpose = "question"
) -> tuple[list[float] | None, list[str]]:
    """The vector of a question, or of a text that is compared with others of its kind, and the
    codes for `degraded`. None if the model fails or takes longer than `timeout` seconds."""
    future = _EMBEDDING_POOL.submit(embedder.embed, [question], timeout=timeout, purpose=purpose)
    try:
        vector = future.result(timeout=timeout)[0]
        if all(map(math.isfinite, vector)):
            return vector, []
        reason = "not finite"
    except Exception as error:  # recall answers even if the model fails
        future.cancel()
        reason = type(error).__name__
    logger.warning("recall without a query vector", extra={"error": reason})
    return None, [NO_QUERY_VECTOR]
