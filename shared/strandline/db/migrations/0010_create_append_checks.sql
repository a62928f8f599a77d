-- Append, first part: what its functions pass to each other, and what they refuse.
--
-- An append is one function and one round trip: append_events (0012). The order of its steps: check,
-- reserve keys, lock scopes, assign seq, insert. An append costs less for what its
-- statements do than for starting them: each sets up its whole plan anew. So what few appends need (new
-- scopes and sessions, edges, payloads, keys that were used before) stands in statements that run only
-- where needed, and what plpgsql can do by itself needs no statement.
--
-- These functions are in plpgsql because it keeps its plans: planning them at every append costs more
-- than running them. They run within append_batch and under its settings: a plan that is made once,
-- maybe while the tables were empty, must hold for any size, by index and row by row. Under row-level
-- security an index serves a plain column = column only: what is computed for a comparison (a cast, a
-- coalesce) is computed before.

create type append_item as (
    n int,  -- the item's place in the request, from 0
    event_id uuid,
    scope_id uuid,
    participants text[],
    session_id text,
    channel text,
    role text,
    type text,
    origin text,
    speaker text,
    content text,
    parts jsonb,
    stop_reason text,
    blob_cid text,
    blob_size bigint,
    mime_type text,
    file_name text,
    blob_stored boolean,  -- this request put the blob into the store itself
    metadata jsonb,
    occurred_at timestamptz,
    cid text,
    key_channel text,
    source_event_key text,
    fingerprint text,
    edges jsonb,  -- [{"event_id", "cid", "weight"}]; no cid where the target was not visible
    label text,  -- the speaker's name in the index
    pieces jsonb,  -- [{"start", "end", "text"}]: the text in pieces, in order
    bytes bigint,  -- what the item adds to its scope
    seq bigint,  -- this and the next are assigned by the log, whatever a request says
    recorded_at timestamptz
);

-- What became of an item. outcome is created, replayed, conflict or a refusal's code; stored is the
-- earlier event of a conflict, if the caller may see it; work_enqueued says that the scope had no work
-- waiting before.
create type append_outcome as (
    n int,
    outcome text,
    event_id uuid,
    scope_id uuid,
    seq bigint,
    cid text,
    recorded_at timestamptz,
    blob_size bigint,
    stored jsonb,
    work_enqueued boolean
);

-- A piece of an event on its way into the text index.
create type append_piece as (
    event_id uuid,
    scope_id uuid,
    participants text[],
    piece int,
    start_char int,
    end_char int,
    cited_id uuid,
    words tsvector
);

-- Why each item that cannot be stored is refused: {"<n>": code}. Reads only. Nothing is added to a
-- session that has ended: append_batch treats such a session as unknown, and only then calls this, so
-- that appends to all others pay nothing for it. Few appends need this function, and it joins: its own
-- settings make it go by index.
create function append_refusals(p_items append_item[]) returns jsonb
language plpgsql stable
set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off set enable_bitmapscan = off as $$
begin
    return (
        with refusals as materialized (
            -- An edge's target must be visible to every reader of the new event.
            select i.n, 'edge_not_found' as code
            from unnest(p_items) i, jsonb_to_recordset(i.edges) as edge (event_id uuid, cid text)
            where not exists (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = edge.event_id
                    and e.cid = edge.cid and e.participants @> i.participants)
            union
            -- A payload: this principal uploaded it, or sees an event that holds it.
            select i.n, 'blob_not_found'
            from unnest(p_items) i
            where i.blob_cid is not null and not i.blob_stored
                and not exists (
                    select from blobs b
                    where b.tenant_id = current_tenant() and b.cid = i.blob_cid
                        and b.writer = current_writer())
                and not exists (
                    select from events e
                    where e.tenant_id = current_tenant() and e.blob_cid = i.blob_cid
                        and (e.participants @> i.participants or current_writer() <> '*'))
            union
            select i.n, 'session_ended'
            from unnest(p_items) i
            where i.session_id <> '' and exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id and s.ended_at is not null)
            union
            -- A session's events are in one scope, as far as this writer can see. A session that
            -- a bound user began binds nobody else: otherwise any user could occupy a name for all.
            select i.n, 'session_mismatch'
            from unnest(p_items) i
            where i.session_id <> ''
                and not exists (
                    select from sessions s
                    where s.tenant_id = current_tenant() and s.session_id = i.session_id
                        and s.scope_id = i.scope_id)
                and exists (
                    select from sessions s
                    where s.tenant_id = current_tenant() and s.session_id = i.session_id
                        and s.scope_id <> i.scope_id and s.writer in (current_writer(), '*'))),
        session_scopes as (  -- one request may not begin a session in two scopes either
            select i.n, i.scope_id,
                first_value(i.scope_id) over (partition by i.session_id order by i.n) as first_scope
            from unnest(p_items) i
            where i.session_id <> '' and not exists (select from refusals f where f.n = i.n))
        select coalesce(jsonb_object_agg(refusal.n, refusal.code), '{}') from (
            select f.n, min(f.code) as code from refusals f group by f.n
            union all
            select b.n, 'session_mismatch' from session_scopes b where b.scope_id <> b.first_scope
        ) refusal);
end $$;

-- Lock the names of sessions that do not exist yet: no other transaction may begin one of the same name
-- in another scope until this one ends. Sorted, so that crossing batches cannot deadlock.
create function lock_new_sessions(p_items append_item[]) returns void
language plpgsql as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(current_tenant() || '/' || missing.session_id, 0))
    from (
        select distinct i.session_id from unnest(p_items) i
        where i.session_id <> '' and not exists (
            select from sessions s
            where s.tenant_id = current_tenant() and s.session_id = i.session_id
                and s.scope_id = i.scope_id)
        order by 1
    ) missing;
end $$;

-- What became of the items that were not stored. Read after everything is stored, including the keys
-- that were lost to others.
create function append_failures(p_items append_item[], p_refused jsonb, p_reserved uuid[])
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
                    when i.key_event_id is null then p_refused ->> i.n::text
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
