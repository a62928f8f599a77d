-- revision: 1
-- Quotas, and requests that wait.

-- quotas -------------------------------------------------------------------------------------------

-- How many units the limit allows at once to a tenant that has used none for a while. `p_burst` is in
-- seconds of the rate.
create or replace function quota_at_once(p_quota text, p_limit bigint, p_burst numeric) returns bigint
language sql immutable parallel safe
return case
    when p_quota = 'stored_bytes' or p_limit = 0 then p_limit
    else greatest(1, floor(p_limit * p_burst / 60))::bigint
end;

-- How many of these are taken now. Never more than all, so that a clock that was put back, or a limit
-- that was lowered, heals within the burst.
create or replace function quota_used(p_row quotas, p_limit bigint, p_at_once bigint, p_now timestamptz)
returns numeric language sql immutable parallel safe
return case
    when (p_row).quota = 'stored_bytes' then (p_row).level
    else least(p_at_once,
        greatest(0, extract(epoch from (p_row).theoretical_arrival_at - p_now)) * p_limit / 60)
end;

create or replace function quota_limit(p_quota text, p_default bigint) returns bigint
language sql stable parallel safe
return coalesce(
    (select case p_quota
        when 'requests' then t.requests_per_minute
        when 'appends' then t.appends_per_minute
        when 'stored_bytes' then t.stored_bytes_limit
     end from tenants t where t.tenant_id = current_tenant()), p_default);

-- A unit is spent within 60 s of its lease, by a request that takes less than 30 s. If given back, it
-- is spent once more within the same times: after this period it is in the log or has lapsed.
create or replace function in_flight_period() returns interval language sql immutable parallel safe
    return interval '180 seconds';

-- Leased units that may still be on their way.
create or replace function in_flight_units(p_row quotas, p_now timestamptz) returns bigint
language sql immutable parallel safe
return case
    when p_now < (p_row).recent_since + in_flight_period() then (p_row).recent + (p_row).recent_previous
    when p_now < (p_row).recent_since + 2 * in_flight_period() then (p_row).recent
    else 0
end;

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

set local role strandline_planner;

-- Tenant ids, and nothing else about them, whose level was last counted before `p_before` and has
-- moved since, or was not counted for a day: what erasure and time take away is not a lease.
create or replace function tenants_to_recount(p_before timestamptz, p_limit int)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select q.tenant_id from quotas q
    where q.quota = 'stored_bytes'
        and (q.measured_at is null or q.measured_at < p_before
            and (q.level <> q.measured or q.measured_at < p_before - interval '1 day'))
    order by q.measured_at nulls first, q.tenant_id limit p_limit
$$;
revoke execute on function tenants_to_recount from public;
grant execute on function tenants_to_recount to strandline_app;

-- Bytes announced by uploads that no event cites yet, of all writers: for background work in this
-- tenant. Cited ones count with their events.
create or replace function pending_upload_bytes() returns bigint
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select coalesce(sum(u.size), 0)::bigint from uploads u
    where u.tenant_id = current_tenant() and current_viewer() = '{}'
        and not exists (
            select from blobs b
            where b.tenant_id = u.tenant_id and b.cid = u.cid and b.writer = u.writer)
$$;
revoke execute on function pending_upload_bytes from public;
grant execute on function pending_upload_bytes to strandline_app;

reset role;

-- waits --------------------------------------------------------------------------------------------

set local role strandline_planner;

-- How many requests of a function wait, of all tenants together, and nothing else about them.
create or replace function count_waits(p_function text) returns bigint
language sql volatile security definer set search_path = pg_catalog, public, pg_temp as $$
    select count(*) from waits w where w.function = p_function and w.expires_at > clock_timestamp()
$$;
revoke execute on function count_waits from public;
grant execute on function count_waits to strandline_app;

reset role;

-- Whether one more request of the tenant may wait.
create or replace function may_wait(p_function text, p_tenant_limit int, p_function_limit int) returns boolean
language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
begin
    return (select count(*) from waits w
            where w.tenant_id = current_tenant() and w.expires_at > clock_timestamp()) < p_tenant_limit
        and count_waits(p_function) < p_function_limit;
end $$;

-- A lease for a request that waits at most so many seconds; null beyond the limits. Those who are refused
-- take no lock. The lock is of all tenants, because one count is: it is held for this function alone, which
-- does not wait for the disk. A lease that a crash loses had its request lost as well.
create or replace function begin_wait(p_function text, p_tenant_limit int, p_function_limit int, p_seconds float8)
returns uuid language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
declare
    v_wait_id uuid;
begin
    if not may_wait(p_function, p_tenant_limit, p_function_limit) then
        return null;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    perform pg_advisory_xact_lock(hashtextextended('waits', 0));
    if may_wait(p_function, p_tenant_limit, p_function_limit) then
        delete from waits w where w.tenant_id = current_tenant() and w.expires_at <= clock_timestamp();
        insert into waits (tenant_id, function, expires_at)
        values (current_tenant(), p_function, clock_timestamp() + make_interval(secs => p_seconds))
        returning wait_id into v_wait_id;
    end if;
    return v_wait_id;
end $$;

-- Give a lease back; false where it is gone.
create or replace function end_wait(p_wait_id uuid) returns boolean
language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from waits w where w.tenant_id = current_tenant() and w.wait_id = p_wait_id;
    return found;
end $$;
