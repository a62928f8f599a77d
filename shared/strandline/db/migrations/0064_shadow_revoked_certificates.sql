-- A certificate whose entry is revoked is refused. An entry that leaves the issuer open, and was there when one
-- that named the issuer was revoked, does not take it over: it may be of another tenant, or user. Who is to use
-- the certificate again is entered with its issuer, or anew.
grant create on schema public to strandline_keys;
set local role strandline_keys;
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
reset role;
revoke create on schema public from strandline_keys;

-- The lookup above, of entries that are revoked.
create index certificate_principals_revoked on certificate_principals (subject, issuer)
    where revoked_at is not null;
