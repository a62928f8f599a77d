-- What a reader is told of a time before a merge: nodes as they were read then. And walks that read fewer
-- rows.

-- Whoever was one at a time is found whatever became of it since: by what was merged into a name, and by the
-- names of what is merged.
alter table graph_observations add column identity bytea  -- that it sets; null: none
    generated always as (decode(patch ->> 'identity', 'hex')) stored;
create index graph_observations_identity on graph_observations (tenant_id, identity)
    where identity is not null;
create index graph_nodes_merged on graph_nodes (tenant_id, type, name_hash)
    where identity <> name_hash;

-- The nodes in view that may have been one with these at a time (null: now), as they were observed up to
-- then: what each was read as, and whether it held. Those of equal type and identity were one. p_halving is
-- as of observed_state.
create function joined_at(p_ids uuid[], p_as_of timestamptz, p_halving boolean)
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

-- As before; with p_as_of those that it was read with then.
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

-- As before, with two differences. With p_as_of a node is followed with those that it was read with then.
-- And of the nodes that edges lead to, no more are read than there is room for: a walk that meets a name of
-- every scope has thousands of them.
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
