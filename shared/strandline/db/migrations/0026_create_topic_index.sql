-- The topic index: for each scope a tree whose leaves are chain versions and whose inner nodes summarise
-- what is below them, in published snapshots. All of it can be dropped and built again.
--
-- A place in a tree is a slot: of a leaf its chain's id, of an inner node an id that does not change
-- while the node's content does. topic_tree says which content a slot had in which versions, and which
-- slot is above it. So a build writes what it changed, and a reader of a version finds its tree both
-- downwards and upwards by index.

-- waiting ------------------------------------------------------------------------------------------

-- The place of a version among all versions of its scope, from 1: the order in which trees grow. The
-- same again after a replay. Numbered under the scope's row lock, which every fold holds.
alter table chain_versions add column position bigint;

do $$
declare
    all_tenants text[];
    one_tenant text;
    missing bigint;
begin
    -- as the planner: the owner's own role sees no tenant
    set local role strandline_planner;
    all_tenants := array(select tenant_id from tenants order by 1);
    reset role;
    foreach one_tenant in array all_tenants loop
        perform set_config('strandline.tenant', one_tenant, true),
            set_config('strandline.viewer', '{}', true);
        update chain_versions v set position = numbered.position
        from (
            select chain_id, version, row_number() over (
                partition by scope_id order by created_at_seq, version, chain_id) as position
            from chain_versions) numbered
        where v.chain_id = numbered.chain_id and v.version = numbered.version;
        select count(*) into missing from chain_versions where position is null;
        if missing > 0 then
            raise exception '% versions of chains were not numbered', missing;
        end if;
    end loop;
end $$;
create unique index chain_versions_position on chain_versions (tenant_id, scope_id, position);

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

do $$
declare
    all_tenants text[];
    one_tenant text;
begin
    set local role strandline_planner;
    all_tenants := array(select tenant_id from tenants order by 1);
    reset role;
    foreach one_tenant in array all_tenants loop
        perform set_config('strandline.tenant', one_tenant, true),
            set_config('strandline.viewer', '{}', true);
        insert into topic_work
            (tenant_id, scope_id, participants, waiting, oldest_at, newest_at, last_position)
        select tenant_id, scope_id, participants, count(*), now(), now(), max(position)
        from chain_versions group by tenant_id, scope_id, participants;
    end loop;
end $$;

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

set local role strandline_guard;
grant execute on function refuse_erased_event to strandline_owner;
reset role;
create trigger refuse_erased_event after insert on topic_events referencing new table as citing
for each statement execute function refuse_erased_event();
set local role strandline_guard;
revoke execute on function refuse_erased_event from strandline_owner;
reset role;

-- due ----------------------------------------------------------------------------------------------

grant create on schema public to strandline_planner;

-- Tenants, since when a build of them is due, and how many scopes wait for it: due as soon as 20 chain
-- versions wait, or once the oldest has waited for 15 minutes. By the rows of scopes that wait, not by
-- tenants.
create function builds_due() returns table (tenant_id text, due_at timestamptz, scopes bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id, least(min(w.oldest_at) + interval '15 minutes',
        case when sum(w.waiting) >= 20 then max(w.newest_at) end), count(*)
    from topic_work w group by w.tenant_id
$$;

create function tenants_to_build(p_now timestamptz) returns table (tenant_id text, scopes bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select d.tenant_id, d.scopes from builds_due() d where d.due_at <= p_now order by 1
$$;

-- When the builder has something to do next, in any tenant; what is a day late waits for the morning.
create function next_build(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(d.due_at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from builds_due() d
$$;

-- Since when the archiver has something of the topic index to collect in a tenant: a snapshot that is
-- not active is old enough, an answer is, or a build ended that was not published. By the oldest of each
-- tenant.
create function collections_due(p_age interval) returns table (tenant_id text, due_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select a.tenant_id, (
        select s.published_at + p_age from snapshots s
        where s.tenant_id = a.tenant_id and s.version < a.version
        order by s.version limit 1)
    from active_snapshot a
    union all
    select t.tenant_id, (
        select r.answered_at + p_age from reference_answers r
        where r.tenant_id = t.tenant_id order by r.answered_at limit 1)
    from active_snapshot t
    union all
    select b.tenant_id, max(j.finished_at)
    from topic_build_scopes b join jobs j using (tenant_id, job_id)
    where b.tree is not null and j.state in ('done', 'failed') group by b.tenant_id
$$;

-- Tenants where chains are cold, where payloads are marked to be removed, where uncited ones may have
-- appeared since the last pass, which was in an earlier period, or where something of the topic index is
-- to be collected. Beside the function without an age, which the previous release calls.
create function tenants_to_archive(
    p_now timestamptz, p_period interval, p_grace interval, p_snapshot_age interval)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    left join blob_scans p on p.tenant_id = t.tenant_id
    where p.tenant_id is null or p.position <> ''
        or p.ended_at < period_start(p_now, p_period)
            and p.ended_at < uncited_blobs_removable_at(t.tenant_id, p_grace)
        or exists (select from blob_removals r where r.tenant_id = t.tenant_id
            and coalesce(r.removing_until, r.marked_at + interval '15 minutes') <= p_now)
        or exists (select from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now)
        or t.tenant_id in (select d.tenant_id from collections_due(p_snapshot_age) d
            where d.due_at <= p_now)
    order by 1
$$;

-- When the archiver has something to do next, in any tenant; what is a day late waits for the morning.
-- What ripens in a period is looked for once the period is over, so that all callers in it get the
-- same answer.
create function next_archive(p_grace interval, p_period interval, p_snapshot_age interval,
    p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select unnest(array[overdue.cold_at, upcoming.cold_at]) as at from tenants t
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now
            order by c.cold_at desc limit 1) overdue on true
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at > p_now
            order by c.cold_at limit 1) upcoming on true
        union all
        select coalesce(r.removing_until, r.marked_at + interval '15 minutes') from blob_removals r
        union all
        select period_start(removable.at, p_period) + p_period from tenants t
        left join blob_scans p on p.tenant_id = t.tenant_id
        cross join lateral uncited_blobs_removable_at(t.tenant_id, p_grace) removable (at)
        where coalesce(p.ended_at, '-infinity') < removable.at or p.position <> ''
        union all
        select period_start(d.due_at, p_period) + p_period from collections_due(p_snapshot_age) d
    ) due
    where due.at is not null
$$;

do $$
declare
    signature text;
begin
    foreach signature in array array['builds_due()', 'tenants_to_build(timestamptz)',
        'next_build(interval, timestamptz)', 'collections_due(interval)',
        'tenants_to_archive(timestamptz, interval, interval, interval)',
        'next_archive(interval, interval, interval, interval, timestamptz)'] loop
        execute format('revoke execute on function %s from public', signature);
    end loop;
    foreach signature in array array['tenants_to_build(timestamptz)',
        'next_build(interval, timestamptz)',
        'tenants_to_archive(timestamptz, interval, interval, interval)',
        'next_archive(interval, interval, interval, interval, timestamptz)'] loop
        execute format('grant execute on function %s to strandline_app', signature);
    end loop;
    foreach signature in array array['builds_due()', 'tenants_to_build(timestamptz)',
        'next_build(interval, timestamptz)', 'collections_due(interval)',
        'tenants_to_archive(timestamptz, interval, interval, interval)',
        'next_archive(interval, interval, interval, interval, timestamptz)'] loop
        execute format('alter function %s owner to strandline_planner', signature);
    end loop;
end $$;
revoke create on schema public from strandline_planner;
