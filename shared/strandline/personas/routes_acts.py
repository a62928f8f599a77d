"""HTTP routes of acts."""

from strandline.errors import StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER
from strandline.personas import acts
from strandline.personas.acts import Wait
from strandline.personas.routes_sonas import SONA
from strandline.personas.schemas_acts import (
    ActIn,
    ActOut,
    ActsPage,
    ActsQuery,
    NextAct,
    NextActQuery,
)


def push_act(request: Request) -> Response:
    """Continue the thread of a sona with an act that is tied to one memory. `after` is the head of
    the thread as the caller knows it. If the head is another act, nothing is stored and the answer
    is a 409 with `head`, so a thread never forks. The same push repeated is a replay. A push also
    records that the sona was active in the memory."""
    body = request.parse_body(ActIn)
    space = request.resources.embedder.space
    result = acts.push(request.connect_writer(), request.path_id("uuid"), body, space)
    return replayable_response(result.act, 201, is_replay=result.is_replay)


def next_act(request: Request) -> Response:
    """Get the act after another one, or the first of a sona's thread. Only acts whose memories are
    in view count."""
    query = request.parse_query(NextActQuery)
    access = request.connect_reader(query)
    return json_response(acts.read_next(access, request.path_id("uuid"), query.after))


def stream_acts(request: Request) -> Response:
    """Read a sona's thread in order, and wait for more. If no act comes after the cursor, the
    answer waits up to `wait` seconds for one, unless too many requests wait already. It always
    has a cursor for the next request. No act is missed or returned twice, even after a broken
    connection."""
    query = request.parse_query(ActsQuery)
    access = request.connect_reader(query)
    page = acts.read_stream(
        access,
        request.path_id("uuid"),
        cursor=query.cursor,
        limit=query.limit,
        wait=Wait(
            request.resources.waits, request.function_name, query.wait, deadline=request.deadline
        ),
    )
    headers = {} if page.retry_after is None else {"Retry-After": str(page.retry_after)}
    return json_response(page, 200, headers)


ROUTES = {
    f"POST {SONA}/acts": Route(
        push_act,
        "write",
        {201: ActOut},
        body=ActIn,
        response_headers={REPLAYED_HEADER: "`true` when this act was already pushed."},
        errors=(StateConflict,),
    ),
    f"GET {SONA}/acts": Route(
        stream_acts,
        "read",
        {200: ActsPage},
        query=ActsQuery,
        response_headers={"Retry-After": "Seconds after which to ask again, if it could not wait."},
    ),
    f"GET {SONA}/acts/next": Route(next_act, "read", {200: NextAct}, query=NextActQuery),
}
