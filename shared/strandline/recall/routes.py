"""The HTTP routes of recall and of insert."""

from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.embeddings.similarity_thresholds import thresholds_for
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.log.store_scopes import has_scope_in_view
from strandline.recall import routes_write
from strandline.recall.recall import recall, record_use
from strandline.recall.schemas import RecallAnswer, RecallRequest
from strandline.recall.sona_lookup import require_sona
from strandline.schemas import ParticipantsQuery


def post_recall(request: Request) -> Response:
    """Search visible events by words and by meaning. Hits are sorted best first, each with its
    relevance. The answer is empty if no event is relevant enough. The chains of the best ten hits
    are warmed."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(RecallRequest)
    access = request.connect_reader(query, body.participants)
    now, settings = datetime.now(UTC), get_settings()
    embedder, timeout = request.resources.embedder, settings.query_vector_seconds
    threshold = thresholds_for(embedder.space, settings.tuning).merge
    sona_id = (
        require_sona(access, embedder, body.sona, min_cosine=threshold, timeout=timeout)
        if body.sona
        else None
    )
    response = recall(
        access, embedder, body, now, timeout, settings.tuning.min_known, sona_id=sona_id
    )
    if not response.hits and not has_scope_in_view(access):
        response.degraded.append("no_scope_in_view")
    is_recorded = record_use(access, response, now)
    request.metrics |= {
        "SearchHits": len(response.hits),
        "RecallsDegraded": int(bool(response.degraded)),
        "RecallsNotRecorded": int(not is_recorded),
    }
    return json_response(response)


ROUTES = {
    "POST /api/v1/recall": Route(
        post_recall, "read", {200: RecallAnswer}, query=ParticipantsQuery, body=RecallRequest
    ),
    **routes_write.ROUTES,
}
