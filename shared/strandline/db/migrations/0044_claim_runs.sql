-- A run's job begins, and what is left of it is closed, in many tenants with one call: one round trip and
-- one commit for all of them. The functions take one tenant after the other, as background work in it, so
-- row-level security holds for each statement: whoever calls them can do no more than in each tenant by
-- itself. A tenant that fails is undone alone.

-- All jobs of a run have its name, so that the name alone would find every tenant's.
create index jobs_of_run on jobs (run, tenant_id) where run <> '';
drop index jobs_run;

-- Marks the asker's tenant's jobs (of one kind, or all) whose lease has run out as failed. Returns how many.
create function expire_job_leases(p_kind text, p_now timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_count bigint;
begin
    update jobs j set state = 'failed', finished_at = p_now, reason = 'lease_expired',
        advice = 'Its run ended before it. Start the job again; nothing that it did is lost.'
    where j.ref is null and j.state in ('queued', 'running') and j.leased_until < p_now
        and (p_kind is null or j.kind = p_kind);
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- Queues a job in the asker's tenant for a run. Returns its id, or null where one of this kind is queued or
-- running already.
create function enqueue_job(p_kind text, p_run text, p_job_id uuid, p_lease interval, p_now timestamptz)
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
create function claim_run(
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
create function close_run(
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
