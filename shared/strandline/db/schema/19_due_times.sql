-- When background work is next due, in any tenant: by indexes over all tenants, and not by a look at each
-- of them. Where the time follows from rows of several tables, or from a column that changes too often
-- to be indexed, a row per tenant has it, written by triggers when it changes.

create table tenant_due_times (
    tenant_id text not null references tenants,
    -- payloads: the hour in which the last append that no look has seen ends
    -- bytes: when what the tenant stores was last counted, and it has changed since
    -- snapshots: when the oldest one was published that is not active
    kind text not null check (kind in ('payloads', 'bytes', 'snapshots')),
    due_since timestamptz not null,
    primary key (tenant_id, kind)
);
create index tenant_due_times_next on tenant_due_times (kind, due_since);

create policy own_tenant on tenant_due_times to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on tenant_due_times for select to strandline_planner using (true);
alter table tenant_due_times enable row level security, force row level security;
grant select, insert, delete on tenant_due_times to strandline_app;
grant update (due_since) on tenant_due_times to strandline_app;
grant select on tenant_due_times to strandline_planner;

-- The end of the hour in which a moment lies: a row follows a tenant that appends all the time, at one
-- write an hour.
create function hour_end(p_moment timestamptz) returns timestamptz
language sql immutable parallel safe
    return date_bin('1 hour', p_moment, timestamptz '1970-01-01 00:00:00Z')
        + interval '60 minutes';

-- An append in a new hour.
create function record_append() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    insert into tenant_due_times (tenant_id, kind, due_since)
    values (new.tenant_id, 'payloads', hour_end(new.theoretical_arrival_at))
    on conflict (tenant_id, kind) do update set due_since = excluded.due_since;
    return null;
end $$;
create trigger record_first_append after insert on quotas
    for each row when (new.quota = 'appends') execute function record_append();
create trigger record_append after update on quotas
    for each row when (new.quota = 'appends'
        and hour_end(new.theoretical_arrival_at) <> hour_end(old.theoretical_arrival_at))
    execute function record_append();

-- What a tenant stores has changed since it was counted, or was counted.
create function record_change_of_bytes() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off as $$
begin
    if new.leased > 0 and new.level is distinct from new.measured then
        insert into tenant_due_times (tenant_id, kind, due_since)
        values (new.tenant_id, 'bytes', coalesce(new.measured_at, new.recent_since))
        on conflict (tenant_id, kind) do update set due_since = excluded.due_since;
    else
        delete from tenant_due_times where tenant_id = new.tenant_id and kind = 'bytes';
    end if;
    return null;
end $$;
create trigger record_first_bytes after insert on quotas
    for each row when (new.quota = 'stored_bytes' and new.leased > 0)
    execute function record_change_of_bytes();
create trigger record_change_of_bytes after update on quotas
    for each row when (new.quota = 'stored_bytes' and (
        new.measured_at is distinct from old.measured_at
        or (new.leased > 0 and new.level is distinct from new.measured)
            <> (old.leased > 0 and old.level is distinct from old.measured)))
    execute function record_change_of_bytes();

-- A snapshot is no longer the active one.
create function record_superseded_snapshot() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    insert into tenant_due_times (tenant_id, kind, due_since)
    select s.tenant_id, 'snapshots', s.published_at from snapshots s
    where s.tenant_id = old.tenant_id and s.version = old.version
    on conflict do nothing;
    return null;
end $$;
create trigger record_superseded_snapshot after update of version on active_snapshot
    for each row when (new.version <> old.version) execute function record_superseded_snapshot();

-- Snapshots are collected: the next is the oldest that is left.
create function record_collected_snapshots() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off as $$
begin
    delete from tenant_due_times d using collected c
    where d.tenant_id = c.tenant_id and d.kind = 'snapshots';
    insert into tenant_due_times (tenant_id, kind, due_since)
    select a.tenant_id, 'snapshots', oldest.published_at
    from (select distinct c.tenant_id from collected c) t
    join active_snapshot a on a.tenant_id = t.tenant_id
    cross join lateral (
        select s.published_at from snapshots s
        where s.tenant_id = a.tenant_id and s.version < a.version
        order by s.version limit 1) oldest
    on conflict do nothing;
    return null;
end $$;
create trigger record_collected_snapshots after delete on snapshots
referencing old table as collected for each statement execute function record_collected_snapshots();
revoke execute on function record_append, record_change_of_bytes, record_superseded_snapshot,
    record_collected_snapshots from public;
