-- A clock that ran ahead and was put back. What was stored meanwhile says that work is due, leased or paid for
-- at a time that may be a year away. No wait of the service is longer than a day: a due time further ahead is
-- of such a clock, and comes due at once.

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

-- Lease `p_need` units or up to a slice; or none, and say in how many seconds to ask again.
--
-- A rate is a GCRA (ITU-T I.371, the virtual scheduling algorithm): of n units leased at t,
-- theoretical_arrival_at becomes max(theoretical_arrival_at, t) + n * T, T = 60 s / limit, and must not
-- pass t + burst. So in any time s at most s / T + burst / T units are leased, by however many
-- instances: the row's lock, held for this statement alone, puts their leases in one order. Rounded
-- against the tenant: theoretical_arrival_at up to a microsecond, units down to whole ones.
--
-- A slice is a second's worth of the rate, a thousandth of the level or 1 MiB; near the limit a
-- quarter of what is left, but no less than a tenth of a slice. A refused caller waits for a whole one.
--
-- What lies further ahead than all units at once is of a clock that was put back, or of a larger burst. It is
-- stored as all of them, refused or not: else the refusals would last until that time comes.
create or replace function lease_quota(p_quota text, p_need bigint, p_default bigint, p_burst numeric)
returns table (granted bigint, "limit" bigint, at_once bigint, retry_after float8)
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_row quotas;
    v_is_level boolean := p_quota = 'stored_bytes';
    v_limit bigint := quota_limit(p_quota, p_default);
    v_at_once bigint := quota_at_once(p_quota, v_limit, p_burst);
    v_slice bigint := greatest(1, case when v_is_level then least(v_limit / 1000, 1048576)
        else least((v_limit + 59) / 60, v_at_once) end);
    v_used numeric;
    v_free bigint;
    v_granted bigint := 0;
    v_now timestamptz;
    v_latest_arrival timestamptz;
begin
    -- A crash may lose the leases of the last moments, which are then given twice: better than to wait
    -- for the disk at each.
    perform set_config('synchronous_commit', 'off', true);
    insert into quotas (tenant_id, quota) values (current_tenant(), p_quota) on conflict do nothing;
    select q.* into strict v_row from quotas q
    where q.tenant_id = current_tenant() and q.quota = p_quota for no key update;
    v_now := clock_timestamp();  -- after the lock: leases are in the order of their times

    v_used := quota_used(v_row, v_limit, v_at_once, v_now);
    v_latest_arrival := case when v_is_level or v_limit = 0 then 'infinity'
        else v_now + ceil(v_at_once * 60000000::numeric / v_limit) * interval '1 microsecond' end;
    if v_row.theoretical_arrival_at > v_latest_arrival or v_row.recent_since > v_now then
        update quotas q set
            theoretical_arrival_at = least(q.theoretical_arrival_at, v_latest_arrival),
            recent_since = least(q.recent_since, v_now)
        where q.tenant_id = current_tenant() and q.quota = p_quota
        returning q.* into v_row;
    end if;
    v_free := floor(v_at_once - v_used);
    if v_free >= p_need then
        v_granted := least(v_free, greatest(p_need,
            least(v_slice, greatest((v_free + 3) / 4, (v_slice + 9) / 10))));
        update quotas q set
            theoretical_arrival_at = case when v_is_level then q.theoretical_arrival_at else v_now
                + ceil((v_used + v_granted) * 60000000 / v_limit) * interval '1 microsecond' end,
            level = case when v_is_level then v_row.level + v_granted else 0 end,
            leased = v_row.leased + v_granted,
            recent = v_granted
                + case when v_now < v_row.recent_since + in_flight_period() then v_row.recent else 0 end,
            recent_previous = case
                when v_now < v_row.recent_since + in_flight_period() then v_row.recent_previous
                when v_now < v_row.recent_since + 2 * in_flight_period() then v_row.recent
                else 0 end,
            recent_since = case
                when v_now < v_row.recent_since + in_flight_period() then v_row.recent_since
                else v_now end
        where q.tenant_id = current_tenant() and q.quota = p_quota;
    end if;
    return query select v_granted, v_limit, v_at_once, case
        when v_granted > 0 then 0
        when v_is_level or v_at_once < p_need then 60  -- waiting alone does not help: an operator has to
        else (v_used + greatest(p_need, v_slice) - v_at_once) * 60 / v_limit
    end::float8;
