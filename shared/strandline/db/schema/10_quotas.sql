-- Quotas: what a tenant may use. A row per tenant and quota says how much of it is leased to the
-- service's instances. These spend their leases by themselves, so that no request writes a row.
create table quotas (
    tenant_id text not null references tenants,
    quota text not null check (quota in ('requests', 'appends', 'stored_bytes')),
    -- A rate: the theoretical arrival time, until when all that is leased is paid for.
    theoretical_arrival_at timestamptz not null default now(),
    -- A level: bytes stored, and leased to be stored.
    level bigint not null default 0,
    leased bigint not null default 0,  -- units, since the row exists
    -- Leased since recent_since, and in the period before: what instances may still hold, or have
    -- spent on something that is not committed yet.
    recent bigint not null default 0,
    recent_previous bigint not null default 0,
    recent_since timestamptz not null default now(),
    -- The last count: bytes, and how many scopes and events the log had then.
    measured bigint,
    measured_scopes bigint,
    measured_events bigint,
    measured_at timestamptz,
    primary key (tenant_id, quota)
) with (fillfactor = 50);  -- nothing that changes is indexed: updates stay on their page

create policy own_tenant on quotas to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on quotas for select to strandline_planner using (true);
alter table quotas enable row level security, force row level security;
grant select on quotas to strandline_app;
grant insert (tenant_id, quota) on quotas to strandline_app;
grant update (theoretical_arrival_at, level, leased, recent, recent_previous, recent_since, measured,
    measured_scopes, measured_events, measured_at) on quotas to strandline_app;
grant select on quotas to strandline_planner;

-- Requests that wait for something to come. Each holds a lease while it sleeps, so that a tenant's waits and
-- those of a function can be counted by any instance. A lease expires by itself: an instance that is killed
-- frees what it held.
create table waits (
    tenant_id text not null references tenants,
    wait_id uuid not null default gen_random_uuid(),
    function text not null,
    expires_at timestamptz not null,
    primary key (tenant_id, wait_id)
);

create policy own_tenant on waits to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on waits for select to strandline_planner using (true);
alter table waits enable row level security, force row level security;
grant select, insert, delete on waits to strandline_app;
grant select on waits to strandline_planner;
