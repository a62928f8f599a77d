"""HTTP routes for the fields of topics."""

from datetime import UTC, datetime

from strandline.errors import Conflict, Forbidden, Gone, Invalid, StateConflict
from strandline.graph.fields.read_fields import get_field, list_fields, record_fields_read
from strandline.graph.fields.revise_field import revise_field
from strandline.graph.fields.schemas import (
    FieldHistory,
    FieldQuery,
    FieldsQuery,
    RevisionRequest,
    StoredRevision,
    TopicFields,
    parse_field_name,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders


def post_revision(request: Request) -> Response:
    """Store the value of a topic's field from now on, or from another time on: 201 and the
    revision. A new field is created by its first revision; earlier revisions are kept. The revision
    rests on a statement in the log, which recall finds. A replay returns the same."""
    key = request.idempotency_key
    answer, is_replay = revise_field(
        request.writer,
        request.path_parameter("topic_id"),
        request.path_parameter("field"),
        request.parse_body(RevisionRequest),
        key,
    )
    return replayable_response(answer, 201, is_replay=is_replay)


def get_topic_fields(request: Request) -> Response:
    """The fields of a topic by name, each with its current value. They are joined over all topics
    of the same name in view: the newest revision counts. With `as_of`, as they were known then.
    Every field in the answer counts as used, which raises its salience."""
    query, now = request.parse_query(FieldsQuery), datetime.now(UTC)
    access = request.connect_reader(query)
    answer = list_fields(access, request.path_parameter("topic_id"), query, now)
    is_recorded = record_fields_read(access, answer.fields, now)
    request.metrics["RecallsNotRecorded"] = int(not is_recorded)
    return json_response(answer)


def get_topic_field(request: Request) -> Response:
    """A field of a topic: its current value, and its revisions, newest first. All pages together
    have at most 500 revisions. The field is joined over all topics of the same name in view; with
    `as_of`, as it was known then. The first page counts as a use."""
    query, now = request.parse_query(FieldQuery), datetime.now(UTC)
    access = request.connect_reader(query)
    topic_id = request.path_parameter("topic_id")
    try:
        field = parse_field_name(request.path_parameter("field"))
    except Invalid:
        field = ""  # no field has this name
    answer = get_field(access, topic_id, field, query, now)
    is_recorded = bool(query.cursor) or record_fields_read(access, [answer], now)
    request.metrics["RecallsNotRecorded"] = int(not is_recorded)
    return json_response(answer)


_FIELDS = "/api/v1/graph/topics/{topic_id}/fields"
ROUTES = {
    f"POST {_FIELDS}/{{field}}": Route(
        post_revision,
        "write",
        {201: StoredRevision},
        body=RevisionRequest,
        headers=IdempotencyHeaders,
        response_headers={
            REPLAYED_HEADER: "`true` when the revision was already stored under the same key."
        },
        errors=(Forbidden, Conflict, Gone, StateConflict),
    ),
    f"GET {_FIELDS}": Route(get_topic_fields, "read", {200: TopicFields}, query=FieldsQuery),
    f"GET {_FIELDS}/{{field}}": Route(
        get_topic_field, "read", {200: FieldHistory}, query=FieldQuery, errors=(Gone,)
    ),
}
