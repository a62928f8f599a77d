"""What the fresh tail costs to read."""

from typing import Any, cast

import pytest

from strandline.db.database import Caller, TenantDb
from strandline.topics import store_tail
from tests.strandline.topics.outline import build
from tests.strandline.topics.world import ScopeWorld
from tests.support import Gateway, ScratchDatabase

BLOCKS = 12
"""Of an event: its own row, its leaf's and the leaf's slot, each by an index."""


class Statements:
    """Stands for a database, and keeps what it is asked."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def fetch(self, row_type: type, statement: str, params: Any) -> list[Any]:
        """Give nothing."""
        del row_type
        self.calls.append((statement, params))
        return []


@pytest.mark.own_database
def test_topic_tail_events_are_looked_up_by_index(
    scratch_db: ScratchDatabase, gateway: Gateway
) -> None:
    """Also where the statistics are of empty tables, as in the first minutes of an import."""
    scratch_db.rows("analyze")
    world = ScopeWorld(scratch_db)
    world.add(60, events=10)
    assert build(gateway)["snapshots_published"] == 1
    world.add(30, events=10)
    access = gateway.database.connect_as(Caller.background("acme"))
    statements, scope = Statements(), (world.scope_id, 0, world.seq)
    assert len(store_tail.list_fresh_tail(access, 1, [scope], 1000)) == 300
    store_tail.list_fresh_tail(cast("TenantDb", statements), 1, [scope], 1000)
    ((statement, params),) = statements.calls
    with access.transaction():
        explain: Any = "explain (analyze, buffers, format json) " + statement
        connection: Any = access._transaction_connection  # pyright: ignore[reportPrivateUsage]
        row = connection.execute(explain, params).fetchone()
    ((plan,),) = row
    assert plan["Plan"]["Shared Hit Blocks"] < BLOCKS * world.seq
