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
alter table uploads enable row level security, force row level security;
grant select, delete on uploads to strandline_app;
grant insert (tenant_id, upload_id, writer, cid, size, mime_type, file_name, remove_at)
    on uploads to strandline_app;
grant select on uploads to strandline_planner;

-- Removal of payloads that no event cites. Bytes are stored before the append that cites them, so a
-- crash between the two leaves an object that nobody cites. One pass marks it. A later one removes it,
-- after it has looked again once every append that began before the mark has ended. An append that
-- stores a marked payload deletes the mark; one that comes during the removal has to be repeated,
-- because its bytes may be gone.
create table blob_removals (
    tenant_id text not null references tenants,
    cid text not null,
    marked_at timestamptz not null default now(),
    removing_until timestamptz,  -- until then no append may rely on bytes that were stored before
    primary key (tenant_id, cid)
);
create index blob_removals_started on blob_removals (tenant_id, removing_until)
    where removing_until is not null;
create index blob_removals_marked on blob_removals (marked_at) where removing_until is null;
create index blob_removals_next on blob_removals (removing_until) where removing_until is not null;

-- Where the pass over a tenant's payloads continues, and when the last one ended.
create table blob_scans (
    tenant_id text primary key references tenants,
    position text not null default '',
    ended_at timestamptz not null default '-infinity'
);

do $$
declare
    table_name text;
begin
    foreach table_name in array array['blob_removals', 'blob_scans'] loop
        execute format('create policy own_tenant on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())',
                table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('create policy planner_reads on %I for select to strandline_planner using (true)',
            table_name);
        execute format('grant select on %I to strandline_planner', table_name);
    end loop;
end $$;
grant select, delete on blob_removals to strandline_app;
grant insert (tenant_id, cid) on blob_removals to strandline_app;
grant update (removing_until) on blob_removals to strandline_app;
grant select on blob_scans to strandline_app;
grant insert (tenant_id), update (position, ended_at) on blob_scans to strandline_app;

create function cancel_blob_removal() returns trigger
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
revoke execute on function cancel_blob_removal from public;

-- For each row and not for each statement: appends without a payload pay nothing for it.
create trigger cancel_blob_removal after insert on blobs
    for each row execute function cancel_blob_removal();
