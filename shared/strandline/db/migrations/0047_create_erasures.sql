-- Erasure: what was erased, and the functions that do it. docs/erasure.md tells the whole.
--
-- One transaction turns up to a thousand events into tombstones: the service locks the scopes, the chains
-- and the graph that rest on them, calls erase_events for the log and blank_chains for the texts that
-- nobody else may change, and deletes the rest itself. Of more events it writes a mark, which row-level
-- security honours at once, and a job turns them into tombstones by and by. The job also does what takes
-- time: payloads, and what is formed anew.

-- the right ----------------------------------------------------------------------------------------

alter table api_keys drop constraint api_keys_scopes_check;
alter table api_keys add constraint api_keys_scopes_check
    check (scopes <@ array['read', 'write', 'admin', 'operator', 'erase'] and scopes <> '{}');
alter table certificate_principals drop constraint certificate_principals_scopes_check;
alter table certificate_principals add constraint certificate_principals_scopes_check
    check (scopes <@ array['read', 'write', 'admin', 'operator', 'erase'] and scopes <> '{}');

-- records ------------------------------------------------------------------------------------------

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
    primary key (tenant_id, erasure_id),
    check ((completed_at is null) = (receipt is null) and (receipt is null) = (signature is null)),
    check (completed_at is null or cleared_at is not null)
);
create index erasures_due on erasures (due_at, tenant_id) where due_at is not null;

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

alter table topic_nodes add column erased_at timestamptz;  -- its text is gone, since an event below it is
alter table snapshots add column erased_at timestamptz;  -- it held an erased event: never active again

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
grant insert (tenant_id, erasure_id, participants, kind, target, asked_at, asked_by, hidden_at, due_at),
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
grant delete on sessions to strandline_app;
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
-- It is nobody's login and owns what reads and clears past the marks. What it may change is held to the caller's tenant and view
-- as the application is; only keys, blobs and uploads, which bear no participants, are held to the tenant.

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

grant create on schema public to strandline_eraser;

-- Turn these events into tombstones and delete what the log and its indexes hold of them. Of an erased
-- event its id, scope, seq and times stay. Events that are erased already, or not in the caller's view,
-- are left alone. p_inner and p_outer are the padded halves of the key of an HMAC-SHA256 (RFC 2104).
-- Returns how many rows of each table it concerned. The caller holds the scopes' locks.
create function erase_events(
    p_erasure_id uuid, p_event_ids uuid[], p_at timestamptz, p_inner bytea, p_outer bytea)
returns table (name text, total bigint)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_tenant constant text := current_tenant();
    -- Longer than any session's name: no append looks for the event before it among tombstones.
    c_no_lane constant text := repeat('-', 129);
    v_ids uuid[];
    v_scopes uuid[];
    v_next uuid[];  -- events whose index holds the words of an erased one before them
    v_next_scopes uuid[];
    v_previous uuid[];  -- whose words stand there instead
    v_cids text[];
    v_writers text[];
    v_lane_scopes uuid[];
    v_sessions text[];
    v_count bigint;
