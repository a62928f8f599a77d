-- The lookup of a certificate, of entries that are revoked.
create index certificate_principals_revoked on certificate_principals (subject, issuer)
    where revoked_at is not null;
