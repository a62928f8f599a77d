-- A chain shows the least trusted origin of its events: one made of a tool's output or of a document
-- is worth no more than that, however well it is summed up.

-- How far an origin is trusted, from 1. `system`, which no credential bound to a user can bring about,
-- comes from the tenant's own service, `user` from a person, `agent` from a model, `tool` from
-- wherever an agent reached, `document` from whoever wrote it. One that is not known here is trusted
-- least.
create function trust_rank(p_origin text) returns int language sql immutable parallel safe
    return coalesce(array_position(array['document', 'tool', 'agent', 'user', 'system'], p_origin), 0);

-- Null: written by a release before this one, and not filled in yet. Readers look it up then.
alter table chain_versions
    add column trust text check (trust in ('document', 'tool', 'agent', 'user', 'system'));
-- What is still to be filled in.
create index chain_versions_without_trust on chain_versions (tenant_id, chain_id, version)
    where trust is null;

-- The least trusted origin of the events of a chain, as this version holds them.
create function least_trust(p_chain_id uuid, p_version int) returns text
language sql stable parallel safe
    return (
        select e.origin from chain_events c
        join events e on e.tenant_id = c.tenant_id and e.event_id = c.event_id
        where c.tenant_id = current_tenant() and c.chain_id = p_chain_id
            and c.since_version <= p_version
        order by trust_rank(e.origin) limit 1);

-- As chain_rows, which the release before reads whole, with its trust.
create view chain_details with (security_invoker = true) as
    select c.chain_id, c.scope_id, c.participants, c.session_id, c.status, c.created_at, c.importance,
        c.density, c.strength, c.accessed_at, c.boosted_at, c.cold_at, c.promote_until, c.archived_at,
        v.version, v.closed_by, v.merged, v.first_seq, v.last_seq, v.event_count, v.started_at,
        v.last_event_at, v.topic, v.summary, v.entities, v.coherence, v.quality, v.rejected, v.models,
        cited.event_ids, coalesce(v.trust, least_trust(v.chain_id, v.version)) as trust
    from chains c
    join chain_versions v on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
    cross join lateral (
        select coalesce(array_agg(e.event_id order by e.seq), '{}') as event_ids
        from (
            select e.event_id, e.seq from chain_events e
            where e.tenant_id = c.tenant_id and e.chain_id = c.chain_id and e.since_version <= v.version
            order by e.seq limit 200) e) cited;
grant select on chain_details to strandline_app;
