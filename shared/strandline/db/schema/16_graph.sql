-- The knowledge graph: nodes and edges, each of which is a function of its observations, and each
-- observation cites the events it rests on. All of it is derived: chains and statements are in the log.
--
-- A node's identity is its type and its name, in one scope. Nodes of equal identity in several scopes are
-- joined when they are read, within view.

-- observations -------------------------------------------------------------------------------------

-- What is said of a node, in one text, which a worker embeds and an index knows by its trigrams: its name and
-- its longer fields.
create function node_text(p_name text, p_properties jsonb) returns text
language sql immutable parallel safe
    return p_name
        || coalesce('. ' || nullif(p_properties ->> 'rationale', ''), '')
        || coalesce('. ' || nullif(p_properties ->> 'summary', ''), '')
        || coalesce('. ' || nullif(p_properties ->> 'description', ''), '');

create table graph_nodes (
    tenant_id text not null,
    node_id uuid not null,  -- a hash of scope, type, name and ordinal: the same again after a replay
    scope_id uuid not null,
    participants text[] not null,
    type text not null check (type in ('fact', 'decision', 'entity', 'event', 'topic')),
    name text not null check (name <> ''),  -- of a fact its content, of a decision or an event its title
    name_hash bytea not null,  -- SHA-256 of the normalised name: names may be long
    ordinal int not null check (ordinal >= 0),  -- a fact stated again after its invalidation is the next
    -- What follows is computed from the observations, and computed again with each of them.
    identity bytea not null,  -- whose node it is read as: its own name's hash, or that it was merged into
    properties jsonb not null default '{}',
    category text generated always as (properties ->> 'category') stored,
    status text generated always as (properties ->> 'status') stored,
    confidence double precision not null default 0 check (confidence between 0 and 1),
    weight int not null default 0,  -- how many observations
    heat double precision not null default 0,
    trust text not null check (trust in ('document', 'tool', 'agent', 'user', 'system')),
    valid_from timestamptz not null,
    valid_to timestamptz,  -- null: still
    archived boolean not null default false,
    salience double precision not null default 0,  -- of a topic: the mean of its fields'
    created_at timestamptz not null,
    updated_at timestamptz not null,
    space text,  -- of the embedding
    embedding halfvec,
    code bit varying generated always as (vector_code(embedding)) stored,
    text text collate "C"  -- folded
        generated always as (fold_text(node_text(name, properties))) stored,
    primary key (tenant_id, node_id),
    foreign key (tenant_id, scope_id) references scopes,
    -- A space without an embedding: the model refused the text.
    constraint graph_nodes_embedding_check
        check (case when space is null then embedding is null else true end),
    constraint graph_nodes_times
        check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to))
);
create unique index graph_nodes_name on graph_nodes (tenant_id, scope_id, type, name_hash)
    where valid_to is null;
create index graph_nodes_ordinal on graph_nodes (tenant_id, scope_id, type, name_hash, ordinal desc);
create index graph_nodes_identity on graph_nodes (tenant_id, type, identity);
create index graph_nodes_newest on graph_nodes (tenant_id, scope_id, updated_at desc, node_id);
-- A short pending list: each search reads all of it.
create index graph_nodes_trigrams on graph_nodes using gin (tenant_id, trigrams_of(text))
    with (gin_pending_list_limit = 256);
create index graph_nodes_unembedded on graph_nodes (tenant_id, scope_id, node_id) where space is null;
-- With all that a search narrows by, so that a scan of codes reads no rows.
create index graph_nodes_codes on graph_nodes (tenant_id, space, scope_id, node_id)
    include (type, valid_from, valid_to, archived, code) where embedding is not null;
create index graph_nodes_merged on graph_nodes (tenant_id, type, name_hash)
    where identity <> name_hash;
-- Rows that no client can load, for health: there are none, so neither index holds anything.
create index graph_nodes_unreadable on graph_nodes (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);

