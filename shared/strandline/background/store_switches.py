"""SQL for filling an embedding space beside the one that a tenant reads, and for the switch."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb


def begin_switch(access: TenantDb, from_space: str, to_space: str) -> None:
    """Record that a switch has begun, unless it is recorded; one to another space ends with it. In
    a transaction."""
    end_other_switches(access, to_space)
    access.execute(
        """
        insert into space_switches (tenant_id, begun_at, from_space, to_space)
        select current_tenant(), now(), %(from_space)s, %(to_space)s
        where not exists (
            select from space_switches s
            where s.tenant_id = current_tenant() and s.ended_at is null)
        on conflict do nothing
        """,
        {"from_space": from_space, "to_space": to_space},
    )


def end_other_switches(access: TenantDb, space: str) -> None:
    """End the tenant's switch to any other space: another model was configured meanwhile. In
    a transaction."""
    access.execute(
        "update space_switches set ended_at = now()"
        " where tenant_id = current_tenant() and ended_at is null and to_space <> %(space)s",
        {"space": space},
    )


def record_use(access: TenantDb, texts: int, characters: int) -> None:
    """Add to what the new model was given for the tenant's open switch. In a transaction."""
    access.execute(
        "update space_switches set texts = texts + %(texts)s,"
        " characters = characters + %(characters)s"
        " where tenant_id = current_tenant() and ended_at is null",
        {"texts": texts, "characters": characters},
    )


def record_failure(access: TenantDb, failure: str | None) -> None:
    """Record why the tenant's open switch cannot go on; None: it can. In a
    transaction."""
    access.execute(
        "update space_switches set failure = %(failure)s where tenant_id = current_tenant()"
        " and ended_at is null and failure is distinct from %(failure)s",
        {"failure": failure},
    )


def record_comparison(
    access: TenantDb, questions: int, overlap: float | None, same_first: float | None
) -> None:
    """Record how the answers in both spaces compare, with the tenant's open switch. In a
    transaction."""
    access.execute(
        "update space_switches set compared_at = now(), questions = %(questions)s,"
        " overlap = %(overlap)s, same_first = %(same_first)s"
        " where tenant_id = current_tenant() and ended_at is null",
        {"questions": questions, "overlap": overlap, "same_first": same_first},
    )


@dataclass(frozen=True)
class ScopeBehind:
    """A scope whose events do not all have a vector in a space."""

    scope_id: UUID


def list_scopes_behind(
    access: TenantDb, space: str, after: UUID, limit: int
) -> Sequence[ScopeBehind]:
    """The next scopes after `after`, by id, whose vectors in this space end before their log."""
    return access.fetch(
        ScopeBehind,
        """
        select s.scope_id from scopes s
        left join embedding_progress p on p.tenant_id = s.tenant_id and p.scope_id = s.scope_id
            and p.space = %(space)s
        where s.tenant_id = current_tenant() and s.scope_id > %(after)s
            and s.last_seq > coalesce(p.embedded_seq, 0)
        order by s.scope_id limit %(limit)s
        """,
        {"space": space, "after": after, "limit": limit},
    )


@dataclass(frozen=True)
class RecentQuestion:
    """A question that a user asked an agent."""

    event_id: UUID
    participants: list[str]
    text: str


def list_recent_questions(access: TenantDb, scanned: int, limit: int) -> Sequence[RecentQuestion]:
    """The newest messages of users that end with a question mark, newest first, among the newest
    `scanned` events."""
    return access.fetch(
        RecentQuestion,
        """
        select e.event_id, e.participants, e.content as text
        from (
            select n.event_id, n.participants, n.role, n.type, n.content, n.erased_at from events n
            where n.tenant_id = current_tenant() order by n.event_id desc limit %(scanned)s) e
        where e.role = 'user' and e.type = 'message' and e.erased_at is null
            and length(e.content) <= 400 and e.content ~ '[?\uff1f\u061f]\\s*$'
        order by e.event_id desc limit %(limit)s
        """,
        {"scanned": scanned, "limit": limit},
    )


