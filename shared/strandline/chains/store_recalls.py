"""SQL for recalls: one row for each chain in each answer, which is folded into the chain's heat and
later removed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.connection import Connection, fetch_tenant_ids
from strandline.db.database import TenantDb
from strandline.db.pipeline import RowQuery
from strandline.tuning import Tuning


def record_recalled_chains(
    access: TenantDb,
    recall_id: UUID,
    chains: Sequence[tuple[UUID, UUID, Sequence[str]]],
    now: datetime,
) -> int:
    """Store that one recall returned these chains (each given with its scope and participants).
    Must run outside of any transaction, after the answer is built. It is idempotent. Returns how
    many rows are new. The commit does not wait for the disk: a crash may lose the latest rows, and
    their chains then cool sooner."""
    rows = [
        {"chain_id": str(chain_id), "scope_id": str(scope_id), "participants": list(participants)}
        for chain_id, scope_id, participants in chains
    ]
    new_rows = access.fetch(
        _ChainId,
        """
        with relaxed as (select set_config('synchronous_commit', 'off', true) as setting)
        insert into recalls
            (tenant_id, recall_id, chain_id, scope_id, participants, recalled_at)
        select current_tenant(), %(recall_id)s, r.chain_id, r.scope_id, r.participants, %(now)s
        from relaxed, jsonb_to_recordset(%(rows)s::jsonb) r
            (chain_id uuid, scope_id uuid, participants text[])
        where relaxed.setting = 'off'
        order by r.chain_id  -- one order: two concurrent inserts of the same rows do not deadlock
        on conflict do nothing
        returning chain_id
        """,
        {"recall_id": recall_id, "rows": json.dumps(rows), "now": now},
    )
    return len(new_rows)


def record_recalled_events(
    access: TenantDb,
    recall_id: UUID,
    event_ids: Sequence[UUID],
    now: datetime,
    answer_event_ids: Sequence[UUID] | None = None,
) -> int:
    """Store that one recall returned these events, as a use of the chains that hold them; otherwise
    like `record_recalled_chains`. Echoes do not count as a use. `answer_event_ids` are all events
    of the answer, by default `event_ids`: an event that repeats their text is an echo
    (chains/echoes). The use of the events themselves is folded later from the rows stored here
    (recall/importance)."""
    query = make_recalled_events_insert(
        access, recall_id, event_ids, now, answer_event_ids, is_durable=False
    )
    return len(access.fetch(query.row_type, query.statement, query.params))


_INSERT_USE = """
    with relaxed as (
        select set_config('synchronous_commit', coalesce(%(commit)s,
            current_setting('synchronous_commit')), true) as setting),
    answer as (
        insert into recall_answers
            (tenant_id, recall_id, participants, asker, writer, event_ids, used, recalled_at)
        select current_tenant(), %(recall_id)s::uuid, current_viewer(), %(asker)s,
            current_writer(), %(given_ids)s::uuid[], %(used)s, %(now)s::timestamptz
        from relaxed
        where relaxed.setting is not null
            and %(asker)s::text is not null  -- a reader of the whole tenant is no participant
        on conflict do nothing)
    insert into recalls
        (tenant_id, recall_id, chain_id, scope_id, participants, recalled_at)
    select distinct on (e.chain_id) current_tenant(), %(recall_id)s::uuid, e.chain_id,
        e.scope_id, e.participants, %(now)s::timestamptz
    from relaxed, chain_events e
    where relaxed.setting is not null
        and e.tenant_id = current_tenant() and e.event_id = any (%(event_ids)s)
        and not is_echo(e.scope_id, e.event_id)
    order by e.chain_id
    on conflict do nothing
    returning chain_id
"""


def make_recalled_events_insert(
    access: TenantDb,
    recall_id: UUID,
    event_ids: Sequence[UUID],
    now: datetime,
    answer_event_ids: Sequence[UUID] | None = None,
    *,
    is_durable: bool = True,
) -> RowQuery[Any]:
    """The query that stores what `record_recalled_events` describes. With `is_durable`, it commits
    with the server's setting; this is needed together with a statement that must not be lost."""
    viewer = access.caller.viewer
    return RowQuery(
        _ChainId,
        _INSERT_USE,
        {
            "recall_id": recall_id,
            "event_ids": list(event_ids),
            # The used ones first.
            "given_ids": list(dict.fromkeys([*event_ids, *(answer_event_ids or ())])),
            "used": len(set(event_ids)),
            "asker": viewer[-1] if viewer else None,
            "now": now,
            "commit": None if is_durable else "off",
        },
    )


@dataclass(frozen=True)
class _ChainId:
    chain_id: UUID


def lock_chains_with_unfolded_recalls(access: TenantDb, limit: int) -> list[UUID]:
    """Lock up to `limit` chains with recalls to fold, ordered by id. In a transaction. A second
    worker waits, and then finds the recalls folded."""
    rows = access.fetch(
        _ChainId,
        """
        select c.chain_id from chains c
        join (select distinct chain_id from recalls
            where tenant_id = current_tenant() and folded_at is null) r using (chain_id)
        where c.tenant_id = current_tenant()
        order by c.chain_id limit %(limit)s for no key update of c
        """,
        {"limit": limit},
    )
    return [row.chain_id for row in rows]


