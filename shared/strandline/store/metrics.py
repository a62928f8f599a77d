"""How much there is and how much waits: counters of one tenant, none of anybody's words."""

from dataclasses import dataclass

from strandline.db import Access


@dataclass(frozen=True)
class Due:
    """Work that waits in one tenant."""

    scopes: int
    seconds: float
    """For how long the longest of it has been due."""


def due(access: Access) -> Due:
    """What is due now, whether or not somebody works on it."""
    (found,) = access.fetch(
        Due,
        """
        select count(*) as scopes,
            coalesce(extract(epoch from now() - min(due_at)), 0)::float8 as seconds
        from scope_work where due_at <= now()
        """,
        {},
    )
    return found


@dataclass(frozen=True)
class Counters:
    """A tenant in numbers, read at one moment."""

    events: int
    """Ever appended."""
    scopes: int
    scopes_due: int
    oldest_due_seconds: float
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


def counters(access: Access, space: str) -> Counters:
    """A tenant's counters; from its scopes and chains, never from its events."""
    (found,) = access.fetch(
        Counters,
        """
        select held.*, held.events - embedded.events as events_not_embedded, waiting.*, formed.*,
            recalled.*
        from (
            select coalesce(sum(last_seq), 0)::bigint as events, count(*) as scopes,
                coalesce(sum(last_seq - folded_seq), 0)::bigint as events_not_folded,
                coalesce(sum(stored_bytes), 0)::bigint as stored_bytes
            from scopes) held,
        (
            select coalesce(sum(embedded_seq), 0)::bigint as events
            from scope_progress where space = %(space)s) embedded,
        (
            select count(*) as scopes_due,
                coalesce(extract(epoch from now() - min(due_at)), 0)::float8 as oldest_due_seconds
            from scope_work where due_at <= now()) waiting,
        (
            select count(*) filter (where status = 'active') as chains_active,
                count(*) filter (where status = 'rejected') as chains_rejected,
                count(*) filter (where status = 'archived') as chains_archived
            from chains) formed,
        (
            select count(*) as recalls_not_folded, greatest(0, coalesce(
                extract(epoch from now() - min(recalled_at)), 0))::float8 as oldest_recall_seconds
            from recalls where folded_at is null) recalled
        """,
        {"space": space},
    )
    return found
