-- Tenants, and the settings that say on whose behalf a statement runs.
--
-- Conventions of the whole schema: the tenant comes first in every key. Every row that holds or cites
-- memory bears a copy of its scope's participants, so that one policy text serves all such tables and
-- needs no join. Tables belong to strandline_owner; the service connects as strandline_app and is held
-- by row-level security, as is the owner (force).
--
-- What policies, triggers, defaults, views and indexes call lies here, with the tables; all other functions lie
-- in the functions.sql of their room. From this baseline on tables change by numbered files.

-- the caller ---------------------------------------------------------------------------------------
-- The service sets these once per transaction. After a transaction a local setting reads '' instead of
-- NULL: an unset caller is nobody, and nobody sees anything.

-- As nullif(current_setting(...), ''), which the planner evaluates to find the value in the statistics. It
-- does not evaluate a comparison of rows: a tenant is estimated as the average of all. A tenant whose rows
-- came after the last ANALYZE is missing from the statistics. While these list all other tenants, the
-- planner would take it for a tenant of one row: every index that begins with the tenant looks as good as
-- the right one, and a look by key would read all of the tenant, once for each row of a join.
create function current_tenant() returns text language sql stable parallel safe
    return case when (current_setting('strandline.tenant', true), '') > ('', '')
        then current_setting('strandline.tenant', true) end;

-- The sorted set Q of participants on whose behalf rows are read: a row is in view where its
-- participants contain Q. The empty set (admin and background work) is contained in all.
create function current_viewer() returns text[] language sql stable parallel safe
    return nullif(current_setting('strandline.viewer', true), '')::text[];

-- The bound user (`user:alice`), or '*' for all unbound credentials of the tenant.
create function current_writer() returns text language sql stable parallel safe
    return nullif(current_setting('strandline.writer', true), '');

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

-- The nearest time that clients can hold. A time outside of the years 1 to 9999 in UTC can be stored, but no
-- client in Python can load it: one such row took down every list, search and context that held it. Not
-- strict, so that the planner inlines it.
create function nearest_moment(p_at timestamptz) returns timestamptz
language sql immutable parallel safe
    return case when p_at is not null then
        least(greatest(p_at, timestamptz '0001-01-01 00:00:00+00'),
            timestamptz '9999-12-31 23:59:59.999999+00') end;

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
    heat_recomputed_to uuid,  -- while chains are recomputed after a change of these: the last one done
    -- Whether its agents are software and no listeners: they then drop out of Q, the participants on whose
    -- behalf rows are read (see Principal.resolve_viewer). No policy knows it: Q is made at the edge.
    agents_share boolean not null default false,
    -- The zone in which "yesterday" and "in May" of its questions are read; its name is checked by the
    -- operator's call.
    time_zone text not null default 'UTC' check (time_zone <> '' and length(time_zone) <= 64)
);
create index tenants_swept on tenants (swept_space);
create index tenants_recomputing on tenants (tenant_id) where heat_recomputed_to is not null;
-- Tenants with the same settings have the same value.
create index tenants_heat on tenants (md5(applied_heat_settings::text || tuning::text));

create policy own_tenant on tenants to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on tenants for select to strandline_planner using (true);
alter table tenants enable row level security, force row level security;
grant select, insert on tenants to strandline_app;
grant update (requests_per_minute, appends_per_minute, stored_bytes_limit, tuning, model_usd_per_month,
    swept_at, swept_space, applied_heat_settings, heat_recomputed_to, agents_share, time_zone)
    on tenants to strandline_app;
grant select (tenant_id, created_at, tuning, swept_at, swept_space, applied_heat_settings,
    heat_recomputed_to) on tenants to strandline_planner;

-- A key or a certificate is looked up before its tenant is known, and its principal bears the setting.
create policy keys_reads on tenants for select to strandline_keys using (true);
grant select (tenant_id, agents_share) on tenants to strandline_keys;
