-- Language models: what a tenant may ask them, and what they were asked. Numbers and ids, no text.

-- How many calls were leased in one minute for a subject: a user, or the background work of a scope.
-- The minute begins with its first call.
create table model_rates (
    tenant_id text not null references tenants,
    subject text not null,
    minute_started_at timestamptz not null,
    leased int not null,  -- calls leased to the service's instances in this minute
    primary key (tenant_id, subject)
) with (fillfactor = 50);  -- nothing that changes is indexed: updates stay on their page

-- What is known of a provider. Each tenant learns it by itself, so that no tenant's text can make a
-- provider unavailable to another.
create table model_states (
    tenant_id text not null references tenants,
    model text not null,
    output_mode text,  -- of structured output that worked; null: not known yet
    failures int not null default 0,  -- in a row, since the last usable answer
    -- after too many of them; then one caller may try
    breaker_open_until timestamptz not null default '-infinity', primary key (tenant_id, model)
);

-- The cost of a calendar month (UTC) so far. Kept longer than the calls that it sums up.
create table monthly_spend (
    tenant_id text not null references tenants,
    month date not null,
    calls bigint not null,
    failures bigint not null,
    tokens_in bigint not null,
    tokens_out bigint not null,
    cost_usd double precision not null,
    primary key (tenant_id, month)
);

-- Every request to a provider. No foreign key but the tenant's: a ledger outlives what it was for.
create table model_calls (
    tenant_id text not null references tenants,
    call_id uuid not null,  -- UUIDv7, made by the service: recorded twice it is there once
    at timestamptz not null,  -- when it began
    task text not null,
    model text not null,
    prompt text not null,  -- task and version, as in 'summarise/1'
    tokens_in int not null check (tokens_in >= 0),
    tokens_out int not null check (tokens_out >= 0),
    cost_usd double precision not null check (cost_usd >= 0),
    milliseconds double precision not null check (milliseconds >= 0),
    outcome text not null check (outcome in
        ('ok', 'invalid_output', 'format_refused', 'refused', 'late', 'unavailable')),
    scope_id uuid,
    job text,
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, at, call_id)  -- the order of the list: newest first
);

do $$
declare
    table_name text;
begin
    foreach table_name in array array['model_rates', 'model_states', 'monthly_spend', 'model_calls'] loop
        execute format(
            'create policy own_tenant on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())',
                table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select on %I to strandline_app', table_name);
    end loop;
end $$;
grant insert, delete on model_rates to strandline_app;
grant update (minute_started_at, leased) on model_rates to strandline_app;
grant insert on model_states to strandline_app;
grant update (output_mode, failures, breaker_open_until) on model_states to strandline_app;
grant insert on monthly_spend to strandline_app;
grant update (calls, failures, tokens_in, tokens_out, cost_usd) on monthly_spend to strandline_app;
grant insert (tenant_id, call_id, at, task, model, prompt, tokens_in, tokens_out, cost_usd,
    milliseconds, outcome, scope_id, job), delete on model_calls to strandline_app;

-- Lease up to `p_max_calls` of a subject's calls in this minute (0 leases none), and return what else a
-- caller must know before it asks `p_model`: all in one round trip.
--
-- In a minute that begins with its first call at most `p_limit` calls are leased, by however many
-- instances; what is unused when it ends lapses. Where a breaker is open and its time is over, a
-- caller with `p_may_probe` may try the model, and for `p_probe_seconds` no other may.
create function lease_model(p_model text, p_subject text, p_max_calls int, p_limit int, p_failures int,
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
