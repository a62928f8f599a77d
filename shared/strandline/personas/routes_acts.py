"""HTTP routes of acts: the one linear thread of a sona. Each act continues the previous one, is
tied to one memory, and is visible to those who can see its memory."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID, uuid4

from strandline.db.database import TenantDb
from strandline.errors import Invalid, Malformed, NotFound, StateConflict
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER
from strandline.personas import store_acts, store_memories
from strandline.personas.routes_sonas import SONA
from strandline.personas.schemas import (
    ActOut,
    ActsPage,
    ActsQuery,
    NextAct,
    NextActQuery,
    PushActRequest,
)
from strandline.personas.store_acts import SonaThread, ThreadAct
from strandline.sealing import UnsealError
from strandline.tenants import waits
from strandline.tenants.waits import RETRY_SECONDS, WaitLimits

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 1.0
_RESERVE_SECONDS = 2.0
"""How long before the request's deadline waiting for an act ends."""


class _HeadMoved(Exception):
    """The head of the thread is another act."""


class PushedAct(NamedTuple):
    """A pushed act, and whether an earlier request had already pushed it."""

    act: ActOut
    is_replay: bool


def push_act_to_thread(
    access: TenantDb, sona_id: UUID, request: PushActRequest, space: str
) -> PushedAct:
    """Continue the thread of a sona after its head. This also records that the sona was active in
    the act's memory. The same act pushed again after the same predecessor is a replay. Raises
    NotFound; Invalid if the memory is not visible; StateConflict, which names the head, if that is
    another act, or if the sona was merged."""
    act_id = uuid4()  # a time-based id would reveal when others, whom the reader cannot see, pushed
    try:
        with access.transaction():
            step = store_acts.advance_thread_head(access, sona_id, request.after, act_id)
            if step is None:
                raise _HeadMoved
            act = store_acts.insert_act(
                access, sona_id, step, act_id, request.after, request.event_id
            )
            if act is None:
                raise Invalid("event_id: there is no memory with this id", field="event_id")
            store_memories.insert_sona_memories(access, sona_id, [request.event_id], space)
    except _HeadMoved:
        return PushedAct(_find_act_of_same_push(access, sona_id, request), is_replay=True)
    return PushedAct(_to_act_out(act), is_replay=False)


def _find_act_of_same_push(access: TenantDb, sona_id: UUID, request: PushActRequest) -> ActOut:
    """The act that the same push stored before. Raises the errors of `push_act_to_thread`."""
    thread = _require_thread(access, sona_id)
    if thread.merged_into is not None:
        raise StateConflict(
            "This sona was merged into another one; continue that one's thread.",
            merged_into=str(thread.merged_into),
        )
    continuation = store_acts.find_act_continuing(access, sona_id, request.after)
    if continuation is not None and continuation.event_id == request.event_id:
        return _to_act_out(continuation)
    raise StateConflict(
        "after: another act is the head of this thread; read on from yours, and push after `head`",
        field="after",
        head=None if thread.head_id is None else str(thread.head_id),
    )


def read_next_act(access: TenantDb, sona_id: UUID, after: UUID | None) -> NextAct:
    """The first visible act after this one, or the first of the thread for None. Raises NotFound
    for a sona that is not the caller's. After an act that the caller cannot see there is none."""
    thread = _require_thread(access, sona_id)
    rows = (
        store_acts.list_acts_after(access, sona_id, 0, 1)
        if after is None
        else store_acts.list_next_act(access, sona_id, after)
    )
    return NextAct(act=_to_act_out(rows[0]) if rows else None, head=thread.head_id)


@dataclass(frozen=True)
class ActWaitLimits:
    """How long a request may wait for an act, and who decides whether it may at all."""

    limits: WaitLimits
    function: str
    """The function that serves the request."""
    seconds: float
    deadline: float
    """The request's, in time.monotonic() seconds."""

    def compute_end(self) -> float:
        """When a wait that begins now ends, in time.monotonic() seconds."""
        return min(time.monotonic() + self.seconds, self.deadline - _RESERVE_SECONDS)


