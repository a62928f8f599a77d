-- Chains: the topics that the log's events were folded into, and how warm they are. All of it can be
-- dropped and folded again from events, vectors and decisions.

-- folding ------------------------------------------------------------------------------------------

-- A lane with something open. `open` is {"after": the seq after which the lane's events are open,
-- "user": the event that the next user message is compared with}. A lane with nothing open has no row.
create table lanes (
    tenant_id text not null,
    scope_id uuid not null,
    session_id text not null,
    participants text[] not null,
    folded_seq bigint not null default 0,
    open jsonb not null default '{}',
    idle_at timestamptz,  -- when the sweeper closes it, if nobody has said anything until then
    primary key (tenant_id, scope_id, session_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index lanes_idle on lanes (tenant_id, idle_at) where idle_at is not null;
create index lanes_next on lanes (idle_at) where idle_at is not null;

-- A decision of a kind about an event, committed with the fold that took it. It takes effect when the
-- scope is folded up to at_seq, in a replay as at first.
create table decisions (
    tenant_id text not null,
    decision_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    event_id uuid not null,
    kind text not null,
    body jsonb not null,
    decided_at timestamptz not null default now(),
    attempt int not null default 0,
    at_seq bigint not null default 0,
    -- Of a decision of kind `slots`, which is about what people say that fills a slot of their lives (where they
    -- live and work, what they use, plan and prefer): whom it is about.
    subject text,
    primary key (tenant_id, decision_id),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, event_id) references events
);
create unique index decisions_once on decisions (tenant_id, scope_id, event_id, kind, attempt);
create index decisions_at on decisions (tenant_id, scope_id, at_seq);
create index decisions_settings on decisions (tenant_id, scope_id, at_seq) where kind = 'settings';
create index decisions_echo on decisions (tenant_id, scope_id, event_id) where kind = 'echo';
-- When chains of a scope were promoted last.
create index decisions_extracted on decisions (tenant_id, scope_id, decided_at)
    where kind = 'extracted';
create index decisions_by_subject on decisions (tenant_id, subject, decided_at) where subject is not null;

-- chains -------------------------------------------------------------------------------------------

-- A closed run of events on one topic. Its text is that of its newest version. Here stands what
-- changes: its place in lists, and the effect of use.
create table chains (
    tenant_id text not null,
    chain_id uuid not null,  -- a hash of scope and first event: the same again after a replay
    scope_id uuid not null,
    participants text[] not null,
    session_id text not null,  -- the lane it began in
    version int not null check (version > 0),
    status text not null check (status in ('active', 'rejected', 'archived')),
    last_event_at timestamptz not null,  -- by the callers' clock: the order of lists
    created_at timestamptz not null,  -- by ours: heat starts here
    -- Heat's state, see heat.py: its value when the chain was formed, and the effect of use.
    importance double precision not null check (importance between 0 and 1),
    density double precision not null check (density between 0 and 1),
    strength double precision not null default 1 check (strength >= 1),
    accessed_at timestamptz not null,
    boosted_at timestamptz,  -- the last recall that made it stronger
    cold_at timestamptz not null,  -- when the archiver may take it, if nobody recalls it before
    promote_until timestamptz not null,  -- until then it is warm enough for the graph
    archived_at timestamptz,
    promoted_version int not null default 0,  -- 0: none yet
    -- Such a chain is promoted whatever its heat, and at once: it ends facts.
    bears_change boolean not null default false,
    primary key (tenant_id, chain_id),
    foreign key (tenant_id, scope_id) references scopes,
    check ((status = 'archived') = (archived_at is not null))
);
create index chains_newest on chains (tenant_id, scope_id, last_event_at desc, chain_id);
create index chains_cold on chains (tenant_id, cold_at) where status = 'active';
create index chains_unpromoted on chains (tenant_id, promote_until)
    where status = 'active' and promoted_version < version;
create index chains_next_cold on chains (cold_at) where status = 'active';
create index chains_bearing_change on chains (tenant_id, accessed_at)
    where status = 'active' and bears_change and promoted_version < version;

-- Immutable: a merge or a retry writes a new one.
create table chain_versions (
    tenant_id text not null,
    chain_id uuid not null,
    version int not null check (version > 0),
    scope_id uuid not null,
    participants text[] not null,
    session_id text not null,  -- the lane of the run that it took in
    created_at_seq bigint not null,  -- how far the scope was folded when this version replaced the last
    closed_by text not null check (closed_by in ('break', 'force', 'gap', 'idle', 'retry')),
    merged boolean not null default false,  -- it took in a later run
    first_seq bigint not null,
    last_seq bigint not null,
    event_count int not null check (event_count > 0),
    started_at timestamptz not null,
    last_event_at timestamptz not null,
    topic text,  -- null: no phrase of its text names it, and its summary shows what it is about
    summary text not null,
    entities jsonb not null,  -- [{"name", "kind"}]
    importance double precision not null,
    density double precision not null,
    coherence double precision,  -- null where no event of it has a vector
    quality double precision not null,
    rejected text,  -- why the quality gate kept it out of mid-term listings
    settings jsonb not null,  -- the thresholds that it was cut and judged by
    models jsonb not null,  -- {"summarise": {"model", "prompt", "fell_back"}, ...}
    content_hash bytea not null,  -- SHA-256 over all that a reader is shown, and the events' ids
    -- The least trusted origin of its events: a chain made of a tool's output or of a document is worth
    -- no more than that, however good its summary is.
    trust text not null check (trust in ('document', 'tool', 'agent', 'user', 'system')),
    -- The place of a version among all versions of its scope, from 1: the order in which trees grow. The same
    -- again after a replay. Numbered under the scope's row lock, which every fold holds.
    position bigint,
    primary key (tenant_id, chain_id, version),
    foreign key (tenant_id, chain_id) references chains deferrable initially deferred,
    foreign key (tenant_id, scope_id) references scopes
);
alter table chains add foreign key (tenant_id, chain_id, version) references chain_versions
    deferrable initially deferred;  -- the two tables refer to each other
create index chain_versions_session on chain_versions (tenant_id, scope_id, session_id, chain_id);
create index chain_versions_created on chain_versions (tenant_id, scope_id, created_at_seq);
create unique index chain_versions_position on chain_versions (tenant_id, scope_id, position);

-- The effect of use on a chain that was dropped, until it is folded again up to this version.
create table dropped_chain_state (
    tenant_id text not null,
    chain_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    version int not null,  -- the newest before the drop
    strength double precision not null,
    accessed_at timestamptz not null,
    boosted_at timestamptz,
    archived_at timestamptz,
    primary key (tenant_id, chain_id),
    foreign key (tenant_id, scope_id) references scopes
);

-- An event is in one chain, once.
create table chain_events (
    tenant_id text not null,
    event_id uuid not null,
    chain_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    seq bigint not null,
    since_version int not null,
    primary key (tenant_id, event_id),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, chain_id) references chains deferrable initially deferred
);
create index chain_events_chain on chain_events (tenant_id, chain_id, seq);

