-- A time outside of the years 1 to 9999 in UTC can be stored, but no client in Python can load it: one such
-- row took down every list, search and context that held it.

-- The nearest time that clients can hold. Not strict, so that the planner inlines it.
create function nearest_moment(p_at timestamptz) returns timestamptz
language sql immutable parallel safe
    return case when p_at is not null then
        least(greatest(p_at, timestamptz '0001-01-01 00:00:00+00'),
            timestamptz '9999-12-31 23:59:59.999999+00') end;

-- As in 0052, but an end is the nearest moment to what an observation says. So what an event from before
-- this rule says is computed to the same end, whenever the graph is derived from it again.
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
        coalesce(m.heat, 0), m.trust, m.valid_from,
        nearest_moment((m.patch ->> 'valid_to')::timestamptz),
        coalesce((m.patch ->> 'archived')::boolean, false), m.first_at, m.last_at
    from merged m;
end;

-- Of every table that takes a time from outside. They hold for what is written from now on, and 0057
-- corrects what was written before: to check that here would lock the log while it is read.
alter table events add constraint events_times
    check (occurred_at = nearest_moment(occurred_at)) not valid;
alter table graph_nodes add constraint graph_nodes_times
    check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to)) not valid;
alter table graph_edges add constraint graph_edges_times
    check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to)) not valid;
alter table graph_observations add constraint graph_observations_times
    check (valid_from = nearest_moment(valid_from)) not valid;
alter table topic_field_revisions add constraint topic_field_revisions_times
    check (valid_from = nearest_moment(valid_from)) not valid;
alter table api_keys add constraint api_keys_times
    check (expires_at = nearest_moment(expires_at)) not valid;
alter table certificate_principals add constraint certificate_principals_times
    check (expires_at = nearest_moment(expires_at)) not valid;

-- Rows that no client can load, for health: there are none, so neither index holds anything.
create index graph_nodes_unreadable on graph_nodes (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);
create index graph_edges_unreadable on graph_edges (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);
