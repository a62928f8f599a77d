"""SQL for what a tenant's memory and its topic index hold, and what is made next."""

from dataclasses import dataclass

from strandline.db.database import TenantDb
from strandline.status.schemas import MemoryState


def count_tenant_memory(access: TenantDb) -> MemoryState:
    """Count what the caller's tenant has. No content is read."""
    (counts,) = access.fetch(
        MemoryState,
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


@dataclass(frozen=True)
class TopicIndexCounts:
    """The state of the topic index."""

    snapshot_version: int
    """The active version; 0: none."""
    snapshot_seconds: float
    """The age of the active version."""
    chains_not_indexed: int
    """The number of chain versions that wait for a build."""
    unindexed_seconds: float
    """How long the oldest of them has been waiting."""


def read_topic_index_counts(access: TenantDb) -> TopicIndexCounts:
    """Read the state of the topic index of the caller's tenant."""
    (counts,) = access.fetch(
        TopicIndexCounts,
        """
        select coalesce(max(s.version), 0) as snapshot_version,
            greatest(0, coalesce(extract(epoch from now() - max(s.published_at)), 0))::float8
                as snapshot_seconds,
            w.versions as chains_not_indexed, w.seconds as unindexed_seconds
        from (
            select coalesce(sum(waiting), 0)::bigint as versions,
                greatest(0, coalesce(extract(epoch from now() - min(oldest_at)), 0))::float8
                    as seconds
            from topic_work) w
        left join active_snapshot a on true
        left join snapshots s on s.tenant_id = a.tenant_id and s.version = a.version
        group by w.versions, w.seconds
        """,
        {},
    )
    return counts