create table graph_edges (
    tenant_id text not null,
    edge_id uuid not null,  -- a hash of scope, both ends, type and label
    scope_id uuid not null,
    participants text[] not null,
    from_id uuid not null,
    to_id uuid not null,
    type text not null check (type in ('fact_entity', 'fact_topic', 'decision_entity', 'decision_topic',
        'event_decision', 'entity_topic', 'invalidates', 'USES', 'WORKS_ON', 'BUILT_FOR_CLIENT',
        'STRUGGLES_WITH', 'EXHIBITS', 'EXPRESSED_INTEREST', 'RELATES_TO', 'related')),
    label text not null default '',  -- the kind of a topic relation, the role of an entity in a decision
    properties jsonb not null default '{}',  -- nuance, reason
    confidence double precision not null default 0 check (confidence between 0 and 1),
    weight int not null default 0,
    heat double precision not null default 0,
    trust text not null check (trust in ('document', 'tool', 'agent', 'user', 'system')),
    valid_from timestamptz not null,
    valid_to timestamptz,
    created_at timestamptz not null,
    last_seen timestamptz not null,
    primary key (tenant_id, edge_id),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, from_id) references graph_nodes on delete cascade,
    foreign key (tenant_id, to_id) references graph_nodes on delete cascade,
    check (from_id <> to_id),
    constraint graph_edges_times
        check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to))
);
create index graph_edges_from on graph_edges (tenant_id, from_id);
create index graph_edges_to on graph_edges (tenant_id, to_id);
-- Communities of the knowledge graph: of each scope, and of the whole tenant for its admins. Derived from
-- nodes and edges, and replaced by each analysis of a graph that has changed. No text: a community is
-- named by its nodes when it is read.
create index graph_edges_scope on graph_edges (tenant_id, scope_id);
create index graph_edges_unreadable on graph_edges (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);

-- What one source says of a node or an edge. A chain's newer version replaces what the older one said;
-- the same source delivered twice is one row.
create table graph_observations (
    tenant_id text not null,
    target_id uuid not null,  -- of a node or an edge
    source_id uuid not null,  -- a chain's, or a statement's event id
    scope_id uuid not null,
    participants text[] not null,
    source_version int,  -- of a chain; null: a statement
    patch jsonb not null,  -- what it sets: field -> value
    confidence double precision,  -- null: it says nothing of it
    heat double precision,
    trust text not null check (trust in ('document', 'tool', 'agent', 'user', 'system')),
    observed_at timestamptz not null,  -- when its last event was recorded: the order of observations
    valid_from timestamptz not null,
    identity bytea  -- that it sets; null: none
        generated always as (decode(patch ->> 'identity', 'hex')) stored,
    primary key (tenant_id, target_id, source_id),
    foreign key (tenant_id, scope_id) references scopes,
    constraint graph_observations_times check (valid_from = nearest_moment(valid_from))
);
create index graph_observations_source on graph_observations (tenant_id, source_id);
-- What is read of a scope as a whole: for an export in the order in which it was observed, for the status of
-- the graph by when it was promoted last.
create index graph_observations_scope
    on graph_observations (tenant_id, scope_id, observed_at, source_id);
create index graph_observations_identity on graph_observations (tenant_id, identity)
    where identity is not null;

create table graph_sources (
    tenant_id text not null,
    target_id uuid not null,
    source_id uuid not null,
    event_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    primary key (tenant_id, target_id, source_id, event_id),
    foreign key (tenant_id, target_id, source_id) references graph_observations on delete cascade,
    foreign key (tenant_id, event_id) references events
);
create index graph_sources_event on graph_sources (tenant_id, event_id);

-- topic state --------------------------------------------------------------------------------------
create table topic_fields (
    tenant_id text not null,
    node_id uuid not null,
    field text not null,
    scope_id uuid not null,
    participants text[] not null,
    field_type text not null default 'text',
    revision int not null check (revision > 0),  -- the newest
    salience double precision not null check (salience between 0 and 10),
    primary key (tenant_id, node_id, field),
    foreign key (tenant_id, node_id) references graph_nodes on delete cascade,
    foreign key (tenant_id, scope_id) references scopes
);

create table topic_field_revisions (
    tenant_id text not null,
    node_id uuid not null,
    field text not null,
    revision int not null check (revision > 0),
    scope_id uuid not null,
    participants text[] not null,
    value jsonb not null,
    valid_from timestamptz not null,
    why_changed text not null default '',
    impact_expected text not null default '',
    event_id uuid not null,  -- the statement
    recorded_at timestamptz not null,
    -- A revision of a topic's field may refer to another topic: the field's relation to it is an edge, and the
    -- revision says which topic it was.
    ref_id uuid,  -- null: none, or that topic is gone
    primary key (tenant_id, node_id, field, revision),
    foreign key (tenant_id, node_id, field) references topic_fields on delete cascade,
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, scope_id) references scopes,
    constraint topic_field_revisions_times check (valid_from = nearest_moment(valid_from)),
    constraint topic_field_revisions_ref_fkey
        foreign key (tenant_id, ref_id) references graph_nodes on delete set null (ref_id)
);
create index topic_field_revisions_event on topic_field_revisions (tenant_id, event_id);
create index topic_field_revisions_scope
    on topic_field_revisions (tenant_id, scope_id, recorded_at, event_id);