def read_acts_or_wait(
    access: TenantDb, sona_id: UUID, *, cursor: str | None, limit: int, wait: ActWaitLimits
) -> ActsPage:
    """The visible acts after a cursor, in order. If there is none, waits for one, but not beyond
    the request's deadline; where too many requests wait already the page is empty at once and
    names `retry_after`. Raises NotFound, or Malformed for an invalid cursor."""
    step = _parse_act_cursor(access, sona_id, cursor)
    end = wait.compute_end()
    thread, acts = _read_acts_after(access, sona_id, step, limit)
    retry_after = None
    if not acts and (seconds := end - time.monotonic()) > 0:
        with wait.limits.lease_wait(access, wait.function, seconds) as may_wait:
            if may_wait:
                thread, acts = _wait_for_acts(access, sona_id, step, limit, end)
            else:
                retry_after = RETRY_SECONDS
    last = acts[-1].step if acts else step
    return ActsPage(
        acts=[_to_act_out(act) for act in acts],
        cursor=access.sealer.seal("acts", access.caller.tenant, [str(sona_id), last]),
        head=thread.head_id,
        retry_after=retry_after,
    )


def _read_acts_after(
    access: TenantDb, sona_id: UUID, step: int, limit: int
) -> tuple[SonaThread, Sequence[ThreadAct]]:
    thread = _require_thread(access, sona_id)
    return thread, store_acts.list_acts_after(access, sona_id, step, limit)


def _wait_for_acts(
    access: TenantDb, sona_id: UUID, step: int, limit: int, end: float
) -> tuple[SonaThread, Sequence[ThreadAct]]:
    """Read again and again until an act comes, at the latest until `end`."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        waits.sleep_without_wait_lease(min(pause, max(0.0, end - time.monotonic())))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        thread, acts = _read_acts_after(access, sona_id, step, limit)
        if acts or time.monotonic() >= end:
            return thread, acts


def _parse_act_cursor(access: TenantDb, sona_id: UUID, cursor: str | None) -> int:
    """The step in a cursor; 0 without one. Raises Malformed."""
    if cursor is None:
        return 0
    try:
        fields = access.sealer.unseal("acts", access.caller.tenant, cursor)
        name, step = fields
        if name == str(sona_id) and isinstance(step, int):
            return step
    except (UnsealError, ValueError, TypeError):
        pass
    raise Malformed(
        "cursor: is not of this thread: send the `cursor` of its last answer, or none",
        field="cursor",
    )


def _require_thread(access: TenantDb, sona_id: UUID) -> SonaThread:
    thread = store_acts.get_sona_thread(access, sona_id)
    if thread is None:
        raise NotFound
    return thread


def _to_act_out(act: ThreadAct) -> ActOut:
    return ActOut(
        act_id=act.act_id,
        previous_id=act.previous_id,
        event_id=act.event_id,
        scope_id=act.scope_id,
        pushed_at=act.pushed_at,
    )


def push_act(request: Request) -> Response:
    """Continue the thread of a sona with an act that is tied to one memory. `after` is the head of
    the thread as the caller knows it. If the head is another act, nothing is stored and the answer
    is a 409 with `head`, so a thread never forks. The same push repeated is a replay. A push also
    records that the sona was active in the memory."""
    body = request.parse_body(PushActRequest)
    space = request.embedder.space
    result = push_act_to_thread(request.connect_writer(), request.path_id("uuid"), body, space)
    return replayable_response(result.act, 201, is_replay=result.is_replay)


def next_act(request: Request) -> Response:
    """Get the act after another one, or the first of a sona's thread. Only acts whose memories are
    in view count."""
    query = request.parse_query(NextActQuery)
    access = request.connect_reader(query)
    return json_response(read_next_act(access, request.path_id("uuid"), query.after))


def stream_acts(request: Request) -> Response:
    """Read a sona's thread in order, and wait for more. If no act comes after the cursor, the
    answer waits up to `wait` seconds for one, unless too many requests wait already. It always
    has a cursor for the next request. No act is missed or returned twice, even after a broken
    connection."""
    query = request.parse_query(ActsQuery)
    access = request.connect_reader(query)
    page = read_acts_or_wait(
        access,
        request.path_id("uuid"),
        cursor=query.cursor,
        limit=query.limit,
        wait=ActWaitLimits(
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
        body=PushActRequest,
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
