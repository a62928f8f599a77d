-- The audit trail, the names of all tenants for an operator, and a key's successor.

-- What admins and operators did. It holds ids, rights and numbers and no words: no label, no memory,
-- nothing secret. No foreign key, on purpose: the trail outlives whom it is about.
create table audit_log (
    tenant_id text not null,  -- acted on; of a call that was refused and did nothing, the caller's own
    audit_id uuid not null,  -- UUIDv7, made by the service
    at timestamptz not null default clock_timestamp(),  -- ours, and not the application's to write
    actor_tenant text,  -- null: at the console, by whoever holds the deployment's own secrets
    actor_key_id text,
    actor_user text,
    route text not null,
    target jsonb not null default '{}' check (jsonb_typeof(target) = 'object'),
    details jsonb not null default '{}' check (jsonb_typeof(details) = 'object'),  -- what was made or changed
    outcome text not null check (outcome <> ''),  -- 'done', or the code of the error that refused it
    request_id text not null default '',
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, at, audit_id)  -- as it is listed: newest first
);
create policy own_tenant on audit_log to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table audit_log enable row level security;
alter table audit_log force row level security;
grant select on audit_log to strandline_app;
grant insert (tenant_id, audit_id, actor_tenant, actor_key_id, actor_user, route, target, details,
    outcome, request_id) on audit_log to strandline_app;

-- A key that was rotated names the key that follows it.
alter table api_keys
    add column rotated_to text,
    add column xid xid8 not null default pg_current_xact_id(),
    add foreign key (tenant_id, rotated_to) references api_keys;
create index api_keys_newest on api_keys (tenant_id, created_at desc, key_id desc);
grant select (rotated_to, xid), update (rotated_to) on api_keys to strandline_app;
revoke insert on api_keys from strandline_app;
grant insert (tenant_id, key_id, secret_hash, user_name, scopes, label, expires_at)
    on api_keys to strandline_app;

-- The names of tenants and since when they are, and nothing else about them: for an operator, who asks
-- on behalf of the viewer {*} and of no other; no reader can, for no participant is spelled so. By name
-- and not by age: names do not move, so whoever pages meets each of them once.
create policy planner_reads on tenants for select to strandline_planner using (true);
grant select (tenant_id, created_at) on tenants to strandline_planner;
grant create on schema public to strandline_planner;
create function tenants_by_name(p_after text, p_limit int)
returns table (tenant_id text, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id, t.created_at from tenants t
    where t.tenant_id > p_after and current_tenant() is not null and current_viewer() = array['*']
    order by t.tenant_id limit p_limit
$$;
revoke execute on function tenants_by_name from public;
grant execute on function tenants_by_name to strandline_app;
alter function tenants_by_name owner to strandline_planner;
revoke create on schema public from strandline_planner;