create index topic_field_revisions_ref on topic_field_revisions (tenant_id, ref_id)
    where ref_id is not null;

-- provenance ---------------------------------------------------------------------------------------

-- At commit: no node and no edge without an observation, no observation without an event.
create function require_observation() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_id uuid := case tg_table_name when 'graph_nodes' then (to_jsonb(new) ->> 'node_id')::uuid
        else (to_jsonb(new) ->> 'edge_id')::uuid end;
begin
    if not exists (
            select from graph_observations o where o.tenant_id = new.tenant_id and o.target_id = v_id)
        and exists (  -- it may be gone again
            select from graph_nodes n where n.tenant_id = new.tenant_id and n.node_id = v_id
            union all
            select from graph_edges e where e.tenant_id = new.tenant_id and e.edge_id = v_id)
    then
        raise exception '% % rests on no observation', tg_table_name, v_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_observation after insert on graph_nodes
deferrable initially deferred for each row execute function require_observation();
create constraint trigger require_observation after insert on graph_edges
deferrable initially deferred for each row execute function require_observation();

create function require_source() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if not exists (
            select from graph_sources s where s.tenant_id = new.tenant_id
                and s.target_id = new.target_id and s.source_id = new.source_id)
        and exists (
            select from graph_observations o where o.tenant_id = new.tenant_id
                and o.target_id = new.target_id and o.source_id = new.source_id)
    then
        raise exception 'an observation of % cites no event', new.target_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_source after insert on graph_observations
deferrable initially deferred for each row execute function require_source();

-- row-level security and grants --------------------------------------------------------------------
do $$
declare
    table_name text;
begin
    foreach table_name in array array['graph_nodes', 'graph_edges', 'graph_observations',
        'graph_sources', 'topic_fields', 'topic_field_revisions'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert, delete on %I to strandline_app', table_name);
    end loop;
end $$;
grant update (identity, properties, confidence, weight, heat, trust, valid_from, valid_to, archived,
    salience, updated_at, space, embedding) on graph_nodes to strandline_app;
grant update (properties, confidence, weight, heat, trust, valid_from, valid_to, last_seen)
    on graph_edges to strandline_app;
grant update (field_type, revision, salience) on topic_fields to strandline_app;

-- provenance ---------------------------------------------------------------------------------------

-- At commit: whoever removes the last observation of a node or an edge removes that too, and whoever
-- removes the last event of an observation removes the observation.
create function require_observation_left() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if not exists (
            select from graph_observations o
            where o.tenant_id = old.tenant_id and o.target_id = old.target_id)
        and exists (
            select from graph_nodes n where n.tenant_id = old.tenant_id and n.node_id = old.target_id
            union all
            select from graph_edges e where e.tenant_id = old.tenant_id and e.edge_id = old.target_id)
    then
        raise exception '% rests on no observation', old.target_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_observation_left after delete on graph_observations
deferrable initially deferred for each row execute function require_observation_left();

create function require_source_left() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    if not exists (
            select from graph_sources s where s.tenant_id = old.tenant_id
                and s.target_id = old.target_id and s.source_id = old.source_id)
        and exists (
            select from graph_observations o where o.tenant_id = old.tenant_id
                and o.target_id = old.target_id and o.source_id = old.source_id)
    then
        raise exception 'an observation of % cites no event', old.target_id using errcode = '23503';
    end if;
    return null;
end $$;
create constraint trigger require_source_left after delete on graph_sources
deferrable initially deferred for each row execute function require_source_left();

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

-- search -------------------------------------------------------------------------------------------
create policy search_reads on graph_nodes for select to strandline_search using (true);
grant select (tenant_id, node_id, scope_id, participants, type, valid_from, valid_to, archived, space,
    embedding, code, text) on graph_nodes to strandline_search;
