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
alter table waits enable row level security;
alter table waits force row level security;
grant select, insert, delete on waits to strandline_app;
grant select on waits to strandline_planner;
