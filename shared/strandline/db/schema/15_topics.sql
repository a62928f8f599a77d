-- The topic index: for each scope a tree whose leaves are chain versions and whose inner nodes summarise
-- what is below them, in published snapshots. All of it can be dropped and built again.
--
-- A place in a tree is a slot: of a leaf its chain's id, of an inner node an id that does not change
-- while the node's content does. topic_tree says which content a slot had in which versions, and which
-- slot is above it. So a build writes what it changed, and a reader of a version finds its tree both
-- downwards and upwards by index.

-- waiting ------------------------------------------------------------------------------------------

-- Scopes with chain versions that no published tree holds.
create table topic_work (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    waiting int not null,
    oldest_at timestamptz not null,  -- since when the oldest of them waits
    newest_at timestamptz not null,
    last_position bigint not null,
    primary key (tenant_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);

create function number_chain_version() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    new.position := 1 + coalesce((
        select v.position from chain_versions v
        where v.tenant_id = new.tenant_id and v.scope_id = new.scope_id and v.position is not null
        order by v.position desc limit 1), 0);
    return new;
end $$;
create trigger number_chain_version before insert on chain_versions
for each row execute function number_chain_version();

create function add_topic_work() returns trigger
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
begin
    insert into topic_work as w
        (tenant_id, scope_id, participants, waiting, oldest_at, newest_at, last_position)
    values (new.tenant_id, new.scope_id, new.participants, 1, now(), now(), new.position)
    on conflict (tenant_id, scope_id) do update
        set waiting = w.waiting + 1, newest_at = excluded.newest_at,
            last_position = excluded.last_position;
    return null;
end $$;

-- At commit: its own policies do not stand in for those of chain_versions.
create constraint trigger add_topic_work after insert on chain_versions
deferrable initially deferred for each row execute function add_topic_work();

-- nodes --------------------------------------------------------------------------------------------

-- The content of a place in a tree. Immutable; the id is made of the content hash, so that equal content
-- of one scope is one row, whichever snapshots and slots show it.
create table topic_nodes (
    tenant_id text not null,
    node_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    kind text not null check (kind in ('leaf', 'inner')),
    content_hash bytea not null,
    chain_id uuid,  -- no foreign key: a snapshot outlives chains that are dropped and folded again
    chain_version int,
    chain_hash bytea,  -- of the chain version's content: shows whether that is folded again, the same
    topic text,
    summary text,  -- null for the leaf of a rejected chain
    started_at timestamptz not null,
    last_event_at timestamptz not null,
    event_count int not null,
    leaf_count int not null,
    trust text not null check (trust in ('document', 'tool', 'agent', 'user', 'system')),
    space text not null,  -- of the embedding
    embedding halfvec,  -- the mean of its events' vectors; null where none has one
    vector_count int not null,  -- of how many
    models jsonb not null,  -- {"summary": {"model", "prompt", "fell_back"}}; of a leaf its chain's
    created_at timestamptz not null default now(),
    erased_at timestamptz,  -- its text is gone, since an event below it is
    primary key (tenant_id, node_id),
    foreign key (tenant_id, scope_id) references scopes,
    check ((kind = 'leaf') = (chain_id is not null) and (kind = 'leaf') = (chain_version is not null)),
    check ((embedding is null) = (vector_count = 0))
);
create index topic_nodes_scope on topic_nodes (tenant_id, scope_id);

-- The events of leaves: those of chain_events, which change when chains are folded again. A leaf of
-- chain version n has those of since_version up to n.
create table topic_events (
    tenant_id text not null,
    chain_id uuid not null,
    event_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    seq bigint not null,
    since_version int not null,
    primary key (tenant_id, chain_id, event_id),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, scope_id) references scopes
);
create index topic_events_event on topic_events (tenant_id, event_id);

-- snapshots ----------------------------------------------------------------------------------------
create table snapshots (
    tenant_id text not null references tenants,
    version bigint not null check (version > 0),
    snapshot_id uuid not null,
    base_version bigint not null,  -- the version it was made from; 0: none
    repeats_version bigint,  -- the version that was made active again by it
    job_id uuid,  -- the build
    published_at timestamptz not null,
    scope_count bigint not null,
    leaf_count bigint not null,
    node_count bigint not null,
    event_count bigint not null,
    scopes_changed int not null,
    scopes_failed jsonb not null default '[]',  -- [{"scope_id", "reason"}]: they kept what they had
    configuration jsonb not null,  -- {"space", "model", "prompt", ...}: what its summaries come from
    erased_at timestamptz,  -- it held an erased event: never active again
    primary key (tenant_id, version),
    unique (tenant_id, snapshot_id)
);

-- The version that queries read. Publishing is the one change of this row.
create table active_snapshot (
    tenant_id text not null primary key references tenants,
    version bigint not null,
    foreign key (tenant_id, version) references snapshots deferrable initially deferred
);

