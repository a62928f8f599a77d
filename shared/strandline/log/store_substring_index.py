"""SQL for the index of substrings: the texts of events, folded."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb


@dataclass(frozen=True)
class _IndexedEventRow:
    scope_id: UUID
    seq: int


def index_substrings_of_next_events(access: TenantDb, scope_ids: Sequence[UUID], limit: int) -> int:
    """Index the next events of these scopes, at most `limit` in all. Returns how many there were.
    Idempotent. Call it in a transaction."""
    events = access.fetch(
        _IndexedEventRow,
        """
        with next_events as materialized (
            select e.* from scopes s
            cross join lateral (
                select e.scope_id, e.seq, e.event_id, e.participants, e.content, e.erased_at
                from events e
                where e.scope_id = s.scope_id and e.seq > s.indexed_seq
                    and e.seq <= s.indexed_seq + %(limit)s  -- no gaps, no sort
                order by e.seq limit %(limit)s) e
            where s.scope_id = any (%(scope_ids)s) and s.last_seq > s.indexed_seq
            order by e.scope_id, e.seq limit %(limit)s),
        new_texts as (
            insert into event_texts (tenant_id, scope_id, event_id, participants, text)
            select current_tenant(), e.scope_id, e.event_id, e.participants, fold_text(e.content)
            from next_events e where e.content is not null and e.erased_at is null
            on conflict do nothing)
        select e.scope_id, e.seq from next_events e order by e.scope_id, e.seq
        """,
        {"scope_ids": list(scope_ids), "limit": limit},
    )
    if not events:
        return 0
    last_seqs = {event.scope_id: event.seq for event in events}
    params = {"scope_ids": list(last_seqs), "seqs": list(last_seqs.values())}
    access.execute(  # last, for the commit frees them; in the order in which an append locks them
        "select from scopes where scope_id = any (%(scope_ids)s) order by scope_id"
        " for no key update",
        params,
    )
    access.execute(
        "update scopes s set indexed_seq = greatest(s.indexed_seq, reached.seq)"
        " from unnest(%(scope_ids)s::uuid[], %(seqs)s::bigint[]) reached (scope_id, seq)"
        " where s.scope_id = reached.scope_id",
        params,
    )
    return len(events)
