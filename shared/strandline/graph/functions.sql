-- revision: 2
-- The knowledge graph: computed from observations, searched, walked, promoted and analysed.

-- computing ----------------------------------------------------------------------------------------

-- The mean of what was said before and what is said now, in order: C-03's other mode.
create or replace function halve(p_before double precision, p_now double precision) returns double precision
language sql immutable parallel safe
    return coalesce((p_before + p_now) / 2, p_now, p_before);

create or replace aggregate merge_patches(jsonb) (sfunc = jsonb_concat, stype = jsonb, initcond = '{}',
    parallel = safe);

create or replace aggregate halving_mean(double precision) (sfunc = halve, stype = double precision,
    parallel = safe);

-- What the observations of these nodes and edges say together, of those observed up to p_as_of: a later
-- one sets what an earlier one set. The confidence is the mean, or each time the half of what was and what is
-- said; a tenant's `edge_confidence` decides between them, and p_halving is the deployment's, for a tenant that
-- sets none. Whoever says nothing of it says 0.8. An observation with `upkeep` in its patch (an archive flag,
-- an end, a merge) says what became of a node or an edge, not that it is so: it counts neither in the weight nor
-- in the confidence. A target without an observation has no row.
--
-- In one pass: a join of the observations with their own sums compares each target with each observation if
-- statistics do not know the tenant yet. And each target's observations are sorted once, in the order of time,
-- because a sort for each aggregate costs more than what it sorts. An end is the nearest moment to what an
-- observation says, so that what an event from before that rule says is computed to the same end.
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

-- May the row be shown: now, if it has not ended, and archived only if these are asked for; or at a time,
-- of which the row tells only since when it holds at the earliest. observed_state tells the rest.
create or replace function may_hold(p_valid_from timestamptz, p_valid_to timestamptz, p_archived boolean,
    p_as_of timestamptz, p_with_archived boolean)
returns boolean language sql stable parallel safe
    return case when p_as_of is null
        then (p_valid_to is null or p_valid_to > now()) and (p_with_archived or not p_archived)
        else p_valid_from <= p_as_of end;

-- Of these nodes and edges, those that held at a time, as it was known then.
create or replace function held_at(p_ids uuid[], p_as_of timestamptz, p_with_archived boolean,
    p_with_ended boolean)
returns table (target_id uuid)
language sql stable set search_path = pg_catalog, public, pg_temp
begin atomic
    select s.target_id from observed_state(p_ids, p_as_of, false) s
    where s.valid_from <= p_as_of and (p_with_archived or not s.archived)
        and (p_with_ended or s.valid_to is null or s.valid_to > p_as_of);
end;

-- The nodes in view that may have been one with these at a time (null: now), as they were observed up to
-- then: what each was read as, and whether it held. Those of equal type and identity were one. p_halving is
-- as of observed_state.
create or replace function joined_at(p_ids uuid[], p_as_of timestamptz, p_halving boolean)
returns table (target_id uuid, type text, name text, identity bytea, holds boolean,
    properties jsonb, confidence double precision, weight int, heat double precision, trust text,
    valid_from timestamptz, valid_to timestamptz, archived boolean, first_at timestamptz,
    last_at timestamptz)
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off
begin atomic
    with given as materialized (
        select distinct g.type, coalesce(s.identity, g.name_hash) as identity
        from observed_state(p_ids, p_as_of, p_halving) s
        cross join lateral (
            select g.type, g.name_hash from graph_nodes g
            where g.tenant_id = current_tenant() and g.node_id = s.target_id offset 0) g),
    candidates as materialized (
        select c.node_id
        from given g
        cross join lateral (
            select n.node_id from graph_nodes n
            where n.tenant_id = current_tenant() and n.type = g.type and n.identity = g.identity
            union all
            select n.node_id from graph_nodes n
            where n.tenant_id = current_tenant() and n.type = g.type and n.name_hash = g.identity
                and n.identity <> n.name_hash
            union all
            select o.target_id from graph_observations o
            where o.tenant_id = current_tenant() and o.identity = g.identity
            offset 0) c)
    select s.target_id, n.type, n.name, coalesce(s.identity, n.name_hash),
        coalesce(s.valid_to > coalesce(p_as_of, now()), true), s.properties, s.confidence,
        s.weight, s.heat, s.trust, s.valid_from, s.valid_to, s.archived, s.first_at, s.last_at
    from observed_state(array(select distinct c.node_id from candidates c), p_as_of, p_halving) s
    cross join lateral (
        select n.type, n.name, n.name_hash from graph_nodes n
        where n.tenant_id = current_tenant() and n.node_id = s.target_id offset 0) n;
