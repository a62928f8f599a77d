"""SQL for what a tenant's memory holds, and what is made next."""

from dataclasses import dataclass
from datetime import datetime

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class MemoryCounts:
    """What the tenant's memory holds, and when its next work is due."""

    events: int
    scopes: int
    topics: int
    facts: int
    chains_due_at: datetime | None


def count_memory(access: TenantDb) -> MemoryCounts:
    """Count what the caller's tenant has. No content is read."""
    (counts,) = access.fetch(
        MemoryCounts,
        """
        select log_totals.*, chain_totals.topics, fact_totals.facts, due_work.chains_due_at
        from (
            select coalesce(sum(last_seq), 0)::bigint as events, count(*) as scopes
            from scopes) log_totals,
        (select count(*) as topics from chains where status = 'active') chain_totals,
        (
            select count(*) as facts from graph_nodes
            where type = 'fact' and (valid_to is null or valid_to > now())) fact_totals,
        (select min(due_at) as chains_due_at from scope_work) due_work
        """,
        {},
    )
    return counts
