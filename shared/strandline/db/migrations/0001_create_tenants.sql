-- Tenants, and the settings that say on whose behalf a statement runs.
--
-- Conventions of the whole schema: the tenant comes first in every key. Every row that holds or cites
-- memory bears a copy of its scope's participants, so that one policy text serves all such tables and
-- needs no join. Tables belong to strandline_owner; the service connects as strandline_app and is held
-- by row-level security, as is the owner (force).

-- the caller ---------------------------------------------------------------------------------------
-- The service sets these once per transaction. After a transaction a local setting reads '' instead of
-- NULL, hence nullif: an unset caller is nobody, and nobody sees anything.

create function current_tenant() returns text language sql stable parallel safe
    return nullif(current_setting('strandline.tenant', true), '');

-- The sorted set Q of participants on whose behalf rows are read: a row is in view where its
-- participants contain Q. The empty set (admin and background work) is contained in all.
create function current_viewer() returns text[] language sql stable parallel safe
    return nullif(current_setting('strandline.viewer', true), '')::text[];

-- The bound user (`user:alice`), or '*' for all unbound credentials of the tenant.
create function current_writer() returns text language sql stable parallel safe
    return nullif(current_setting('strandline.writer', true), '');

-- Was a row's transaction over when this snapshot was taken? After a logical restore rows bear the
-- transaction numbers of another cluster, which are greater than any here: these rows are old.
create function is_in_snapshot(p_xid xid8, p_snapshot pg_snapshot) returns boolean
language sql stable parallel safe
    return pg_visible_in_snapshot(p_xid, p_snapshot)
        or p_xid >= pg_snapshot_xmax(pg_current_snapshot());

-- Does this scope consist of these participants of this tenant? The policies test the copy of the
-- participants that a row bears, the foreign keys its scope's id. Without this test a writer could
-- combine its own participants with the id of a scope that it is not in. A scope's id is a hash of
-- tenant and participants (participants.scope_id in Python): SHA-256 over the JSON list of both, its
-- first half as a UUID of version 8 (RFC 9562). So the row itself shows whether they belong together,
-- at the cost of one SHA-256 and no look-up. It is one expression in which each argument stands once,
-- so that Postgres inlines it into the policies.
create function is_scope_of(p_scope_id uuid, p_tenant text, p_participants text[]) returns boolean
language sql stable parallel safe
    return ('x' || replace(p_scope_id::text, '-', ''))::bit(128)
        = ('x' || left(encode(sha256(convert_to(
                to_jsonb(array_prepend(p_tenant, p_participants))::text, 'UTF8')), 'hex'), 32))::bit(128)
            & x'ffffffffffff0fff3fffffffffffffff' | x'00000000000080008000000000000000';

-- tenants ------------------------------------------------------------------------------------------

create table tenants (
    tenant_id text primary key check (tenant_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    created_at timestamptz not null default now(),
    -- Limits set by an operator for this tenant. Null: the deployment's default; 0 allows nothing.
    requests_per_minute bigint check (requests_per_minute between 0 and 1000000000),
    appends_per_minute bigint check (appends_per_minute between 0 and 1000000000),
    stored_bytes_limit bigint check (stored_bytes_limit >= 0),
    tuning jsonb not null default '{}',  -- thresholds that differ from the deployment's: see tuning.py
    -- A limit as the three above, per calendar month (UTC).
    model_usd_per_month double precision check (model_usd_per_month between 0 and 1000000000),
    swept_at timestamptz,  -- when the tenant was last swept for work that no row names
    swept_space text,  -- the embedding space of that sweep
    -- the heat settings that cold_at and promote_until follow
    applied_heat_settings jsonb not null default '{}',
    heat_recomputed_to uuid  -- while chains are recomputed after a change of these: the last one done
);

create policy own_tenant on tenants to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on tenants for select to strandline_planner using (true);
alter table tenants enable row level security;
alter table tenants force row level security;
grant select, insert on tenants to strandline_app;
grant update (requests_per_minute, appends_per_minute, stored_bytes_limit, tuning, model_usd_per_month,
    swept_at, swept_space, applied_heat_settings, heat_recomputed_to) on tenants to strandline_app;
grant select (tenant_id, created_at, tuning, swept_at, swept_space, applied_heat_settings,
    heat_recomputed_to) on tenants
    to strandline_planner;

-- The functions that look past row-level security are SECURITY DEFINER, each owned by a role that can
-- log in nowhere and do nothing else. A role must be allowed to create in the schema at the moment a
-- function is handed over to it, and only then: the same lines stand around each such function.
grant create on schema public to strandline_planner;

-- The names of tenants and their time of creation, and nothing else about them: for an operator, whose
-- viewer is {*}. No reader can have that viewer, for no participant is spelled so. Sorted by name and
-- not by age: names do not move, so paging meets each of them once.
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