begin
    -- The lock first: whoever cites one of these holds it until its commit, and is seen below.
    select array_agg(e.event_id), array_agg(e.scope_id) into v_ids, v_scopes
    from (
        select e.event_id, e.scope_id from events e
        where e.tenant_id = v_tenant and e.event_id = any (p_event_ids) and e.erased_at is null
        order by e.event_id for update) e;
    if v_ids is null then
        return;
    end if;

    select array_agg(n.event_id), array_agg(n.scope_id), array_agg(p.event_id)
    into v_next, v_next_scopes, v_previous
    from (
        select e.scope_id, e.session_id, e.seq, next.event_id from events e
        cross join lateral (
            select n.event_id from events n
            where n.tenant_id = v_tenant and n.scope_id = e.scope_id and n.session_id = e.session_id
                and n.seq > e.seq and not is_statement(n.type) and n.erased_at is null
            order by n.seq limit 1) next
        where e.tenant_id = v_tenant and e.event_id = any (v_ids) and not is_statement(e.type)
            and next.event_id <> all (v_ids)
        offset 0) n
    left join lateral (
        select p.event_id from events p
        where p.tenant_id = v_tenant and p.scope_id = n.scope_id and p.session_id = n.session_id
            and p.seq < n.seq and not is_statement(p.type) and p.erased_at is null
            and p.event_id <> all (v_ids)
        order by p.seq desc limit 1) p on true;
    select array_agg(b.blob_cid), array_agg(b.writer) into v_cids, v_writers
    from (
        select distinct e.blob_cid, e.writer from events e
        where e.tenant_id = v_tenant and e.event_id = any (v_ids) and e.blob_cid is not null) b;

    select array_agg(l.scope_id), array_agg(l.session_id) into v_lane_scopes, v_sessions
    from (
        select distinct e.scope_id, e.session_id from events e
        where e.tenant_id = v_tenant and e.event_id = any (v_ids)) l;

    insert into erased_events
        (tenant_id, scope_id, n, participants, event_id, seq, erasure_id, erased_at)
    select v_tenant, e.scope_id, coalesce(last.n, 0)
            + row_number() over (partition by e.scope_id order by e.seq),
        e.participants, e.event_id, e.seq, p_erasure_id, p_at
    from events e
    left join lateral (
        select d.n from erased_events d
        where d.tenant_id = v_tenant and d.scope_id = e.scope_id order by d.n desc limit 1) last on true
    where e.tenant_id = v_tenant and e.event_id = any (v_ids);

    -- A fold that read these events before loses its compare-and-swap.
    update scopes s set fold_no = s.fold_no + 1,
        stored_bytes = greatest(0, s.stored_bytes - freed.bytes)
    from (
        select e.scope_id, sum(coalesce(octet_length(e.content), e.blob_size, 0)
            + octet_length(e.metadata::text)) as bytes
        from events e where e.tenant_id = v_tenant and e.event_id = any (v_ids) group by e.scope_id) freed
    where s.tenant_id = v_tenant and s.scope_id = freed.scope_id;

    with gone as (
        delete from event_keys k where k.tenant_id = v_tenant and k.event_id = any (v_ids)
        returning k.writer, k.channel, k.source_event_key, k.event_id)
    insert into erased_keys (tenant_id, writer, key_hash, event_id)
    select v_tenant, g.writer, sha256(p_outer || sha256(p_inner || convert_to(g.writer, 'UTF8')
            || '\x00'::bytea || convert_to(g.channel, 'UTF8') || '\x00'::bytea
            || convert_to(g.source_event_key, 'UTF8'))), g.event_id
    from gone g on conflict do nothing;
    get diagnostics v_count = row_count;
    return query select 'event_keys', v_count;

    update events e set erased_at = p_at, content = null, parts = '[]', stop_reason = null,
        blob_cid = null, blob_size = null, mime_type = null, file_name = null, metadata = '{}',
        speaker = null, session_id = c_no_lane, channel = '', cid = null, role = 'system', type = 'message',
        origin = 'system', writer = '*'
    where e.tenant_id = v_tenant and e.event_id = any (v_ids);
    get diagnostics v_count = row_count;
    return query select 'events', v_count;
    -- A session goes with its last event, since its name was a part of it.
    delete from lanes l using unnest(v_lane_scopes, v_sessions) i (scope_id, session_id)
    where l.tenant_id = v_tenant and l.scope_id = i.scope_id and l.session_id = i.session_id
        and not exists (
            select from events e
            where e.tenant_id = v_tenant and e.scope_id = i.scope_id and e.session_id = i.session_id);
    get diagnostics v_count = row_count;
    return query select 'lanes', v_count;
    delete from sessions s using unnest(v_lane_scopes, v_sessions) i (scope_id, session_id)
    where s.tenant_id = v_tenant and s.scope_id = i.scope_id and s.session_id = i.session_id
        and not exists (
            select from events e
            where e.tenant_id = v_tenant and e.scope_id = i.scope_id and e.session_id = i.session_id);
    get diagnostics v_count = row_count;
    return query select 'sessions', v_count;

    delete from event_search s using unnest(v_scopes, v_ids) i (scope_id, event_id)
    where s.tenant_id = v_tenant and s.scope_id = i.scope_id and s.event_id = i.event_id;
    get diagnostics v_count = row_count;
    return query select 'event_search', v_count;
    update event_search s set cited_id = u.previous_id,
        words = ts_filter(s.words, '{a,c,d}') || coalesce((
            select setweight(ts_filter(p.words, '{a,d}'), 'B') from event_search p
            where p.tenant_id = v_tenant and p.scope_id = u.scope_id and p.event_id = u.previous_id
                and p.piece = 0), '')
    from unnest(v_next_scopes, v_next, v_previous) u (scope_id, next_id, previous_id)
    where s.tenant_id = v_tenant and s.scope_id = u.scope_id and s.event_id = u.next_id and s.piece = 0
        and s.cited_id = any (v_ids);
    get diagnostics v_count = row_count;
    return query select 'event_search_renewed', v_count;
    delete from event_texts t using unnest(v_scopes, v_ids) i (scope_id, event_id)
    where t.tenant_id = v_tenant and t.scope_id = i.scope_id and t.event_id = i.event_id;
    get diagnostics v_count = row_count;
    return query select 'event_texts', v_count;
    delete from event_vectors v
    using unnest(v_scopes, v_ids) i (scope_id, event_id),
        (select distinct p.space from embedding_progress p
         where p.tenant_id = v_tenant and p.scope_id = any (v_scopes)) spaces
    where v.tenant_id = v_tenant and v.space = spaces.space and v.scope_id = i.scope_id
        and v.event_id = i.event_id;
    get diagnostics v_count = row_count;
    return query select 'event_vectors', v_count;
    delete from embedding_cache c where c.tenant_id = v_tenant and c.event_id = any (v_ids);
    get diagnostics v_count = row_count;
    return query select 'embedding_cache', v_count;
    delete from event_uses u where u.tenant_id = v_tenant
        and (u.event_id = any (v_ids) or u.cited_id = any (v_ids));
    get diagnostics v_count = row_count;
    return query select 'event_uses', v_count;
    -- Edges of others to these keep the CID that their block commits to.
    delete from memory_edges m where m.tenant_id = v_tenant and m.event_id = any (v_ids);
    get diagnostics v_count = row_count;
    return query select 'memory_edges', v_count;
    -- Thresholds hold for the events after these too, and say nothing of them.
    delete from decisions d using unnest(v_scopes, v_ids) i (scope_id, event_id)
    where d.tenant_id = v_tenant and d.scope_id = i.scope_id and d.event_id = i.event_id
        and d.kind <> 'settings';
    get diagnostics v_count = row_count;
    return query select 'decisions', v_count;

    delete from blobs b using unnest(v_cids, v_writers) u (cid, writer)
    where b.tenant_id = v_tenant and b.cid = u.cid and b.writer = u.writer and not exists (
        select from events e
        where e.tenant_id = v_tenant and e.blob_cid = u.cid and e.writer = u.writer);
    get diagnostics v_count = row_count;
    return query select 'blobs', v_count;
    -- Whether others still cite a payload is for the job to see, which sees them all.
    insert into erased_payloads (tenant_id, object, erasure_id)
    select distinct v_tenant, cid, p_erasure_id from unnest(v_cids) cid on conflict do nothing;
    with gone as (
        delete from uploads a using unnest(v_cids, v_writers) u (cid, writer)
        where a.tenant_id = v_tenant and a.writer = u.writer and a.cid = u.cid
        returning a.upload_id)
    insert into erased_payloads (tenant_id, object, erasure_id)
    select v_tenant, 'uploads/' || g.upload_id, p_erasure_id from gone g on conflict do nothing;
    get diagnostics v_count = row_count;
    return query select 'uploads', v_count;
