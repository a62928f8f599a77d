-- Background work as people see it: a row for each job of a tenant, a row for each part of it, and
-- what the collection of payloads that nobody cites remembers between its passes.

create table jobs (
    tenant_id text not null references tenants,
    job_id uuid not null,  -- UUIDv7, made by the service
    kind text not null check (kind ~ '^[a-z_]{1,32}$'),  -- a job's name; 'enrich' is a model that failed
    run text not null default '',  -- the execution it belongs to
    state text not null check (state in ('queued', 'running', 'done', 'failed')),
    scope_id uuid,
    participants text[] not null default '{}',  -- of the scope it is about; none: the whole tenant
    ref text,  -- what it is about, where that is one thing (a chain)
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
create unique index jobs_one_at_once on jobs (tenant_id, kind)
    where state in ('queued', 'running') and ref is null;
create unique index jobs_one_failure on jobs (tenant_id, kind, ref)
    where ref is not null and state <> 'done';
create index jobs_newest on jobs (tenant_id, created_at desc, job_id desc);
create index jobs_run on jobs (run) where run <> '';
create index jobs_again on jobs (tenant_id, job_id) where ref is not null and state = 'queued';
create index jobs_finished on jobs (tenant_id, finished_at) where finished_at is not null;

-- A part of a job, worked on by one holder of its lease: whoever took it later has a higher number,
-- and the number is checked in every transaction that the part commits.
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
create policy own_tenant on job_shards to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table jobs enable row level security;
alter table jobs force row level security;
alter table job_shards enable row level security;
alter table job_shards force row level security;
create policy planner_reads on jobs for select to strandline_planner using (true);
grant select on jobs to strandline_planner;
grant select, delete on jobs, job_shards to strandline_app;
grant insert (tenant_id, job_id, kind, run, state, scope_id, participants, ref, reason, advice,
    attempts, created_at, started_at, finished_at, leased_until) on jobs to strandline_app;
grant update (run, state, reason, advice, attempts, totals, started_at, finished_at, leased_until)
    on jobs to strandline_app;
grant insert (tenant_id, job_id, shard) on job_shards to strandline_app;
grant update (state, lease_no, leased_until, reason, totals) on job_shards to strandline_app;

-- payloads that no event cites --------------------------------------------------------------------
-- Bytes are put before the append that cites them, so a crash between the two leaves an object that
-- nobody cites. It is marked by one pass and removed by a later one, which looks again once every
-- append that the mark did not meet has ended. An append that stores a marked payload takes the mark
-- away; one that comes while it is being removed is asked to come again, for its bytes may be gone.

create table blob_removals (
    tenant_id text not null references tenants,
    cid text not null,
    marked_at timestamptz not null default now(),
    removing_until timestamptz,  -- until then no append may rest on bytes that were put before
    primary key (tenant_id, cid)
);
create index blob_removals_begun on blob_removals (tenant_id, removing_until)
    where removing_until is not null;

-- Where the look through a tenant's payloads goes on, and when it last came to the end.
create table blob_passes (
    tenant_id text primary key references tenants,
    position text not null default '',
    ended_at timestamptz not null default '-infinity'
);

-- A row each and not a statement: appends without a payload pay nothing for it.
create function keep_stored_blob() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_until timestamptz;
begin
    select r.removing_until into v_until from blob_removals r
    where r.tenant_id = new.tenant_id and r.cid = new.cid for update;
    if found then
        if v_until > clock_timestamp() then
            raise exception 'this payload is just being removed' using errcode = '40001';
        end if;
        delete from blob_removals r where r.tenant_id = new.tenant_id and r.cid = new.cid;
    end if;
    return null;
end $$;
revoke execute on function keep_stored_blob from public;
create trigger keep_stored_blob after insert on blobs
    for each row execute function keep_stored_blob();

do $$
declare
    guarded text;
begin
    foreach guarded in array array['blob_removals', 'blob_passes'] loop
        execute format('create policy own_tenant on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())', guarded);
        execute format('alter table %I enable row level security', guarded);
        execute format('alter table %I force row level security', guarded);
        execute format('create policy planner_reads on %I for select to strandline_planner using (true)',
            guarded);
        execute format('grant select on %I to strandline_planner', guarded);
    end loop;
end $$;
grant select, delete on blob_removals to strandline_app;
grant insert (tenant_id, cid) on blob_removals to strandline_app;
grant update (removing_until) on blob_removals to strandline_app;
grant select on blob_passes to strandline_app;
grant insert (tenant_id), update (position, ended_at) on blob_passes to strandline_app;

-- when a tenant was last looked through for work that nothing names ---------------------------------
alter table tenants
    add column swept_at timestamptz,
    add column swept_for text;  -- the embedding space it was looked through for
grant update (swept_at, swept_for) on tenants to strandline_app;

-- what planners see: tenant ids, and sums over a run -------------------------------------------------
grant create on schema public to strandline_planner;
grant select (swept_at, swept_for) on tenants to strandline_planner;

-- Where a sweep has something to do. By index in each tenant; the scopes themselves, whose work may
-- have no row that names it, are looked through once a day, and when the embedding space is new.
create function tenants_to_sweep(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.swept_for is distinct from p_space or t.swept_at < p_now - interval '1 day'
        or exists (select from scope_work w
            where w.tenant_id = t.tenant_id and w.due_at <= p_now and w.leased_until <= p_now)
        or exists (select from lanes l  -- what is not folded to its end is none to be closed yet
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at <= p_now and s.folded_seq >= s.last_seq)
        or exists (select from jobs j
            where j.tenant_id = t.tenant_id and j.ref is not null and j.state = 'queued')
        or exists (select from jobs j
            where j.tenant_id = t.tenant_id and j.ref is null and j.state in ('queued', 'running')
                and j.leased_until < p_now)
    order by 1
$$;

-- Where chains are cold, or payloads were not looked through since `p_before`.
create function tenants_to_archive(p_now timestamptz, p_before timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    left join blob_passes p on p.tenant_id = t.tenant_id
    where p.tenant_id is null or p.ended_at < p_before or p.position <> ''
        or exists (select from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now)
    order by 1
$$;

-- Of these payloads the ones that somebody stored with an event: whoever's they are, for background
-- work in this tenant, which sees no user's rows by itself.
create function stored_blobs(p_cids text[])
returns table (cid text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct b.cid from blobs b
    where b.tenant_id = current_tenant() and current_viewer() = '{}' and b.cid = any (p_cids)
$$;

-- A run over all tenants in numbers: how many of their jobs are in which state, and sums of what
-- they counted.
create function totals_of_run(p_run text)
returns table (name text, total bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select 'jobs_' || j.state, count(*) from jobs j
    where j.run = p_run and p_run <> '' group by j.state
    union all
    select t.key, sum(t.value::bigint)::bigint from jobs j, jsonb_each_text(j.totals) t
    where j.run = p_run and p_run <> '' group by t.key
    order by 1
$$;

do $$
declare
    narrow text;
begin
    foreach narrow in array array['tenants_to_sweep(text, timestamptz)',
        'tenants_to_archive(timestamptz, timestamptz)', 'stored_blobs(text[])', 'totals_of_run(text)'] loop
        execute format('revoke execute on function %s from public', narrow);
        execute format('grant execute on function %s to strandline_app', narrow);
        execute format('alter function %s owner to strandline_planner', narrow);
    end loop;
end $$;
revoke create on schema public from strandline_planner;
