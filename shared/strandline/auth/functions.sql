-- revision: 4
-- From a credential to its principal, before the tenant is known.

set local role strandline_keys;

-- The principal of a key, for a caller that proves to hold its secret. The hash never leaves the
-- database.
create or replace function find_api_key(p_key_id text, p_secret_hash bytea)
returns table (tenant_id text, user_name text, scopes text[], expires_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select k.tenant_id, k.user_name, k.scopes, k.expires_at from api_keys k
    where k.key_id = p_key_id and k.secret_hash = p_secret_hash and k.revoked_at is null
$$;
revoke execute on function find_api_key from public;
grant execute on function find_api_key to strandline_app;

-- The principal of these names, for a caller that knows them whole. A row that names the issuer comes
-- before one that leaves it open. A certificate whose entry is revoked is refused. An entry that leaves the
-- issuer open, and was there when one that named the issuer was revoked, does not take it over: it may be of
-- another tenant, or user. Who is to use the certificate again is entered with its issuer, or anew.
create or replace function find_certificate_principal(p_subject text, p_issuer text)
returns table (tenant_id text, certificate_id uuid, user_name text, scopes text[], expires_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select c.tenant_id, c.certificate_id, c.user_name, c.scopes, c.expires_at
    from certificate_principals c
    where c.subject = p_subject and coalesce(c.issuer, '') in (p_issuer, '') and c.revoked_at is null
        and (c.issuer is not null or not exists (
            select from certificate_principals r
            where r.subject = p_subject and r.issuer = p_issuer and r.revoked_at >= c.created_at))
    order by c.issuer nulls last limit 1
$$;
revoke execute on function find_certificate_principal from public;
grant execute on function find_certificate_principal to strandline_app;

-- Called in the statement that finds the credential, so that no request waits for a second one. It tells
-- two settings and no name: whether agents share, and the embedding space that the tenant's answers are
-- searched in (null: the configured one). What is no tenant has the defaults. The tenant's row is read once
-- for both.
create or replace function request_settings_of(p_tenant text)
returns table (agents_share boolean, reading_space text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select coalesce(bool_or(t.agents_share), false), max(coalesce(t.reading_space, t.swept_space))
    from tenants t where t.tenant_id = p_tenant
$$;
revoke execute on function request_settings_of from public;
grant execute on function request_settings_of to strandline_app;

-- What the release before calls in its place.
create or replace function agents_share_of(p_tenant text) returns boolean
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select coalesce((select t.agents_share from tenants t where t.tenant_id = p_tenant), false)
$$;
revoke execute on function agents_share_of from public;
grant execute on function agents_share_of to strandline_app;

reset role;

set local role strandline_planner;

-- The names of tenants and their time of creation, and nothing else about them: for an operator, whose
-- viewer is {*}. No reader can have that viewer, for no participant is spelled so. Sorted by name and
-- not by age: names do not move, so paging meets each of them once.
create or replace function tenants_by_name(p_after text, p_limit int)
returns table (tenant_id text, created_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id, t.created_at from tenants t
    where t.tenant_id > p_after and current_tenant() is not null and current_viewer() = array['*']
    order by t.tenant_id limit p_limit
$$;
revoke execute on function tenants_by_name from public;
grant execute on function tenants_by_name to strandline_app;

reset role;
