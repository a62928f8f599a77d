-- Changes of nodes and edges that exist, and the tenant's way to compute confidence.

-- computing ----------------------------------------------------------------------------------------

-- As before, with two differences. A tenant's `edge_confidence` decides between mean and halving;
-- p_halving is the deployment's, for a tenant that sets none. And an observation with `upkeep` in its
-- patch (an archive flag, an end, a merge) says what became of a node or an edge, not that it is so: it
-- counts neither in the weight nor in the confidence.
create or replace function observed_state(p_ids uuid[], p_as_of timestamptz, p_halving boolean)
returns table (target_id uuid, properties jsonb, identity bytea, confidence double precision,
    weight int, heat double precision, trust text, valid_from timestamptz, valid_to timestamptz,
    archived boolean, first_at timestamptz, last_at timestamptz)
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
begin atomic
    with setting as (
        select coalesce(max(t.tuning ->> 'edge_confidence') = 'halving', p_halving) as halves
        from tenants t where t.tenant_id = current_tenant()),
    said as (
        select o.*, not o.patch ? 'upkeep' as is_evidence from graph_observations o
        where o.tenant_id = current_tenant() and o.target_id = any (p_ids)
            and (p_as_of is null or o.observed_at <= p_as_of)),
    merged as (
        select s.target_id,
            jsonb_strip_nulls(merge_patches(s.patch order by s.observed_at, s.source_id)) as patch
        from said s group by s.target_id)
    select s.target_id,
        m.patch - array['identity', 'valid_to', 'archived', 'upkeep'],
        decode(m.patch ->> 'identity', 'hex'),
        coalesce(case when (select setting.halves from setting)
            then halving_mean(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id)
                filter (where s.is_evidence)
            else avg(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id)
                filter (where s.is_evidence) end, 0.8),
        (count(*) filter (where s.is_evidence))::int,
        coalesce((array_agg(s.heat order by s.observed_at desc, s.source_id desc)
            filter (where s.heat is not null))[1], 0),
        (array_agg(s.trust order by trust_rank(s.trust)))[1],
        min(s.valid_from), (m.patch ->> 'valid_to')::timestamptz,
        coalesce((m.patch ->> 'archived')::boolean, false), min(s.observed_at), max(s.observed_at)
    from said s join merged m on m.target_id = s.target_id
    group by s.target_id, m.patch;
end;

-- provenance ---------------------------------------------------------------------------------------

-- At commit: whoever removes the last observation of a node or an edge removes that too, and whoever
-- removes the last event of an observation removes the observation.
create function require_observation_left() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if not exists (
            select from graph_observations o
            where o.tenant_id = old.tenant_id and o.target_id = old.target_id)
        and exists (
            select from graph_nodes n where n.tenant_id = old.tenant_id and n.node_id = old.target_id
            union all
            select from graph_edges e where e.tenant_id = old.tenant_id and e.edge_id = old.target_id)
    then
        raise exception '% rests on no observation', old.target_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_observation_left after delete on graph_observations
deferrable initially deferred for each row execute function require_observation_left();

create function require_source_left() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if not exists (
            select from graph_sources s where s.tenant_id = old.tenant_id
                and s.target_id = old.target_id and s.source_id = old.source_id)
        and exists (
            select from graph_observations o where o.tenant_id = old.tenant_id
                and o.target_id = old.target_id and o.source_id = old.source_id)
    then
        raise exception 'an observation of % cites no event', old.target_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_source_left after delete on graph_sources
deferrable initially deferred for each row execute function require_source_left();
