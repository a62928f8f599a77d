-- The log and what hangs on it. Tenant first in every key; every row that holds or cites memory
-- carries its scope's participants, so that one policy text serves all of them.

-- Who asks: set once per transaction by the service, empty outside of one. After a transaction a
-- local setting reads '' and not NULL, hence nullif: unset means nobody, and nobody sees nothing.
create function current_tenant() returns text language sql stable parallel safe
    return nullif(current_setting('strandline.tenant', true), '');

-- The sorted set Q on whose behalf is read. '{}' (admin and background work) is a subset of all.
create function current_viewer() returns text[] language sql stable parallel safe
    return nullif(current_setting('strandline.viewer', true), '')::text[];

-- The bound user (`user:alice`), or '*' for all unbound credentials of the tenant.
create function current_writer() returns text language sql stable parallel safe
    return nullif(current_setting('strandline.writer', true), '');

-- people and keys ---------------------------------------------------------------------------------

create table tenants (
    tenant_id text primary key check (tenant_id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    created_at timestamptz not null default now()
);

create table api_keys (
    tenant_id text not null references tenants,
    key_id text not null,
    secret_hash bytea not null,  -- SHA-256 of 32 random bytes: nothing to guess, nothing to salt
    user_name text check (user_name like 'user:%'),  -- null: bound to no user
    scopes text[] not null check (scopes <@ array['read', 'write', 'admin', 'operator'] and scopes <> '{}'),
    label text not null default '',
    created_at timestamptz not null default now(),
    expires_at timestamptz,
    revoked_at timestamptz,
    primary key (tenant_id, key_id)
);
-- Found before the tenant is known; 16 random bytes do not meet across tenants.
create unique index api_keys_key_id on api_keys (key_id);

-- the log -----------------------------------------------------------------------------------------

create table scopes (
    tenant_id text not null references tenants,
    scope_id uuid not null,  -- a hash of the canonical participants: unique by being the key
    participants text[] not null check (cardinality(participants) > 0),
    last_seq bigint not null default 0,
    fold_no bigint not null default 0,  -- compare-and-swapped by the worker that folds
    last_recorded_at timestamptz not null default '-infinity',
    created_at timestamptz not null default now(),
    xid xid8 not null default pg_current_xact_id(),
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

create table sessions (
    tenant_id text not null,
    session_id text not null check (session_id <> ''),
    scope_id uuid not null,
    participants text[] not null,
    writer text not null,  -- who began it: a user's session takes no name from the others
    created_at timestamptz not null default now(),
    ended_at timestamptz,
    metadata jsonb not null default '{}',
    primary key (tenant_id, session_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);

create table blobs (
    tenant_id text not null references tenants,
    cid text not null,
    writer text not null,  -- who uploaded it: a CID is an address, not a capability
    size bigint not null check (size >= 0),
    created_at timestamptz not null default now(),
    primary key (tenant_id, cid, writer)
);

create table events (
    tenant_id text not null,
    event_id uuid not null,  -- UUIDv7, made by the service
    scope_id uuid not null,
    seq bigint not null check (seq > 0),  -- gapless in its scope, given under the scope's row lock
    participants text[] not null,
    session_id text not null default '',  -- '' is the lane of events without a session
    channel text not null,
    role text not null check (role in ('user', 'agent', 'system')),
    type text not null check (type in ('message', 'thought', 'action', 'observation', 'upload')),
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
    occurred_at timestamptz,  -- the caller's clock, may be absent
    recorded_at timestamptz not null,  -- ours, read under the lock, never falls within a scope
    cid text,
    erased_at timestamptz,  -- erasure's mark, set before it looks for descendants
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, event_id),
    unique (tenant_id, scope_id, seq),
    foreign key (tenant_id, scope_id) references scopes,
    check (erased_at is not null or (cid is not null and (content is null) <> (blob_cid is null)))
);
-- The event before this one in its lane; a session's events in order.
create index events_lane on events (tenant_id, scope_id, session_id, seq);
-- An address to its earliest event.
create index events_cid on events (tenant_id, cid);
create index events_blob on events (tenant_id, blob_cid) where blob_cid is not null;
-- Newest first over a whole tenant, for readers whose view is no list of scopes.
create index events_newest on events (tenant_id, recorded_at desc, scope_id desc, seq desc);

create table event_keys (
    tenant_id text not null,
    writer text not null,
    channel text not null,
    source_event_key text not null,
    event_id uuid not null,
    fingerprint bytea not null,  -- SHA-256 over the whole normalised request
    primary key (tenant_id, writer, channel, source_event_key),
    -- Keys are reserved before seq is given, so that a double leaves no gap: checked at commit.
    foreign key (tenant_id, event_id) references events deferrable initially deferred
);

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

-- what is derived, or on its way to be ------------------------------------------------------------

create table lanes (
    tenant_id text not null,
    scope_id uuid not null,
    session_id text not null,
    participants text[] not null,
    folded_seq bigint not null default 0,
    open jsonb not null default '{}',
    primary key (tenant_id, scope_id, session_id),
    foreign key (tenant_id, scope_id) references scopes
);

create table scope_work (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    due_at timestamptz not null,
    leased_until timestamptz not null default '-infinity',
    attempts int not null default 0,
    last_error text,
    primary key (tenant_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index scope_work_due on scope_work (tenant_id, due_at);

create table scope_progress (
    tenant_id text not null,
    scope_id uuid not null,
    space text not null,  -- an embedding space: provider, model and dimension
    participants text[] not null,
    embedded_seq bigint not null,  -- every event up to here has its row in event_vectors
    primary key (tenant_id, scope_id, space),
    foreign key (tenant_id, scope_id) references scopes
);

create table decisions (
    tenant_id text not null,
    decision_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    event_id uuid not null,
    kind text not null,
    body jsonb not null,
    decided_at timestamptz not null default now(),
    primary key (tenant_id, decision_id),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, event_id) references events
);

create table event_search (
    tenant_id text not null,
    scope_id uuid not null,
    event_id uuid not null,
    piece int not null,  -- large content is indexed in pieces
    start_char int not null,
    end_char int not null,
    participants text[] not null,
    cited_id uuid,  -- the neighbour whose words stand here at weight B
    words tsvector not null,  -- A: the text, B: the event before it, C: the date, D: the speaker
    primary key (tenant_id, scope_id, event_id, piece),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, cited_id) references events
);
create index event_search_words on event_search using gin (tenant_id, words);

create table event_vectors (
    tenant_id text not null,
    space text not null,
    scope_id uuid not null,
    event_id uuid not null,
    participants text[] not null,
    embedding halfvec,
    refusal text,  -- why the model will never embed it
    embedded_at timestamptz not null default now(),
    primary key (tenant_id, space, scope_id, event_id),
    foreign key (tenant_id, event_id) references events,
    check ((embedding is null) <> (refusal is null))
);

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

-- erasure's other half ----------------------------------------------------------------------------
-- Whoever cites an event holds it against erasure (which takes FOR UPDATE), and is refused once it
-- is marked. SECURITY DEFINER because locking a row takes a right that the application lacks. By index,
-- whatever the tables' size was when a connection planned this.

create function refuse_erased_event() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_material = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    erased boolean;
begin
    select bool_or(held.erased_at is not null) into erased from (
        select e.erased_at from events e
        join (select distinct tenant_id, event_id from citing) c using (tenant_id, event_id)
        order by e.tenant_id, e.event_id
        for key share of e
    ) held;
    if erased then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;

create function refuse_erased_citation() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_material = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    erased boolean;
begin
    select bool_or(held.erased_at is not null) into erased from (
        select e.erased_at from events e
        join (select distinct tenant_id, cited_id as event_id from citing) c using (tenant_id, event_id)
        order by e.tenant_id, e.event_id
        for key share of e
    ) held;
    if erased then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;

do $$
declare
    citing text;
begin
    foreach citing in array array[
        'event_keys', 'memory_edges', 'decisions', 'event_search', 'event_vectors', 'embedding_cache'
    ] loop
        execute format(
            'create trigger refuse_erased_event after insert on %I referencing new table as citing '
            'for each statement execute function refuse_erased_event()', citing);
    end loop;
    foreach citing in array array['memory_edges', 'event_search'] loop
        execute format(
            'create trigger refuse_erased_citation after insert on %I referencing new table as citing '
            'for each statement execute function refuse_erased_citation()', citing);
    end loop;
end $$;

-- who sees what -----------------------------------------------------------------------------------
-- The subselect around the viewer makes it one evaluation a statement; the tenant's is left bare,
-- so that the planner knows whose rows it counts.

do $$
declare
    guarded text;
begin
    foreach guarded in array array[
        'scopes', 'scope_members', 'sessions', 'events', 'memory_edges', 'lanes', 'scope_work',
        'scope_progress', 'decisions', 'event_search', 'event_vectors', 'embedding_cache'
    ] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            guarded);
    end loop;
    foreach guarded in array array['event_keys', 'blobs'] loop
        execute format(
            'create policy own on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and writer = current_writer()) '
            'with check (tenant_id = current_tenant() and writer = current_writer())', guarded);
    end loop;
    foreach guarded in array array['tenants', 'api_keys'] loop
        execute format(
            'create policy own_tenant on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())', guarded);
    end loop;
    for guarded in
        select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'
            and relname in (select c.relname from pg_class c join pg_attribute a on a.attrelid = c.oid
                            where a.attname = 'tenant_id')
    loop
        execute format('alter table %I enable row level security', guarded);
        execute format('alter table %I force row level security', guarded);
    end loop;
end $$;

create policy guard_reads on events for select to strandline_guard using (true);
create policy guard_locks on events for update to strandline_guard using (true);
create policy keys_reads on api_keys for select to strandline_keys using (true);
create policy planner_reads on scopes for select to strandline_planner using (true);
create policy planner_reads on scope_work for select to strandline_planner using (true);
create policy planner_reads on scope_progress for select to strandline_planner using (true);
create policy search_reads on events for select to strandline_search using (true);
create policy search_reads on event_search for select to strandline_search using (true);

-- who may do what ---------------------------------------------------------------------------------
-- No UPDATE and no DELETE on the log, for the application; xid and erased_at are not its to write.

grant select on all tables in schema public to strandline_app;
revoke select on api_keys from strandline_app;
grant select (tenant_id, key_id, user_name, scopes, label, created_at, expires_at, revoked_at)
    on api_keys to strandline_app;
grant insert on tenants, api_keys, event_keys, memory_edges, scope_members, sessions, blobs, lanes,
    scope_work, scope_progress, decisions, event_search, event_vectors, embedding_cache to strandline_app;
grant insert (tenant_id, scope_id, participants, created_at) on scopes to strandline_app;
grant insert (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role, type, origin,
    speaker, writer, content, parts, stop_reason, blob_cid, blob_size, mime_type, file_name,
    metadata, occurred_at, recorded_at, cid) on events to strandline_app;
grant update (last_seq, last_recorded_at, fold_no) on scopes to strandline_app;
grant update (ended_at, metadata) on sessions to strandline_app;
grant update (expires_at, revoked_at, label) on api_keys to strandline_app;
grant update (folded_seq, open) on lanes to strandline_app;
grant update (due_at, leased_until, attempts, last_error) on scope_work to strandline_app;
grant update (embedded_seq) on scope_progress to strandline_app;
grant delete on scope_work to strandline_app;

grant select, update (erased_at) on events to strandline_guard;
grant select on api_keys to strandline_keys;
grant select on scopes, scope_work, scope_progress to strandline_planner;
grant select on events, event_search to strandline_search;
