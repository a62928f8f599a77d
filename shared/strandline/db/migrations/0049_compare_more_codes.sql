-- How many codes are compared by their vectors grows with the view: 3 of each wanted event up to some
-- 100,000 events, 7 at a million. Far from all that is in view codes tell less, and of a million more
-- of them are as near as the nearest. Otherwise as before.
grant create on schema public to strandline_search;
set local role strandline_search;
create or replace function nearest_by_code(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set enable_seqscan = off
set max_parallel_workers_per_gather = 1 set parallel_setup_cost = 300 set parallel_tuple_cost = 0.01 as $$
#variable_conflict use_column
declare
    c_sample constant int := 80;
    c_sampled_scopes constant int := 50;
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_sees_all boolean := false;
    v_scope_count bigint;
    v_scopes uuid[];  -- null: the whole tenant
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.cid is not null
            and e.participants @> v_viewer);
    v_wanted bigint;  -- so many of the nearest codes are compared by their vectors
    v_bound float8;  -- in so many bits codes may differ; null: in any number
begin
    if p_scopes is null and v_viewer = '{}' then
        v_scope_count := (select count(*) from scopes s where s.tenant_id = v_tenant);
    elsif p_scopes is null then
        v_scope_count := (
            select count(*) from scope_members m
            where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
                and (cardinality(v_viewer) = 1 or m.participants @> v_viewer));
        -- who is in every scope sees the whole tenant: to compare scopes costs as much as the codes
        v_sees_all := v_scope_count = (
            select count(*) from (
                select from scopes s where s.tenant_id = v_tenant limit v_scope_count + 1) s);
    end if;
    if v_viewer = '{}' or v_sees_all then
        v_scopes := p_scopes;
    else
        v_scopes := array(
            select m.scope_id from scope_members m
            where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
                and (cardinality(v_viewer) = 1 or m.participants @> v_viewer)
                and (p_scopes is null or m.scope_id = any (p_scopes)));
    end if;
    v_scope_count := coalesce(cardinality(v_scopes), v_scope_count);

    with chosen as materialized (
        select s.scope_id, s.last_seq from (
            select v_scopes[1 + n * cardinality(v_scopes) / c_sampled_scopes] as scope_id
            from generate_series(0::bigint, c_sampled_scopes - 1) n
            where v_scopes is not null
            union  -- of fewer scopes, each once
            (select s.scope_id from scopes s
             where v_scopes is null and s.tenant_id = v_tenant
             order by s.scope_id limit c_sampled_scopes)) view
        cross join lateral (
            select e.scope_id, e.seq as last_seq from events e
            where e.tenant_id = v_tenant and e.scope_id = view.scope_id
            order by e.seq desc limit 1) s),
    step as materialized (
        select ceil(sum(last_seq) / c_sample)::bigint as length,
            sum(last_seq) * v_scope_count / count(*) as events
        from chosen),
    wanted as materialized (
        select ceil(p_limit * (3 + least(step.events / 250000.0, 5)))::bigint as codes from step),
    sample as (
        select c.code <~> v_code as bits, step.events from chosen, step
        cross join lateral generate_series(
            1 + mod(abs(hashtext(chosen.scope_id::text)::bigint), step.length), last_seq,
            step.length) place (seq)
        cross join lateral (
            select e.event_id from events e where e.tenant_id = v_tenant
                and e.scope_id = chosen.scope_id and e.seq = place.seq offset 0) e
        cross join lateral (
            select c.code from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space
                and c.scope_id = chosen.scope_id and c.event_id = e.event_id offset 0) c)
    select coalesce(max(wanted.codes), 3 * p_limit),
        (array_agg(bits order by bits))[3 + ceil(3 * max(wanted.codes) * count(bits) / max(events))]
    into v_wanted, v_bound from wanted left join sample on bits is not null;

    return query
        with within as materialized (
            select c.scope_id, c.event_id from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and (v_erased = '{}' or c.event_id <> all (v_erased))
                and c.code <~> v_code <= coalesce(v_bound, 'infinity')
            order by c.code <~> v_code, c.event_id limit v_wanted),
        near as (
            select w.scope_id, w.event_id from within w
            where v_bound is null or (select count(*) from within) = v_wanted
            union all
            (select c.scope_id, c.event_id from event_vectors c
            where v_bound is not null and (select count(*) from within) < v_wanted
                and c.tenant_id = v_tenant and c.space = p_space and c.code is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and (v_erased = '{}' or c.event_id <> all (v_erased))
            order by c.code <~> v_code, c.event_id limit v_wanted))
        select v.event_id, v.distance
        from near
        cross join lateral (
            select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
            where v.tenant_id = v_tenant and v.space = p_space and v.scope_id = near.scope_id
                and v.event_id = near.event_id
            offset 0) v
        order by v.distance, v.event_id limit p_limit;
end $$;
reset role;
revoke create on schema public from strandline_search;
