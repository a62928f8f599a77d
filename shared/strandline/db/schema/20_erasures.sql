-- Erasure: what was erased, what is being erased, and what the eraser may do. docs/erasure.md tells the whole.

create table erasures (
    tenant_id text not null references tenants,
    erasure_id uuid not null,  -- UUIDv7, made by the service
    participants text[] not null,  -- on whose behalf: the bound user, or nobody for an unbound credential
    kind text not null check (kind in ('event', 'events', 'session', 'participant', 'scope', 'tenant')),
    target jsonb not null check (jsonb_typeof(target) = 'object'),  -- ids and participants, no other text
    asked_at timestamptz not null,
    asked_by jsonb not null check (jsonb_typeof(asked_by) = 'object'),  -- {"key_id", "user"}
    hidden_at timestamptz not null,  -- since when nothing of it can be read
    cleared_at timestamptz,  -- since when all its events are tombstones; null: it has marks
    cleared_xid xid8,  -- of the transaction that made the last of them
    vacuumed_at timestamptz,  -- when a vacuum began that gave up the rows that it cleared
    vacuums int not null default 0,  -- that were tried
    completed_at timestamptz,
    due_at timestamptz,  -- when the job goes on; null: complete
    counts jsonb not null default '{}' check (jsonb_typeof(counts) = 'object'),  -- rows by table
    receipt jsonb,
    signature text,
    xid xid8 not null default pg_current_xact_id(),
    -- A request that is repeated finds the first one: after a lost answer nothing is in view any more that would
    -- lead to it. HMACs under the deployment's secret: neither a key nor a session's name can be read from them.
    request_hash bytea,  -- of the request's key, or of the session's name
    fingerprint bytea,  -- of all that a request with a key asked for
    primary key (tenant_id, erasure_id),
    check ((completed_at is null) = (receipt is null) and (receipt is null) = (signature is null)),
    check (completed_at is null or cleared_at is not null)
);
create index erasures_due on erasures (due_at, tenant_id) where due_at is not null;
create index erasures_request on erasures (tenant_id, request_hash, erasure_id)
    where request_hash is not null;
-- Lists of erasures, newest first, and those that are not complete, which health and metrics count: by the
-- order of the ids, which are UUIDv7, as the primary key does for who sees all. This one is of what one user
-- asked for, however much others did: `participants` holds that user alone, and the policy's own condition
-- could use no index with an order.
create index erasures_asked on erasures (tenant_id, (participants[1]), erasure_id);
create index erasures_open on erasures (tenant_id, erasure_id) where completed_at is null;

-- What an erasure of many events is about, until all of them are tombstones. Rows that a mark is about are
-- in nobody's view but the background's: see is_erasing.
create table erasure_marks (
    tenant_id text not null,
    erasure_id uuid not null,
    n int not null,
    members text[] not null,  -- of all scopes concerned: on whose behalf it is, and who said it
    scope_id uuid,  -- null: every scope
    session_id text,  -- null: every session
    said_by text,  -- null: whoever said it
    -- What is appended later stays: by the log's transactions, and by its clock where the log was moved to
    -- another cluster.
    snapshot pg_snapshot not null default pg_current_snapshot(),
    recorded_until timestamptz not null,
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, erasure_id, n),
    foreign key (tenant_id, erasure_id) references erasures
);

-- One row for each erased event, in the order of the scope's erasures: the feed of who follows a scope.
-- No foreign key to the event: the guards would refuse it.
create table erased_events (
    tenant_id text not null,
    scope_id uuid not null,
    n bigint not null check (n > 0),  -- gapless in its scope, assigned under the scope's row lock
    participants text[] not null,
    event_id uuid not null,
    seq bigint not null,
    erasure_id uuid not null,
    erased_at timestamptz not null,
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, scope_id, n),
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, erasure_id) references erasures
);
create unique index erased_events_event on erased_events (tenant_id, event_id);
create index erased_events_erasure on erased_events (tenant_id, erasure_id, scope_id, n);
-- What was erased since a list's snapshot.
create index erased_events_xid on erased_events (tenant_id, xid);

-- The keys of erased events, as HMACs under the deployment's secret: a replay stores nothing again.
create table erased_keys (
    tenant_id text not null references tenants,
    writer text not null,
    key_hash bytea not null,
    event_id uuid not null,
    primary key (tenant_id, writer, key_hash)
);

-- Chains that lost events: to be formed anew by the job.
create table erased_chains (
    tenant_id text not null,
    chain_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    erasure_id uuid not null,
    was_promoted boolean not null,
    attempts int not null default 0,
    primary key (tenant_id, chain_id, erasure_id),  -- each erasure waits for the chain
    foreign key (tenant_id, scope_id) references scopes,
    foreign key (tenant_id, erasure_id) references erasures
);
create index erased_chains_erasure on erased_chains (tenant_id, erasure_id);

