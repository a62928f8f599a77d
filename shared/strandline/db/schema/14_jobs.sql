-- Background work as people see it: a row for each job of a tenant, and a row for each part of it.
create table jobs (
    tenant_id text not null references tenants,
    job_id uuid not null,  -- UUIDv7, made by the service
    kind text not null check (kind ~ '^[a-z_]{1,32}$'),  -- a job's name; 'enrich': a model call that failed
    run text not null default '',  -- the execution it belongs to
    state text not null check (state in ('queued', 'running', 'done', 'failed')),
    scope_id uuid,
    participants text[] not null default '{}',  -- of its scope; empty: it is about the whole tenant
    ref text,  -- the one thing that it is about, if any (a chain)
    reason text not null default '',  -- why it failed: a code, no words of memory
    advice text not null default '',  -- what to do about it
    attempts int not null default 1,
    totals jsonb not null default '{}' check (jsonb_typeof(totals) = 'object'),
    created_at timestamptz not null default now(),
    started_at timestamptz,
    finished_at timestamptz,
    -- The tenant's lease on this kind of job: while it runs no other run takes it.
    leased_until timestamptz not null default '-infinity',
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, job_id),
    foreign key (tenant_id, scope_id) references scopes
);
create unique index jobs_one_active on jobs (tenant_id, kind)
    where state in ('queued', 'running') and ref is null;
create unique index jobs_one_open_failure on jobs (tenant_id, kind, ref)
    where ref is not null and state <> 'done';
create index jobs_newest on jobs (tenant_id, created_at desc, job_id desc);
create index jobs_queued_retries on jobs (tenant_id, job_id) where ref is not null and state = 'queued';
create index jobs_finished on jobs (tenant_id, finished_at) where finished_at is not null;
-- All jobs of a run have its name, so that the name alone would find every tenant's.
create index jobs_of_run on jobs (run, tenant_id) where run <> '';
create index jobs_leased on jobs (leased_until) where state in ('queued', 'running') and ref is null;
create index jobs_retries on jobs (greatest(created_at, leased_until))
    where state = 'queued' and ref is not null;

-- A part of a job. One process at a time holds its lease; each new holder has a higher lease_no, which
-- is checked in every transaction that the part commits.
create table job_shards (
    tenant_id text not null,
    job_id uuid not null,
    shard int not null check (shard >= 0),
    state text not null default 'waiting' check (state in ('waiting', 'done', 'failed')),
    lease_no bigint not null default 0,
    leased_until timestamptz not null default '-infinity',
    reason text not null default '',
    totals jsonb not null default '{}' check (jsonb_typeof(totals) = 'object'),
    primary key (tenant_id, job_id, shard),
    foreign key (tenant_id, job_id) references jobs on delete cascade
);

create policy in_view on jobs to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));

-- A job of no scope is the whole tenant's, which has no participants.
create policy matches_scope on jobs as restrictive for insert to public
    with check (case when scope_id is null then participants = '{}'
        else is_scope_of(scope_id, tenant_id, participants) end);
create policy planner_reads on jobs for select to strandline_planner using (true);
create policy own_tenant on job_shards to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table jobs enable row level security, force row level security;
alter table job_shards enable row level security, force row level security;
grant select, delete on jobs, job_shards to strandline_app;
grant insert (tenant_id, job_id, kind, run, state, scope_id, participants, ref, reason, advice,
    attempts, created_at, started_at, finished_at, leased_until) on jobs to strandline_app;
grant update (run, state, reason, advice, attempts, totals, started_at, finished_at, leased_until)
    on jobs to strandline_app;
grant insert (tenant_id, job_id, shard) on job_shards to strandline_app;
grant update (state, lease_no, leased_until, reason, totals) on job_shards to strandline_app;
grant select on jobs to strandline_planner;
