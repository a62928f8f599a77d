-- The functions that look past row-level security, each owned by a role that can do nothing else.
-- A role must be able to create in the schema at the moment a function is handed to it.

grant create on schema public to strandline_keys, strandline_planner, strandline_guard;

-- A key's principal, for whoever proves to hold its secret. The hash never leaves the database.
create function find_api_key(p_key_id text, p_secret_hash bytea)
returns table (tenant_id text, user_name text, scopes text[], expires_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select k.tenant_id, k.user_name, k.scopes, k.expires_at from api_keys k
    where k.key_id = p_key_id and k.secret_hash = p_secret_hash and k.revoked_at is null
$$;
revoke execute on function find_api_key from public;
grant execute on function find_api_key to strandline_app;
alter function find_api_key owner to strandline_keys;

-- Tenant ids, and nothing else about them, where work is due or vectors are missing in this space.
create function tenants_with_work(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id from scope_work w where w.due_at <= p_now and w.leased_until <= p_now
    union
    select s.tenant_id from scopes s
    left join scope_progress p
        on p.tenant_id = s.tenant_id and p.scope_id = s.scope_id and p.space = p_space
    where s.last_seq > coalesce(p.embedded_seq, 0)
$$;
revoke execute on function tenants_with_work from public;
grant execute on function tenants_with_work to strandline_app;
alter function tenants_with_work owner to strandline_planner;

revoke execute on function refuse_erased_event, refuse_erased_citation from public;
alter function refuse_erased_event owner to strandline_guard;
alter function refuse_erased_citation owner to strandline_guard;

revoke create on schema public from strandline_keys, strandline_planner, strandline_guard;
