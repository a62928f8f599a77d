-- A request for an erasure that is repeated finds the first one: after a lost answer nothing is in view any
-- more that would lead to it.

-- HMACs under the deployment's secret: neither a key nor a session's name can be read from them.
alter table erasures add column request_hash bytea;  -- of the request's key, or of the session's name
alter table erasures add column fingerprint bytea;  -- of all that a request with a key asked for
create index erasures_request on erasures (tenant_id, request_hash, erasure_id)
    where request_hash is not null;
grant insert (request_hash, fingerprint) on erasures to strandline_app;
