-- Uploads that were announced and are not cited yet: a caller puts the bytes into the store by itself,
-- under a key of ours. A row stays until its time is over, and never changes.

create table uploads (
    tenant_id text not null references tenants,
    upload_id uuid not null,  -- UUIDv7; the pending object lies at _uploads/<tenant>/<upload_id>
    writer text not null,  -- who announced it: nobody else may cite it
    cid text not null,  -- as announced; verified before an event cites it
    size bigint not null check (size > 0),
    mime_type text,
    file_name text,
    created_at timestamptz not null default now(),
    remove_at timestamptz not null,  -- object and row are removed then, cited or not
    primary key (tenant_id, upload_id),
    check (remove_at > created_at)
);
create index uploads_cid on uploads (tenant_id, writer, cid);
create index uploads_due on uploads (remove_at, tenant_id);

create policy own_writer on uploads to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and writer = current_writer())
    with check (tenant_id = current_tenant() and writer = current_writer());
create policy planner_reads on uploads for select to strandline_planner using (true);
alter table uploads enable row level security;
alter table uploads force row level security;
grant select, delete on uploads to strandline_app;
grant insert (tenant_id, upload_id, writer, cid, size, mime_type, file_name, remove_at)
    on uploads to strandline_app;
grant select on uploads to strandline_planner;

grant create on schema public to strandline_planner;

-- Tenant ids, and nothing else about them, where uploads are past their time.
create function tenants_with_expired_uploads(p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct u.tenant_id from uploads u where u.remove_at <= p_now
$$;

-- The writers of a tenant's uploads that are past their time, the longest due first: for background
-- work in this tenant, which removes each writer's rows on the writer's behalf, because by itself it
-- sees none. Planned with p_now, which shows the planner that the uploads are few.
create function writers_of_expired_uploads(p_now timestamptz, p_limit int)
returns table (writer text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select u.writer from uploads u
    where u.tenant_id = current_tenant() and current_viewer() = '{}' and u.remove_at <= p_now
    group by u.writer order by min(u.remove_at), u.writer limit p_limit
$$;

-- Bytes announced by uploads that no event cites yet, of all writers: for background work in this
-- tenant. Cited ones count with their events.
create function pending_upload_bytes() returns bigint
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select coalesce(sum(u.size), 0)::bigint from uploads u
    where u.tenant_id = current_tenant() and current_viewer() = '{}'
        and not exists (
            select from blobs b
            where b.tenant_id = u.tenant_id and b.cid = u.cid and b.writer = u.writer)
$$;

revoke execute on function tenants_with_expired_uploads, writers_of_expired_uploads, pending_upload_bytes
    from public;
grant execute on function tenants_with_expired_uploads, writers_of_expired_uploads, pending_upload_bytes
    to strandline_app;
alter function tenants_with_expired_uploads owner to strandline_planner;
alter function writers_of_expired_uploads owner to strandline_planner;
alter function pending_upload_bytes owner to strandline_planner;
revoke create on schema public from strandline_planner;
