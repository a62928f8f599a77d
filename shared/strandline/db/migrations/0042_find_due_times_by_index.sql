-- When background work is next due, in any tenant: by indexes over all tenants, and not by a look at each
-- of them. Where the time follows from rows of several tables, or from a column that changes too often
-- to be indexed, a row per tenant has it, written by triggers when it changes.

create index scope_work_next on scope_work (greatest(due_at, leased_until)) where attempts <= 12;
create index scope_work_failing on scope_work (attempts, greatest(due_at, leased_until))
    where attempts between 13 and 20;
create index lanes_next on lanes (idle_at) where idle_at is not null;
create index jobs_leased on jobs (leased_until) where state in ('queued', 'running') and ref is null;
create index jobs_retries on jobs (greatest(created_at, leased_until))
    where state = 'queued' and ref is not null;
create index recalls_waiting on recalls (recalled_at) where folded_at is null;
create index chains_next_cold on chains (cold_at) where status = 'active';
create index blob_removals_marked on blob_removals (marked_at) where removing_until is null;
create index blob_removals_next on blob_removals (removing_until) where removing_until is not null;
create index reference_answers_next on reference_answers (answered_at);
create index graph_analyses_next on graph_analyses (changed_at) where changes > analysed_changes;
create index tenants_swept on tenants (swept_space);
create index tenants_recomputing on tenants (tenant_id) where heat_recomputed_to is not null;
-- Tenants with the same settings have the same value.
create index tenants_heat on tenants (md5(applied_heat_settings::text || tuning::text));

-- rows of due times --------------------------------------------------------------------------------

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

-- The end of the hour in which a moment lies: a row follows a tenant that appends all the time, at one
-- write an hour.
create function hour_end(p_moment timestamptz) returns timestamptz
language sql immutable parallel safe
    return date_bin('1 hour', p_moment, timestamptz '1970-01-01 00:00:00Z')
        + interval '60 minutes';

-- What is due of tenants that were there before: their rows are read as the planner, who sees them all.
do $$
declare
    v_tenants text[];
    v_kinds text[];
    v_times timestamptz[];
    v_count bigint;
begin
    set local role strandline_planner;
    select array_agg(d.tenant_id), array_agg(d.kind), array_agg(d.due_since)
    into v_tenants, v_kinds, v_times from (
        select q.tenant_id, 'payloads' as kind, hour_end(q.theoretical_arrival_at) as due_since
        from quotas q where q.quota = 'appends'
        union all
        select q.tenant_id, 'bytes', coalesce(q.measured_at, q.recent_since) from quotas q
        where q.quota = 'stored_bytes' and q.leased > 0 and q.level is distinct from q.measured
        union all
        select a.tenant_id, 'snapshots', s.published_at from active_snapshot a
        cross join lateral (
            select p.published_at from snapshots p
            where p.tenant_id = a.tenant_id and p.version < a.version
            order by p.version limit 1) s) d;
    reset role;
    insert into tenant_due_times (tenant_id, kind, due_since)
    select * from unnest(v_tenants, v_kinds, v_times);
    get diagnostics v_count = row_count;
    if v_count <> coalesce(cardinality(v_tenants), 0) then
        raise exception '% of % due times were written', v_count, cardinality(v_tenants);
    end if;
end $$;

create policy own_tenant on tenant_due_times to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on tenant_due_times for select to strandline_planner using (true);
alter table tenant_due_times enable row level security;
alter table tenant_due_times force row level security;
grant select, insert, delete on tenant_due_times to strandline_app;
grant update (due_since) on tenant_due_times to strandline_app;
grant select on tenant_due_times to strandline_planner;

-- An append in a new hour.
create function record_append() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    insert into tenant_due_times (tenant_id, kind, due_since)
    values (new.tenant_id, 'payloads', hour_end(new.theoretical_arrival_at))
    on conflict (tenant_id, kind) do update set due_since = excluded.due_since;
    return null;
