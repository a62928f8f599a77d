"""SQL for one tenant's counters: what is stored and what is pending. No content is read."""

from dataclasses import dataclass

from strandline.db.database import TenantDb
from strandline.log.store_work import STUCK_ATTEMPTS


@dataclass(frozen=True)
class DueWork:
    """The pending work of one tenant."""

    scopes: int
    stuck_scopes: int
    """Scopes of these that were postponed five times in a row."""
    seconds: float
    """How long the oldest work has been due, in seconds."""
    unembedded_seconds: float
    """The age of the oldest event without a vector, among scopes with pending work."""
    unfolded_seconds: float
    """The age of the oldest event that is not folded into chains, likewise."""
    erasures: int
    """Erasures that are not complete."""
    erasure_seconds: float
    """How long ago the oldest of them was asked for."""


def read_due_work(access: TenantDb, space: str) -> DueWork:
    """Read the work that is due now, leased or not. For each scope with work it looks up two events
    by seq: the next to embed and the next to fold."""
    (row,) = access.fetch(
        DueWork,
        """
        with due_work as materialized (
            select w.tenant_id, w.scope_id, w.due_at, w.attempts, s.folded_seq + 1 as to_fold,
                coalesce(p.embedded_seq, 0) + 1 as to_embed
            from scope_work w
            join scopes s on s.tenant_id = w.tenant_id and s.scope_id = w.scope_id
            left join embedding_progress p on p.tenant_id = w.tenant_id and p.scope_id = w.scope_id
                and p.space = %(space)s)
        select count(*) filter (where w.due_at <= now()) as scopes,
            count(*) filter (where w.attempts >= %(stuck_attempts)s) as stuck_scopes,
            greatest(0, coalesce(extract(epoch from now() - min(w.due_at)), 0))::float8 as seconds,
            coalesce(extract(epoch from now() - min(e.recorded_at)), 0)::float8
                as unembedded_seconds,
            coalesce(extract(epoch from now() - min(f.recorded_at)), 0)::float8
                as unfolded_seconds,
            (select count(*) from erasures x
                where x.tenant_id = current_tenant() and x.completed_at is null) as erasures,
            (select greatest(0, coalesce(extract(epoch from now() - min(x.asked_at)), 0))::float8
                from erasures x
                where x.tenant_id = current_tenant() and x.completed_at is null)
                as erasure_seconds
        from due_work w
        left join events e on e.tenant_id = w.tenant_id and e.scope_id = w.scope_id
            and e.seq = w.to_embed
        left join events f on f.tenant_id = w.tenant_id and f.scope_id = w.scope_id
            and f.seq = w.to_fold
        """,
        {"space": space, "stuck_attempts": STUCK_ATTEMPTS},
    )
    return row


@dataclass(frozen=True)
class BackgroundFailures:
    """Failures of a tenant's background work that an operator must look at, and erasures that are
    not complete."""

    scopes_stuck: int
    """Scopes whose work was postponed five times in a row."""
    jobs_failed: int
    """Failed jobs of the last 30 days that were not tried again."""
    turns_late: int
    """Answers of the language model that have been waited for since more than ten minutes."""
    erasures_waiting: int
    """Erasures that are not complete."""
    oldest_erasure_seconds: int
    """How long ago the oldest of them was asked for."""
    rows_unreadable: int
    """Nodes and edges with a time that is shown as the nearest one, see `db/nearest_moments`."""


def count_background_failures(access: TenantDb) -> BackgroundFailures:
    """Count the failures of the tenant's background work, and the erasures that are not
    complete."""
    (row,) = access.fetch(
        BackgroundFailures,
        """
        select (select count(*) from scope_work
            where attempts >= %(stuck_attempts)s) as scopes_stuck,
            (select count(*) from jobs where state = 'failed') as jobs_failed,
            (select count(*) from turns where tenant_id = current_tenant() and state = 'waiting'
                and created_at < now() - interval '10 minutes') as turns_late,
            erasure_totals.*,
            (select count(*) from graph_nodes
                where tenant_id = current_tenant() and (valid_from <> nearest_moment(valid_from)
                    or valid_to <> nearest_moment(valid_to)))
            + (select count(*) from graph_edges
                where tenant_id = current_tenant() and (valid_from <> nearest_moment(valid_from)
                    or valid_to <> nearest_moment(valid_to))) as rows_unreadable
        from (
            select count(*) as erasures_waiting, floor(greatest(0, coalesce(
                extract(epoch from now() - min(asked_at)), 0)))::int as oldest_erasure_seconds
            from erasures
            where tenant_id = current_tenant() and completed_at is null) erasure_totals
        """,
        {"stuck_attempts": STUCK_ATTEMPTS},
    )
    return row


@dataclass(frozen=True)
class TenantCounters:
    """A tenant's counters, read in one database snapshot."""

    events: int
    """All events that were ever appended."""
    scopes: int
    events_not_embedded: int
    events_not_folded: int
    """Events that are not folded into chains yet."""
    chains_active: int
    chains_rejected: int
    """Chains that the quality gate keeps out of lists."""
    chains_archived: int
    recalls_not_folded: int
    """Recalls of chains that are not added to the chains' strength yet."""
    oldest_recall_seconds: float
    """How long the oldest of these recalls has waited."""
    stored_bytes: int
    """Bytes of content, metadata and payloads, as the quota counts them."""
    jobs_failed: int
    """Failed jobs of the last 30 days that were not tried again."""
    breakers_open: int
    """Language models whose circuit breaker is open."""


def read_tenant_counters(access: TenantDb, space: str) -> TenantCounters:
    """Read a tenant's counters from its scopes and chains, never from its events."""
    (row,) = access.fetch(
        TenantCounters,
        """
        select log_totals.*, log_totals.events - embedding_totals.events as events_not_embedded,
            chain_totals.*, recall_totals.*, job_totals.*, breaker_totals.*
        from (
            select coalesce(sum(last_seq), 0)::bigint as events, count(*) as scopes,
                coalesce(sum(last_seq - folded_seq), 0)::bigint as events_not_folded,
                coalesce(sum(stored_bytes), 0)::bigint as stored_bytes
            from scopes) log_totals,
        (
            select coalesce(sum(embedded_seq), 0)::bigint as events
            from embedding_progress where space = %(space)s) embedding_totals,
        (
            select count(*) filter (where status = 'active') as chains_active,
                count(*) filter (where status = 'rejected') as chains_rejected,
                count(*) filter (where status = 'archived') as chains_archived
            from chains) chain_totals,
        (
            select count(*) as recalls_not_folded, greatest(0, coalesce(
                extract(epoch from now() - min(recalled_at)), 0))::float8 as oldest_recall_seconds
            from recalls where folded_at is null) recall_totals,
        (select count(*) as jobs_failed from jobs where state = 'failed') job_totals,
        (select count(*) as breakers_open from model_states
            where breaker_open_until > now()) breaker_totals
        """,
        {"space": space},
    )
    return row