@dataclass(frozen=True)
class _Behind:
    events: int


def try_switch(access: TenantDb, from_space: str, to_space: str, max_behind: int) -> bool:
    """Let the tenant read another space from now on. False, and nothing is changed, where it does
    not read `from_space`, or more than `max_behind` events have a vector there and none in
    `to_space`. These become work that is due, and so are found like events just appended. In a
    transaction, as its first statement: the lock of the tenant makes this and the end of a worker's
    lease see each other."""
    access.execute("select from tenants where tenant_id = current_tenant() for update", {})
    (behind,) = access.fetch(
        _Behind,
        """
        select coalesce(sum(greatest(p.embedded_seq - coalesce(n.embedded_seq, 0), 0)), 0)::bigint
            as events
        from embedding_progress p
        left join embedding_progress n on n.tenant_id = p.tenant_id and n.scope_id = p.scope_id
            and n.space = %(to_space)s
        where p.tenant_id = current_tenant() and p.space = %(from_space)s
        """,
        {"from_space": from_space, "to_space": to_space},
    )
    if behind.events > max_behind:
        return False
    # Not swept in the new space: the next sweep looks through all that the tenant has there.
    count = access.execute(
        "update tenants set reading_space = %(to_space)s,"
        " swept_space = nullif(swept_space, %(from_space)s) where tenant_id = current_tenant()"
        " and coalesce(reading_space, swept_space) = %(from_space)s",
        {"from_space": from_space, "to_space": to_space},
    )
    if count:
        access.execute(
            "update space_switches set ended_at = now(), switched = true, failure = null"
            " where tenant_id = current_tenant() and ended_at is null",
            {},
        )
    return bool(count)


_REMOVALS = (
    """
    delete from event_vectors v where v.tenant_id = current_tenant() and v.space = %(space)s
        and (v.scope_id, v.event_id) in (
            select o.scope_id, o.event_id from event_vectors o
            where o.tenant_id = current_tenant() and o.space = %(space)s limit %(limit)s)
    """,
    """
    delete from chain_vectors v where v.tenant_id = current_tenant() and v.space = %(space)s
        and (v.scope_id, v.chain_id) in (
            select o.scope_id, o.chain_id from chain_vectors o
            where o.tenant_id = current_tenant() and o.space = %(space)s limit %(limit)s)
    """,
    """
    delete from embedding_cache v where v.tenant_id = current_tenant() and v.space = %(space)s
        and v.text_hash in (
            select o.text_hash from embedding_cache o
            where o.tenant_id = current_tenant() and o.space = %(space)s limit %(limit)s)
    """,
    """
    update sona_members m set counted_in = array_remove(m.counted_in, %(space)s::text)
    where m.tenant_id = current_tenant() and %(space)s = any (m.counted_in)
        and (m.sona_id, m.event_id) in (
            select o.sona_id, o.event_id from sona_members o
            where o.tenant_id = current_tenant() and %(space)s = any (o.counted_in)
            limit %(limit)s)
    """,
    """
    delete from sona_centroids c where c.tenant_id = current_tenant() and c.space = %(space)s
    """,
)


def remove_vectors(access: TenantDb, space: str, limit: int) -> int:
    """Remove vectors of a space that the tenant neither reads nor fills, at most `limit` of each
    kind. Returns how many were removed; 0 once none is left. In a transaction.

    The positions of the scopes go first: a vector that another process still stores beside this
    begins the space from its beginning."""
    params: dict[str, object] = {"space": space, "limit": limit}
    access.execute(
        "delete from embedding_progress where tenant_id = current_tenant() and space = %(space)s",
        params,
    )
    return sum(access.execute(statement, params) for statement in _REMOVALS)


def record_removal(access: TenantDb, space: str) -> None:
    """Record that nothing is left of this space, which was left or never came to be read.
    In a transaction."""
    access.execute(
        "update space_switches set removed_at = now() where tenant_id = current_tenant()"
        " and ended_at is not null and removed_at is null"
        " and case when switched then from_space else to_space end = %(space)s",
        {"space": space},
    )
