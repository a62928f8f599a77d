-- Chains: what the log's topics became, and how warm they are. All of it can be dropped and folded
-- again from events, vectors and decisions.

-- How far a scope is folded, moved only together with fold_no: a compare-and-swap.
alter table scopes
    add column folded_seq bigint not null default 0,
    -- How far it was ever folded: up to here a replay goes by the settings that were decided then.
    add column settled_seq bigint not null default 0;
grant update (folded_seq, settled_seq) on scopes to strandline_app;

-- What an open lane waits for: the sweeper closes it when nobody has said anything for a while. Its
-- `open` is {"after": the seq after which the lane's events are open, "user": the event that the next
-- user message is compared with}. A lane with nothing open has no row.
alter table lanes add column idle_at timestamptz;
create index lanes_idle on lanes (tenant_id, idle_at) where idle_at is not null;
grant update (idle_at) on lanes to strandline_app;
grant delete on lanes to strandline_app;

-- One decision of a kind about an event, committed with the fold that it decided. It takes effect
-- when the scope is folded up to at_seq, in a replay as it did at first.
alter table decisions add column attempt int not null default 0;
alter table decisions add column at_seq bigint not null default 0;
create unique index decisions_once on decisions (tenant_id, scope_id, event_id, kind, attempt);
create index decisions_at on decisions (tenant_id, scope_id, at_seq);
create index decisions_settings on decisions (tenant_id, scope_id, at_seq) where kind = 'settings';

-- A closed run of events on one topic. What it says is its newest version's; here stands what changes:
-- its place in lists, and what use does to it.
create table chains (
    tenant_id text not null,
    chain_id uuid not null,  -- a hash of scope and first event: the same again after a replay
    scope_id uuid not null,
    participants text[] not null,
    session_id text not null,  -- the lane it began in
    version int not null check (version > 0),
    status text not null check (status in ('active', 'rejected', 'archived')),
    last_event_at timestamptz not null,  -- by the callers' clock: lists are in this order
    created_at timestamptz not null,  -- by ours: heat starts here
    -- Heat's state, see heat.py: what it was worth when it was formed, and what use made of it.
    importance double precision not null check (importance between 0 and 1),
    density double precision not null check (density between 0 and 1),
    strength double precision not null default 1 check (strength >= 1),
    accessed_at timestamptz not null,
    boosted_at timestamptz,  -- the last recall that made it stronger
    cold_at timestamptz not null,  -- when the archiver may take it, if nobody recalls it before
    promote_until timestamptz not null,  -- so long it is warm enough for the graph
    archived_at timestamptz,
    primary key (tenant_id, chain_id),
    foreign key (tenant_id, scope_id) references scopes,
    check ((status = 'archived') = (archived_at is not null))
);
create index chains_newest on chains (tenant_id, scope_id, last_event_at desc, chain_id);
create index chains_cold on chains (tenant_id, cold_at) where status = 'active';

-- Immutable: a merge, or a retry, writes a new one.
create table chain_versions (
    tenant_id text not null,
    chain_id uuid not null,
    version int not null check (version > 0),
    scope_id uuid not null,
    participants text[] not null,
    session_id text not null,  -- the lane of the run that it took in
    made_at_seq bigint not null,  -- the scope's mark at which this version took over
    closed_by text not null check (closed_by in ('break', 'force', 'gap', 'idle', 'retry')),
    merged boolean not null default false,  -- it took in a later run
    first_seq bigint not null,
    last_seq bigint not null,
    event_count int not null check (event_count > 0),
    started_at timestamptz not null,
    last_event_at timestamptz not null,
    topic text not null,
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
    primary key (tenant_id, chain_id, version),
    foreign key (tenant_id, chain_id) references chains deferrable initially deferred,
    foreign key (tenant_id, scope_id) references scopes
);
alter table chains add foreign key (tenant_id, chain_id, version) references chain_versions
    deferrable initially deferred;
create index chain_versions_session on chain_versions (tenant_id, scope_id, session_id, chain_id);
create index chain_versions_made on chain_versions (tenant_id, scope_id, made_at_seq);

-- What use made of a chain that was dropped, until it is folded again up to this version.
create table chain_use (
    tenant_id text not null,
    chain_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    version int not null,  -- the newest that there was
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

-- Of the newest version of chains that are active; an archived chain has none.
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

-- The one record of use: each time a chain was given as an answer to a question. Folded into the
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

-- A tenant's own thresholds, where they differ from the deployment's: see tuning.py.
alter table tenants add column tuning jsonb not null default '{}';
grant update (tuning) on tenants to strandline_app;

-- Only for as long as it takes to hang it up: the guard's function is its own.
set local role strandline_guard;
grant execute on function refuse_erased_event to strandline_owner;
reset role;
create trigger refuse_erased_event after insert on chain_events referencing new table as citing
    for each statement execute function refuse_erased_event();
set local role strandline_guard;
revoke execute on function refuse_erased_event from strandline_owner;
reset role;

do $$
declare
    guarded text;
begin
    foreach guarded in array array['chains', 'chain_versions', 'chain_use', 'chain_events',
        'chain_vectors', 'recalls'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            guarded);
        execute format('alter table %I enable row level security', guarded);
        execute format('alter table %I force row level security', guarded);
        execute format('create policy planner_reads on %I for select to strandline_planner using (true)',
            guarded);
        execute format('grant select on %I to strandline_planner', guarded);
        execute format('grant select, insert, delete on %I to strandline_app', guarded);
    end loop;
end $$;
drop policy planner_reads on chain_use;
revoke select on chain_use from strandline_planner;
create policy planner_reads on lanes for select to strandline_planner using (true);
grant select on lanes to strandline_planner;
grant update (version, status, last_event_at, importance, density, strength, accessed_at, boosted_at,
    cold_at, promote_until, archived_at) on chains to strandline_app;
grant update (version, strength, accessed_at, boosted_at, archived_at) on chain_use to strandline_app;
grant update (folded_at) on recalls to strandline_app;
grant update (embedding) on chain_vectors to strandline_app;