-- Objects that only erased events cited: to be removed by the job, all versions of each.
create table erased_payloads (
    tenant_id text not null references tenants,
    object text not null,  -- a payload's CID, or `uploads/` and an upload's id
    erasure_id uuid not null,
    -- Since when no append may rely on it (see blob_removals), or no new URL to put it is given out.
    marked_at timestamptz,
    primary key (tenant_id, object, erasure_id),  -- each erasure waits for the object
    foreign key (tenant_id, erasure_id) references erasures
);
create index erased_payloads_erasure on erased_payloads (tenant_id, erasure_id);

do $$
declare
    table_name text;
begin
    foreach table_name in array array['erasures', 'erased_events', 'erased_chains'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner, strandline_eraser '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
    end loop;
    foreach table_name in array array['erased_events', 'erased_chains'] loop
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
    end loop;
    foreach table_name in array array['erasures', 'erasure_marks', 'erased_events', 'erased_chains',
        'erased_keys', 'erased_payloads'] loop
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select on %I to strandline_app', table_name);
    end loop;
end $$;

create policy own_writer on erased_keys to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and writer = current_writer())
    with check (tenant_id = current_tenant() and writer = current_writer());

-- Everybody is to see nothing of what a mark is about, so everybody sees the marks.
create policy own_tenant on erasure_marks to strandline_app, strandline_owner, strandline_append,
        strandline_eraser
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy own_tenant on erased_payloads to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy eraser on erased_keys to strandline_eraser
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy eraser on erased_payloads to strandline_eraser
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on erasures for select to strandline_planner using (true);
grant insert (tenant_id, erasure_id, participants, kind, target, asked_at, asked_by, hidden_at, due_at,
        request_hash, fingerprint),
    update (hidden_at, cleared_at, cleared_xid, vacuumed_at, vacuums, completed_at, due_at, counts, receipt,
        signature)
    on erasures to strandline_app;
grant insert (tenant_id, erasure_id, n, members, scope_id, session_id, said_by, recorded_until), delete
    on erasure_marks to strandline_app;
grant select on erasure_marks to strandline_append, strandline_eraser;
grant insert (tenant_id, chain_id, scope_id, participants, erasure_id, was_promoted),
    update (was_promoted, attempts), delete on erased_chains to strandline_app;
grant update (marked_at), delete on erased_payloads to strandline_app;
grant select on erased_keys to strandline_append;
grant select (tenant_id, due_at) on erasures to strandline_planner;
-- VACUUM, which no function can run, of the tables that erasures clear.
grant maintain on events, event_keys, memory_edges, decisions, sessions, lanes, blobs, uploads, event_search,
    event_texts, event_vectors, embedding_cache, event_uses, chain_events, chains, chain_versions,
    chain_vectors, dropped_chain_state, recalls, topic_events, topic_nodes, topic_tree, snapshot_scopes,
    graph_sources, graph_observations, graph_nodes, graph_edges, topic_fields, topic_field_revisions,
    sona_members, sona_centroids, sona_names, acts, turns, turn_events to strandline_app;

-- marks --------------------------------------------------------------------------------------------
-- A restrictive policy on each table with memory leaves out what a mark is about: of the log the events
-- themselves, of what was made of events all of a scope that has such events, since it may rest on them.
-- Jobs alone see it, to clear it. While a tenant has no mark, which is nearly always, a statement pays one
-- look at an empty index for each table, and no row pays anything: the planner's estimate of `is not null`
-- is that nothing is left out, and the costs of the functions are not added to each row.

-- Whether the caller is to see nothing of events that are being erased.
create function is_erasing() returns boolean
language plpgsql stable parallel safe cost 1 set enable_seqscan = off as $$
begin
    return coalesce(current_setting('strandline.sees_erased', true), '') = '' and exists (
        select from erasure_marks m where m.tenant_id = current_tenant());
end $$;

-- Whether a mark is about events of this scope.
create function is_scope_marked(p_scope_id uuid, p_participants text[]) returns boolean
language plpgsql stable parallel safe cost 1 set enable_seqscan = off as $$
begin
    return exists (
        select from erasure_marks m
        where m.tenant_id = current_tenant() and (m.scope_id is null or m.scope_id = p_scope_id)
            and p_participants @> m.members);
end $$;

-- Whether a mark is about this event.
create function is_event_marked(p_scope_id uuid, p_participants text[], p_session_id text,
    p_recorded_at timestamptz, p_xid xid8, p_speaker text, p_writer text) returns boolean
language plpgsql stable parallel safe cost 1 set enable_seqscan = off as $$
begin
    return exists (
        select from erasure_marks m
        where m.tenant_id = current_tenant() and (m.scope_id is null or m.scope_id = p_scope_id)
            and (m.session_id is null or m.session_id = p_session_id)
            and (m.said_by is null or m.said_by = coalesce(p_speaker, nullif(p_writer, '*')))
            and p_recorded_at <= m.recorded_until and pg_visible_in_snapshot(p_xid, m.snapshot)
            and p_participants @> m.members);
end $$;

