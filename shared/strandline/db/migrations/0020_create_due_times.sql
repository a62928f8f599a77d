-- What is due in the background, in which tenants, and when the next of it is due: so that a job that
-- ends can have the next one started at that time. Nobody polls in between, and a stage that nobody
-- calls leaves its database asleep.

-- When the present day of sweeps began: at 03:29 UTC, a minute before the daily sweep, because clocks
-- may differ. What is looked through once a day is looked through by the first sweep of the day.
create function sweep_day_start(p_now timestamptz) returns timestamptz
language sql stable parallel safe
    return date_trunc('day', p_now - interval '209 minutes', 'UTC') + interval '209 minutes';

-- When to start a job for what is due at p_due: then. Where that is over and the work is not done:
-- once, twice, four times ... `p_spacing` after it. Never once it is a day late: then it waits for the
-- daily sweep, and no failure keeps a database awake for ever. This follows from the due time alone, so
-- that all callers get the same answer.
create function next_retry_at(p_due timestamptz, p_spacing interval, p_now timestamptz)
returns timestamptz language sql immutable parallel safe
return case
    when p_due > p_now then p_due
    when p_due > p_now - interval '1 day' then p_due + p_spacing * 2 ^ greatest(0, 1 + floor(
        ln(greatest(1, date_part('epoch', p_now - p_due)) / date_part('epoch', p_spacing))
        / ln(2::float8)))
end;

-- When a tenant's payloads run through a period of `p_period`, counted since 1970: the beginning of the
-- period in which a moment lies. They are looked through once in each.
create function period_start(p_moment timestamptz, p_period interval) returns timestamptz
language sql immutable parallel safe
    return date_bin(p_period, p_moment, timestamptz '1970-01-01 00:00:00Z');

-- By when a payload that a tenant's last append may have left uncited is old enough to be removed: a
-- lease of appends is spent within a minute, by a request of half a minute at most. Null: the tenant
-- never appended.
create function uncited_blobs_removable_at(p_tenant text, p_grace interval) returns timestamptz
language sql stable
    return (select q.theoretical_arrival_at from quotas q where q.tenant_id = p_tenant
        and q.quota = 'appends')
        + p_grace + interval '5 minutes';

grant create on schema public to strandline_planner;

-- Tenants where a sweep has something to do. By index in each tenant; the scopes themselves, whose work
-- may have no row that names it, are looked through once a day and when the embedding space is new.
create function tenants_to_sweep(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.swept_space is distinct from p_space or t.swept_at < sweep_day_start(p_now)
        or exists (select from scope_work w
            where w.tenant_id = t.tenant_id and w.due_at <= p_now and w.leased_until <= p_now)
        or exists (select from lanes l  -- a lane is closed only once its scope is folded to the end
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at <= p_now and s.folded_seq >= s.last_seq)
        or exists (select from jobs j
            where j.tenant_id = t.tenant_id and j.ref is not null and j.state = 'queued')
        or exists (select from jobs j
            where j.tenant_id = t.tenant_id and j.ref is null and j.state in ('queued', 'running')
                and j.leased_until < p_now)
    order by 1
$$;

-- When the sweeper has something to do next, in any tenant; null: nothing known. With a space it also
-- counts what a sweep looks through and no row names: tenants that are new to the space, or to these
-- settings of heat.
create function next_sweep(p_space text, p_deployment jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(next_retry_at(due.at, p_spacing, p_now)) from (
        -- Of what is overdue the latest is enough: it has the shortest pause.
        select unnest(array[max(work.at) filter (where work.at <= p_now),
            min(work.at) filter (where work.at > p_now)]) as at
        from (
            select greatest(w.due_at, w.leased_until) as at from scope_work w where w.attempts <= 12
            union all
            -- What failed often is tried by every sweep, but starts one ever more seldom.
            select greatest(w.due_at, w.leased_until)
                + (2 ^ (w.attempts - 12) - 1) * interval '5 minutes'
            from scope_work w where w.attempts between 13 and 20) work
        union all
        select unnest(array[overdue.idle_at, upcoming.idle_at]) from tenants t
        left join lateral (
            select l.idle_at from lanes l
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at <= p_now and s.folded_seq >= s.last_seq
            order by l.idle_at desc limit 1) overdue on true
        left join lateral (
            select l.idle_at from lanes l
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at > p_now and s.folded_seq >= s.last_seq
            order by l.idle_at limit 1) upcoming on true
        union all
        select greatest(j.created_at, j.leased_until) from jobs j
        where j.state = 'queued' and j.ref is not null
        union all
        select j.leased_until from jobs j where j.state in ('queued', 'running') and j.ref is null
        union all
        select max(r.recalled_at) from recalls r join chains c using (tenant_id, chain_id)
        where r.folded_at is null
        union all
        select max(u.remove_at) from uploads u where u.remove_at <= p_now
        union all
        select min(u.remove_at) from uploads u where u.remove_at > p_now
        union all
        select coalesce(q.measured_at, q.recent_since) + interval '10 minutes' from quotas q
        where q.quota = 'stored_bytes' and q.leased > 0 and q.level is distinct from q.measured
        union all
        select p_now from tenants t
        where p_space is not null and (t.swept_space is distinct from p_space
            or t.heat_recomputed_to is not null
                or t.applied_heat_settings <> heat_settings(p_deployment, t.tuning))
    ) due
$$;

-- Tenants where chains are cold, where payloads are marked to be removed, or where uncited ones may
-- have appeared since the last pass, which was in an earlier period.
create function tenants_to_archive(p_now timestamptz, p_period interval, p_grace interval)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    left join blob_scans p on p.tenant_id = t.tenant_id
    where p.tenant_id is null or p.position <> ''
        or p.ended_at < period_start(p_now, p_period)
            and p.ended_at < uncited_blobs_removable_at(t.tenant_id, p_grace)
        or exists (select from blob_removals r where r.tenant_id = t.tenant_id
            and coalesce(r.removing_until, r.marked_at + interval '15 minutes') <= p_now)
        or exists (select from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now)
    order by 1
$$;

-- When the archiver has something to do next, in any tenant; what is a day late waits for the morning.
-- What ripens in a period is looked for once the period is over, so that all callers in it get the
-- same answer.
create function next_archive(
    p_grace interval, p_period interval, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select unnest(array[overdue.cold_at, upcoming.cold_at]) as at from tenants t
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now
            order by c.cold_at desc limit 1) overdue on true
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at > p_now
            order by c.cold_at limit 1) upcoming on true
        union all
        select coalesce(r.removing_until, r.marked_at + interval '15 minutes') from blob_removals r
        union all
        select period_start(removable.at, p_period) + p_period from tenants t
        left join blob_scans p on p.tenant_id = t.tenant_id
        cross join lateral uncited_blobs_removable_at(t.tenant_id, p_grace) removable (at)
        where coalesce(p.ended_at, '-infinity') < removable.at or p.position <> ''
    ) due
    where due.at is not null
$$;

do $$
declare
    signature text;
begin
    foreach signature in array array['tenants_to_sweep(text, timestamptz)',
        'next_sweep(text, jsonb, interval, timestamptz)',
        'tenants_to_archive(timestamptz, interval, interval)',
        'next_archive(interval, interval, interval, timestamptz)'] loop
        execute format('revoke execute on function %s from public', signature);
        execute format('grant execute on function %s to strandline_app', signature);
        execute format('alter function %s owner to strandline_planner', signature);
    end loop;
end $$;
revoke create on schema public from strandline_planner;
