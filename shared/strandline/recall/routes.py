"""Recall over HTTP."""

from datetime import UTC, datetime

from strandline.config import settings
from strandline.http.app import Answer, Request, Route, answer
from strandline.recall.recall import recall, record_use
from strandline.recall.schemas import RecallAnswer, RecallRequest
from strandline.schemas import OnBehalf


def post_recall(request: Request) -> Answer:
    """What do we know about this? Events in view by words and by meaning, best first, each with
    its score in parts. The chains of the best ten are warmed by it."""
    named = request.query(OnBehalf).participants
    asked = request.body(RecallRequest)
    access = request.reader(asked.participants or named)
    seconds = settings().query_vector_seconds
    found = recall(access, request.service.embedder, asked, seconds)
    recorded = record_use(access, found, request.service.embedder.space, datetime.now(UTC))
    request.counted |= {
        "Hits": len(found.hits),
        "RecallsDegraded": int(bool(found.degraded)),
        "RecallsNotRecorded": int(not recorded),
    }
    return answer(found)


ROUTES = {
    "POST /api/v1/recall": Route(
        post_recall, "read", {200: RecallAnswer}, query=OnBehalf, body=RecallRequest
    ),
}
