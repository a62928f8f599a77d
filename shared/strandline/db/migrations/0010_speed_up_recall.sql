-- Recall for a caller in thousands of scopes: who asks is read once, not for every piece that holds a
-- word, and a filter looks up events by key, best words first, until it has enough. Planned each time:
-- a generic plan knows neither whether there is a filter nor how few the scopes are.

grant create on schema public to strandline_search;
set local role strandline_search;  -- a function is replaced by its owner alone
create or replace function search_events(p_query tsquery, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, start_char int, end_char int, rank real)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select w.event_id, w.start_char, w.end_char, w.rank
    from (
        select w.event_id, w.piece, w.start_char, w.end_char,
            ts_rank('{1.0, 1.0, 0.7, 1.0}', w.words, p_query, 1) as rank
        from event_search w
        where w.tenant_id = current_tenant() and w.participants @> (select current_viewer())
            and (p_scopes is null or w.scope_id = any (p_scopes))
            and w.words @@ p_query
        order by rank desc, w.event_id desc, w.piece
        limit case when p_filter = '{}' then p_limit end) w
    cross join lateral (
        select where p_filter = '{}'
        union all
        (select from events e
         where p_filter <> '{}' and e.tenant_id = current_tenant() and e.event_id = w.event_id
            and passes(e, p_filter)
         offset 0)) passing
    order by w.rank desc, w.event_id desc, w.piece
    limit p_limit
$$;
reset role;
revoke create on schema public from strandline_search;

-- The vectors in view nearest to a question whose events pass a filter, nearest first. A filter that
-- many pass is met by some of the nearest; what they lack is sought among the events that pass, each
-- vector by its key. A session is looked up at once: few events are of it.
create function nearest_passing(
    p_vector halfvec, p_space text, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_most int := case when p_filter ? 'session_id' then 0 else 10 * p_limit end;
    v_nearest uuid[];
    v_distances double precision[];
    v_found int;
begin
    select coalesce(array_agg(n.event_id), '{}'), array_agg(n.distance)
    into v_nearest, v_distances
    from (
        select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
        where v.space = p_space and v.embedding is not null
            and (p_scopes is null or v.scope_id = any ((select p_scopes)::uuid[]))
        order by distance, v.event_id limit v_most) n;
    return query
        select n.event_id, n.distance
        from unnest(v_nearest, v_distances) with ordinality as n (event_id, distance, place)
        cross join lateral (
            select from events e where e.event_id = n.event_id and passes(e, p_filter) offset 0) e
        order by n.place limit p_limit;
    get diagnostics v_found = row_count;
    if v_found = p_limit or cardinality(v_nearest) < v_most then
        return;
    end if;
    return query
        select v.event_id, v.embedding <=> p_vector as distance
        from (
            select * from events e
            where (p_scopes is null or e.scope_id = any ((select p_scopes)::uuid[]))
                and passes(e, p_filter)) e
        cross join lateral (
            select v.event_id, v.embedding from event_vectors v
            where v.space = p_space and v.scope_id = e.scope_id and v.event_id = e.event_id
            offset 0) v
        where v.embedding is not null and v.event_id <> all (v_nearest)
        order by distance, v.event_id limit p_limit - v_found;
end $$;
