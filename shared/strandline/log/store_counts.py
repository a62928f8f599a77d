"""How much there is and how much waits: counters of one tenant, none of anybody's words."""

from dataclasses import dataclass

from strandline.db.database import TenantDb
from strandline.log.store_work import STUCK_ATTEMPTS


@dataclass(frozen=True)
class DueWork:
    """Work that waits in one tenant."""

    scopes: int
    stuck: int
    """Scopes of it that were put off five times in a row."""
    seconds: float
    """For how long the longest of it has been due."""
    unembedded_seconds: float
    """How old the oldest event is that has no vector yet, of the scopes that have work at all."""
    unfolded_seconds: float
    """How old the oldest is that was not gone through for chains, likewise."""


def read_due_work(access: TenantDb, space: str) -> DueWork:
    """What is due now, whether or not somebody works on it. Of a scope with work two events are
    looked up by their place: the next to embed and the next to fold."""
    (row,) = access.fetch(
        DueWork,
        """
        with waiting as materialized (
            select w.tenant_id, w.scope_id, w.due_at, w.attempts, s.folded_seq + 1 as to_fold,
                coalesce(p.embedded_seq, 0) + 1 as to_embed
            from scope_work w
            join scopes s on s.tenant_id = w.tenant_id and s.scope_id = w.scope_id
            left join scope_progress p on p.tenant_id = w.tenant_id and p.scope_id = w.scope_id
                and p.space = %(space)s)
        select count(*) filter (where w.due_at <= now()) as scopes,
            count(*) filter (where w.attempts >= %(stuck)s) as stuck,
            greatest(0, coalesce(extract(epoch from now() - min(w.due_at)), 0))::float8 as seconds,
            coalesce(extract(epoch from now() - min(e.recorded_at)), 0)::float8
                as unembedded_seconds,
            coalesce(extract(epoch from now() - min(f.recorded_at)), 0)::float8
                as unfolded_seconds
        from waiting w
        left join events e on e.tenant_id = w.tenant_id and e.scope_id = w.scope_id
            and e.seq = w.to_embed
        left join events f on f.tenant_id = w.tenant_id and f.scope_id = w.scope_id
            and f.seq = w.to_fold
        """,
        {"space": space, "stuck": STUCK_ATTEMPTS},
    )
    return row


@dataclass(frozen=True)
class BackgroundFailures:
    """What of a tenant's background work somebody has to look at."""

    scopes_stuck: int
    """Scopes whose work was put off five times in a row."""
    jobs_failed: int
    """Jobs that failed and were not tried again, of those that are kept (30 days)."""


def count_failures(access: TenantDb) -> BackgroundFailures:
    """What of the asker's tenant's background work fails."""
    (row,) = access.fetch(
        BackgroundFailures,
        """
        select (select count(*) from scope_work where attempts >= %(stuck)s) as scopes_stuck,
            (select count(*) from jobs where state = 'failed') as jobs_failed
        """,
        {"stuck": STUCK_ATTEMPTS},
    )
    return row


@dataclass(frozen=True)
class Counters:
    """A tenant in numbers, read at one moment."""

    events: int
    """Ever appended."""
    scopes: int
    events_not_embedded: int
    events_not_folded: int
    """Not gone through for chains yet."""
    chains_active: int
    chains_rejected: int
    """Kept out of listings for what little they hold."""
    chains_archived: int
    recalls_not_folded: int
    """Of chains, and not part of their strength yet."""
    oldest_recall_seconds: float
    """How long the oldest of these has waited."""
    stored_bytes: int
    """Content, metadata and payloads, as the quota counts them."""
    jobs_failed: int
    """Not tried again since, of those that are kept (30 days)."""
    breakers_open: int
    """Language models that are left alone for now."""


def read_counters(access: TenantDb, space: str) -> Counters:
    """A tenant's counters; from its scopes and chains, never from its events."""
    (row,) = access.fetch(
        Counters,
        """
        select held.*, held.events - embedded.events as events_not_embedded, formed.*, recalled.*,
            failed.*, asked.*
        from (
            select coalesce(sum(last_seq), 0)::bigint as events, count(*) as scopes,
                coalesce(sum(last_seq - folded_seq), 0)::bigint as events_not_folded,
                coalesce(sum(stored_bytes), 0)::bigint as stored_bytes
            from scopes) held,
        (
            select coalesce(sum(embedded_seq), 0)::bigint as events
            from scope_progress where space = %(space)s) embedded,
        (
            select count(*) filter (where status = 'active') as chains_active,
                count(*) filter (where status = 'rejected') as chains_rejected,
                count(*) filter (where status = 'archived') as chains_archived
            from chains) formed,
        (
            select count(*) as recalls_not_folded, greatest(0, coalesce(
                extract(epoch from now() - min(recalled_at)), 0))::float8 as oldest_recall_seconds
            from recalls where folded_at is null) recalled,
        (select count(*) as jobs_failed from jobs where state = 'failed') failed,
        (select count(*) as breakers_open from model_states where shut_until > now()) asked
        """,
        {"space": space},
    )
    return row
