-- The log: scopes, their events, and what events cite.
create table scopes (
    tenant_id text not null references tenants,
    scope_id uuid not null,  -- a hash of tenant and participants: see is_scope_of
    participants text[] not null check (cardinality(participants) > 0),
    last_seq bigint not null default 0,
    fold_no bigint not null default 0,  -- compared and swapped by the worker that folds
    last_recorded_at timestamptz not null default '-infinity',
    created_at timestamptz not null default now(),
    xid xid8 not null default pg_current_xact_id(),
    stored_bytes bigint not null default 0,  -- of the scope's events; updated together with last_seq
    folded_seq bigint not null default 0,  -- how far the scope is folded: changes with fold_no only
    -- The farthest it was ever folded: up to here a replay uses the settings decided at that time.
    max_folded_seq bigint not null default 0,
    -- Every event up to here has its row in event_texts, where it has a text. Changed by workers only.
    indexed_seq bigint not null default 0,
    primary key (tenant_id, scope_id)
) with (fillfactor = 70);  -- last_seq changes with every append: room for HOT updates, no further index

create table scope_members (
    tenant_id text not null,
    participant text not null,
    scope_id uuid not null,
    participants text[] not null,
    primary key (tenant_id, participant, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);

create table blobs (
    tenant_id text not null references tenants,
    cid text not null,
    writer text not null,  -- who uploaded it: to know a CID is no permission to cite it
    size bigint not null check (size >= 0),
    created_at timestamptz not null default now(),
    primary key (tenant_id, cid, writer)
);

create table events (
    tenant_id text not null,
    event_id uuid not null,  -- UUIDv7, made by the service
    scope_id uuid not null,
    seq bigint not null check (seq > 0),  -- gapless in its scope, assigned under the scope's row lock
    participants text[] not null,
    session_id text not null default '',  -- '' is the lane of events without a session
    channel text not null,
    role text not null check (role in ('user', 'agent', 'system')),
    type text not null check (
        type in ('message', 'thought', 'action', 'observation', 'upload', 'statement')),
    origin text not null check (origin in ('user', 'agent', 'tool', 'document', 'system')),
    speaker text,
    writer text not null,
    content text check (octet_length(content) <= 65536),
    parts jsonb not null default '[]',  -- [{"chars": n, "model": m}]: runs of content by model
    stop_reason text check (stop_reason in ('endTurn', 'stopSequence', 'maxTokens')),
    blob_cid text,
    blob_size bigint,
    mime_type text,
    file_name text,
    metadata jsonb not null default '{}',
    occurred_at timestamptz,  -- by the caller's clock; may be absent
    recorded_at timestamptz not null,  -- by our clock, read under the lock; never decreases in a scope
    cid text,
    erased_at timestamptz,  -- set by erasure before it looks for what cites the event
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, event_id),
    unique (tenant_id, scope_id, seq),
    foreign key (tenant_id, scope_id) references scopes,
    check (erased_at is not null or (cid is not null and (content is null) <> (blob_cid is null))),
    -- Statements hold what a caller stated directly, for the knowledge graph. They are in no session and no
    -- lane. Only the graph writes them: the service refuses the type in every other append.
    constraint events_statement_check check (type <> 'statement' or session_id = ''),
    constraint events_times check (occurred_at = nearest_moment(occurred_at))
);
-- The event before this one in its lane; a session's events in order.
create index events_lane on events (tenant_id, scope_id, session_id, seq);
-- From an address to its earliest event.
create index events_cid on events (tenant_id, cid);
-- From a payload's address to its earliest event, without reading every event that cites it.
create index events_blob on events (tenant_id, blob_cid, recorded_at, event_id)
    where blob_cid is not null;
-- Newest first over a whole tenant, for readers whose view is no list of scopes.
create index events_newest on events (tenant_id, recorded_at desc, scope_id desc, seq desc);
-- Erased events, which searches leave out. There are few.
create index events_erased on events (tenant_id, scope_id, event_id) where erased_at is not null;
-- What is erased and still has its CID: nothing, but for what was marked by hand. A tombstone is in no
-- index, so that searches need not know how many there are.
create index events_marked on events (tenant_id, scope_id, event_id)
    where erased_at is not null and cid is not null;

