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

-- A unit vector in three bits for each dimension: is it above a third of what is usual, above zero, above
-- minus a third? Codes differ in more bits the farther their vectors are apart, and, with signs alone,
-- three of ten of the nearest to a question that nothing answers would be lost. A vector given up, null,
-- has no code.
create function vector_code(p_vector halfvec) returns bit varying
language sql immutable strict parallel safe
    return (
        select binary_quantize(p_vector - level) || binary_quantize(p_vector)
            || binary_quantize(p_vector + level)
        from (select array_fill((0.7 / sqrt(vector_dims(p_vector)))::real,
            array[vector_dims(p_vector)])::halfvec as level) levels);

create table event_vectors (
    tenant_id text not null,
    space text not null,
    scope_id uuid not null,
    event_id uuid not null,
    participants text[] not null,
    embedding halfvec,
    refusal text,  -- why the model did not embed it; a retry replaces it by what comes then
    embedded_at timestamptz not null default now(),
    code bit varying generated always as (vector_code(embedding)) stored,
    -- With the code, so that a scan of codes reads no rows.
    primary key (tenant_id, space, scope_id, event_id) include (code),
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

create policy search_reads on event_vectors for select to strandline_search using (true);
grant select (tenant_id, space, scope_id, event_id, embedding, code) on event_vectors
    to strandline_search;