end;

-- The topics in view that this one is read with: itself, and those of its identity that hold, as it does;
-- with p_as_of those that it was read with then. Nothing where it is not in view, or is no topic.
create or replace function topic_members(p_node_id uuid, p_as_of timestamptz)
returns table (node_id uuid)
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
begin atomic
    with named as (
        select g.node_id, g.identity, g.valid_to from graph_nodes g
        where g.tenant_id = current_tenant() and g.node_id = p_node_id and g.type = 'topic'
            and p_as_of is null),
    observed as materialized (
        select j.target_id, j.identity, j.holds from joined_at(array[p_node_id], p_as_of, false) j
        where p_as_of is not null and j.type = 'topic')
    select n.node_id from named n
    union
    select g.node_id from named n
    join graph_nodes g on g.tenant_id = current_tenant() and g.type = 'topic'
        and g.identity = n.identity and g.valid_to is null
    where n.valid_to is null
    union
    select m.target_id from observed n
    join observed m on m.identity = n.identity and (m.target_id = n.target_id or n.holds and m.holds)
    where n.target_id = p_node_id;
end;

-- search -------------------------------------------------------------------------------------------

set local role strandline_search;

-- The nodes in view nearest to a vector, nearest first: of those whose codes differ in the fewest bits, the
-- nearest. Whose scopes they are is looked up once, as to compare participants costs more than to compare
-- codes.
create or replace function nearest_nodes(p_vector halfvec, p_space text, p_types text[], p_as_of timestamptz,
    p_archived boolean, p_limit int)