create table event_keys (
    tenant_id text not null,
    writer text not null,
    channel text not null,
    source_event_key text not null,
    event_id uuid not null,
    fingerprint bytea not null,  -- SHA-256 over the whole normalised request
    primary key (tenant_id, writer, channel, source_event_key),
    -- Keys are reserved before seq is assigned, so that a duplicate leaves no gap: checked at commit.
    foreign key (tenant_id, event_id) references events deferrable initially deferred
);
-- From an event to its key, which answers show to whoever wrote it.
create index event_keys_event on event_keys (tenant_id, event_id);

create table memory_edges (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    event_id uuid not null,
    cited_id uuid not null,
    cited_cid text not null,  -- what the block commits to: stays when the cited event is erased
    weight double precision not null check (weight >= 0 and weight <= 1),
    primary key (tenant_id, event_id, cited_id),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, cited_id) references events
);
create index memory_edges_cited on memory_edges (tenant_id, cited_id);

-- row-level security -------------------------------------------------------------------------------
-- The subselect around the viewer makes it one evaluation per statement. The tenant has none, so that
-- the planner knows whose rows it estimates.
--
-- matches_scope restricts INSERT alone, since nobody may update a row's scope or participants. On events
-- it does not bind strandline_append: append_fast_path compares scope and participants under the scope's
-- lock by itself, and the hash would cost an append a twentieth.
do $$
declare
    table_name text;
begin
    foreach table_name in array array['scopes', 'scope_members', 'events'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner, strandline_append '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
    end loop;
    foreach table_name in array array['scopes', 'scope_members', 'blobs', 'events', 'event_keys',
        'memory_edges'] loop
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
    end loop;
end $$;

create policy in_view on memory_edges to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on scopes as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy matches_scope on scope_members as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants) and participant = any (participants));
create policy matches_scope on events as restrictive for insert to strandline_app, strandline_owner
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy matches_scope on memory_edges as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy own_writer on event_keys to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and writer = current_writer())
    with check (tenant_id = current_tenant() and writer = current_writer());
create policy own_writer on blobs to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and writer = current_writer())
    with check (tenant_id = current_tenant() and writer = current_writer());
create policy planner_reads on scopes for select to strandline_planner using (true);
create policy planner_reads on blobs for select to strandline_planner using (true);
create policy search_reads on events for select to strandline_search using (true);
create policy search_reads on scopes for select to strandline_search using (true);
create policy search_reads on scope_members for select to strandline_search using (true);
-- grants -------------------------------------------------------------------------------------------
-- No UPDATE and no DELETE on the log for the application; it may not write xid and erased_at either.
grant select on scopes, scope_members, blobs, events, event_keys, memory_edges to strandline_app;
grant insert on scope_members, blobs, event_keys, memory_edges to strandline_app;
-- A session may begin before anything is said in it; its scope then bears the time of that.
grant insert (tenant_id, scope_id, participants, created_at, last_recorded_at) on scopes
    to strandline_app;
grant update (last_seq, last_recorded_at, fold_no, stored_bytes, folded_seq, max_folded_seq,
    indexed_seq) on scopes to strandline_app;
grant insert (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role, type, origin,
    speaker, writer, content, parts, stop_reason, blob_cid, blob_size, mime_type, file_name,
    metadata, occurred_at, recorded_at, cid) on events to strandline_app;
grant select on scopes to strandline_planner;
grant select (tenant_id, cid, writer) on blobs to strandline_planner;
grant select on events to strandline_search;
grant select (tenant_id, scope_id) on scopes to strandline_search;
grant select (tenant_id, participant, scope_id, participants) on scope_members to strandline_search;

-- An event's edges as its readers see them.
create function edges_of(e events) returns jsonb language sql stable parallel safe
    return (
        select coalesce(jsonb_agg(jsonb_build_object(
            'event_id', m.cited_id, 'cid', m.cited_cid, 'weight', m.weight)
            order by m.cited_cid, m.cited_id), '[]')
        from memory_edges m where m.tenant_id = e.tenant_id and m.event_id = e.event_id);

-- What a reader gets of an event. With the caller's rights, so that row-level security holds.
create view event_rows with (security_invoker = true) as
    select e.event_id, e.scope_id, e.seq, e.participants, e.session_id, e.channel, e.role, e.type,
        e.origin, e.speaker, e.content, e.parts, e.stop_reason, e.blob_cid, e.blob_size, e.mime_type,
        e.file_name, e.metadata, e.occurred_at, e.recorded_at, e.cid, edges_of(e) as edges
    from events e where e.erased_at is null;
grant select on event_rows to strandline_app;