end $$;

-- The asker's tenant's times that only a clock that was put back can have stored, put back: what they hold up is
-- due now, and what they hold is free. Returns how many rows that were. `p_now` is the job's clock; what lies
-- ahead of it alone may be of the database's. Facts stay as they are: when an event was recorded, when somebody
-- asked.
create function put_times_back(p_now timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_now timestamptz := greatest(p_now, clock_timestamp());
    v_ahead timestamptz := v_now + interval '1 day';
    v_rows bigint;
    v_count bigint := 0;
begin
    update scope_work w set due_at = least(w.due_at, v_now),
        leased_until = case when w.leased_until > v_ahead then '-infinity' else w.leased_until end
    where w.tenant_id = current_tenant() and greatest(w.due_at, w.leased_until) > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update erasures e set due_at = v_now, cleared_at = least(e.cleared_at, v_now)
    where e.tenant_id = current_tenant() and e.due_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update erased_payloads p set marked_at = v_now
    where p.tenant_id = current_tenant() and p.marked_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update turns t set due_at = v_now, leased_until = null
    where t.tenant_id = current_tenant() and t.due_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    -- A mark that is gone is set again, by the next look at the payload.
    delete from blob_removals r
    where r.tenant_id = current_tenant() and coalesce(r.removing_until, r.marked_at) > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update blob_scans p set ended_at = v_now
    where p.tenant_id = current_tenant() and p.ended_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update quotas q set measured_at = v_now
    where q.tenant_id = current_tenant() and q.measured_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update tenant_due_times d set due_since = v_now
    where d.tenant_id = current_tenant() and d.due_since > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update tenants t set swept_at = v_now - interval '2 days'  -- not swept today
    where t.tenant_id = current_tenant() and t.swept_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update model_states s set breaker_open_until = '-infinity'
    where s.tenant_id = current_tenant() and s.breaker_open_until > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from waits w where w.tenant_id = current_tenant() and w.expires_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update topic_work w set oldest_at = least(w.oldest_at, v_now), newest_at = least(w.newest_at, v_now)
    where w.tenant_id = current_tenant() and w.oldest_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update graph_analyses a set changed_at = v_now
    where a.tenant_id = current_tenant() and a.changed_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    -- A tenant may let lanes rest for weeks: only those whose events are of such a clock. They are told from
    -- now on, because recorded_at never falls in a scope.
    update lanes l set idle_at = v_now + interval '30 minutes'
    where l.tenant_id = current_tenant() and l.idle_at > v_ahead and exists (
        select from scopes s where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            and s.last_recorded_at > v_ahead);
    get diagnostics v_rows = row_count;
    return v_count + v_rows;
end $$;

grant create on schema public to strandline_planner;
set local role strandline_planner;
-- Tenant ids, and nothing else about them, with times that `put_times_back` puts back: of those kinds that may
-- hold up work for ever, each by its index.
create function tenants_with_times_ahead(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id from scope_work w
    where greatest(w.due_at, w.leased_until) > greatest(p_now, now()) + interval '1 day'
    union
    select e.tenant_id from erasures e where e.due_at > greatest(p_now, now()) + interval '1 day'
    union
    select t.tenant_id from turns t where t.due_at > greatest(p_now, now()) + interval '1 day'
    union
    select d.tenant_id from tenant_due_times d
    where d.kind in ('bytes', 'payloads', 'snapshots')
        and d.due_since > greatest(p_now, now()) + interval '1 day'
    union
    select t.tenant_id from tenants t where t.swept_at > greatest(p_now, now()) + interval '1 day'
    order by 1
$$;
revoke execute on function tenants_with_times_ahead from public;
grant execute on function tenants_with_times_ahead to strandline_app;
reset role;
revoke create on schema public from strandline_planner;
