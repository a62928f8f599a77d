"""What a fold reads of decisions that lie beside those which it asks for."""

from collections.abc import Callable
from functools import partial
from itertools import batched
from uuid import UUID, uuid4

import psycopg
import pytest

from strandline.chains import store
from strandline.chains.model_questions import read_run_events
from strandline.db.database import Caller, TenantDb
from tests.query_plans import Explainer, nodes, rows_read
from tests.strandline.chains.fold_fixtures import ALICE, HELPER, append
from tests.support import Gateway, ScratchDatabase

pytestmark = pytest.mark.own_database  # no other test's statistics
EVENTS, IN_CHAIN = 400, 5
"""So many that the table is read by an index whatever the statistics say."""


@pytest.fixture(params=["none", "of the empty table"])
def event_ids(
    gateway: Gateway, scratch_db: ScratchDatabase, request: pytest.FixtureRequest
) -> list[UUID]:
    """Of a scope that statistics do not know, the events of a chain. Every event of it has a
    decision."""
    if request.param != "none":
        with psycopg.connect(scratch_db.admin_url, autocommit=True) as administrator:
            administrator.execute("vacuum analyze")
    messages = [
        {"participants": [ALICE, HELPER], "role": "user", "content": f"I live in town {n} now."}
        for n in range(EVENTS)
    ]
    key = gateway.key()
    for some in batched(messages, 100, strict=True):
        append(gateway, key, list(some))
    scratch_db.rows(
        "insert into decisions (tenant_id, decision_id, scope_id, participants, event_id, kind,"
        " body, at_seq) select tenant_id, gen_random_uuid(), scope_id, participants, event_id,"
        " 'slots', jsonb_build_object('is_change', false), seq from events"
    )
    rows = scratch_db.rows("select event_id from events order by seq desc limit %s", IN_CHAIN)
    return [event_id for (event_id,) in rows]


def count_decisions_read(base: ScratchDatabase, call: Callable[[TenantDb], object]) -> float:
    """How many rows of decisions a call touches."""
    explainer = Explainer(base)
    try:
        access = explainer.database.connect_as(Caller.background("acme"))
        plans = explainer.plans(partial(call, access))
    finally:
        explainer.database.close()
    parts = [node for plan in plans for node in nodes(plan["Plan"])]
    own = [node for node in parts if node.get("Relation Name") == "decisions"]
    assert own
    return sum(map(rows_read, own))


def test_chain_plan_reads_events_with_their_own_decisions(
    scratch_db: ScratchDatabase, event_ids: list[UUID]
) -> None:
    read = count_decisions_read(
        scratch_db, lambda access: read_run_events(access, "words/64", event_ids)
    )
    assert read <= 2 * IN_CHAIN  # its change, and whether it is an echo


def test_chain_plan_marks_a_change_by_its_own_decisions(
    scratch_db: ScratchDatabase, event_ids: list[UUID]
) -> None:
    chain_id = uuid4()
    with psycopg.connect(scratch_db.admin_url) as administrator:
        administrator.execute("set session_replication_role = replica")  # no version is needed
        administrator.execute(
            "insert into chains (tenant_id, chain_id, scope_id, participants, session_id, version,"
            " status, last_event_at, created_at, importance, density, strength, accessed_at,"
            " cold_at, promote_until) select tenant_id, %s, scope_id, participants, '', 1,"
            " 'active', now(), now(), 0, 0, 1, now(), now(), now() from events limit 1",
            (chain_id,),
        )
        administrator.execute(
            "insert into chain_events (tenant_id, event_id, chain_id, scope_id, participants, seq,"
            " since_version) select tenant_id, event_id, %s, scope_id, participants, seq, 1"
            " from events where event_id = any (%s)",
            (chain_id, event_ids),
        )

    def mark(access: TenantDb) -> None:
        with access.transaction():
            access.execute(store._MARK_CHANGE, {"chain_id": chain_id})  # pyright: ignore[reportPrivateUsage]

    assert count_decisions_read(scratch_db, mark) <= IN_CHAIN
