"""A session's chains page by page: no more is read than is shown, and what was seen at first."""

from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest

from strandline.cursors import Position
from strandline.db.database import Caller, Database, SnapshotRead, TenantDb
from strandline.sessions import store_chains
from strandline.sessions.store_chains import SessionChain
from tests.query_plans import Explainer, nodes, rows_read
from tests.support import Gateway, ScratchDatabase

SCOPE = UUID(int=1)
LAY = (
    "insert into scopes (tenant_id, scope_id, participants, last_seq, folded_seq)"
    " values ('acme', %(scope)s, '{user:alice}', 2 * %(chains)s, 2 * %(chains)s)",
    # A chain of two events a minute, in sessions by turns.
    "insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version, status,"
    " last_event_at, created_at, importance, density, accessed_at, cold_at, promote_until)"
    " select 'acme', md5(n::text)::uuid, %(scope)s, '{user:alice}', 's-' || n %% %(sessions)s, 1,"
    " 'active', '2026-05-08'::timestamptz + n * interval '1 min', now(), 0.5, 0.5, now(), now(),"
    " now() from generate_series(1, %(chains)s) n",
    "insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,"
    " created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at,"
    " topic,"
    " summary, entities, importance, density, quality, settings, models, content_hash,"
    " trust)"
    " select tenant_id, chain_id, 1, scope_id, participants, session_id,"
    " 2 * row_number() over (order by last_event_at), 'break', 1, 2, 2, last_event_at,"
    " last_event_at, 'tides', 'late', '[]', 0.5, 0.5, 1, '{}', '{}', '', 'user' from chains",
)
JOIN = (
    "insert into chain_versions (tenant_id, chain_id, version, scope_id, participants, session_id,"
    " created_at_seq, closed_by, first_seq, last_seq, event_count, started_at, last_event_at,"
    " topic,"
    " summary, entities, importance, density, quality, settings, models, content_hash,"
    " trust)"
    " select tenant_id, chain_id, version + 1, scope_id, participants, %s, %s, 'break', 1, 9, 4,"
    " started_at, %s, topic, summary, entities, 0.5, 0.5, 1, '{}', '{}', '', 'user'"
    " from chain_versions where chain_id = %s",
    "update chains set version = version + 1, last_event_at = %s where chain_id = %s",
)


@pytest.fixture
def alice(scratch_db: ScratchDatabase, gateway: Gateway) -> Iterator[TenantDb]:
    """Who asks, in a tenant that is there."""
    gateway.key()
    database = Database(scratch_db.url)
    yield database.connect_as(Caller("acme", ("user:alice",), "user:alice"))
    database.close()


def lay(base: ScratchDatabase, chains: int, sessions: int) -> None:
    params = {"scope": SCOPE, "chains": chains, "sessions": sessions}
    with psycopg.connect(base.admin_url) as administrator:
        for statement in LAY:
            administrator.execute(statement, params)
    with psycopg.connect(base.admin_url, autocommit=True) as administrator:
        administrator.execute("vacuum analyze chains, chain_versions")


def page(
    access: TenantDb, name: str, view: SnapshotRead[SessionChain] | None = None, limit: int = 10
) -> SnapshotRead[SessionChain]:
    after = None
    if view is not None:
        last = view.rows[:limit][-1]
        after = Position(view.pg_snapshot, last.last_event_at, last.chain_id, last.shown_at_seq)
    return store_chains.list_session_chains(
        access, name, SCOPE, statuses=["active"], after=after, limit=limit
    )


def ids(rows: Sequence[SessionChain], limit: int = 10) -> list[UUID]:
    return [row.chain_id for row in rows[:limit]]


@pytest.mark.parametrize("sessions", [1, 50])
def test_session_chains_page_reads_only_what_it_shows(
    scratch_db: ScratchDatabase, alice: TenantDb, sessions: int
) -> None:
    """Of 5,000 chains of one session or of fifty: its own, and no event of any."""
    lay(scratch_db, 5000, sessions)
    explanation = Explainer(scratch_db)
    access = explanation.database.connect_as(alice.caller)
    visible_ids: list[SnapshotRead[SessionChain]] = []
    for _ in range(2):
        plans = explanation.plans(
            lambda: visible_ids.append(
                page(access, "s-0", visible_ids[-1] if visible_ids else None)
            )
        )
        read = sum(rows_read(node) for plan in plans for node in nodes(plan["Plan"]))
        print(f"  {sessions} sessions: {read:.0f} rows read")
        assert read < 3 * 5000 // sessions + 300
    explanation.database.close()
    assert len({*ids(visible_ids[0].rows), *ids(visible_ids[1].rows)}) == 20


def test_session_chains_later_pages_keep_first_view(
    scratch_db: ScratchDatabase, alice: TenantDb
) -> None:
    """Chains that grew, or came into the session, between two pages stay where they were."""
    lay(scratch_db, 60, 2)
    whole = ids(page(alice, "s-0", limit=50).rows, 50)
    assert len(whole) == 30
    first = page(alice, "s-0")
    grown: Any = whole[15]
    (other,) = scratch_db.rows("select chain_id from chains where session_id = 's-1' limit 1")
    for chain, session in ((grown, "s-0"), (whole[2], "s-0"), (other[0], "s-0")):
        scratch_db.rows(JOIN[0], session, 999, "2026-06-01", chain)
        scratch_db.rows(JOIN[1], "2026-06-01", chain)
    second = page(alice, "s-0", first)
    third = page(alice, "s-0", second)
    event_ids = [*ids(first.rows), *ids(second.rows), *ids(third.rows)]
    assert event_ids == whole
    assert {row.version for row in second.rows} == {1}
    again = page(alice, "s-0", limit=50)
    assert set(ids(again.rows, 50)) == {*whole, other[0]}
    assert set(ids(again.rows, 3)) == {grown, whole[2], other[0]}
    assert {row.version for row in again.rows[:3]} == {2}
