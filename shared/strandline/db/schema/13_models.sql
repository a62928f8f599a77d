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
    breaker_open_until timestamptz not null default '-infinity',
    -- What its last failure was, until it gives a usable answer: its kind (as in the outcome of a model call),
    -- a sentence of ours about it, and when it happened. The sentence never holds text of the provider.
    failure text,
    failure_text text check (length(failure_text) <= 300),
    failed_at timestamptz,
    primary key (tenant_id, model)
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
        ('ok', 'invalid_output', 'format_refused', 'refused', 'late', 'unavailable', 'misconfigured')),
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
grant update (output_mode, failures, breaker_open_until, failure, failure_text, failed_at) on model_states
    to strandline_app;
grant insert on monthly_spend to strandline_app;
grant update (calls, failures, tokens_in, tokens_out, cost_usd) on monthly_spend to strandline_app;
grant insert (tenant_id, call_id, at, task, model, prompt, tokens_in, tokens_out, cost_usd,
    milliseconds, outcome, scope_id, job), delete on model_calls to strandline_app;
