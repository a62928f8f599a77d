-- Recall in a large view reads no row that it has no use for: whether a caller is in every scope of the
-- tenant is known after one scope more than the caller's own, and a filtered recall, which needs all the
-- ids in view, takes no sample of them first.

-- What a caller sees: the scopes, narrowed to p_scopes, and how many events they hold. Of many scopes a
-- part is summed up: ids are hashes, so the lowest are a random sample, and how close together they lie
-- tells how many there are. Where there are many scopes and more than p_large events, scope_ids is null:
-- what reads them then goes by visibility alone. Without p_large every id is told.
create or replace function read_view(p_scopes uuid[], p_large bigint)
returns table (scope_ids uuid[], events bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_sort = off as $$
declare
    c_sample constant int := 1000;
    v_scopes uuid[] := coalesce(p_scopes,
        scopes_in_view_up_to(case when p_large is not null then c_sample + 1 end));
    v_lowest uuid[];
    v_events bigint;
begin
    if p_scopes is null and p_large is not null and cardinality(v_scopes) > c_sample then
        v_lowest := array(
            select m.scope_id from scope_members m
            where m.tenant_id = current_tenant()
                and m.participant = (current_viewer())[cardinality(current_viewer())]
                and m.participants @> (select current_viewer())
            order by m.scope_id limit c_sample);
        select sum(s.last_seq) / id_share(v_lowest[c_sample]) into v_events
        from unnest(v_lowest) view (scope_id)
        cross join lateral (
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and s.scope_id = view.scope_id offset 0) s;
        if v_events > p_large then
            return query select null::uuid[], v_events;
            return;
        end if;
        v_scopes := scopes_in_view();
    end if;
    return query
        select v_scopes, coalesce(sum(s.last_seq), 0)::bigint from (
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and s.scope_id = any (v_scopes)
            union all
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and v_scopes is null) s;
end $$;

grant create on schema public to strandline_search;
set local role strandline_search;
-- The vectors in view nearest to a question, nearest first: of those whose codes differ in the fewest
-- bits, the nearest. p_scopes narrows the view; whose scopes they are is looked up once, as to compare
-- participants costs more than to compare codes. So are the erased events, which are left out.
create or replace function nearest_by_code(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_scopes uuid[] := case when v_viewer = '{}' then p_scopes else array(
        select m.scope_id from scope_members m
        where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
            and (cardinality(v_viewer) = 1 or m.participants @> v_viewer)
            and (p_scopes is null or m.scope_id = any (p_scopes))) end;
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.participants @> v_viewer);
begin
    -- who is in every scope sees the whole tenant: to compare scopes costs as much as the codes
    if cardinality(v_scopes) > 1000 and cardinality(v_scopes) = (
        select count(*) from (
            select from scopes s where s.tenant_id = v_tenant
            limit cardinality(v_scopes) + 1) s)
    then
        v_scopes := null;
    end if;
    return query
        select v.event_id, v.distance
        from (
            select c.scope_id, c.event_id from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space and c.code is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and c.event_id <> all (v_erased)
            order by c.code <~> v_code, c.event_id limit 3 * p_limit) near
        cross join lateral (
            select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
            where v.tenant_id = v_tenant and v.space = p_space and v.scope_id = near.scope_id
                and v.event_id = near.event_id
            offset 0) v
        order by v.distance, v.event_id limit p_limit;
end $$;
reset role;
revoke create on schema public from strandline_search;
