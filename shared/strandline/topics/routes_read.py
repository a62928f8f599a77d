"""HTTP routes that read the topic index."""

import time
from datetime import UTC, datetime

from strandline.config import get_settings
from strandline.db.database import TenantDb
from strandline.errors import Gone, NotFound
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.llm.types import TaskContext
from strandline.schemas import ParticipantsQuery
from strandline.topics.answer_rendering import repeat_answer
from strandline.topics.list_topics import list_topics
from strandline.topics.model_walk import ModelWalk
from strandline.topics.references_query import answer_references_query
from strandline.topics.schemas_references import ReferencesOut, ReferencesRequest
from strandline.topics.schemas_topics import TopicsPage, TopicsQuery
from strandline.topics.selection import ReferencesQuestion


def post_references(request: Request) -> Response:
    """Answer a question from the topic index. The answer is one tree, from scopes over topics down
    to the events that answer the question. It combines the published snapshot with the fresh tail,
    which holds newer events, within `budget` tokens. Without `query`, it is an outline of the
    topics from the roots down and the newest events. With `format=text`, the tree is one block of
    text for a prompt. With the `read_token` of an earlier answer, the same question gets the same
    answer, byte for byte. The chains of the events used are warmed."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(ReferencesRequest)
    access = request.connect_reader(query, body.participants)
    now, settings = datetime.now(UTC), get_settings()
    if body.read_token is not None:
        return json_response(repeat_answer(access, body, now))
    question = ReferencesQuestion(
        access,
        request.embedder,
        body,
        body.now or now,
        settings.query_vector_seconds,
        settings.tuning.min_known,
    )
    llm = request.resources.llm if body.walk == "model" else None
    answer, is_recorded = answer_references_query(
        question, now, _make_model_walk(request, body, access)
    )
    if llm is not None:
        llm.store_call_records(access)
        request.metrics |= llm.take_metrics()
    request.metrics |= {
        "SearchHits": len(answer.citations),
        "RecallsDegraded": int(bool(answer.degraded)),
        "RecallsNotRecorded": int(not is_recorded),
    }
    return json_response(answer)


def _make_model_walk(
    request: Request, body: ReferencesRequest, access: TenantDb
) -> ModelWalk | None:
    """Make a walk by the language model, if the request asks for one and a model is configured."""
    if body.walk == "beam" or not request.resources.llm.has_model:
        return None
    task = TaskContext(
        tenant=access.caller.tenant,
        # Not the scope's subject: these calls must not use up the rate of the scope's fold.
        subject=request.principal.user or f"key:{request.principal.key_id}",
        participants=access.caller.viewer,
        deadline=min(request.deadline, time.monotonic() + body.time_limit),
    )
    return ModelWalk(request.resources.llm, task)


def list_topics_of_level(request: Request) -> Response:
    """Read the topic index as a tree: the roots of the trees in view, those with the newest events
    first, or the topics directly below one. By default of the active snapshot, with `version` of
    another one that is still kept: `GET /api/v1/admin/snapshots` lists them. A place is followed
    downwards by its `slot`, and a leaf to its events by `GET /api/v1/provenance/{row_id}`."""
    query = request.parse_query(TopicsQuery)
    return json_response(list_topics(request.connect_reader(query), query))


ROUTES = {
    "GET /api/v1/topics": Route(
        list_topics_of_level, "read", {200: TopicsPage}, query=TopicsQuery, errors=(NotFound,)
    ),
    "POST /api/v1/references/query": Route(
        post_references,
        "read",
        {200: ReferencesOut},
        query=ParticipantsQuery,
        body=ReferencesRequest,
        errors=(Gone,),
    ),
}