end $$;

-- Empty the texts of chains that have lost events, in every version, every decision and every node of a
-- topic tree that rests on them; what they count is counted anew from the events that they keep. Chains
-- without events are the caller's to delete. Returns how many rows of each table it concerned.
create function blank_chains(p_chain_ids uuid[], p_scope_ids uuid[], p_at timestamptz)
returns table (name text, total bigint)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_tenant constant text := current_tenant();
    v_count bigint;
begin
    -- A version all of whose events are gone, and which is not the newest, is no version.
    delete from chain_versions v
    where v.tenant_id = v_tenant and v.chain_id = any (p_chain_ids) and not exists (
        select from chain_events c
        where c.tenant_id = v_tenant and c.chain_id = v.chain_id and c.since_version <= v.version);
    update chain_versions v set topic = null, summary = '', entities = '[]', coherence = null,
        rejected = 'erased', session_id = kept.session_id, event_count = kept.events, first_seq = kept.first_seq,
        last_seq = kept.last_seq, started_at = kept.started_at, last_event_at = kept.last_event_at,
        content_hash = sha256(v.content_hash || 'erased'::bytea)
    from (
        select v.chain_id, v.version, (array_agg(e.session_id order by c.seq))[1] as session_id,
            count(*) as events, min(c.seq) as first_seq, max(c.seq) as last_seq,
            min(coalesce(e.occurred_at, e.recorded_at)) as started_at,
            max(coalesce(e.occurred_at, e.recorded_at)) as last_event_at
        from chain_versions v
        join chain_events c on c.tenant_id = v.tenant_id and c.chain_id = v.chain_id
            and c.since_version <= v.version
        join events e on e.tenant_id = c.tenant_id and e.event_id = c.event_id
        where v.tenant_id = v_tenant and v.chain_id = any (p_chain_ids)
        group by v.chain_id, v.version) kept
    where v.tenant_id = v_tenant and v.chain_id = kept.chain_id and v.version = kept.version;
    get diagnostics v_count = row_count;
    return query select 'chain_versions', v_count;
    update chains c set session_id = v.session_id from chain_versions v
    where c.tenant_id = v_tenant and c.chain_id = any (p_chain_ids) and v.tenant_id = v_tenant
        and v.chain_id = c.chain_id and v.version = c.version and v.session_id <> c.session_id;

    update decisions d set body = case d.kind
        when 'formed' then d.body || '{"topic": null, "summary": "", "entities": [], "rejected": "erased"}'
        else jsonb_set(d.body, '{formed}', d.body -> 'formed'
            || '{"topic": null, "summary": "", "entities": [], "rejected": "erased"}') end
    from chain_events c
    where c.tenant_id = v_tenant and c.chain_id = any (p_chain_ids) and d.tenant_id = v_tenant
        and d.scope_id = c.scope_id and d.event_id = c.event_id and d.kind in ('formed', 'reformed');
    get diagnostics v_count = row_count;
    return query select 'decisions_blanked', v_count;
    delete from decisions d using chain_events c
    where c.tenant_id = v_tenant and c.chain_id = any (p_chain_ids) and d.tenant_id = v_tenant
        and d.scope_id = c.scope_id and d.event_id = c.event_id and d.kind = 'extracted';
    get diagnostics v_count = row_count;
    return query select 'decisions_extracted', v_count;

    update snapshots s set erased_at = p_at
    where s.tenant_id = v_tenant and s.erased_at is null and exists (
        select from topic_tree t
        where t.tenant_id = v_tenant and t.scope_id = any (p_scope_ids) and t.slot = any (p_chain_ids)
            and t.is_leaf and t.from_version <= s.version
            and (t.to_version is null or t.to_version > s.version));
    get diagnostics v_count = row_count;
    return query select 'snapshots', v_count;
    -- The leaves and all above them, in every version.
    with recursive above as (
        select t.scope_id, t.slot, t.parent_slot, t.node_id, t.from_version, t.to_version
        from topic_tree t
        where t.tenant_id = v_tenant and t.scope_id = any (p_scope_ids) and t.slot = any (p_chain_ids)
        union
        select t.scope_id, t.slot, t.parent_slot, t.node_id, t.from_version, t.to_version
        from above a join topic_tree t on t.tenant_id = v_tenant and t.scope_id = a.scope_id
            and t.slot = a.parent_slot
            and (a.to_version is null or t.from_version < a.to_version)
            and (t.to_version is null or t.to_version > a.from_version))
    update topic_nodes n set topic = null, summary = null, embedding = null, vector_count = 0,
        erased_at = p_at
    where n.tenant_id = v_tenant and n.scope_id = any (p_scope_ids) and n.erased_at is null
        and (n.node_id in (select above.node_id from above) or n.chain_id = any (p_chain_ids));
    get diagnostics v_count = row_count;
    return query select 'topic_nodes', v_count;
