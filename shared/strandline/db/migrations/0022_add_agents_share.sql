-- Whether a tenant's agents are software and no listeners: they then drop out of Q, the participants on
-- whose behalf rows are read (see Principal.resolve_viewer). No policy knows it: Q is made at the edge.

alter table tenants add column agents_share boolean not null default false;
grant update (agents_share) on tenants to strandline_app;

-- A key or a certificate is looked up before its tenant is known, and its principal bears the setting.
create policy keys_reads on tenants for select to strandline_keys using (true);
grant select (tenant_id, agents_share) on tenants to strandline_keys;

grant create on schema public to strandline_keys;

-- Called in the statement that finds the credential, so that no request waits for a second one. It tells
-- one setting and no name: what is no tenant has the default.
create function agents_share_of(p_tenant text) returns boolean
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select coalesce((select t.agents_share from tenants t where t.tenant_id = p_tenant), false)
$$;
revoke execute on function agents_share_of from public;
grant execute on function agents_share_of to strandline_app;
alter function agents_share_of owner to strandline_keys;

revoke create on schema public from strandline_keys;
