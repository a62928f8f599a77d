"""The HTTP routes of recall."""

from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.http.request import Request
from strandline.http.routing import Response, Route, json_response
from strandline.recall import routes_write
from strandline.recall.recall import recall, record_use
from strandline.recall.schemas import RecallAnswer, RecallRequest
from strandline.schemas import ParticipantsQuery


def post_recall(request: Request) -> Response:
    """Search visible events by words and by meaning: best first, each with its relevance. Nothing
    where nothing is relevant enough. The chains of the best ten are warmed by it."""
    participants = request.parse_query(ParticipantsQuery).participants
    body = request.parse_body(RecallRequest)
    access = request.connect_reader(body.participants, participants)
    now, settings = datetime.now(UTC), get_settings()
    response = recall(
        access,
        request.resources.embedder,
        body,
        now,
        settings.query_vector_seconds,
        settings.tuning.min_known,
    )
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
} | routes_write.ROUTES
