-- Keys, client certificates, and the audit trail of what admins and operators did.

create table api_keys (
    tenant_id text not null references tenants,
    key_id text not null,
    secret_hash bytea not null,  -- SHA-256 of 32 random bytes: no salt needed
    user_name text check (user_name like 'user:%'),  -- null: bound to no user
    scopes text[] not null check (
        scopes <@ array['read', 'write', 'admin', 'operator', 'erase'] and scopes <> '{}'),
    label text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    rotated_to text,  -- the key that replaced this one
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, key_id),
    foreign key (tenant_id, rotated_to) references api_keys,
    constraint api_keys_times check (expires_at = nearest_moment(expires_at))
);
-- A key is looked up before its tenant is known; 16 random bytes do not collide across tenants.
create unique index api_keys_key_id on api_keys (key_id);
create index api_keys_newest on api_keys (tenant_id, created_at desc, key_id desc);

create policy own_tenant on api_keys to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy keys_reads on api_keys for select to strandline_keys using (true);
alter table api_keys enable row level security, force row level security;
-- All but the hash.
grant select (tenant_id, key_id, user_name, scopes, label, created_at, expires_at, revoked_at, rotated_to,
    xid) on api_keys to strandline_app;
grant insert (tenant_id, key_id, secret_hash, user_name, scopes, label, expires_at) on api_keys
    to strandline_app;
grant update (expires_at, revoked_at, label, rotated_to) on api_keys to strandline_app;
grant select on api_keys to strandline_keys;

-- certificates -------------------------------------------------------------------------------------

-- Client certificates (mutual TLS): which principal a certificate's subject stands for. Certificates
-- themselves are not stored: the gateway's trust store says which authorities are accepted.
create table certificate_principals (
    tenant_id text not null references tenants,
    certificate_id uuid not null,
    -- Both names in the service's spelling of RFC 4514.
    subject text not null check (subject <> '' and length(subject) <= 1024),
    issuer text check (issuer <> '' and length(issuer) <= 1024),  -- null: any authority of the trust store
    user_name text check (user_name like 'user:%'),  -- null: bound to no user
    scopes text[] not null check (
        scopes <@ array['read', 'write', 'admin', 'operator', 'erase'] and scopes <> '{}'),
    label text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, certificate_id),
    constraint certificate_principals_times check (expires_at = nearest_moment(expires_at))
);
-- A subject is looked up before its tenant is known: it stands for one principal in the whole deployment.
create unique index certificate_principals_subject
    on certificate_principals (subject, coalesce(issuer, '')) where revoked_at is null;
-- The same of entries that are revoked: see find_certificate_principal.
create index certificate_principals_revoked on certificate_principals (subject, issuer)
    where revoked_at is not null;
create index certificate_principals_newest
    on certificate_principals (tenant_id, created_at desc, certificate_id desc);

create policy own_tenant on certificate_principals to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy keys_reads on certificate_principals for select to strandline_keys using (true);
alter table certificate_principals enable row level security, force row level security;
grant select on certificate_principals to strandline_app, strandline_keys;
grant insert (tenant_id, certificate_id, subject, issuer, user_name, scopes, label, expires_at)
    on certificate_principals to strandline_app;
grant update (revoked_at) on certificate_principals to strandline_app;

-- audit trail --------------------------------------------------------------------------------------

-- It holds ids, rights and numbers: no label, no memory, nothing secret. It has no foreign key, because
-- it outlives the tenants and keys that it names.
create table audit_log (
    tenant_id text not null,  -- acted on; for a refused call that did nothing: the caller's own
    audit_id uuid not null,  -- UUIDv7, made by the service
    at timestamptz not null default clock_timestamp(),  -- ours: the application may not write it
    actor_tenant text,  -- null: at the console, by a holder of the deployment's own secrets
    actor_key_id text,
    actor_user text,
    route text not null,
    target jsonb not null default '{}' check (jsonb_typeof(target) = 'object'),
    -- What was created or changed.
    details jsonb not null default '{}' check (jsonb_typeof(details) = 'object'),
    outcome text not null check (outcome <> ''),  -- 'done', or the code of the error that refused it
    request_id text not null default '',
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, at, audit_id)  -- the order of the list: newest first
);

create policy own_tenant on audit_log to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table audit_log enable row level security, force row level security;
grant select on audit_log to strandline_app;
grant insert (tenant_id, audit_id, actor_tenant, actor_key_id, actor_user, route, target, details,
    outcome, request_id) on audit_log to strandline_app;
