-- The knowledge graph: nodes and edges, each of which is a function of its observations, and each
-- observation cites the events it rests on. All of it is derived: chains and statements are in the log.
--
-- A node's identity is its type and its name, in one scope. Nodes of equal identity in several scopes are
-- joined when they are read, within view.

-- observations -------------------------------------------------------------------------------------

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
    primary key (tenant_id, node_id),
    foreign key (tenant_id, scope_id) references scopes,
    check ((space is null) = (embedding is null))
);
create unique index graph_nodes_name on graph_nodes (tenant_id, scope_id, type, name_hash)
    where valid_to is null;
create index graph_nodes_ordinal on graph_nodes (tenant_id, scope_id, type, name_hash, ordinal desc);
create index graph_nodes_identity on graph_nodes (tenant_id, type, identity);
create index graph_nodes_newest on graph_nodes (tenant_id, scope_id, updated_at desc, node_id);

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
    check (from_id <> to_id)
);
create index graph_edges_from on graph_edges (tenant_id, from_id);
create index graph_edges_to on graph_edges (tenant_id, to_id);

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
    primary key (tenant_id, target_id, source_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index graph_observations_source on graph_observations (tenant_id, source_id);

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
    primary key (tenant_id, node_id, field, revision),
    foreign key (tenant_id, node_id, field) references topic_fields on delete cascade,
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, scope_id) references scopes
);
create index topic_field_revisions_event on topic_field_revisions (tenant_id, event_id);

-- promotion ----------------------------------------------------------------------------------------

alter table chains add column promoted_version int not null default 0;  -- 0: none yet
grant update (promoted_version) on chains to strandline_app;
create index chains_unpromoted on chains (tenant_id, promote_until)
    where status = 'active' and promoted_version < version;

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

-- computing ----------------------------------------------------------------------------------------

-- The mean of what was said before and what is said now, in order: C-03's other mode.
create function halve(p_before double precision, p_now double precision) returns double precision
language sql immutable parallel safe
    return coalesce((p_before + p_now) / 2, p_now, p_before);
create aggregate merge_patches(jsonb) (sfunc = jsonb_concat, stype = jsonb, initcond = '{}',
    parallel = safe);
create aggregate halving_mean(double precision) (sfunc = halve, stype = double precision,
    parallel = safe);

-- What the observations of these nodes and edges say together, of those observed up to p_as_of: a later
-- one sets what an earlier one set. The confidence is the mean, or with p_halving each time the half of
-- what was and what is said; whoever says nothing of it says 0.8. A target without such an observation
-- has no row.
create function observed_state(p_ids uuid[], p_as_of timestamptz, p_halving boolean)
returns table (target_id uuid, properties jsonb, identity bytea, confidence double precision,
    weight int, heat double precision, trust text, valid_from timestamptz, valid_to timestamptz,
    archived boolean, first_at timestamptz, last_at timestamptz)
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
begin atomic
    with said as (
        select o.* from graph_observations o
        where o.tenant_id = current_tenant() and o.target_id = any (p_ids)
            and (p_as_of is null or o.observed_at <= p_as_of)),
    merged as (
        select s.target_id,
            jsonb_strip_nulls(merge_patches(s.patch order by s.observed_at, s.source_id)) as patch
        from said s group by s.target_id)
    select s.target_id,
        m.patch - array['identity', 'valid_to', 'archived'],
        decode(m.patch ->> 'identity', 'hex'),
        case when p_halving
            then halving_mean(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id)
            else avg(coalesce(s.confidence, 0.8) order by s.observed_at, s.source_id) end,
        count(*)::int,
        coalesce((array_agg(s.heat order by s.observed_at desc, s.source_id desc)
            filter (where s.heat is not null))[1], 0),
        (array_agg(s.trust order by trust_rank(s.trust)))[1],
        min(s.valid_from), (m.patch ->> 'valid_to')::timestamptz,
        coalesce((m.patch ->> 'archived')::boolean, false), min(s.observed_at), max(s.observed_at)
    from said s join merged m on m.target_id = s.target_id
    group by s.target_id, m.patch;
end;

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

set local role strandline_guard;
grant execute on function refuse_erased_event to strandline_owner;
reset role;
create trigger refuse_erased_event after insert on graph_sources referencing new table as citing
for each statement execute function refuse_erased_event();
create trigger refuse_erased_event after insert on topic_field_revisions referencing new table as citing
for each statement execute function refuse_erased_event();
set local role strandline_guard;
revoke execute on function refuse_erased_event from strandline_owner;
reset role;