end $$;
revoke execute on function record_append from public;
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
revoke execute on function record_change_of_bytes from public;
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
revoke execute on function record_superseded_snapshot from public;
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
revoke execute on function record_collected_snapshots from public;
create trigger record_collected_snapshots after delete on snapshots
referencing old table as collected for each statement execute function record_collected_snapshots();

-- due ----------------------------------------------------------------------------------------------

grant create on schema public to strandline_planner;
set local role strandline_planner;

-- Tenants where a sweep has something to do: by what is due, not by tenants. The scopes themselves, whose
-- work may have no row that names it, are looked through once a day and when the embedding space is new.
create or replace function tenants_to_sweep(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.swept_space is distinct from p_space or t.swept_at < sweep_day_start(p_now)
    union
    select w.tenant_id from scope_work w
    where w.due_at <= p_now and w.leased_until <= p_now
    union
    select l.tenant_id from lanes l  -- a lane is closed only once its scope is folded to the end
    join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
    where l.idle_at <= p_now and s.folded_seq >= s.last_seq
    union
    select j.tenant_id from jobs j where j.ref is not null and j.state = 'queued'
    union
    select j.tenant_id from jobs j
    where j.ref is null and j.state in ('queued', 'running') and j.leased_until < p_now
    order by 1
$$;

-- Whether the heat settings that a tenant's chains follow are not those in force. Each combination of
-- settings is judged once, however many tenants have it: the next greater value of the index is looked up
-- until there is none.
create function heat_settings_differ(p_deployment jsonb) returns boolean
language sql stable set search_path = pg_catalog, public, pg_temp as $$
    with recursive kinds as (
        (select md5(t.applied_heat_settings::text || t.tuning::text) as kind,
            t.applied_heat_settings as applied, t.tuning
        from tenants t order by md5(t.applied_heat_settings::text || t.tuning::text) limit 1)
        union all
        select n.kind, n.applied, n.tuning from kinds k
        cross join lateral (
            select md5(t.applied_heat_settings::text || t.tuning::text) as kind,
                t.applied_heat_settings as applied, t.tuning
            from tenants t
            where md5(t.applied_heat_settings::text || t.tuning::text) > k.kind
            order by md5(t.applied_heat_settings::text || t.tuning::text) limit 1) n)
    select exists (select from kinds k where k.applied <> heat_settings(p_deployment, k.tuning))
$$;

-- When the sweeper has something to do next, in any tenant; null: nothing known. With a space it also
-- counts what a sweep looks through and no row names: tenants that are new to the space, or to these
-- settings of heat. Of each kind the latest that is overdue is enough, because it has the shortest
-- pause, and the earliest to come. Lanes and recalls whose scope or chain is not ready are passed over,
-- one by one (a subquery is not turned into a join) and a thousand at most: what makes them ready asks
-- again.
create or replace function next_sweep(
    p_space text, p_deployment jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(next_retry_at(due.at, p_spacing, p_now)) from (
        select max(greatest(w.due_at, w.leased_until)) as at from scope_work w
        where w.attempts <= 12 and greatest(w.due_at, w.leased_until) <= p_now
        union all
        select min(greatest(w.due_at, w.leased_until)) from scope_work w
        where w.attempts <= 12 and greatest(w.due_at, w.leased_until) > p_now
        union all
        -- What failed often is tried by every sweep, but starts one ever more seldom.
        select due.at + pause.length from generate_series(13, 20) n (attempts)
        cross join lateral (
            select (2 ^ (n.attempts - 12) - 1) * interval '5 minutes' as length) pause
        cross join lateral (
            select max(greatest(w.due_at, w.leased_until)) as at from scope_work w
            where w.attempts = n.attempts and w.attempts between 13 and 20
                and greatest(w.due_at, w.leased_until) <= p_now - pause.length
            union all
            select min(greatest(w.due_at, w.leased_until)) from scope_work w
            where w.attempts = n.attempts and w.attempts between 13 and 20
                and greatest(w.due_at, w.leased_until) > p_now - pause.length) due
        union all
        (select l.idle_at from (
            select o.tenant_id, o.scope_id, o.idle_at from lanes o
            where o.idle_at <= p_now order by o.idle_at desc limit 1000) l
        where (select s.folded_seq >= s.last_seq from scopes s
            where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id)
        order by l.idle_at desc limit 1)
        union all
        (select l.idle_at from (
            select o.tenant_id, o.scope_id, o.idle_at from lanes o
            where o.idle_at > p_now order by o.idle_at limit 1000) l
        where (select s.folded_seq >= s.last_seq from scopes s
            where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id)
        order by l.idle_at limit 1)
        union all
        select max(greatest(j.created_at, j.leased_until)) from jobs j
        where j.state = 'queued' and j.ref is not null
            and greatest(j.created_at, j.leased_until) <= p_now
        union all
        select min(greatest(j.created_at, j.leased_until)) from jobs j
        where j.state = 'queued' and j.ref is not null
            and greatest(j.created_at, j.leased_until) > p_now
        union all
        select max(j.leased_until) from jobs j
        where j.state in ('queued', 'running') and j.ref is null and j.leased_until <= p_now
        union all
        select min(j.leased_until) from jobs j
        where j.state in ('queued', 'running') and j.ref is null and j.leased_until > p_now
        union all
        (select r.recalled_at from (
            select o.tenant_id, o.chain_id, o.recalled_at from recalls o
            where o.folded_at is null order by o.recalled_at desc limit 1000) r
        where (select true from chains c
            where c.tenant_id = r.tenant_id and c.chain_id = r.chain_id)
        order by r.recalled_at desc limit 1)
        union all
        select max(u.remove_at) from uploads u where u.remove_at <= p_now
        union all
        select min(u.remove_at) from uploads u where u.remove_at > p_now
        union all
        select max(d.due_since) + interval '10 minutes' from tenant_due_times d
        where d.kind = 'bytes' and d.due_since <= p_now - interval '10 minutes'
        union all
        select min(d.due_since) + interval '10 minutes' from tenant_due_times d
        where d.kind = 'bytes' and d.due_since > p_now - interval '10 minutes'
        union all
        select p_now where p_space is not null and (
            exists (select from tenants t where t.swept_space is null)
            -- by the ends of the index: a plan for any space would expect many that are less
            or (select min(t.swept_space) from tenants t) < p_space
            or (select max(t.swept_space) from tenants t) > p_space
            or exists (select from tenants t where t.heat_recomputed_to is not null)
            or heat_settings_differ(p_deployment))
    ) due
$$;

-- Of what the archiver looks for once a period is over, the due times next to p_now: the latest that is
-- overdue and the earliest to come, of payloads and of the topic index.
create function period_ends_due(
    p_grace interval, p_period interval, p_snapshot_age interval, p_now timestamptz)
returns table (at timestamptz)
language sql stable set search_path = pg_catalog, public, pg_temp as $$
    select period_start(d.at, p_period) + p_period from (
        (select d.due_since + p_grace + interval '5 minutes' as at from tenant_due_times d
        left join blob_scans p on p.tenant_id = d.tenant_id
        where d.kind = 'payloads'
            and d.due_since < period_start(p_now, p_period) - p_grace - interval '5 minutes'
            and (coalesce(p.position, '') <> '' or coalesce(p.ended_at, '-infinity')
                < d.due_since + p_grace + interval '5 minutes')
        order by d.due_since desc limit 1)
        union all
        (select d.due_since + p_grace + interval '5 minutes' from tenant_due_times d
        left join blob_scans p on p.tenant_id = d.tenant_id
        where d.kind = 'payloads'
            and d.due_since >= period_start(p_now, p_period) - p_grace - interval '5 minutes'
            and (coalesce(p.position, '') <> '' or coalesce(p.ended_at, '-infinity')
                < d.due_since + p_grace + interval '5 minutes')
        order by d.due_since limit 1)
        union all
        select max(d.due_since) + p_snapshot_age from tenant_due_times d
        where d.kind = 'snapshots' and d.due_since < period_start(p_now, p_period) - p_snapshot_age
        union all
        select min(d.due_since) + p_snapshot_age from tenant_due_times d
        where d.kind = 'snapshots' and d.due_since >= period_start(p_now, p_period) - p_snapshot_age
        union all
        (select r.answered_at + p_snapshot_age from reference_answers r
        join active_snapshot a on a.tenant_id = r.tenant_id
        where r.answered_at < period_start(p_now, p_period) - p_snapshot_age
        order by r.answered_at desc limit 1)
        union all
        (select r.answered_at + p_snapshot_age from reference_answers r
        join active_snapshot a on a.tenant_id = r.tenant_id
        where r.answered_at >= period_start(p_now, p_period) - p_snapshot_age
        order by r.answered_at limit 1)
        union all
        select max(j.finished_at) from topic_build_scopes b
        join jobs j on j.tenant_id = b.tenant_id and j.job_id = b.job_id
        where b.tree is not null and j.state in ('done', 'failed') group by b.tenant_id
    ) d
$$;

-- When the archiver has something to do next, in any tenant; what is a day late waits for the morning.
-- What ripens in a period is looked for once the period is over, so that all callers in it get the
-- same answer.
create or replace function next_archive(p_grace interval, p_period interval, p_snapshot_age interval,
    p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(c.cold_at) as at from chains c where c.status = 'active' and c.cold_at <= p_now
        union all
        select min(c.cold_at) from chains c where c.status = 'active' and c.cold_at > p_now
        union all
        select max(r.marked_at) + interval '15 minutes' from blob_removals r
        where r.removing_until is null and r.marked_at <= p_now - interval '15 minutes'
        union all
        select min(r.marked_at) + interval '15 minutes' from blob_removals r
        where r.removing_until is null and r.marked_at > p_now - interval '15 minutes'
        union all
        select max(r.removing_until) from blob_removals r where r.removing_until <= p_now
        union all
        select min(r.removing_until) from blob_removals r where r.removing_until > p_now
        union all
        select d.at from period_ends_due(p_grace, p_period, p_snapshot_age, p_now) d
    ) due
    where due.at is not null
$$;

-- When the analytics have something to do next, in any tenant; what is a day late waits for the morning.
-- A graph that changed is analysed at the next 03:00 UTC.
create or replace function next_analysis(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(
            date_trunc('day', d.changed_at - interval '3 hours', 'UTC') + interval '27 hours',
            p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(a.changed_at) as changed_at from graph_analyses a
        where a.changes > a.analysed_changes
            and a.changed_at < date_trunc('day', p_now - interval '3 hours', 'UTC') + interval '3 hours'
        union all
        select min(a.changed_at) from graph_analyses a
        where a.changes > a.analysed_changes
            and a.changed_at >= date_trunc('day', p_now - interval '3 hours', 'UTC') + interval '3 hours'
    ) d where d.changed_at is not null
$$;

-- Tenant ids, and nothing else about them, whose job of a run is not done: what is left to close at the
-- run's end. A job that failed counts, because its shards may not be closed.
create function tenants_of_run(p_kind text, p_run text) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select j.tenant_id from jobs j
    where j.run = p_run and p_run <> '' and j.kind = p_kind and j.ref is null and j.state <> 'done'
    order by 1
$$;
revoke execute on function tenants_of_run(text, text) from public;
grant execute on function tenants_of_run(text, text) to strandline_app;

revoke execute on function heat_settings_differ(jsonb) from public;
revoke execute on function period_ends_due(interval, interval, interval, timestamptz) from public;
reset role;
revoke create on schema public from strandline_planner;
