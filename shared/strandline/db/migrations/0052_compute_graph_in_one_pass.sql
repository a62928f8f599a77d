-- As in 0036, in one pass: a join of the observations with their own sums compares each target with each
-- observation if statistics do not know the tenant yet. And each target's observations are sorted once, in
-- the order of time, because a sort for each aggregate costs more than what it sorts.
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
            jsonb_strip_nulls(merge_patches(s.patch order by s.observed_at, s.source_id)) as patch,
            case when (select setting.halves from setting)
                then halving_mean(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id)
                    filter (where s.is_evidence)
                else avg(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id)
                    filter (where s.is_evidence) end as confidence,
            (count(*) filter (where s.is_evidence))::int as weight,
            (array_agg(s.heat order by s.observed_at, s.source_id)
                filter (where s.heat is not null))[count(s.heat)] as heat,
            (min(array[trust_rank(s.trust)::text, s.trust]))[2] as trust,
            min(s.valid_from) as valid_from, min(s.observed_at) as first_at,
            max(s.observed_at) as last_at
        from said s
        group by s.target_id)
    select m.target_id, m.patch - array['identity', 'valid_to', 'archived', 'upkeep'],
        decode(m.patch ->> 'identity', 'hex'), coalesce(m.confidence, 0.8), m.weight,
        coalesce(m.heat, 0), m.trust, m.valid_from, (m.patch ->> 'valid_to')::timestamptz,
        coalesce((m.patch ->> 'archived')::boolean, false), m.first_at, m.last_at
    from merged m;
end;
