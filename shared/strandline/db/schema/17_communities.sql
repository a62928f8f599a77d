-- of each scope ------------------------------------------------------------------------------------

-- How far a scope's graph is analysed. A trigger counts changes.
create table graph_analyses (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    changes bigint not null default 0,
    analysed_changes bigint not null default 0,  -- how many of these the last analysis has seen
    changed_at timestamptz not null,  -- the first change that it has not seen
    digest bytea,  -- of the graph whose communities are stored; null: none yet
    primary key (tenant_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index graph_analyses_waiting on graph_analyses (tenant_id, changed_at)
    where changes > analysed_changes;
create index graph_analyses_next on graph_analyses (changed_at) where changes > analysed_changes;

create table graph_communities (
    tenant_id text not null,
    community_id uuid not null,  -- a hash of its scope and its first node: the same while that leads it
    scope_id uuid not null,
    participants text[] not null,
    size int not null check (size > 1),
    bridges int not null check (bridges >= 0),
    neighbours jsonb not null,  -- [[community_id, weight of the edges between], ...], heaviest first
    analysed_at timestamptz not null,
    primary key (tenant_id, community_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index graph_communities_scope on graph_communities (tenant_id, scope_id);
create index graph_communities_size on graph_communities (tenant_id, size desc, community_id);

create table graph_members (
    tenant_id text not null,
    node_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    community_id uuid not null,
    rank int not null check (rank > 0),  -- 1: the first; nodes that are read as one have the same
    bridge_score double precision not null check (bridge_score >= 0 and bridge_score < 1),
    is_bridge boolean not null,
    primary key (tenant_id, node_id),
    foreign key (tenant_id, node_id) references graph_nodes on delete cascade,
    foreign key (tenant_id, community_id) references graph_communities on delete cascade,
    foreign key (tenant_id, scope_id) references scopes
);
create index graph_members_community on graph_members (tenant_id, community_id, rank);

-- of the whole tenant ------------------------------------------------------------------------------

-- No participants took part in all of it: only who reads without a viewer sees these.
create table graph_tenant_analyses (
    tenant_id text primary key references tenants,
    participants text[] not null default '{}' check (participants = '{}'),
    digest bytea not null
);

create table graph_tenant_communities (
    tenant_id text not null references tenants,
    community_id uuid not null,
    participants text[] not null default '{}' check (participants = '{}'),
    size int not null check (size > 1),
    bridges int not null check (bridges >= 0),
    neighbours jsonb not null,
    analysed_at timestamptz not null,
    primary key (tenant_id, community_id)
);
create index graph_tenant_communities_size
    on graph_tenant_communities (tenant_id, size desc, community_id);

create table graph_tenant_members (
    tenant_id text not null,
    node_id uuid not null,
    participants text[] not null default '{}' check (participants = '{}'),
    community_id uuid not null,
    rank int not null check (rank > 0),
    bridge_score double precision not null check (bridge_score >= 0 and bridge_score < 1),
    is_bridge boolean not null,
    primary key (tenant_id, node_id),
    foreign key (tenant_id, node_id) references graph_nodes on delete cascade,
    foreign key (tenant_id, community_id) references graph_tenant_communities on delete cascade
);
create index graph_tenant_members_community on graph_tenant_members (tenant_id, community_id, rank);

-- Both kinds, to be read by the same statements.
create view graph_all_communities with (security_invoker = true) as
    select false as of_tenant, tenant_id, community_id, scope_id, size, bridges, neighbours, analysed_at
    from graph_communities
    union all
    select true, tenant_id, community_id, null, size, bridges, neighbours, analysed_at
    from graph_tenant_communities;

create view graph_all_members with (security_invoker = true) as
    select false as of_tenant, tenant_id, node_id, community_id, rank, bridge_score, is_bridge
    from graph_members
    union all
    select true, tenant_id, node_id, community_id, rank, bridge_score, is_bridge
    from graph_tenant_members;
grant select on graph_all_communities, graph_all_members to strandline_app;

-- row-level security and grants --------------------------------------------------------------------
do $$
declare
    table_name text;
begin
    foreach table_name in array array['graph_analyses', 'graph_communities', 'graph_members',
        'graph_tenant_analyses', 'graph_tenant_communities', 'graph_tenant_members'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert, delete on %I to strandline_app', table_name);
    end loop;
    foreach table_name in array array['graph_analyses', 'graph_communities', 'graph_members'] loop
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
    end loop;
end $$;
grant update (changes, analysed_changes, changed_at, digest) on graph_analyses to strandline_app;
grant update (digest) on graph_tenant_analyses to strandline_app;

create policy planner_reads on graph_analyses for select to strandline_planner using (true);
grant select on graph_analyses to strandline_planner;

-- changes ------------------------------------------------------------------------------------------

-- Every node and edge is a function of its observations, so a change of these is a change of the graph.
create function count_graph_changes() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    insert into graph_analyses as a (tenant_id, scope_id, participants, changes, changed_at)
    select c.tenant_id, c.scope_id, c.participants, 1, clock_timestamp() from changed c
    group by c.tenant_id, c.scope_id, c.participants order by c.tenant_id, c.scope_id
    on conflict (tenant_id, scope_id) do update set changes = a.changes + 1,
        changed_at = case when a.changes > a.analysed_changes then a.changed_at
            else excluded.changed_at end;
    return null;
end $$;
create trigger count_added_observations after insert on graph_observations
referencing new table as changed for each statement execute function count_graph_changes();
create trigger count_removed_observations after delete on graph_observations
referencing old table as changed for each statement execute function count_graph_changes();
