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

grant create on schema public to strandline_planner;

-- Of these payloads the ones that some writer stored with an event: for background work in this tenant,
-- which by itself sees no user's rows.
create function stored_blobs(p_cids text[])
returns table (cid text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct b.cid from blobs b
    where b.tenant_id = current_tenant() and current_viewer() = '{}' and b.cid = any (p_cids)
$$;
revoke execute on function stored_blobs from public;
grant execute on function stored_blobs to strandline_app;
alter function stored_blobs owner to strandline_planner;

revoke create on schema public from strandline_planner;