-- A scope's tree in the versions from from_version up to, not including, to_version.
create table snapshot_scopes (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    from_version bigint not null,
    to_version bigint,  -- null: still
    root_slot uuid not null,
    root_id uuid not null,
    cutoff bigint not null,  -- every event up to this seq is under a leaf
    position bigint not null,  -- every chain version up to this one was taken in
    slots int not null,  -- how many inner slots were ever made: the number of the next
    space text not null,
    leaf_count int not null,
    node_count int not null,
    event_count int not null,
    primary key (tenant_id, scope_id, from_version),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, root_id) references topic_nodes deferrable initially deferred
);
create unique index snapshot_scopes_current on snapshot_scopes (tenant_id, scope_id)
    where to_version is null;
create index snapshot_scopes_ended on snapshot_scopes (tenant_id, to_version)
    where to_version is not null;
create index snapshot_scopes_root on snapshot_scopes (tenant_id, root_id);

create table topic_tree (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    slot uuid not null,
    parent_slot uuid,  -- null: the root
    node_id uuid not null,
    is_leaf boolean not null,
    chain_version int,  -- of a leaf
    from_version bigint not null,
    to_version bigint,
    primary key (tenant_id, scope_id, slot, from_version),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, node_id) references topic_nodes deferrable initially deferred
);
create index topic_tree_children on topic_tree (tenant_id, scope_id, parent_slot, from_version);
create index topic_tree_node on topic_tree (tenant_id, node_id);
create index topic_tree_ended on topic_tree (tenant_id, to_version) where to_version is not null;
-- Provenance asks for a place in a tree by its id alone.
create index topic_tree_slot on topic_tree (tenant_id, slot, from_version);

-- building -----------------------------------------------------------------------------------------

-- A build that is under way: the version it grows from, and a row for each scope that it takes in, with
-- the mark up to which it does. All marks are of one read.
create table topic_builds (
    tenant_id text not null,
    job_id uuid not null,
    base_version bigint not null,
    begun_at timestamptz not null,
    primary key (tenant_id, job_id),
    foreign key (tenant_id, job_id) references jobs on delete cascade
);

create table topic_build_scopes (
    tenant_id text not null,
    job_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    shard int not null,
    state text not null check (state in ('waiting', 'begun', 'grown', 'unchanged', 'failed')),
    reason text not null default '',
    mark_position bigint not null,
    mark_seq bigint not null,  -- how far the scope was folded
    tree jsonb,  -- of a grown scope: its row of snapshot_scopes, and the changed rows of topic_tree
    primary key (tenant_id, job_id, scope_id),
    foreign key (tenant_id, job_id) references topic_builds on delete cascade,
    foreign key (tenant_id, scope_id) references scopes
);
create index topic_build_scopes_staged on topic_build_scopes (tenant_id, job_id) where tree is not null;

-- answers ------------------------------------------------------------------------------------------

-- What an answer to a references question selected, so that it can be given again, the same. Ids and
-- numbers only, no text.
create table reference_answers (
    tenant_id text not null,
    answer_id uuid not null,
    participants text[] not null,  -- the viewer it was given to
    version bigint not null,
    question_hash bytea not null,
    selection jsonb not null,
    answered_at timestamptz not null,
    primary key (tenant_id, answer_id)
);
create index reference_answers_old on reference_answers (tenant_id, answered_at);
create index reference_answers_next on reference_answers (answered_at);

-- row-level security and grants --------------------------------------------------------------------
do $$
declare
    table_name text;
begin
    foreach table_name in array array['topic_work', 'topic_nodes', 'topic_events', 'snapshot_scopes',
        'topic_tree', 'topic_build_scopes', 'reference_answers'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert, delete on %I to strandline_app', table_name);
    end loop;
    foreach table_name in array array['topic_work', 'topic_nodes', 'topic_events', 'snapshot_scopes',
        'topic_tree', 'topic_build_scopes'] loop
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
    end loop;
    foreach table_name in array array['snapshots', 'active_snapshot', 'topic_builds'] loop
        execute format('create policy own_tenant on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())', table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert, delete on %I to strandline_app', table_name);
    end loop;
end $$;
grant update (waiting, oldest_at, newest_at, last_position) on topic_work to strandline_app;
grant update (to_version) on snapshot_scopes, topic_tree to strandline_app;
grant update (version) on active_snapshot to strandline_app;
grant update (state, reason, tree) on topic_build_scopes to strandline_app;

create policy planner_reads on topic_work for select to strandline_planner using (true);
create policy planner_reads on snapshots for select to strandline_planner using (true);
create policy planner_reads on active_snapshot for select to strandline_planner using (true);
create policy planner_reads on topic_build_scopes for select to strandline_planner using (true);
create policy planner_reads on reference_answers for select to strandline_planner using (true);
grant select on topic_work, snapshots, active_snapshot, topic_build_scopes, reference_answers
    to strandline_planner;
