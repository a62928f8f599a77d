"""HTTP routes that read the topic index."""

from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.errors import Gone
from strandline.http.request import Request
from strandline.http.routing import Response, Route, json_response
from strandline.schemas import ParticipantsQuery
from strandline.topics.answers import repeat_answer
from strandline.topics.references import answer_references, record_use
from strandline.topics.schemas_references import ReferencesOut, ReferencesRequest
from strandline.topics.selection import Inquiry


def post_references(request: Request) -> Response:
    """Answer a question from the topic index: one tree from scopes over topics down to the events
    that answer it, from the published snapshot and, for what is newer, the fresh tail, within
    `budget` tokens. Without `query`, an outline of the topics from the roots down and the newest
    events. With `format=text` the tree is one block of text for a prompt. With `read_token` of an
    earlier answer the same question gets the same answer, to the byte. What answers the question is
    warmed by it."""
    participants = request.parse_query(ParticipantsQuery).participants
    body = request.parse_body(ReferencesRequest)
    access = request.connect_reader(body.participants, participants)
    now = datetime.now(UTC)
    if body.read_token is not None:
        return json_response(repeat_answer(access, body, now))
    inquiry = Inquiry(
        access,
        request.resources.embedder,
        body,
        body.now or now,
        get_settings().query_vector_seconds,
    )
    answer, used_events = answer_references(inquiry, now, None)
    is_recorded = record_use(access, used_events, now)
    request.metrics |= {
        "SearchHits": len(answer.citations),
        "RecallsDegraded": int(bool(answer.degraded)),
        "RecallsNotRecorded": int(not is_recorded),
    }
    return json_response(answer)


ROUTES = {
    "POST /api/v1/references/query": Route(
        post_references,
        "read",
        {200: ReferencesOut},
        query=ParticipantsQuery,
        body=ReferencesRequest,
        errors=(Gone,),
    ),
}