returns table (node_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_scopes uuid[] := case when v_viewer = '{}' then null else array(
        select m.scope_id from scope_members m
        where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
            and (cardinality(v_viewer) = 1 or m.participants @> v_viewer)) end;
begin
    if cardinality(v_scopes) > 1000 and cardinality(v_scopes) = (
        select count(*) from (
            select from scopes s where s.tenant_id = v_tenant
            limit cardinality(v_scopes) + 1) s)
    then
        v_scopes := null;  -- who is in every scope sees the whole tenant
    end if;
    return query
        select near.node_id, v.distance
        from (
            (select c.node_id from graph_nodes c
            where c.tenant_id = v_tenant and c.space = p_space and c.embedding is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and c.type = any (p_types)
                and may_hold(c.valid_from, c.valid_to, c.archived, p_as_of, p_archived)
            order by c.code <~> v_code, c.node_id limit 3 * p_limit)
            union all  -- after a switch of spaces, until these vectors have taken the others' place
            (select c.node_id from graph_nodes c
            where c.tenant_id = v_tenant and c.next_space = p_space and c.next_code is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and c.type = any (p_types)
                and may_hold(c.valid_from, c.valid_to, c.archived, p_as_of, p_archived)
            order by c.next_code <~> v_code, c.node_id limit 3 * p_limit)) near
        cross join lateral (
            select node_vector(p_space, v.space, v.embedding, v.next_space, v.next_embedding)
                <=> p_vector as distance
            from graph_nodes v
            where v.tenant_id = v_tenant and v.node_id = near.node_id offset 0) v
        order by v.distance, near.node_id limit p_limit;
end $$;
revoke execute on function nearest_nodes from public;
grant execute on function nearest_nodes to strandline_app;

-- The nodes in view whose text contains this one, which is folded; those of the shortest text first. With
-- fewer than three characters it reads all that is in view.
create or replace function nodes_containing(p_folded text, p_types text[], p_as_of timestamptz,
    p_archived boolean, p_limit int)
returns table (node_id uuid, share double precision)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = on as $$
    select g.node_id, length(p_folded)::float8 / greatest(length(g.text), 1)
    from graph_nodes g
    where g.tenant_id = current_tenant() and g.participants @> (select current_viewer())
        and g.type = any (p_types)
        and may_hold(g.valid_from, g.valid_to, g.archived, p_as_of, p_archived)
        and trigrams_of(g.text) @> trigrams_of(p_folded) and strpos(g.text, p_folded) > 0
    order by length(g.text), g.node_id limit p_limit
$$;
revoke execute on function nodes_containing from public;
grant execute on function nodes_containing to strandline_app;

reset role;

-- The edges that lead from these nodes to others, hop by hop, and the nodes that they lead to, the heaviest
-- first and each once, p_limit nodes in all. A node is followed with all nodes of its identity in view; with
-- p_as_of with those that it was read with then. Of the nodes that edges lead to, no more are read than there
-- is room for: a walk that meets a name of every scope has thousands of them. With the caller's rights, so that
-- row-level security holds.
create or replace function walk_graph(p_start uuid[], p_types text[], p_hops int, p_limit int,
    p_min_confidence double precision, p_as_of timestamptz, p_archived boolean,
    p_ended boolean)
returns table (hop int, edge_id uuid, node_id uuid)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
declare
    c_edges constant int := 5000;  -- of one hop
    v_tenant text := current_tenant();
    v_frontier uuid[] := p_start;
    v_seen uuid[] := '{}';
    v_edges uuid[];
    v_ends uuid[];
    v_held uuid[];
    v_left int := p_limit;
begin
    for v_hop in 1 .. p_hops loop
        if p_as_of is null then
            v_frontier := array(
                select distinct m.node_id from (
                    select g.type, g.identity, g.valid_to, g.node_id from graph_nodes g
                    where g.tenant_id = v_tenant and g.node_id = any (v_frontier) offset 0) f
                cross join lateral (
                    select f.node_id
                    union all
                    select m.node_id from graph_nodes m
                    where f.valid_to is null and m.tenant_id = v_tenant and m.type = f.type
                        and m.identity = f.identity and m.valid_to is null) m
                limit c_edges);
        else
            v_frontier := array(
                with observed as materialized (
                    select j.target_id, j.type, j.identity, j.holds
                    from joined_at(v_frontier, p_as_of, false) j)
                select distinct m.target_id from observed f
                join observed m on m.type = f.type and m.identity = f.identity
                    and (m.target_id = f.target_id or f.holds and m.holds)
                where f.target_id in (select unnest(v_frontier))
                limit c_edges);
        end if;
        v_seen := v_seen || v_frontier;
        select array_agg(t.edge_id order by t.weight desc, t.heat desc, t.edge_id),
            array_agg(t.other order by t.weight desc, t.heat desc, t.edge_id)
        into v_edges, v_ends
        from (
            select t.* from (
                select e.edge_id, e.to_id as other, e.weight, e.heat from graph_edges e
                where e.tenant_id = v_tenant and e.from_id = any (v_frontier)
                    and (p_types is null or e.type = any (p_types))
                    and e.confidence >= p_min_confidence
                    and (p_ended or may_hold(e.valid_from, e.valid_to, false, p_as_of, true))
                union all
                select e.edge_id, e.from_id, e.weight, e.heat from graph_edges e
                where e.tenant_id = v_tenant and e.to_id = any (v_frontier)
                    and (p_types is null or e.type = any (p_types))
                    and e.confidence >= p_min_confidence
                    and (p_ended or may_hold(e.valid_from, e.valid_to, false, p_as_of, true))) t
            where t.other not in (select unnest(v_seen))
            order by t.weight desc, t.heat desc, t.edge_id limit c_edges) t;
        exit when v_edges is null;
        if p_as_of is not null then
            v_held := array(
                select h.target_id
                from held_at(v_edges || v_ends, p_as_of, p_archived, p_ended) h);
        end if;
        -- One end after the other, the heaviest edge's first, until there are enough.
        v_frontier := array(
            select o.other from (
                select e.other, min(e.place) as place
                from unnest(v_edges, v_ends) with ordinality as e (edge_id, other, place)
                where p_as_of is null or e.edge_id in (select unnest(v_held))
                group by e.other order by place offset 0) o
            cross join lateral (
                select from graph_nodes g
                where g.tenant_id = v_tenant and g.node_id = o.other
                    and case when p_as_of is null
                        then p_ended
                            or may_hold(g.valid_from, g.valid_to, g.archived, null, p_archived)
                        else o.other in (select unnest(v_held)) end
                offset 0) g
            order by o.place limit v_left);
        exit when v_frontier = '{}';
        return query
            select v_hop, e.edge_id, e.other
            from unnest(v_edges, v_ends) with ordinality as e (edge_id, other, place)
            where e.other in (select unnest(v_frontier))
                and (p_as_of is null or e.edge_id in (select unnest(v_held)))
            order by e.place;
        v_left := v_left - cardinality(v_frontier);
        exit when v_left <= 0;
    end loop;
end $$;

-- promotion ----------------------------------------------------------------------------------------

set local role strandline_planner;

-- When chains are promoted into the knowledge graph: those that are warm, half an hour after they were
-- formed or recalled, so that what is merged meanwhile is promoted once; hot ones, and those that bear a
-- change, at once. A tenant that has switched long-term memory off is left out. `p_promotion` has the
-- deployment's `ltm_enabled` and `promote_at_once`, `p_heat` its heat settings.
--
-- Two minutes past the half hour: a builder that begins at it has ended by then. A job that ends asks what
-- is due next, and would take the lease of one that still runs for something to look after.
create or replace function promotions_due(p_promotion jsonb, p_heat jsonb, p_spacing interval, p_now timestamptz)
returns table (tenant_id text, due_at timestamptz, pause interval)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id,
        case when c.is_hot then c.accessed_at
            else period_start(c.accessed_at, interval '30 minutes') + interval '32 minutes' end,
        case when c.is_hot then p_spacing else interval '30 minutes' end
    from tenants t
    cross join lateral (
        select w.accessed_at, coalesce(heat(w.importance, w.density, w.strength, w.accessed_at, p_now,
                heat_settings(p_heat, t.tuning))
            >= coalesce((t.tuning ->> 'promote_at_once')::float8,
                (p_promotion ->> 'promote_at_once')::float8), false) as is_hot
        from chains w
        where w.tenant_id = t.tenant_id and w.status = 'active' and w.promoted_version < w.version
            and w.promote_until >= p_now
        union all
        select w.accessed_at, true
        from chains w
        where w.tenant_id = t.tenant_id and w.status = 'active' and w.promoted_version < w.version
            and w.bears_change) c
    where coalesce((t.tuning ->> 'ltm_enabled')::boolean, (p_promotion ->> 'ltm_enabled')::boolean)
    union all  -- failures that an admin has asked to retry
    select j.tenant_id, greatest(j.created_at, j.leased_until), p_spacing from jobs j
    where j.kind = 'promote' and j.ref is not null and j.state = 'queued'
$$;
revoke execute on function promotions_due from public;

create or replace function tenants_to_promote(p_promotion jsonb, p_heat jsonb, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct d.tenant_id
    from promotions_due(p_promotion, p_heat, interval '0', p_now) d
    where d.due_at <= p_now order by 1
$$;
revoke execute on function tenants_to_promote from public;
grant execute on function tenants_to_promote to strandline_app;

-- When the promoter has something to do next, in any tenant; what is a day late waits for the morning.
create or replace function next_promotion(p_promotion jsonb, p_heat jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(d.due_at, d.pause, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from promotions_due(p_promotion, p_heat, p_spacing, p_now) d
$$;
revoke execute on function next_promotion from public;
grant execute on function next_promotion to strandline_app;

reset role;

-- analytics ----------------------------------------------------------------------------------------

set local role strandline_planner;

-- When a graph that changed is analysed: at the next 03:00 UTC. A tenant's is due as soon as one of its
-- scopes' is.
create or replace function analyses_due() returns table (tenant_id text, due_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select a.tenant_id,
        date_trunc('day', min(a.changed_at) - interval '3 hours', 'UTC') + interval '27 hours'
    from graph_analyses a where a.changes > a.analysed_changes group by a.tenant_id
$$;
revoke execute on function analyses_due from public;

create or replace function tenants_to_analyse(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select d.tenant_id from analyses_due() d where d.due_at <= p_now order by 1
$$;
revoke execute on function tenants_to_analyse from public;
grant execute on function tenants_to_analyse to strandline_app;

-- When the analytics have something to do next, in any tenant; what is a day late waits for the morning.
create or replace function next_analysis(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(
            date_trunc('day', d.changed_at - interval '3 hours', 'UTC') + interval '27 hours',
            p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(a.changed_at) as changed_at from graph_analyses a
        where a.changes > a.analysed_changes
            and a.changed_at < date_trunc('day', p_now - interval '3 hours', 'UTC') + interval '3 hours'
        union all
        select min(a.changed_at) from graph_analyses a
        where a.changes > a.analysed_changes
            and a.changed_at >= date_trunc('day', p_now - interval '3 hours', 'UTC') + interval '3 hours'
    ) d where d.changed_at is not null
$$;
revoke execute on function next_analysis from public;
grant execute on function next_analysis to strandline_app;

reset role;
