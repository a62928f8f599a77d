"""Conversion between stored lanes and the lanes of the pure segmentation: open events become turns,
and a lane becomes a row of positions."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from strandline.chains import store_fold_progress
from strandline.chains.segmentation import Lane, LaneEvent, SegmentationRules, read_workflow_ids
from strandline.chains.store_fold_progress import EventToFold, LaneRow
from strandline.db.database import TenantDb
from strandline.embeddings.vector_formats import unpack_vector


def read_open_lanes(
    access: TenantDb, scope_id: UUID, space: str, sessions: Sequence[str]
) -> dict[str, Lane]:
    """The open lanes of these sessions, by session id. A session without open events is left
    out."""
    lane_by_session: dict[str, Lane] = {}
    user_turn_by_session: dict[str, LaneEvent] = {}
    for event in store_fold_progress.read_open_lane_events(access, scope_id, space, sessions):
        turn = to_lane_event(event)
        if event.is_user:
            user_turn_by_session[turn.session_id] = turn
        if event.is_open:
            lane = lane_by_session.get(turn.session_id, Lane())
            judged_lane = replace(lane, open_events=(*lane.open_events, turn))
            lane_by_session[turn.session_id] = (
                lane.with_pending_event(turn) if event.is_ahead else judged_lane
            )
    return {
        name: replace(lane, last_user_message=user_turn_by_session.get(name))
        for name, lane in lane_by_session.items()
    }


def to_lane_event(event: EventToFold) -> LaneEvent:
    """Convert a logged event to the pure segmentation's turn."""
    return LaneEvent(
        event_id=event.event_id,
        seq=event.seq,
        session_id=event.session_id,
        role=event.role,
        type=event.type,
        said_at=event.said_at,
        recorded_at=event.recorded_at,
        flow_ids=read_workflow_ids(event.flows),
        vector=None if event.is_given_up or event.vector is None else unpack_vector(event.vector),
        vector_given_up=event.is_given_up or event.is_refused,
    )


def to_lane_row(session_id: str, lane: Lane, rules: SegmentationRules) -> LaneRow:
    """Convert a lane with open events to its row; it becomes idle one gap after its last event."""
    assert lane.last_event is not None
    first = (*lane.open_events[:1], *lane.pending_events[:1])[0]
    return LaneRow(
        session_id,
        folded_seq=lane.last_event.seq,
        open_after_seq=first.seq - 1,
        judged_seq=lane.pending_events[0].seq - 1 if lane.pending_events else lane.last_event.seq,
        user_event_id=lane.last_user_message and lane.last_user_message.event_id,
        idle_at=lane.last_event.recorded_at + rules.gap,
    )