end $$;

-- Delete what was decided about runs and chains that are not folded again yet, from the first of these
-- events on: no link says which of it rests on them. The fold decides anew. Returns how many decisions,
-- and the chains that were promoted with one of these events. The caller holds the scopes' locks.
create function drop_pending_decisions(p_event_ids uuid[], out total bigint, out chain_ids uuid[])
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
declare
    v_tenant constant text := current_tenant();
begin
    with pending as materialized (
        select s.scope_id, greatest(min(e.seq), case when s.folded_seq < s.max_folded_seq then 0
            else least(s.folded_seq, (  -- what is open may have been decided below folded_seq
                select min((l.open ->> 'after')::bigint) from lanes l
                where l.tenant_id = v_tenant and l.scope_id = s.scope_id)) end) as from_seq
        from events e
        join scopes s on s.tenant_id = v_tenant and s.scope_id = e.scope_id
        where e.tenant_id = v_tenant and e.event_id = any (p_event_ids)
        group by s.scope_id, s.folded_seq, s.max_folded_seq),
    gone as (
        delete from decisions d using pending p
        where d.tenant_id = v_tenant and d.scope_id = p.scope_id and d.at_seq >= p.from_seq
            and case d.kind
                when 'formed' then not exists (
                    select from chain_events c where c.tenant_id = v_tenant and c.event_id = d.event_id)
                when 'reformed' then not exists (
                    select from chains c
                    where c.tenant_id = v_tenant and c.chain_id = (d.body ->> 'chain_id')::uuid
                        and c.version >= (d.body ->> 'version')::int)
                when 'extracted' then d.body -> 'events' ?| p_event_ids::text[] or not exists (
                    select from chain_events c where c.tenant_id = v_tenant and c.event_id = d.event_id)
                else false end
        returning case when d.kind = 'extracted' and d.body -> 'events' ?| p_event_ids::text[]
            then (d.body ->> 'chain_id')::uuid end as chain_id)
    select count(*), coalesce(array_agg(distinct g.chain_id) filter (where g.chain_id is not null), '{}')
    into total, chain_ids from gone g;
end $$;

