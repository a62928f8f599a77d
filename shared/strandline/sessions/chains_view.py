"""A session's chains: what each says, and how warm it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from strandline.chains.heat import State, factors, heat
from strandline.cursors import Cursors, Position
from strandline.db.database import Access, Look
from strandline.log.read import fitting
from strandline.sessions import store_chains
from strandline.sessions.schemas import (
    ChainOut,
    HeatOut,
    HeatPage,
    PageQuery,
    SegmentPage,
    SegmentsQuery,
)
from strandline.sessions.store import Session
from strandline.sessions.store_chains import Chain, Segment
from strandline.tuning import Tuning

_STATUSES: Mapping[str | None, list[str]] = {
    None: ["active"],
    "rejected": ["active", "rejected"],
    "archived": ["active", "archived"],
    "all": ["active", "rejected", "archived"],
}


@dataclass(frozen=True)
class Reading:
    """A session as it is read: on whose behalf, under which thresholds, at which moment."""

    access: Access
    session: Session
    tuning: Tuning
    now: datetime


def chain_shown(chain: Chain, reading: Reading) -> ChainOut:
    """A chain as its readers see it."""
    return ChainOut.model_validate(
        {
            **vars(chain),
            "session_id": chain.session_id or None,
            "heat": heat(_state(chain), reading.now, reading.tuning),
            "made_by": chain.models,
        }
    )


def _state(chain: Chain) -> State:
    return State(chain.importance, chain.density, chain.strength, chain.accessed_at)


def segments(reading: Reading, asked: SegmentsQuery) -> SegmentPage:
    """A session's chains, newest first by their last event."""
    of = _of("segments", reading, asked.include)
    seen = _chains(reading, asked, _STATUSES[asked.include], of)
    page = fitting(chain_shown(row, reading) for row in seen.rows[: asked.limit])
    return SegmentPage(
        session_id=reading.session.session_id,
        segments=page,
        next_cursor=_next(seen, len(page), of, asked.cursor),
    )


def heat_metrics(reading: Reading, asked: PageQuery) -> HeatPage:
    """How warm each active chain of a session is, and why."""
    of = _of("heat", reading)
    seen = _chains(reading, asked, _STATUSES[None], of)
    page = [
        HeatOut.model_validate(
            {**vars(row), **factors(_state(row), reading.now, reading.tuning)._asdict()}
        )
        for row in seen.rows[: asked.limit]
    ]
    return HeatPage(
        session_id=reading.session.session_id,
        now=reading.now.astimezone(UTC),
        chains=page,
        next_cursor=_next(seen, len(page), of, asked.cursor),
    )


def _of(name: str, reading: Reading, *narrowed: object) -> Cursors:
    asker, session = reading.access.asker, reading.session
    return Cursors(
        reading.access.sealer,
        asker.tenant,
        name,
        asker.viewer,
        session.session_id,
        session.scope_id,
        *narrowed,
    )


def _chains(reading: Reading, asked: PageQuery, statuses: list[str], of: Cursors) -> Look[Segment]:
    return store_chains.of_session(
        reading.access,
        reading.session.session_id,
        reading.session.scope_id,
        statuses=statuses,
        after=of.decode(asked.cursor),
        limit=asked.limit,
    )


def _next(seen: Look[Segment], taken: int, of: Cursors, cursor: str | None) -> str | None:
    """The first page's mark goes on: a later one would tell that anybody has written since."""
    if taken >= len(seen.rows):
        return None
    last, after = seen.rows[taken - 1], of.decode(cursor)
    mark = after.mark if after else seen.mark
    return of.encode(Position(mark, last.last_event_at, last.chain_id, last.shown_at_seq))
