-- A tenant goes on reading the embedding space that it has while the configured one is filled beside it.

-- The space that it reads: set when its first event is embedded, and by a switch. Where it is null, that of the
-- last sweep, so that tenants from before need no backfill.
alter table tenants add column reading_space text;
-- Whether it changes over by itself once all is filled; null: the deployment's setting.
alter table tenants add column embedding_switch text
    constraint tenants_embedding_switch check (embedding_switch in ('auto', 'held'));
grant update (reading_space, embedding_switch) on tenants to strandline_app;
grant select (reading_space, swept_space) on tenants to strandline_keys;

-- From one space to another: how far it is, what it took, and the figures by which an operator may judge it.
create table space_switches (
    tenant_id text not null references tenants,
    begun_at timestamptz not null,
    from_space text not null,
    to_space text not null,
    texts bigint not null default 0,  -- what the new model was given so far
    characters bigint not null default 0,
    failure text,  -- of the last attempt to fill; null: none
    compared_at timestamptz,
    questions int,  -- how many of the tenant's questions were asked in both
    overlap double precision,  -- share of the ten first hits that both have
    same_first double precision,  -- share of the questions with the same first hit
    ended_at timestamptz,
    switched boolean not null default false,  -- if not, another model was configured meanwhile
    removed_at timestamptz,  -- when the vectors of the space that is not read were removed
    primary key (tenant_id, begun_at)
);
create unique index space_switches_open on space_switches (tenant_id) where ended_at is null;
create policy own_tenant on space_switches to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table space_switches enable row level security, force row level security;
grant select, insert on space_switches to strandline_app;
grant update (texts, characters, failure, compared_at, questions, overlap, same_first, ended_at, switched,
    removed_at) on space_switches to strandline_app;

-- Vectors of a space that nothing reads any more are removed in the background.
grant delete on event_vectors, embedding_cache, embedding_progress to strandline_app;

-- A node has one vector. That of the space to come stands beside it, and takes its place after the switch; the
-- code is written with it, because a generated column would rewrite the table.
alter table graph_nodes add column next_space text;
alter table graph_nodes add column next_embedding halfvec;
alter table graph_nodes add column next_code bit varying;
-- As graph_nodes_codes, and empty but for the time of a switch.
create index graph_nodes_next on graph_nodes (tenant_id, next_space, scope_id, node_id)
    include (type, valid_from, valid_to, archived, next_code) where next_space is not null;
grant update (next_space, next_embedding, next_code) on graph_nodes to strandline_app;
grant select (next_space, next_embedding, next_code) on graph_nodes to strandline_search;

create function forget_stale_next_vector() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if node_text(new.name, new.properties) <> node_text(old.name, old.properties) then
        new.next_space := null;
        new.next_embedding := null;
        new.next_code := null;
    end if;
    return new;
end $$;
create trigger forget_stale_next_vector before update of properties on graph_nodes
for each row when (old.next_space is not null and old.properties is distinct from new.properties)
execute function forget_stale_next_vector();

-- The vector of a node in a space, if it has one.
create function node_vector(p_space text, p_own_space text, p_own halfvec, p_next_space text, p_next halfvec)
returns halfvec
language sql immutable parallel safe
    return case when p_own_space = p_space then p_own when p_next_space = p_space then p_next end;
