-- Vectors of events, by embedding space (provider, model and dimension).

create table embedding_progress (
    tenant_id text not null,
    scope_id uuid not null,
    space text not null,
    participants text[] not null,
    embedded_seq bigint not null,  -- every event up to here has its row in event_vectors
    primary key (tenant_id, scope_id, space),
    foreign key (tenant_id, scope_id) references scopes
);

create table event_vectors (
    tenant_id text not null,
    space text not null,
    scope_id uuid not null,
    event_id uuid not null,
    participants text[] not null,
    embedding halfvec,
    refusal text,  -- why the model did not embed it; a retry replaces it by what comes then
    embedded_at timestamptz not null default now(),
    primary key (tenant_id, space, scope_id, event_id),
    foreign key (tenant_id, event_id) references events,
    check ((embedding is null) <> (refusal is null))
);
create index event_vectors_refused on event_vectors (tenant_id, space, scope_id, event_id)
    where refusal is not null;

create table embedding_cache (
    tenant_id text not null,
    space text not null,
    text_hash bytea not null,
    event_id uuid not null,  -- whose text it was: erased with it
    participants text[] not null,
    embedding halfvec not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, space, text_hash),
    foreign key (tenant_id, event_id) references events
);
create index embedding_cache_event on embedding_cache (tenant_id, event_id);

do $$
declare
    table_name text;
begin
    foreach table_name in array array['embedding_progress', 'event_vectors', 'embedding_cache'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert on %I to strandline_app', table_name);
    end loop;
    -- the cache is of no scope
    foreach table_name in array array['embedding_progress', 'event_vectors'] loop
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
    end loop;
end $$;
create policy planner_reads on embedding_progress for select to strandline_planner using (true);
grant update (embedded_seq) on embedding_progress to strandline_app;
grant update (embedding, refusal, embedded_at) on event_vectors to strandline_app;
grant select on embedding_progress to strandline_planner;

-- The vectors in view nearest to a question whose events pass a filter, nearest first. A filter that
-- many events pass is met by some of the nearest. What these lack is looked for among the events that
-- pass, each vector by its key. A session is looked up that way at once: few events are of it.
create function nearest_matching_filter(
    p_vector halfvec, p_space text, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_candidates int := case when p_filter ? 'session_id' then 0 else 10 * p_limit end;
    v_nearest uuid[];
    v_distances double precision[];
    v_row_count int;
begin
    select coalesce(array_agg(n.event_id), '{}'), array_agg(n.distance)
    into v_nearest, v_distances
    from (
        select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
        where v.space = p_space and v.embedding is not null
            and (p_scopes is null or v.scope_id = any ((select p_scopes)::uuid[]))
        order by distance, v.event_id limit v_candidates) n;
    return query
        select n.event_id, n.distance
        from unnest(v_nearest, v_distances) with ordinality as n (event_id, distance, place)
        cross join lateral (
            select from events e where e.event_id = n.event_id
                and matches_filter(e, p_filter) offset 0) e
        order by n.place limit p_limit;
    get diagnostics v_row_count = row_count;
    if v_row_count = p_limit or cardinality(v_nearest) < v_candidates then
        return;
    end if;
    return query
        select v.event_id, v.embedding <=> p_vector as distance
        from (
            select * from events e
            where (p_scopes is null or e.scope_id = any ((select p_scopes)::uuid[]))
                and matches_filter(e, p_filter)) e
        cross join lateral (
            select v.event_id, v.embedding from event_vectors v
            where v.space = p_space and v.scope_id = e.scope_id and v.event_id = e.event_id
            offset 0) v
        where v.embedding is not null and v.event_id <> all (v_nearest)
        order by distance, v.event_id limit p_limit - v_row_count;
end $$;