-- Vectors of the newest version of active chains; an archived chain has none.
create table chain_vectors (
    tenant_id text not null,
    space text not null,
    scope_id uuid not null,
    chain_id uuid not null,
    participants text[] not null,
    embedding halfvec not null,
    primary key (tenant_id, space, scope_id, chain_id),
    foreign key (tenant_id, chain_id) references chains deferrable initially deferred
);
-- A new version removes the chain's vectors in every space: by the primary key, in which the space
-- comes first, that would read all of a tenant's vectors.
create index chain_vectors_chain on chain_vectors (tenant_id, chain_id);

-- The one record of use: each time a chain was part of an answer to a question. Folded into the
-- chain's strength in the background, each row once. No foreign key to chains: use is a fact, and
-- stays while its chain is dropped and folded again under the same id.
create table recalls (
    tenant_id text not null,
    recall_id uuid not null,
    chain_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    recalled_at timestamptz not null,
    folded_at timestamptz,
    primary key (tenant_id, recall_id, chain_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index recalls_new on recalls (tenant_id, chain_id, recalled_at) where folded_at is null;
create index recalls_folded on recalls (tenant_id, folded_at) where folded_at is not null;
create index recalls_waiting on recalls (recalled_at) where folded_at is null;

-- row-level security and grants --------------------------------------------------------------------
do $$
declare
    table_name text;
begin
    foreach table_name in array array['lanes', 'decisions', 'chains', 'chain_versions',
        'dropped_chain_state', 'chain_events', 'chain_vectors', 'recalls'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert on %I to strandline_app', table_name);
    end loop;
    foreach table_name in array array['lanes', 'chains', 'chain_versions', 'chain_events',
        'chain_vectors', 'recalls'] loop
        execute format('create policy planner_reads on %I for select to strandline_planner using (true)',
            table_name);
        execute format('grant select on %I to strandline_planner', table_name);
    end loop;
end $$;
grant delete on lanes, chains, chain_versions, dropped_chain_state, chain_events, chain_vectors, recalls
    to strandline_app;
grant update (folded_seq, open, idle_at) on lanes to strandline_app;
grant update (version, status, last_event_at, importance, density, strength, accessed_at, boosted_at,
    cold_at, promote_until, archived_at, promoted_version, bears_change) on chains to strandline_app;
grant update (version, strength, accessed_at, boosted_at, archived_at) on dropped_chain_state
    to strandline_app;
grant update (embedding) on chain_vectors to strandline_app;
grant update (folded_at) on recalls to strandline_app;

-- A chain as each of its versions describes it, with the first 200 of its events. With the caller's
-- rights, so that row-level security holds.
create view chain_details with (security_invoker = true) as
    select c.chain_id, c.scope_id, c.participants, c.session_id, c.status, c.created_at, c.importance,
        c.density, c.strength, c.accessed_at, c.boosted_at, c.cold_at, c.promote_until, c.archived_at,
        v.version, v.closed_by, v.merged, v.first_seq, v.last_seq, v.event_count, v.started_at,
        v.last_event_at, v.topic, v.summary, v.entities, v.coherence, v.quality, v.rejected, v.models,
        links.event_ids, v.trust
    from chains c
    join chain_versions v on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
    cross join lateral (
        select coalesce(array_agg(e.event_id order by e.seq), '{}') as event_ids
        from (
            select e.event_id, e.seq from chain_events e
            where e.tenant_id = c.tenant_id and e.chain_id = c.chain_id and e.since_version <= v.version
            order by e.seq limit 200) e) links;
grant select on chain_details to strandline_app;
