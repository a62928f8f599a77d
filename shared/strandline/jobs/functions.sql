-- revision: 1
-- Runs over all tenants, and when background work is next due.

-- runs ---------------------------------------------------------------------------------------------

-- A run's job begins, and what is left of it is closed, in many tenants with one call: one round trip and
-- one commit for all of them. The functions take one tenant after the other, as background work in it, so
-- row-level security holds for each statement: whoever calls them can do no more than in each tenant by
-- itself. A tenant that fails is undone alone.

-- Marks the asker's tenant's jobs (of one kind, or all) whose lease has run out as failed. Returns how many.
-- Nobody holds a lease for an hour: one that ends later was given by a clock that was put back since.
create or replace function expire_job_leases(p_kind text, p_now timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_count bigint;
begin
    update jobs j set state = 'failed', finished_at = p_now, reason = 'lease_expired',
        advice = 'Its run ended before it. Start the job again; nothing that it did is lost.'
    where j.ref is null and j.state in ('queued', 'running')
        and (j.leased_until < p_now
            or j.leased_until > greatest(p_now, clock_timestamp()) + interval '1 hour')
        and (p_kind is null or j.kind = p_kind);
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- Queues a job in the asker's tenant for a run. Returns its id, or null where one of this kind is queued or
-- running already.
create or replace function enqueue_job(p_kind text, p_run text, p_job_id uuid, p_lease interval, p_now timestamptz)
returns uuid
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_job_id uuid;
begin
    insert into jobs (tenant_id, job_id, kind, run, state, created_at, leased_until)
    values (current_tenant(), p_job_id, p_kind, p_run, 'queued', p_now, p_now + p_lease)
    on conflict (tenant_id, kind) where state in ('queued', 'running') and ref is null do nothing
    returning job_id into v_job_id;
    return v_job_id;
end $$;

-- Begins a run's job in each of these tenants, with so many shards, under these ids where it is new. Again,
-- it changes nothing, except that a job which a failed plan had closed, and shards that failed, are open
-- again. The outcome is 'claimed', 'taken' (the job belongs to another run), or the SQLSTATE of what failed.
-- Tenants come in one order in all runs, so that no two wait for each other in a circle; none waits long for
-- a job that somebody has locked, because fifty of its neighbours would.
create or replace function claim_run(
    p_kind text, p_run text, p_tenants text[], p_shards int[], p_job_ids uuid[], p_lease interval,
    p_now timestamptz)
returns table (tenant text, outcome text)
language plpgsql set search_path = pg_catalog, public, pg_temp set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_tenant text := current_setting('strandline.tenant', true);
    v_viewer text := current_setting('strandline.viewer', true);
    v_writer text := current_setting('strandline.writer', true);
    v_shards int;
    v_new_id uuid;
    v_job_id uuid;
begin
    perform set_config('strandline.viewer', '{}', true), set_config('strandline.writer', '*', true);
    for tenant, v_shards, v_new_id in
        select c.tenant, c.shards, c.job_id
        from unnest(p_tenants, p_shards, p_job_ids) c (tenant, shards, job_id) order by 1
    loop
        begin
            perform set_config('strandline.tenant', tenant, true);
            perform expire_job_leases(p_kind, p_now);
            update jobs j set state = 'queued', finished_at = null, reason = '', advice = ''
            where j.run = p_run and j.run <> '' and j.kind = p_kind and j.ref is null
                and j.state = 'failed' and not exists (select from jobs o
                    where o.kind = p_kind and o.ref is null and o.state in ('queued', 'running'));
            perform enqueue_job(p_kind, p_run, v_new_id, p_lease, p_now);
            v_job_id := null;
            update jobs j set state = 'running', started_at = coalesce(j.started_at, p_now),
                leased_until = greatest(j.leased_until, p_now + p_lease)
            where j.run = p_run and j.run <> '' and j.kind = p_kind and j.ref is null
                and j.state in ('queued', 'running')
            returning j.job_id into v_job_id;
            outcome := 'taken';
            if v_job_id is not null then
                insert into job_shards as s (tenant_id, job_id, shard)
                select current_tenant(), v_job_id, n from generate_series(0, v_shards - 1) n
                on conflict (tenant_id, job_id, shard) do update set state = 'waiting', reason = ''
                where s.state = 'failed';
                outcome := 'claimed';
            end if;
        exception when others then
            outcome := sqlstate;
        end;
        return next;
    end loop;
    perform set_config('strandline.tenant', coalesce(v_tenant, ''), true),
        set_config('strandline.viewer', coalesce(v_viewer, ''), true),
        set_config('strandline.writer', coalesce(v_writer, ''), true);
end $$;

-- Marks a run's unfinished job as failed in each of these tenants, with the reason of its first failed shard
-- or else the one given. Where ids are given, a tenant without such a job gets one, so that the failure is
-- seen. The outcome is 'closed', or the SQLSTATE of what failed.
create or replace function close_run(
    p_kind text, p_run text, p_tenants text[], p_reasons text[], p_job_ids uuid[], p_lease interval,
    p_now timestamptz)
returns table (tenant text, outcome text)
language plpgsql set search_path = pg_catalog, public, pg_temp set lock_timeout = '1s'
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_tenant text := current_setting('strandline.tenant', true);
    v_viewer text := current_setting('strandline.viewer', true);
    v_writer text := current_setting('strandline.writer', true);
    v_reason text;
    v_new_id uuid;
begin
    perform set_config('strandline.viewer', '{}', true), set_config('strandline.writer', '*', true);
    for tenant, v_reason, v_new_id in
        select c.tenant, c.reason, c.job_id
        from unnest(p_tenants, p_reasons, p_job_ids) c (tenant, reason, job_id) order by 1
    loop
        begin
            perform set_config('strandline.tenant', tenant, true);
            if v_new_id is not null then
                perform enqueue_job(p_kind, p_run, v_new_id, p_lease, p_now);
            end if;
            update jobs j set state = 'failed', finished_at = p_now,
                reason = coalesce((
                    select s.reason from job_shards s
                    where s.job_id = j.job_id and s.state <> 'done' and s.reason <> ''
                    order by s.shard limit 1), v_reason),
                advice = 'Try it again: POST /api/v1/admin/jobs/' || j.job_id || '/retry. What it '
                    'committed stays. If it fails again, look for the reason in the log.'
            where j.run = p_run and j.run <> '' and j.kind = p_kind and j.ref is null
                and j.state in ('queued', 'running');
            update job_shards s set state = 'failed' from jobs j
            where j.run = p_run and j.run <> '' and j.kind = p_kind and j.state = 'failed'
                and s.job_id = j.job_id and s.state = 'waiting';
            outcome := 'closed';
        exception when others then
            outcome := sqlstate;
        end;
        return next;
    end loop;
    perform set_config('strandline.tenant', coalesce(v_tenant, ''), true),
        set_config('strandline.viewer', coalesce(v_viewer, ''), true),
        set_config('strandline.writer', coalesce(v_writer, ''), true);
end $$;

set local role strandline_planner;

-- A run over all tenants in numbers: how many of their jobs are in which state, and the sums of their
-- totals.
create or replace function totals_of_run(p_run text)
returns table (name text, total bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select 'jobs_' || j.state, count(*) from jobs j
    where j.run = p_run and p_run <> '' group by j.state
    union all
    select t.key, sum(t.value::bigint)::bigint from jobs j, jsonb_each_text(j.totals) t
    where j.run = p_run and p_run <> '' group by t.key
    order by 1
$$;
revoke execute on function totals_of_run from public;
grant execute on function totals_of_run to strandline_app;

-- Tenant ids, and nothing else about them, whose job of a run is not done: what is left to close at the
-- run's end. A job that failed counts, because its shards may not be closed.
create or replace function tenants_of_run(p_kind text, p_run text) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select j.tenant_id from jobs j
    where j.run = p_run and p_run <> '' and j.kind = p_kind and j.ref is null and j.state <> 'done'
    order by 1
$$;
revoke execute on function tenants_of_run from public;
grant execute on function tenants_of_run to strandline_app;

reset role;

-- due ----------------------------------------------------------------------------------------------

-- What is due in the background, in which tenants, and when the next of it is due: so that a job that
-- ends can have the next one started at that time. Nobody polls in between, and a stage that nobody
-- calls leaves its database asleep.

-- When the present day of sweeps began: at 03:29 UTC, a minute before the daily sweep, because clocks
-- may differ. What is looked through once a day is looked through by the first sweep of the day.
create or replace function sweep_day_start(p_now timestamptz) returns timestamptz
language sql stable parallel safe
    return date_trunc('day', p_now - interval '209 minutes', 'UTC') + interval '209 minutes';

-- When to start a job for what is due at p_due: then. Where that is over and the work is not done:
-- once, twice, four times ... `p_spacing` after it. Never once it is a day late: then it waits for the
-- daily sweep, and no failure keeps a database awake for ever. This follows from the due time alone, so
-- that all callers get the same answer.
create or replace function next_retry_at(p_due timestamptz, p_spacing interval, p_now timestamptz)
returns timestamptz language sql immutable parallel safe
return case
    when p_due > p_now then p_due
    when p_due > p_now - interval '1 day' then p_due + p_spacing * 2 ^ greatest(0, 1 + floor(
        ln(greatest(1, date_part('epoch', p_now - p_due)) / date_part('epoch', p_spacing))
        / ln(2::float8)))
end;

-- When a tenant's payloads run through a period of `p_period`, counted since 1970: the beginning of the
-- period in which a moment lies. They are looked through once in each.
create or replace function period_start(p_moment timestamptz, p_period interval) returns timestamptz
language sql immutable parallel safe
    return date_bin(p_period, p_moment, timestamptz '1970-01-01 00:00:00Z');
