-- Search and traversal of the graph: the text of a node, which a worker embeds and an index knows by its
-- trigrams; the nodes nearest to a question; the nodes that edges lead to.

-- text ---------------------------------------------------------------------------------------------

-- What is said of a node, in one text: its name and its longer fields.
create function node_text(p_name text, p_properties jsonb) returns text
language sql immutable parallel safe
    return p_name
        || coalesce('. ' || nullif(p_properties ->> 'rationale', ''), '')
        || coalesce('. ' || nullif(p_properties ->> 'summary', ''), '')
        || coalesce('. ' || nullif(p_properties ->> 'description', ''), '');

alter table graph_nodes add column text text collate "C"  -- folded
    generated always as (fold_text(node_text(name, properties))) stored;
-- A short pending list: each search reads all of it.
create index graph_nodes_trigrams on graph_nodes using gin (tenant_id, trigrams_of(text))
    with (gin_pending_list_limit = 256);

-- vectors ------------------------------------------------------------------------------------------

-- A space without an embedding: the model refused the text.
alter table graph_nodes drop constraint graph_nodes_check;
alter table graph_nodes add constraint graph_nodes_embedding_check
    check (case when space is null then embedding is null else true end);
create index graph_nodes_unembedded on graph_nodes (tenant_id, scope_id, node_id) where space is null;
-- With all that a search narrows by, so that a scan of codes reads no rows.
create index graph_nodes_codes on graph_nodes (tenant_id, space, scope_id, node_id)
    include (type, valid_from, valid_to, archived, code) where embedding is not null;

-- A node whose text changes is embedded anew.
create function forget_stale_vector() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if node_text(new.name, new.properties) <> node_text(old.name, old.properties) then
        new.space := null;
        new.embedding := null;
    end if;
    return new;
end $$;
create trigger forget_stale_vector before update of properties on graph_nodes
for each row when (old.properties is distinct from new.properties)
execute function forget_stale_vector();

-- what holds ---------------------------------------------------------------------------------------

-- May the row be shown: now, if it has not ended, and archived only if these are asked for; or at a time,
-- of which the row tells only since when it holds at the earliest. observed_state tells the rest.
create function may_hold(p_valid_from timestamptz, p_valid_to timestamptz, p_archived boolean,
    p_as_of timestamptz, p_with_archived boolean)
returns boolean language sql stable parallel safe
    return case when p_as_of is null
        then (p_valid_to is null or p_valid_to > now()) and (p_with_archived or not p_archived)
        else p_valid_from <= p_as_of end;

-- Of these nodes and edges, those that held at a time, as it was known then.
create function held_at(p_ids uuid[], p_as_of timestamptz, p_with_archived boolean,
    p_with_ended boolean)
returns table (target_id uuid)
language sql stable set search_path = pg_catalog, public, pg_temp
begin atomic
    select s.target_id from observed_state(p_ids, p_as_of, false) s
    where s.valid_from <= p_as_of and (p_with_archived or not s.archived)
        and (p_with_ended or s.valid_to is null or s.valid_to > p_as_of);
end;

-- search -------------------------------------------------------------------------------------------

create policy search_reads on graph_nodes for select to strandline_search using (true);
grant select (tenant_id, node_id, scope_id, participants, type, valid_from, valid_to, archived, space,
    embedding, code, text) on graph_nodes to strandline_search;
grant create on schema public to strandline_search;

-- The nodes in view nearest to a vector, nearest first: of those whose codes differ in the fewest bits, the
-- nearest. Whose scopes they are is looked up once, as to compare participants costs more than to compare
-- codes.
create function nearest_nodes(p_vector halfvec, p_space text, p_types text[], p_as_of timestamptz,
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
            select c.node_id from graph_nodes c
            where c.tenant_id = v_tenant and c.space = p_space and c.embedding is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and c.type = any (p_types)
                and may_hold(c.valid_from, c.valid_to, c.archived, p_as_of, p_archived)
            order by c.code <~> v_code, c.node_id limit 3 * p_limit) near
        cross join lateral (
            select v.embedding <=> p_vector as distance from graph_nodes v
            where v.tenant_id = v_tenant and v.node_id = near.node_id offset 0) v
        order by v.distance, near.node_id limit p_limit;
end $$;

-- The nodes in view whose text contains this one, which is folded; those of the shortest text first. With
-- fewer than three characters it reads all that is in view.
create function nodes_containing(p_folded text, p_types text[], p_as_of timestamptz,
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

revoke execute on function nearest_nodes, nodes_containing from public;
grant execute on function nearest_nodes, nodes_containing to strandline_app;
alter function nearest_nodes owner to strandline_search;
alter function nodes_containing owner to strandline_search;
revoke create on schema public from strandline_search;

-- traversal ----------------------------------------------------------------------------------------

-- The edges that lead from these nodes to others, hop by hop, and the nodes that they lead to, the heaviest
-- first and each once, p_limit nodes in all. A node is followed with all nodes of its identity in view. With
-- the caller's rights, so that row-level security holds.
create function walk_graph(p_start uuid[], p_types text[], p_hops int, p_limit int,
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
        select array_agg(t.edge_id order by t.place), array_agg(t.other order by t.place)
        into v_edges, v_ends
        from (
            select t.*, dense_rank() over (order by t.first_place) as rank
            from (
                select e.*, min(e.place) over (partition by e.other) as first_place
                from unnest(v_edges, v_ends) with ordinality as e (edge_id, other, place)
                join graph_nodes g on g.tenant_id = v_tenant and g.node_id = e.other
                where case when p_as_of is null
                    then p_ended or may_hold(g.valid_from, g.valid_to, g.archived, null, p_archived)
                    else e.other in (select unnest(v_held)) and e.edge_id in (select unnest(v_held))
                    end) t) t
        where t.rank <= v_left;
        exit when v_edges is null;
        return query
            select v_hop, e.edge_id, e.node_id from unnest(v_edges, v_ends) e (edge_id, node_id);
        v_frontier := array(select distinct e from unnest(v_ends) e);
        v_left := v_left - cardinality(v_frontier);
        exit when v_left <= 0;
    end loop;
end $$;
