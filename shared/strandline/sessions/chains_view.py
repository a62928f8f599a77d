"""Read a session's chains and their heat."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from strandline.chains.heat import HeatInputs, compute_heat, compute_heat_with_factors
from strandline.cursors import Cursors, Position
from strandline.db.database import SnapshotRead, TenantDb
from strandline.log.read import take_models_fitting_response
from strandline.log.store_erasure_marks import decode_cursor_unless_erased_since
from strandline.sessions import store_chains
from strandline.sessions.schemas import (
    ChainHeatOut,
    ChainHeatPage,
    ChainOut,
    ChainsPageQuery,
    SegmentPage,
    SegmentsQuery,
)
from strandline.sessions.store import Session
from strandline.sessions.store_chains import ChainView, SessionChain
from strandline.tuning import Tuning

_STATUSES: Mapping[str | None, list[str]] = {
    None: ["active"],
    "rejected": ["active", "rejected"],
    "archived": ["active", "archived"],
    "all": ["active", "rejected", "archived"],
}


@dataclass(frozen=True)
class SessionReadContext:
    """A session with what its readers need: database access, thresholds and the current time."""

    access: TenantDb
    session: Session
    tuning: Tuning
    now: datetime
    only_session: bool
    """Whether to read only this session."""

    @property
    def covers_all_scopes(self) -> bool:
        """Whether to read all visible scopes. They include more than the session's own scope if the
        session is read on behalf of only some of its participants."""
        return not self.only_session and set(self.access.caller.viewer) != set(
            self.session.participants
        )

    @property
    def only_scope_id(self) -> UUID | None:
        """The scope whose chains to read; None for all visible scopes."""
        return None if self.covers_all_scopes else self.session.scope_id

    @property
    def only_session_id(self) -> str | None:
        """The session whose chains to read; None for all sessions."""
        return self.session.session_id if self.only_session else None


def to_chain_out(chain: ChainView, view: SessionReadContext) -> ChainOut:
    """Convert a chain for a response, with its heat at `view.now`."""
    return ChainOut.model_validate(
        {
            **vars(chain),
            "session_id": chain.session_id or None,
            "heat": compute_heat(_to_heat_state(chain), view.now, view.tuning),
            "made_by": chain.models,
        }
    )


def _to_heat_state(chain: ChainView) -> HeatInputs:
    return HeatInputs(chain.importance, chain.density, chain.strength, chain.accessed_at)


def list_chain_segments(view: SessionReadContext, query: SegmentsQuery) -> SegmentPage:
    """List a session's chains, newest first by their last event. Raises Malformed for an invalid
    cursor."""
    cursors = _make_cursors("segments", view, query.include)
    result = _read_chains_page(view, query, _STATUSES[query.include], cursors)
    page = take_models_fitting_response(
        to_chain_out(row, view) for row in result.rows[: query.limit]
    )
    return SegmentPage(
        session_id=view.session.session_id,
        segments=page,
        next_cursor=_next_cursor(result, len(page), cursors, query.cursor),
    )


def list_chain_heat(view: SessionReadContext, query: ChainsPageQuery) -> ChainHeatPage:
    """List the heat of each active chain of a session, with its factors. Raises Malformed for an
    invalid cursor."""
    cursors = _make_cursors("heat", view)
    result = _read_chains_page(view, query, _STATUSES[None], cursors)
    page = [
        ChainHeatOut.model_validate(
            {
                **vars(row),
                **compute_heat_with_factors(_to_heat_state(row), view.now, view.tuning)._asdict(),
            }
        )
        for row in result.rows[: query.limit]
    ]
    return ChainHeatPage(
        session_id=view.session.session_id,
        now=view.now.astimezone(UTC),
        chains=page,
        next_cursor=_next_cursor(result, len(page), cursors, query.cursor),
    )


def _make_cursors(name: str, view: SessionReadContext, *filters: object) -> Cursors:
    caller, session = view.access.caller, view.session
    return Cursors(
        view.access.sealer,
        caller.tenant,
        name,
        caller.viewer,
        session.session_id,
        session.scope_id,
        *filters,
    )


def _read_chains_page(
    view: SessionReadContext, query: ChainsPageQuery, statuses: list[str], cursors: Cursors
) -> SnapshotRead[SessionChain]:
    return store_chains.list_session_chains(
        view.access,
        view.session.session_id,
        view.session.scope_id,
        statuses=statuses,
        after=decode_cursor_unless_erased_since(view.access, cursors, query.cursor),
        limit=query.limit,
    )


def _next_cursor(
    result: SnapshotRead[SessionChain], count: int, cursors: Cursors, cursor: str | None
) -> str | None:
    """The cursor of the next page, or None at the end. It keeps the first page's database snapshot:
    a later snapshot would reveal whether someone has written since."""
    if count >= len(result.rows):
        return None
    last, after = result.rows[count - 1], cursors.decode(cursor)
    pg_snapshot = after.pg_snapshot if after else result.pg_snapshot
    return cursors.encode(
        Position(pg_snapshot, last.last_event_at, last.chain_id, last.shown_at_seq)
    )
