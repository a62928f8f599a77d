"""Lanes between the log and the pure fold: what is open is read as turns, and kept as a place."""

import json
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from strandline.chains import store_lanes
from strandline.chains.segmentation import Lane, Rules, Turn, flows
from strandline.chains.store_lanes import Kept, LoggedTurn
from strandline.db.database import Access


def read_lanes(
    access: Access, scope_id: UUID, space: str, sessions: Sequence[str]
) -> dict[str, Lane]:
    """What is open in these lanes."""
    found: dict[str, Lane] = {}
    users: dict[str, Turn] = {}
    for logged in store_lanes.opened(access, scope_id, space, sessions):
        turn = as_turn(logged)
        if logged.is_user:
            users[turn.session_id] = turn
        if logged.is_open:
            lane = found.get(turn.session_id, Lane())
            judged = replace(lane, open=(*lane.open, turn))
            found[turn.session_id] = lane.joined(turn) if logged.is_ahead else judged
    return {name: replace(lane, user=users.get(name)) for name, lane in found.items()}


def as_turn(logged: LoggedTurn) -> Turn:
    """An event as the pure fold sees it."""
    return Turn(
        event_id=logged.event_id,
        seq=logged.seq,
        session_id=logged.session_id,
        role=logged.role,
        type=logged.type,
        said_at=logged.said_at,
        recorded_at=logged.recorded_at,
        flows=flows(logged.flows),
        vector=None if logged.decided or logged.vector is None else json.loads(logged.vector),
        given_up=logged.decided or logged.refused,
    )


def kept(session_id: str, lane: Lane, rules: Rules) -> Kept:
    """A lane that has something open, as it is kept; idle a gap after its last event."""
    assert lane.last is not None
    first = (*lane.open[:1], *lane.ahead[:1])[0]
    return Kept(
        session_id,
        folded_seq=lane.last.seq,
        after=first.seq - 1,
        judged=lane.ahead[0].seq - 1 if lane.ahead else lane.last.seq,
        user=lane.user and lane.user.event_id,
        idle_at=lane.last.recorded_at + rules.gap,
    )
