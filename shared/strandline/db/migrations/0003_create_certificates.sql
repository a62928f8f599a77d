-- Client certificates (mutual TLS): which principal a certificate's subject stands for. Certificates
-- themselves are not stored: the gateway's trust store says which authorities are accepted.

create table certificate_principals (
    tenant_id text not null references tenants,
    certificate_id uuid not null,
    -- Both names in the service's spelling of RFC 4514.
    subject text not null check (subject <> '' and length(subject) <= 1024),
    issuer text check (issuer <> '' and length(issuer) <= 1024),  -- null: any authority of the trust store
    user_name text check (user_name like 'user:%'),  -- null: bound to no user
    scopes text[] not null check (scopes <@ array['read', 'write', 'admin', 'operator'] and scopes <> '{}'),
    label text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, certificate_id)
);
-- A subject is looked up before its tenant is known: it stands for one principal in the whole deployment.
create unique index certificate_principals_subject
    on certificate_principals (subject, coalesce(issuer, '')) where revoked_at is null;
create index certificate_principals_newest
    on certificate_principals (tenant_id, created_at desc, certificate_id desc);

create policy own_tenant on certificate_principals to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy keys_reads on certificate_principals for select to strandline_keys using (true);
alter table certificate_principals enable row level security;
alter table certificate_principals force row level security;
grant select on certificate_principals to strandline_app, strandline_keys;
grant insert (tenant_id, certificate_id, subject, issuer, user_name, scopes, label, expires_at)
    on certificate_principals to strandline_app;
grant update (revoked_at) on certificate_principals to strandline_app;

grant create on schema public to strandline_keys;

-- The principal of these names, for a caller that knows them whole. A row that names the issuer comes
-- before one that leaves it open.
create function find_certificate_principal(p_subject text, p_issuer text)
returns table (tenant_id text, certificate_id uuid, user_name text, scopes text[], expires_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select c.tenant_id, c.certificate_id, c.user_name, c.scopes, c.expires_at
    from certificate_principals c
    where c.subject = p_subject and coalesce(c.issuer, '') in (p_issuer, '') and c.revoked_at is null
    order by c.issuer nulls last limit 1
$$;
revoke execute on function find_certificate_principal from public;
grant execute on function find_certificate_principal to strandline_app;
alter function find_certificate_principal owner to strandline_keys;

revoke create on schema public from strandline_keys;
