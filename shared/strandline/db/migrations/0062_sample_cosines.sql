-- How similar a question is to what is in view at all: its cosines with at most p_limit events that are
-- spread evenly over the seq of the scopes in view, which is gapless. So the same question at the same
-- mark has the same sample, whatever its candidates are. An event that is erased or has no vector is
-- left out. p_scopes narrows the view. Of more than c_scopes those with the lowest ids count: ids are
-- hashes, so these are a random part. With the caller's rights, so that row-level security holds.
-- Planned once a session, because the plan is the same for every view.
create function sample_cosines(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns float8[]
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off as $$
declare
    c_scopes constant int := 1000;
    v_scopes uuid[] := p_scopes;
begin
    if p_vector is null then
        return '{}';
    elsif p_scopes is null and current_viewer() = '{}' then
        v_scopes := array(
            select s.scope_id from scopes s
            where s.tenant_id = current_tenant() order by s.scope_id limit c_scopes);
    elsif p_scopes is null then
        v_scopes := array(
            select m.scope_id from scope_members m
            where m.tenant_id = current_tenant()
                and m.participant = (current_viewer())[cardinality(current_viewer())]
                and m.participants @> (select current_viewer())
            order by m.scope_id limit c_scopes);
    elsif cardinality(p_scopes) > c_scopes then
        v_scopes := array(select id from unnest(p_scopes) id order by id limit c_scopes);
    end if;
    return (
        with sizes as materialized (
            select s.scope_id, s.last_seq,
                (sum(s.last_seq) over (order by s.scope_id))::bigint as last_place
            from scopes s where s.tenant_id = current_tenant() and s.scope_id = any (v_scopes)),
        total as materialized (
            select nullif(max(last_place), 0) as events,
                least(max(last_place), p_limit) as count from sizes),
        -- all scopes' events in one row have places from 1: number n is in the middle of the n-th of
        -- `count` equal parts, so a scope holds as many as its size asks for
        chosen as (
            select n, s.scope_id,
                ((2 * n + 1) * t.events + 2 * t.count - 1) / (2 * t.count)
                    - (s.last_place - s.last_seq) as seq
            from total t
            cross join sizes s
            cross join lateral generate_series(
                (2 * t.count * (s.last_place - s.last_seq) + t.events) / (2 * t.events),
                (2 * t.count * s.last_place + t.events) / (2 * t.events) - 1) n)
        select coalesce(array_agg(1 - (v.embedding <=> p_vector) order by c.n), '{}')
        from chosen c
        cross join lateral (
            select e.event_id from events e
            where e.tenant_id = current_tenant() and e.scope_id = c.scope_id and e.seq = c.seq
                and e.erased_at is null offset 0) e
        cross join lateral (
            select v.embedding from event_vectors v
            where v.tenant_id = current_tenant() and v.space = p_space
                and v.scope_id = c.scope_id and v.event_id = e.event_id
                and v.embedding is not null offset 0) v);
end $$;