def fold_recalls_into_chains(
    access: TenantDb, chain_ids: Sequence[UUID], now: datetime, tuning: Tuning
) -> int:
    """Fold the unfolded recalls of these chains, which the caller has locked; each row once.
    Returns how many chains changed. `tuning` is the tenant's."""
    return access.execute(
        """
        with new_recalls as (
            update recalls set folded_at = %(now)s
            where tenant_id = current_tenant() and chain_id = any (%(chain_ids)s)
                and folded_at is null
            returning chain_id, recalled_at
        ), recalls_by_chain as (
            select chain_id, array_agg(recalled_at) as times, max(recalled_at) as latest
            from new_recalls group by chain_id
        ), new_state as (
            select c.chain_id, boost.strength, boost.boosted_at,
                greatest(c.accessed_at, u.latest) as accessed_at
            from recalls_by_chain u
            join chains c on c.tenant_id = current_tenant() and c.chain_id = u.chain_id
            cross join apply_recalls(c.strength, c.boosted_at, u.times, %(tuning)s::jsonb) boost
        )
        update chains c set
            strength = u.strength, boosted_at = u.boosted_at, accessed_at = u.accessed_at,
            cold_at =
                cold_at(c.importance, c.density, u.strength, u.accessed_at, %(tuning)s::jsonb),
            promote_until =
                promote_until(c.importance, c.density, u.strength, u.accessed_at, %(tuning)s::jsonb)
        from new_state u where c.tenant_id = current_tenant() and c.chain_id = u.chain_id
        """,
        {"chain_ids": list(chain_ids), "now": now, "tuning": tuning.model_dump_json()},
    )


@dataclass(frozen=True)
class HeatRecomputeProgress:
    """How many of a tenant's chains are recomputed after a change of the heat settings."""

    after: UUID | None
    """The last recomputed chain."""


def lock_heat_recompute_progress(
    access: TenantDb, settings: Mapping[str, object]
) -> HeatRecomputeProgress | None:
    """Lock the progress of the caller's tenant until the transaction ends; None if all chains are
    already computed with these settings."""
    rows = access.fetch(
        HeatRecomputeProgress,
        """
        select case when applied_heat_settings = %(settings)s::jsonb
            then heat_recomputed_to end as after from tenants
        where tenant_id = current_tenant()
            and (heat_recomputed_to is not null or applied_heat_settings <> %(settings)s::jsonb)
        for no key update
        """,
        {"settings": json.dumps(settings)},
    )
    return rows[0] if rows else None


def lock_chains_after(access: TenantDb, after: UUID | None, limit: int) -> list[UUID]:
    """Lock the next `limit` chains after this one, ordered by id. In a transaction."""
    rows = access.fetch(
        _ChainId,
        "select chain_id from lock_chains_after(%(after)s, %(limit)s) c (chain_id)",
        {"after": after or UUID(int=0), "limit": limit},
    )
    return [row.chain_id for row in rows]


def recompute_heat_times(access: TenantDb, chain_ids: Sequence[UUID], tuning: Tuning) -> None:
    """Recompute `cold_at` and `promote_until` of these chains, which the caller has locked."""
    access.execute(
        """
        update chains c set
            cold_at =
                cold_at(c.importance, c.density, c.strength, c.accessed_at, %(tuning)s::jsonb),
            promote_until =
                promote_until(c.importance, c.density, c.strength, c.accessed_at, %(tuning)s::jsonb)
        where c.tenant_id = current_tenant() and c.chain_id = any (%(chain_ids)s)
        """,
        {"chain_ids": list(chain_ids), "tuning": tuning.model_dump_json()},
    )


def set_heat_recompute_progress(
    access: TenantDb, settings: Mapping[str, object], after: UUID | None
) -> None:
    """Record that the chains up to this one are computed with these settings; None: all are."""
    access.execute(
        "update tenants set applied_heat_settings = %(settings)s::jsonb,"
        " heat_recomputed_to = %(after)s"
        " where tenant_id = current_tenant()",
        {"settings": json.dumps(settings), "after": after},
    )


def delete_old_recalls(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove recalls that were folded before this moment, and older unfolded ones whose chain no
    longer exists; at most `limit` of each. Returns how many."""
    return access.execute(
        """
        -- once: evaluated again by the join it could return other rows
        with old_recalls as materialized (
            (select recall_id, chain_id from recalls
            where tenant_id = current_tenant() and folded_at < %(before)s
            order by folded_at limit %(limit)s)
            union all
            (select r.recall_id, r.chain_id from recalls r
            left join chains c on c.tenant_id = r.tenant_id and c.chain_id = r.chain_id
            where r.tenant_id = current_tenant() and r.folded_at is null
                and r.recalled_at < %(before)s and c.chain_id is null
            limit %(limit)s)
        )
        delete from recalls r using old_recalls
        where r.tenant_id = current_tenant() and r.recall_id = old_recalls.recall_id
            and r.chain_id = old_recalls.chain_id
        """,
        {"before": before, "limit": limit},
    )


def delete_old_recall_answers(access: TenantDb, before: datetime, limit: int) -> int:
    """Remove at most `limit` records of recalled events from before this moment. Returns how
    many."""
    return access.execute(
        """
        delete from recall_answers a using (
            select recall_id from recall_answers
            where tenant_id = current_tenant() and recalled_at < %(before)s
            order by recalled_at limit %(limit)s) old
        where a.tenant_id = current_tenant() and a.recall_id = old.recall_id
        """,
        {"before": before, "limit": limit},
    )


def list_due_tenants(
    connection: Connection, deployment: Mapping[str, object], before: datetime
) -> list[str]:
    """Ids of the tenants with recalls to fold, with recalls folded before `before`, or with chains
    to recompute because the heat settings changed. `deployment` has all heat settings by name."""
    return fetch_tenant_ids(
        connection,
        "select * from tenants_with_heat_work(%s::jsonb, %s)",
        (json.dumps(deployment), before),
    )
