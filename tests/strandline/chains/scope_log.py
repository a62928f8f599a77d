"""One scope's log, and its fold."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from strandline.chains.fold_scope import fold_scope
from strandline.chains.fold_state import FoldOutcome
from strandline.db.database import Caller
from strandline.jobs.worker_resources import WorkerResources
from tests.strandline.chains.fold_fixtures import ALICE, HELPER, START, append, set_tuning
from tests.support import Gateway, ScratchDatabase

NOW = datetime(2030, 1, 1, tzinfo=UTC)
"""Long after everything was recorded: who waits by our clock has waited enough."""
HARBOUR, BREAD = "harbour mooring berth jetty", "sourdough flour oven crust"


class Log:
    """Alice's scope with her helper, a minute between any two events."""

    def __init__(self, gateway: Gateway, base: ScratchDatabase) -> None:
        self.gateway, self.base, self.key = gateway, base, gateway.key()
        self.at = START
        self.scope = UUID(int=0)
        set_tuning(base)

    def say(self, text: str, role: str = "user", *, minutes: float = 1, **more: Any) -> None:
        self.at += timedelta(minutes=minutes)
        event: dict[str, Any] = {
            "participants": [ALICE, HELPER],
            "role": role,
            "speaker": ALICE if role == "user" else HELPER,
            "content": text,
            "occurred_at": self.at.isoformat(),
            **more,
        }
        self.scope = UUID(append(self.gateway, self.key, [event])[0])

    def chains(self) -> list[tuple[Any, ...]]:
        """Of each chain: how it ended, and its events' seqs."""
        return self.base.rows(
            "select v.closed_by, array_agg(l.seq order by l.seq) from chains c"
            " join chain_versions v using (tenant_id, chain_id, version)"
            " join chain_events l using (tenant_id, chain_id)"
            " group by c.chain_id, v.closed_by order by min(l.seq)"
        )

    def decided(self, *kinds: str) -> list[tuple[Any, ...]]:
        return self.base.rows(
            "select d.kind, e.seq, d.at_seq from decisions d join events e"
            " using (tenant_id, event_id) where d.kind = any (%s) order by d.at_seq, d.kind, e.seq",
            list(kinds),
        )


def fold(worker: WorkerResources, log: Log, now: datetime | None = None) -> bool:
    access = worker.database.connect_as(Caller.background("acme"))
    return fold_scope(worker, access, log.scope, now or datetime.now(UTC)).is_finished


def not_folded(*_: object) -> FoldOutcome:
    """A fold that nobody came to."""
    return FoldOutcome("waits_for_vector")
