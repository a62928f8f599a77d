-- revision: 1
-- What only the eraser may do, and when it has something to do.

set local role strandline_eraser;

-- Turn these events into tombstones and delete what the log and its indexes hold of them. Of an erased
-- event its id, scope, seq and times stay. Events that are erased already, or not in the caller's view,
-- are left alone. p_inner and p_outer are the padded halves of the key of an HMAC-SHA256 (RFC 2104).
-- Returns how many rows of each table it concerned. The caller holds the scopes' locks.
--
-- It holds the tenant's name in a variable, as other functions of erasure do: planned for its value, a tenant
-- that the statistics do not know would be taken for one row, and to erase a thousand events would read all of
-- the tenant's for each of them. A generic plan takes the average of all tenants. Without a scan from end to
-- end, because a plan lasts for a session, and a table may have been empty when it was made.
create or replace function erase_events(
    p_erasure_id uuid, p_event_ids uuid[], p_at timestamptz, p_inner bytea, p_outer bytea)
returns table (name text, total bigint)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
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
revoke execute on function erase_events from public;
grant execute on function erase_events to strandline_app;

-- Empty the texts of chains that have lost events, in every version, every decision and every node of a
-- topic tree that rests on them; what they count is counted anew from the events that they keep. Chains
-- without events are the caller's to delete. Returns how many rows of each table it concerned.
create or replace function blank_chains(p_chain_ids uuid[], p_scope_ids uuid[], p_at timestamptz)
returns table (name text, total bigint)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
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
revoke execute on function blank_chains from public;
grant execute on function blank_chains to strandline_app;

-- Delete what was decided about runs and chains that are not folded again yet, from the first of these
-- events on: no link says which of it rests on them. The fold decides anew. Returns how many decisions,
-- and the chains that were promoted with one of these events. The caller holds the scopes' locks.
create or replace function drop_pending_decisions(p_event_ids uuid[], out total bigint, out chain_ids uuid[])
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
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
revoke execute on function drop_pending_decisions from public;
grant execute on function drop_pending_decisions to strandline_app;

-- Forget the uploads of a writer, or of all writers (null); their objects are the job's to remove. An upload
-- that no event cites is what somebody said too, though no event's. For who erases a tenant, or what somebody
-- said: a bound user reaches that user's own alone. Returns how many.
create or replace function forget_uploads(p_erasure_id uuid, p_writer text) returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    with gone as (
        delete from uploads u
        where u.tenant_id = current_tenant() and (p_writer is null or u.writer = p_writer)
            and (current_viewer() = '{}'
                or (u.writer = current_writer() and u.writer = any (current_viewer())))
        returning u.upload_id)
    insert into erased_payloads (tenant_id, object, erasure_id)
    select current_tenant(), 'uploads/' || g.upload_id, p_erasure_id from gone g;
    get diagnostics v_count = row_count;
    return v_count;
end $$;
revoke execute on function forget_uploads from public;
grant execute on function forget_uploads to strandline_app;

reset role;

set local role strandline_planner;

create or replace function tenants_to_erase(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct e.tenant_id from erasures e where e.due_at <= p_now order by 1
$$;
revoke execute on function tenants_to_erase from public;
grant execute on function tenants_to_erase to strandline_app;

-- When the eraser has something to do next, in any tenant; what is a day late waits for the morning. As
-- of all jobs: the latest that is overdue and the earliest to come, by an index over all tenants.
create or replace function next_erasure(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(e.due_at) as at from erasures e where e.due_at <= p_now
        union all
        select min(e.due_at) from erasures e where e.due_at > p_now
    ) due where due.at is not null
$$;
revoke execute on function next_erasure from public;
grant execute on function next_erasure to strandline_app;

reset role;