create policy is_unmarked on events as restrictive for select to strandline_app using (
    nullif((select is_erasing()) and is_event_marked(scope_id, participants, session_id, recorded_at, xid,
        speaker, writer), true) is not null);

do $$
declare
    table_name text;
begin
    foreach table_name in array array['decisions', 'chains', 'chain_versions', 'chain_events',
        'chain_vectors', 'dropped_chain_state', 'topic_nodes', 'topic_events', 'topic_tree',
        'snapshot_scopes', 'graph_nodes', 'graph_edges', 'graph_observations', 'graph_sources',
        'topic_fields', 'topic_field_revisions', 'graph_analyses', 'graph_communities',
        'graph_members'] loop
        execute format(
            'create policy is_unmarked on %I as restrictive for select to strandline_app using ('
            'nullif((select is_erasing()) and is_scope_marked(scope_id, participants), true) is not null)',
            table_name);
    end loop;
end $$;

-- the eraser ---------------------------------------------------------------------------------------
-- It is nobody's login and owns what reads and clears past the marks. What it may change is held to the
-- caller's tenant and view as the application is; only keys, blobs and uploads, which bear no participants,
-- are held to the tenant.
do $$
declare
    table_name text;
begin
    foreach table_name in array array['scopes', 'events', 'event_search', 'event_texts',
        'embedding_progress', 'event_vectors', 'embedding_cache', 'event_uses', 'memory_edges', 'decisions',
        'chains', 'chain_events', 'chain_versions', 'topic_nodes', 'topic_tree', 'sessions',
        'lanes'] loop
        execute format('create policy eraser on %I to strandline_eraser '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
        execute format('grant select on %I to strandline_eraser', table_name);
    end loop;
    foreach table_name in array array['event_keys', 'blobs', 'uploads', 'snapshots'] loop
        execute format('create policy eraser on %I to strandline_eraser '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())', table_name);
        execute format('grant select on %I to strandline_eraser', table_name);
    end loop;
end $$;
grant update (erased_at, content, parts, stop_reason, blob_cid, blob_size, mime_type, file_name, metadata,
    speaker, session_id, channel, cid, role, type, origin, writer) on events to strandline_eraser;
grant update (stored_bytes, fold_no) on scopes to strandline_eraser;
grant update (words, cited_id), delete on event_search to strandline_eraser;
grant delete on event_texts, event_vectors, embedding_cache, event_uses, memory_edges, event_keys, blobs,
    uploads, chain_versions, sessions, lanes to strandline_eraser;
grant update (body), delete on decisions to strandline_eraser;
grant update (session_id) on chains to strandline_eraser;
grant update (session_id, topic, summary, entities, coherence, rejected, event_count, first_seq, last_seq,
    started_at, last_event_at, content_hash) on chain_versions to strandline_eraser;
grant update (topic, summary, embedding, vector_count, erased_at) on topic_nodes to strandline_eraser;
grant update (erased_at) on snapshots to strandline_eraser;
grant select, insert on erased_events, erased_keys, erased_payloads to strandline_eraser;

-- personas -----------------------------------------------------------------------------------------

-- The eraser is held to the tenant: turns are of whoever asked, names of whoever wrote them.
do $$
declare
    table_name text;
begin
    foreach table_name in array array['turns', 'turn_events', 'sona_names'] loop
        execute format('create policy eraser on %I to strandline_eraser '
            'using (tenant_id = current_tenant()) with check (tenant_id = current_tenant())', table_name);
        execute format('grant select, delete on %I to strandline_eraser', table_name);
    end loop;
    -- as other tables with memory: see marks above
    foreach table_name in array array['sona_members', 'sona_centroids', 'acts'] loop
        execute format(
            'create policy is_unmarked on %I as restrictive for select to strandline_app using ('
            'nullif((select is_erasing()) and is_scope_marked(scope_id, participants), true) is not null)',
            table_name);
    end loop;
end $$;

-- Whether a turn rests on an event that is being erased: who sees a turn sees its events but for these.
create function is_turn_marked(p_turn_id uuid) returns boolean
language plpgsql stable parallel safe cost 1 set enable_seqscan = off as $$
begin
    return exists (
        select from turn_events t
        where t.tenant_id = current_tenant() and t.turn_id = p_turn_id
            and not exists (
                select from events e where e.tenant_id = t.tenant_id and e.event_id = t.event_id));
end $$;

create policy is_unmarked on turns as restrictive for select to strandline_app using (
    nullif((select is_erasing()) and is_turn_marked(turn_id), true) is not null);

-- The places in threads of acts that went with their events: who has read up to one reads on from there.
create table erased_acts (
    tenant_id text not null,
    act_id uuid not null,
    sona_id uuid not null,
    step bigint not null,
    scope_id uuid not null,
    participants text[] not null,
    primary key (tenant_id, act_id),
    foreign key (tenant_id, sona_id) references sonas,
    foreign key (tenant_id, scope_id) references scopes
);

create policy in_view on erased_acts to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on erased_acts as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
alter table erased_acts enable row level security, force row level security;
grant select, insert on erased_acts to strandline_app;