-- Those of these events that the caller could see if no mark were about them: an answer to who asks for
-- one by its id.
create function events_marked(p_event_ids uuid[])
returns table (event_id uuid, scope_id uuid, seq bigint, erasure_id uuid, erased_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select distinct on (e.event_id) e.event_id, e.scope_id, e.seq, m.erasure_id, m.recorded_until
    from events e
    join erasure_marks m on m.tenant_id = e.tenant_id
        and (m.scope_id is null or m.scope_id = e.scope_id)
        and (m.session_id is null or m.session_id = e.session_id)
        and (m.said_by is null or m.said_by = coalesce(e.speaker, nullif(e.writer, '*')))
        and e.recorded_at <= m.recorded_until and pg_visible_in_snapshot(e.xid, m.snapshot)
        and e.participants @> m.members
    where e.tenant_id = current_tenant() and e.event_id = any (p_event_ids) and e.erased_at is null
    order by e.event_id, m.recorded_until
$$;

-- Whether marks are about all that a session has, which goes with the last of it: its name and metadata
-- are as little in view as its events.
create function is_session_marked(p_scope_id uuid, p_participants text[], p_session_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_has_events boolean := false;
    v_is_marked boolean;
begin
    if not is_scope_marked(p_scope_id, p_participants) then
        return false;
    end if;
    for v_is_marked in
        select is_event_marked(e.scope_id, e.participants, e.session_id, e.recorded_at, e.xid, e.speaker,
            e.writer)
        from events e
        where e.tenant_id = current_tenant() and e.scope_id = p_scope_id and e.session_id = p_session_id
            and e.erased_at is null
        order by e.seq desc  -- what is said after the mark comes first
    loop
        v_has_events := true;
        exit when not v_is_marked;
    end loop;
    return v_has_events and v_is_marked;
end $$;

revoke execute on function erase_events, blank_chains, drop_pending_decisions, events_marked,
    is_session_marked from public;
grant execute on function erase_events, blank_chains, drop_pending_decisions, events_marked,
    is_session_marked to strandline_app;
alter function erase_events owner to strandline_eraser;
alter function blank_chains owner to strandline_eraser;
alter function drop_pending_decisions owner to strandline_eraser;
alter function events_marked owner to strandline_eraser;
alter function is_session_marked owner to strandline_eraser;
revoke create on schema public from strandline_eraser;

-- replays ------------------------------------------------------------------------------------------

-- The HMAC of the item's key, made by the service as erase_events makes it; null: the item has no key.
alter type append_item add attribute key_hash text;

-- The items whose key is that of an erased event, as append_refusals gives what it refuses.
create function erased_key_refusals(p_items append_item[]) returns jsonb
language plpgsql stable as $$
declare
    v_refused jsonb := (
        select coalesce(jsonb_object_agg(i.n, 'erased'), '{}')
        from unnest(p_items) i
        join erased_keys k on k.tenant_id = current_tenant() and k.writer = current_writer()
            and k.key_hash = decode(i.key_hash, 'hex')
        where i.key_hash is not null);
begin
    if is_erasing() then  -- and of one that is marked: its key is still there, and it is not in view
        v_refused := v_refused || (
            select coalesce(jsonb_object_agg(i.n, 'erased'), '{}')
            from unnest(p_items) i
            join event_keys k on k.tenant_id = current_tenant() and k.writer = current_writer()
                and k.channel = i.key_channel and k.source_event_key = i.source_event_key
                and k.event_id <> i.event_id
            where not exists (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = k.event_id));
    end if;
    return v_refused;
end $$;

-- As before, and an item whose key is that of an erased event is refused.
create or replace function append_items(p_items append_item[], p_refused jsonb, p_new_sessions boolean)
returns append_outcome[]
language plpgsql as $$
declare
    v_item append_item;
    v_reserved uuid[];
    v_new append_item[] := p_items;
    v_outcomes append_outcome[] := '{}';
begin
    p_refused := p_refused || erased_key_refusals(p_items);
    if cardinality(p_items) = 1 and p_refused = '{}' then
        v_item := p_items[1];
        if v_item.source_event_key is not null then
            insert into event_keys
                (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
            values (current_tenant(), current_writer(), v_item.key_channel, v_item.source_event_key,
                v_item.event_id, decode(v_item.fingerprint, 'hex'))
            on conflict do nothing
            returning array[event_id] into v_reserved;
        end if;
    else
        with reserved_keys as (
            insert into event_keys
                (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
            select current_tenant(), current_writer(), i.key_channel, i.source_event_key, i.event_id,
                decode(i.fingerprint, 'hex')
            from unnest(p_items) i
            where i.source_event_key is not null and not p_refused ? i.n::text
            order by i.key_channel, i.source_event_key, i.n  -- one order for all batches: no deadlock
            on conflict do nothing
            returning event_keys.event_id)
        select array_agg(r.event_id) into v_reserved from reserved_keys r;
    end if;

    if p_refused <> '{}' or coalesce(cardinality(v_reserved), 0) < cardinality(p_items) then
        v_new := array(
            select i from unnest(p_items) i
            where not p_refused ? i.n::text
                and (i.source_event_key is null or i.event_id = any (v_reserved)));
    end if;
    if cardinality(v_new) > 1 then  -- all appends lock scopes in one order
        v_new := array(select i from unnest(v_new) i order by i.scope_id, i.n);
    end if;
    if cardinality(v_new) > 0 then
        v_outcomes := store_events(v_new, p_new_sessions);
        if erased_key_refusals(v_new) <> '{}' then  -- while this append waited for a key's row
            raise exception 'the event of this key was just erased' using errcode = '40001';
        end if;
        if exists (  -- while this append waited for the scope
            select from unnest(v_new) i
            where i.session_id <> '' and not exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id)) then
            raise exception 'the session of this event was just erased' using errcode = '40001';
        end if;
    end if;
    if cardinality(v_new) < cardinality(p_items) then
        v_outcomes := v_outcomes || append_failures(p_items, p_refused, v_reserved);
    end if;
    return v_outcomes;
end $$;

-- As before, and a key whose event is marked is that of an erased event, though it is still there.
create or replace function append_failures(p_items append_item[], p_refused jsonb, p_reserved uuid[])
returns append_outcome[]
language plpgsql
set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off set enable_bitmapscan = off as $$
begin
    return array(
        with failed_items as materialized (
            select i.n, i.event_id, i.participants, i.fingerprint, k.event_id as key_event_id,
                k.fingerprint as key_fingerprint
            from unnest(p_items) i
            left join event_keys k on k.tenant_id = current_tenant()
                and k.writer = current_writer() and k.channel = i.key_channel
                and k.source_event_key = i.source_event_key
            where p_refused ? i.n::text
                or (i.source_event_key is not null
                    and not i.event_id = any (coalesce(p_reserved, '{}')))),
        outcomes as (
            select i.*, e as event,
                case
                    when i.key_event_id is null or p_refused ->> i.n::text = 'erased'
                        then p_refused ->> i.n::text
                    when i.key_fingerprint = decode(i.fingerprint, 'hex') then 'replayed'
                    else 'conflict'
                end as outcome
            from failed_items i
            left join events e on e.tenant_id = current_tenant() and e.event_id = i.key_event_id)
        select row(t.n, t.outcome, (t.event).event_id, (t.event).scope_id, (t.event).seq,
            (t.event).cid, (t.event).recorded_at, (t.event).blob_size,
            -- A conflict shows the stored event only to callers that may see it: a bound user, or an
            -- unbound credential whose request names participants who all see it.
            case when t.outcome = 'conflict'
                    and (current_writer() <> '*' or (t.event).participants @> t.participants)
                then to_jsonb(t.event) || jsonb_build_object('edges', coalesce((
                    select jsonb_agg(jsonb_build_object('event_id', m.cited_id, 'weight', m.weight))
                    from memory_edges m
                    where m.tenant_id = current_tenant() and m.event_id = t.key_event_id), '[]'))
            end,
            false)::append_outcome
        from outcomes t);
end $$;

grant create on schema public to strandline_append;
set local role strandline_append;
-- As before, but a key of an erased event takes the general path, and all do while events are being erased:
-- what this one reads is not held to the marks.
create or replace function append_fast_path(p_item jsonb) returns append_outcome
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_item append_item := jsonb_populate_record(null::append_item, p_item);
    v_tenant text := current_tenant();
    v_writer text := current_writer();
    v_key_hash bytea := decode(v_item.key_hash, 'hex');
    v_piece jsonb := v_item.pieces -> 0;
    v_seq bigint;
    v_recorded_at timestamptz;
    v_previous_id uuid;
    v_previous_words tsvector;
    v_is_enqueued boolean;
    v_is_erased boolean;
begin
    if (v_item.edges = '[]' and v_item.blob_cid is null and jsonb_array_length(v_item.pieces) = 1)
            is not true then
        return null;
    end if;
    if exists (select from erasure_marks m where m.tenant_id = v_tenant) then
        return null;
    end if;
    -- The key before the scope: a duplicate takes no seq. A session that is new or has ended, and a key
    -- of an erased event, may have to be refused, which append_batch does.
    if v_item.source_event_key is not null then
        insert into event_keys (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
        select v_tenant, v_writer, v_item.key_channel, v_item.source_event_key, v_item.event_id,
            decode(v_item.fingerprint, 'hex')
        where (v_item.session_id = '' or exists (
                select from sessions s
                where s.tenant_id = v_tenant and s.session_id = v_item.session_id
                    and s.scope_id = v_item.scope_id and s.ended_at is null))
            and not exists (
                select from erased_keys k
                where k.tenant_id = v_tenant and k.writer = v_writer and k.key_hash = v_key_hash)
        on conflict do nothing;
        if not found then
            return null;
        end if;
    elsif v_item.session_id <> '' then
        perform from sessions s
        where s.tenant_id = v_tenant and s.session_id = v_item.session_id
            and s.scope_id = v_item.scope_id and s.ended_at is null;
        if not found then
            return null;
        end if;
    end if;
    for v_attempt in 1 .. 2 loop
        -- The clock is read under the lock: within a scope recorded_at never decreases.
        update scopes s
        set last_seq = s.last_seq + 1,
            last_recorded_at = greatest(clock_timestamp(), s.last_recorded_at),
            stored_bytes = s.stored_bytes + v_item.bytes
        where s.tenant_id = v_tenant and s.scope_id = v_item.scope_id
            and s.participants = v_item.participants
        returning s.last_seq, s.last_recorded_at into v_seq, v_recorded_at;
        exit when found;
        insert into scopes (tenant_id, scope_id, participants)
        values (v_tenant, v_item.scope_id, v_item.participants)
        on conflict do nothing;
        if found then
            insert into scope_members (tenant_id, participant, scope_id, participants)
            select v_tenant, member, v_item.scope_id, v_item.participants
            from unnest(v_item.participants) member;
        end if;
    end loop;
    if v_seq is null then
        raise exception 'the scope is not in view' using errcode = 'insufficient_privilege';
    end if;
    -- The event before it in its lane, locked until the commit: erasure waits for it, or came first and
    -- is seen here.
    if v_item.type <> 'statement' then
        select s.event_id, ts_filter(s.words, '{a,d}') into v_previous_id, v_previous_words
        from event_search s
        where s.tenant_id = v_tenant and s.scope_id = v_item.scope_id and s.piece = 0
            and s.event_id = (
                select e.event_id from events e
                where e.tenant_id = v_tenant and e.scope_id = v_item.scope_id
                    and e.session_id = v_item.session_id and not is_statement(e.type)
                    and e.seq < v_seq and e.erased_at is null
                order by e.seq desc limit 1 for key share);
    end if;
    with new_event as (
        insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
            type, origin, speaker, writer, content, parts, stop_reason, mime_type, file_name, metadata,
            occurred_at, recorded_at, cid)
        values (v_tenant, v_item.event_id, v_item.scope_id, v_seq, v_item.participants,
            v_item.session_id, v_item.channel, v_item.role, v_item.type, v_item.origin, v_item.speaker,
            v_writer, v_item.content, v_item.parts, v_item.stop_reason, v_item.mime_type,
            v_item.file_name, v_item.metadata, v_item.occurred_at, v_recorded_at, v_item.cid))
    insert into event_search
        (tenant_id, scope_id, event_id, piece, start_char, end_char, participants, cited_id, words)
    values (v_tenant, v_item.scope_id, v_item.event_id, 0, (v_piece -> 'start')::int, (v_piece -> 'end')::int,
        v_item.participants, v_previous_id, event_tsvector(v_item.label, v_piece ->> 'text')
            || setweight(to_tsvector('pg_catalog.english', to_char(
                coalesce(v_item.occurred_at, v_recorded_at) at time zone 'UTC', 'FMDD FMMonth YYYY')), 'C')
            || setweight(coalesce(v_previous_words, ''), 'B'))
    returning exists (
            select from scope_work w where w.tenant_id = v_tenant and w.scope_id = v_item.scope_id),
        exists (
            select from erased_keys k
            where k.tenant_id = v_tenant and k.writer = v_writer and k.key_hash = v_key_hash)
        or (v_item.session_id <> '' and not exists (
            select from sessions s
            where s.tenant_id = v_tenant and s.session_id = v_item.session_id
                and s.scope_id = v_item.scope_id))
    into v_is_enqueued, v_is_erased;
    if v_is_erased then  -- while this append waited for the key's row or the scope
        raise exception 'the event of this key, or its session, was just erased' using errcode = '40001';
    end if;
    if not v_is_enqueued then
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        values (v_tenant, v_item.scope_id, v_item.participants, clock_timestamp())
        on conflict do nothing;
        v_is_enqueued := not found;
    end if;
    return row(v_item.n, 'created', v_item.event_id, v_item.scope_id, v_seq, v_item.cid, v_recorded_at,
        null, null, not v_is_enqueued)::append_outcome;
end $$;
reset role;
revoke create on schema public from strandline_append;

-- searches -----------------------------------------------------------------------------------------

-- What is erased and still has its CID: nothing, but for what was marked by hand. A tombstone is in no
-- index, so that searches need not know how many there are.
create index events_marked on events (tenant_id, scope_id, event_id)
    where erased_at is not null and cid is not null;

-- How many events of these scopes (null: all in view) are tombstones.
create function count_erased(p_scope_ids uuid[]) returns bigint
language plpgsql stable parallel safe set enable_seqscan = off as $$
begin
    if not exists (select from erased_events d where d.tenant_id = current_tenant()) then
        return 0;
    end if;
    if p_scope_ids is null then
        return (select count(*) from erased_events d where d.tenant_id = current_tenant());
    end if;
    return (
        select count(*) from erased_events d
        where d.tenant_id = current_tenant() and d.scope_id = any (p_scope_ids));
end $$;

grant create on schema public to strandline_search;
set local role strandline_search;
-- As before, but each leaves out what is in that index, and does not read the tombstones.
do $$
declare
    v_function text;
    v_before text;
    v_after text;
begin
    foreach v_function in array array[
        'search_words(text[], uuid[], jsonb, bigint, int)',
        'search_words_in_large_view(text[], uuid[], bigint, int)',
        'nearest_by_code(halfvec, text, uuid[], int)'] loop
        v_before := pg_get_functiondef(v_function::regprocedure);
        v_after := replace(v_before, 'e.erased_at is not null',
            'e.erased_at is not null and e.cid is not null');
        if v_after = v_before then
            raise exception '% does not leave out what is erased', v_function;
        end if;
        execute v_after;
    end loop;
end $$;
reset role;
revoke create on schema public from strandline_search;

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

-- Forget the turns that rest on these events, whoever asked: an answer to one participant may cite what
-- another one erases. The events are those in the caller's view.
grant create on schema public to strandline_eraser;
create function forget_turns(p_event_ids uuid[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_tenant constant text := current_tenant();
    v_turns uuid[];
begin
    select array_agg(distinct t.turn_id) into v_turns
    from turn_events t
    join events e on e.tenant_id = t.tenant_id and e.event_id = t.event_id
    where t.tenant_id = v_tenant and t.event_id = any (p_event_ids);
    delete from turn_events t where t.tenant_id = v_tenant and t.turn_id = any (v_turns);
    delete from turns t where t.tenant_id = v_tenant and t.turn_id = any (v_turns);
    return coalesce(cardinality(v_turns), 0);
end $$;

-- Forget all names of sonas, for who erases a whole tenant. Returns how many.
create function forget_sona_names() returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    delete from sona_names n where n.tenant_id = current_tenant() and current_viewer() = '{}';
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- Forget all turns, for who erases a whole tenant: what waits for its answer, and an answer that cites
-- nothing, rest on no event. Returns how many.
create function forget_all_turns() returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    delete from turn_events t where t.tenant_id = current_tenant() and current_viewer() = '{}';
    delete from turns t where t.tenant_id = current_tenant() and current_viewer() = '{}';
    get diagnostics v_count = row_count;
    return v_count;
end $$;
revoke execute on function forget_turns, forget_sona_names, forget_all_turns from public;
grant execute on function forget_turns, forget_sona_names, forget_all_turns to strandline_app;
alter function forget_turns owner to strandline_eraser;
alter function forget_sona_names owner to strandline_eraser;
alter function forget_all_turns owner to strandline_eraser;
revoke create on schema public from strandline_eraser;

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
alter table erased_acts enable row level security;
alter table erased_acts force row level security;
grant select, insert on erased_acts to strandline_app;

-- Forget these events in sonas, threads and turns. The caller holds the locks of the events' rows, which it
-- erases in the same transaction. The centroids are computed anew from what is left. Returns how many rows
-- of each table it concerned.
create or replace function forget_in_personas(p_event_ids uuid[]) returns table (name text, total bigint)
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_tenant constant text := current_tenant();
    v_sona_ids uuid[];
    v_scope_ids uuid[];
    v_count bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended(v_tenant || ' sona ' || s.scope_id, 0))
    from (
        select distinct m.scope_id from sona_members m
        where m.tenant_id = v_tenant and m.event_id = any (p_event_ids)
        order by m.scope_id) s;
    with gone as (
        delete from sona_members m
        where m.tenant_id = v_tenant and m.event_id = any (p_event_ids)
        returning m.sona_id, m.scope_id)
    select array_agg(distinct g.sona_id), array_agg(distinct g.scope_id), count(*)
    into v_sona_ids, v_scope_ids, v_count from gone g;
    if v_count > 0 then
        perform renew_sona_centroids(v_sona_ids, v_scope_ids);
    end if;
    return query select 'sona_members', v_count;
    with gone as (
        delete from acts a where a.tenant_id = v_tenant and a.event_id = any (p_event_ids)
        returning a.act_id, a.sona_id, a.step, a.scope_id, a.participants)
    insert into erased_acts (tenant_id, act_id, sona_id, step, scope_id, participants)
    select v_tenant, g.act_id, g.sona_id, g.step, g.scope_id, g.participants from gone g;
    get diagnostics v_count = row_count;
    return query select 'acts', v_count;
    return query select 'turns', forget_turns(p_event_ids);
end $$;

-- Lock these events against erasure until the end of the transaction. Returns how many of them are in the
-- caller's view and not erased. SECURITY DEFINER, because locking a row takes a right that the application
-- lacks.
grant create on schema public to strandline_guard;
create function lock_sources(p_event_ids uuid[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
    return (  -- no filter on erased_at within: it would be applied before the lock
        select count(*)
        from (select distinct i.event_id from unnest(p_event_ids) i (event_id) order by 1) i
        cross join lateral (
            select e.erased_at from events e
            where e.tenant_id = current_tenant() and e.event_id = i.event_id
                and e.participants @> current_viewer() for key share) source
        where source.erased_at is null);
end $$;
revoke execute on function lock_sources from public;
grant execute on function lock_sources to strandline_app;
alter function lock_sources owner to strandline_guard;
revoke create on schema public from strandline_guard;

-- Append one event that rests on others without citing them: what a model says of what it was shown. It
-- fails, and stores nothing, where one of these is erased or being erased. The caller saw all of them.
create function append_resting_event(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_event_ids uuid[])
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_outcome append_outcome;
    v_count constant bigint := (select count(distinct i) from unnest(p_event_ids) i);
begin
    select o.* into v_outcome from append_events(p_tenant, p_viewer, p_writer, p_items, false) o;
    if v_outcome.outcome = 'created' then  -- the scope before its events, as erasure locks them
        if lock_sources(p_event_ids) < v_count then
            raise exception 'an event that this one rests on was erased' using errcode = 'ST410';
        end if;
        if is_erasing() and (  -- a mark keeps events out of the application's view
                select count(*)
                from (select distinct i.event_id from unnest(p_event_ids) i (event_id)) i
                cross join lateral (  -- by key: the planner may read all events for a join
                    select from events e
                    where e.tenant_id = current_tenant() and e.event_id = i.event_id offset 0) e)
                < v_count then
            raise exception 'an event that this one rests on is being erased' using errcode = 'ST410';
        end if;
    end if;
    return next v_outcome;
end $$;

-- due ----------------------------------------------------------------------------------------------

grant create on schema public to strandline_planner;

create function tenants_to_erase(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct e.tenant_id from erasures e where e.due_at <= p_now order by 1
$$;

-- When the eraser has something to do next, in any tenant; what is a day late waits for the morning. As
-- of all jobs: the latest that is overdue and the earliest to come, by an index over all tenants.
create function next_erasure(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(e.due_at) as at from erasures e where e.due_at <= p_now
        union all
        select min(e.due_at) from erasures e where e.due_at > p_now
    ) due where due.at is not null
$$;
revoke execute on function tenants_to_erase, next_erasure from public;
grant execute on function tenants_to_erase, next_erasure to strandline_app;
alter function tenants_to_erase owner to strandline_planner;
alter function next_erasure owner to strandline_planner;
revoke create on schema public from strandline_planner;
