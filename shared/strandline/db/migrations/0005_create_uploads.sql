-- Uploads that were asked for and are not cited yet: what a caller puts into the store by itself,
-- under a key of ours, until an event cites it or its time is over. A row is never changed.

create table uploads (
    tenant_id text not null references tenants,
    upload_id uuid not null,  -- UUIDv7; the pending object lies at _uploads/<tenant>/<upload_id>
    writer text not null,  -- who asked, and alone may cite it
    cid text not null,  -- as announced; verified before an event cites it
    size bigint not null check (size > 0),
    mime_type text,
    file_name text,
    created_at timestamptz not null default now(),
    remove_at timestamptz not null,  -- object and row go then, cited or not
    primary key (tenant_id, upload_id),
    check (remove_at > created_at)
);
create index uploads_cid on uploads (tenant_id, writer, cid);
create index uploads_due on uploads (remove_at, tenant_id);

alter table uploads enable row level security;
alter table uploads force row level security;
create policy own on uploads to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and writer = current_writer())
    with check (tenant_id = current_tenant() and writer = current_writer());
create policy planner_reads on uploads for select to strandline_planner using (true);
grant select, delete on uploads to strandline_app;
grant insert (tenant_id, upload_id, writer, cid, size, mime_type, file_name, remove_at)
    on uploads to strandline_app;
grant select on uploads to strandline_planner;

grant create on schema public to strandline_planner;

-- Tenant ids, and nothing else about them, where uploads are past their time.
create function tenants_with_uploads(p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct u.tenant_id from uploads u where u.remove_at <= p_now
$$;
revoke execute on function tenants_with_uploads from public;
grant execute on function tenants_with_uploads to strandline_app;
alter function tenants_with_uploads owner to strandline_planner;

-- On whose behalf a tenant's uploads past their time are to be removed: for background work in this
-- tenant, which sees no user's rows by itself. The longest due first; planned with the moment, which
-- says that they are few.
create function writers_of_uploads(p_now timestamptz, p_limit int)
returns table (writer text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select u.writer from uploads u
    where u.tenant_id = current_tenant() and current_viewer() = '{}' and u.remove_at <= p_now
    group by u.writer order by min(u.remove_at), u.writer limit p_limit
$$;
revoke execute on function writers_of_uploads from public;
grant execute on function writers_of_uploads to strandline_app;
alter function writers_of_uploads owner to strandline_planner;

revoke create on schema public from strandline_planner;
