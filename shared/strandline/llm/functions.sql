-- revision: 1
-- What a call of a model needs to know first.

-- Lease up to `p_max_calls` of a subject's calls in this minute (0 leases none), and return what else a
-- caller must know before it asks `p_model`: all in one round trip.
--
-- In a minute that begins with its first call at most `p_limit` calls are leased, by however many
-- instances; what is unused when it ends lapses. Where a breaker is open and its time is over, a
-- caller with `p_may_probe` may try the model, and for `p_probe_seconds` no other may.
create or replace function lease_model(p_model text, p_subject text, p_max_calls int, p_limit int, p_failures int,
    p_may_probe boolean, p_probe_seconds float8)
returns table (granted int, seconds_left float8, output_mode text, failures int, breaker_seconds float8,
    is_probe boolean, spent_usd float8, usd_per_month float8)
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_rate model_rates;
    v_state model_states;
    v_now timestamptz;
    v_granted int := 0;
    v_seconds_left float8 := 0;
    v_is_probe boolean := false;
begin
    -- A crash may lose the leases of the last moments, which are then given twice: better than to wait
    -- for the disk at each.
    perform set_config('synchronous_commit', 'off', true);
    if p_max_calls > 0 then
        insert into model_rates (tenant_id, subject, minute_started_at, leased)
            values (current_tenant(), p_subject, '-infinity', 0) on conflict do nothing;
        select r.* into strict v_rate from model_rates r
        where r.tenant_id = current_tenant() and r.subject = p_subject for no key update;
        v_now := clock_timestamp();  -- after the lock: leases are in the order of their times
        -- A minute that lies in the future (the clock was put back) starts again at once.
        if v_now >= v_rate.minute_started_at + interval '1 minute' or v_now < v_rate.minute_started_at
            then
            v_rate.minute_started_at := v_now;
            v_rate.leased := 0;
        end if;
        v_granted := greatest(0, least(p_max_calls, p_limit - v_rate.leased));
        v_seconds_left := extract(epoch from v_rate.minute_started_at + interval '1 minute' - v_now);
        update model_rates r set minute_started_at = v_rate.minute_started_at,
            leased = v_rate.leased + v_granted
        where r.tenant_id = current_tenant() and r.subject = p_subject;
    end if;

    v_now := clock_timestamp();
    select s.* into v_state from model_states s
    where s.tenant_id = current_tenant() and s.model = p_model;
    if p_may_probe and v_state.failures >= p_failures and v_state.breaker_open_until <= v_now then
        -- Several callers may get here: the first to lock the row updates it, the others find nothing.
        update model_states s
        set breaker_open_until = v_now + p_probe_seconds * interval '1 second'
        where s.tenant_id = current_tenant() and s.model = p_model
            and s.failures >= p_failures and s.breaker_open_until <= v_now;
        v_is_probe := found;
        v_state.breaker_open_until := v_now + p_probe_seconds * interval '1 second';
    end if;
    return query select v_granted, v_seconds_left, v_state.output_mode, coalesce(v_state.failures, 0),
        greatest(0, coalesce(extract(epoch from nullif(v_state.breaker_open_until, '-infinity') - v_now),
            0)
            )::float8,
        v_is_probe,
        coalesce((select m.cost_usd from monthly_spend m
            where m.tenant_id = current_tenant()
                and m.month = date_trunc('month', v_now at time zone 'UTC')::date), 0),
        (select t.model_usd_per_month from tenants t where t.tenant_id = current_tenant());
end $$;
revoke execute on function lease_model from public;
grant execute on function lease_model to strandline_app;
