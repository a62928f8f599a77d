-- Append: one function, one round trip. Who writes and for whom is in the transaction's settings;
-- row-level security holds inside. Order: check, reserve keys, lock scopes, take seq, insert.

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
    edges jsonb,  -- [{"event_id", "cid", "weight"}]; no cid where the target was not seen
    label text,  -- how the speaker is called in the index
    pieces jsonb  -- [{"start", "end", "text"}]: the text in pieces, in order
);

-- The day as people say it; the same words in the index as in what the model is shown.
create function spoken_date(p_at timestamptz) returns text language sql immutable parallel safe
    return to_char(p_at at time zone 'UTC', 'FMDD FMMonth YYYY');

create function speaker_words(p_label text, p_text text) returns tsvector
language sql immutable parallel safe
    return setweight(to_tsvector('pg_catalog.english', normalize(coalesce(p_label, ''), NFC)), 'D')
        || setweight(to_tsvector('pg_catalog.english', normalize(p_text, NFC)), 'A');

-- Why each item that cannot be stored cannot be: {"<n>": code}. Reads only.
--
-- These functions are in plpgsql, because it keeps its plans: planning them anew at every append
-- costs more than running them. They run within append_events and under its settings: a plan that is
-- made once, maybe while the tables were empty, must hold for any size, by index and row by row.
-- Under row-level security an index serves a plain column = column only: what is computed for a
-- comparison (a cast, a coalesce) is computed before.
create function append_refusals(p_items append_item[]) returns jsonb
language plpgsql stable as $$
begin
    return (
        with found as materialized (
            -- An edge's target must be visible to every reader of the new event.
            select i.n, 'edge_not_found' as code
            from unnest(p_items) i, jsonb_to_recordset(i.edges) as edge (event_id uuid, cid text)
            where not exists (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = edge.event_id
                    and e.cid = edge.cid and e.participants @> i.participants)
            union
            -- A blob: this principal uploaded it, or sees an event that holds it.
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
            -- A session's events fall in one scope, as far as this writer can see. What a bound
            -- user began binds nobody else: or any user could take a name from all.
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
        beginning as (  -- nor may one request begin a session in two scopes
            select i.n, i.scope_id,
                first_value(i.scope_id) over (partition by i.session_id order by i.n) as first_scope
            from unnest(p_items) i
            where i.session_id <> '' and not exists (select from found f where f.n = i.n))
        select coalesce(jsonb_object_agg(refused.n, refused.code), '{}') from (
            select f.n, min(f.code) as code from found f group by f.n
            union all
            select b.n, 'session_mismatch' from beginning b where b.scope_id <> b.first_scope
        ) refused);
end $$;

-- The sessions named here that do not exist yet: nobody else may begin one of the same name in
-- another scope until this transaction ends. Sorted, so that crossing batches cannot deadlock.
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

-- Give seq and store. The caller holds every key; the scopes are locked here, in order. Gives the
-- scopes that turned dirty: for the others a hint is on its way already.
create function store_events(p_items append_item[]) returns uuid[]
language plpgsql as $$
declare
    v_now timestamptz;
    v_base bigint[];
    v_recorded_at timestamptz[];
    v_dirty uuid[];
begin
    with created as (
        insert into scopes (tenant_id, scope_id, participants)
        select distinct on (i.scope_id) current_tenant(), i.scope_id, i.participants
        from unnest(p_items) i order by i.scope_id
        on conflict do nothing
        returning tenant_id, scope_id, participants)
    insert into scope_members (tenant_id, participant, scope_id, participants)
    select c.tenant_id, member, c.scope_id, c.participants from created c, unnest(c.participants) member;

    perform from scopes s
    where s.tenant_id = current_tenant()
        and s.scope_id = any (array(select i.scope_id from unnest(p_items) i))
    order by s.scope_id
    for no key update;
    v_now := clock_timestamp();  -- after the locks: within a scope it never falls

    insert into sessions (tenant_id, session_id, scope_id, participants, writer)
    select distinct current_tenant(), i.session_id, i.scope_id, i.participants, current_writer()
    from unnest(p_items) i where i.session_id <> ''
    on conflict do nothing;

    insert into blobs (tenant_id, cid, writer, size)
    select distinct current_tenant(), i.blob_cid, current_writer(), i.blob_size
    from unnest(p_items) i where i.blob_stored
    order by i.blob_cid
    on conflict do nothing;

    with taken as (
        update scopes s
        set last_seq = s.last_seq + wanted.events,
            last_recorded_at = greatest(v_now, s.last_recorded_at)
        from (select i.scope_id, count(*) as events from unnest(p_items) i group by i.scope_id) wanted
        where s.tenant_id = current_tenant() and s.scope_id = wanted.scope_id
        returning s.scope_id, s.last_seq - wanted.events as base, s.last_recorded_at as recorded_at)
    select array_agg(t.base order by t.scope_id), array_agg(t.recorded_at order by t.scope_id)
    into v_base, v_recorded_at from taken t;

    -- Arrays in the order of the scopes, instead of a join: five hundred events in as many scopes
    -- would compare each with each.
    with placed as materialized (
        select i.*, v_recorded_at[i.nth_scope] as recorded_at,
            v_base[i.nth_scope] + row_number() over (partition by i.scope_id order by i.n) as seq
        from (select i.*, dense_rank() over (order by i.scope_id) as nth_scope
              from unnest(p_items) i) i),
    stored as (
        insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
            type, origin, speaker, writer, content, parts, stop_reason, blob_cid, blob_size,
            mime_type, file_name, metadata, occurred_at, recorded_at, cid)
        select current_tenant(), p.event_id, p.scope_id, p.seq, p.participants, p.session_id, p.channel,
            p.role, p.type, p.origin, p.speaker, current_writer(), p.content, p.parts, p.stop_reason,
            p.blob_cid,
            coalesce(p.blob_size,
                (select b.size from blobs b
                 where b.tenant_id = current_tenant() and b.cid = p.blob_cid limit 1),
                (select e.blob_size from events e
                 where e.tenant_id = current_tenant() and e.blob_cid = p.blob_cid limit 1)),
            p.mime_type, p.file_name, p.metadata, p.occurred_at, p.recorded_at, p.cid
        from placed p),
    linked as (
        insert into memory_edges (tenant_id, scope_id, participants, event_id, cited_id, cited_cid, weight)
        select current_tenant(), p.scope_id, p.participants, p.event_id, edge.event_id, edge.cid, edge.weight
        from placed p, jsonb_to_recordset(p.edges) as edge (event_id uuid, cid text, weight float8)
        where p.edges <> '[]'),
    due as (
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select distinct on (p.scope_id) current_tenant(), p.scope_id, p.participants, p.recorded_at
        from placed p
        on conflict do nothing
        returning scope_work.scope_id),
    worded as materialized (
        select p.event_id, p.scope_id, p.session_id, p.participants, p.seq,
            coalesce(p.occurred_at, p.recorded_at) as said_at, piece.place - 1 as piece,
            (piece.body ->> 'start')::int as start_char, (piece.body ->> 'end')::int as end_char,
            speaker_words(p.label, piece.body ->> 'text') as words
        from placed p, jsonb_array_elements(p.pieces) with ordinality as piece (body, place)),
    beside as (  -- the neighbour of an event's first piece: in this batch, or nobody here
        select w.*,
            case when w.piece = 0 then lag(w.event_id) over lane end as neighbour_id,
            case when w.piece = 0 then lag(w.words) over lane end as neighbour_words
        from worded w
        window lane as (partition by w.scope_id, w.session_id, w.piece > 0 order by w.seq, w.piece)),
    indexed as (
        insert into event_search
            (tenant_id, scope_id, event_id, piece, start_char, end_char, participants, cited_id, words)
        select current_tenant(), w.scope_id, w.event_id, w.piece, w.start_char, w.end_char,
            w.participants, coalesce(w.neighbour_id, earlier.event_id),
            w.words
                || setweight(to_tsvector('pg_catalog.english', spoken_date(w.said_at)), 'C')
                || setweight(coalesce(w.neighbour_words, ts_filter(earlier.words, '{a,d}'),
                    ''::tsvector), 'B')
        from beside w
        left join lateral (  -- else the lane's last event before it
            select e.event_id, s.words
            from events e
            join event_search s on s.tenant_id = e.tenant_id and s.scope_id = e.scope_id
                and s.event_id = e.event_id and s.piece = 0
            where w.neighbour_id is null and w.piece = 0
                and e.tenant_id = current_tenant() and e.scope_id = w.scope_id
                and e.session_id = w.session_id and e.seq < w.seq and e.erased_at is null
            order by e.seq desc limit 1
        ) earlier on true)
    select array_agg(due.scope_id) into v_dirty from due;
    return coalesce(v_dirty, '{}');
end $$;

-- What became of an item. outcome is created, replayed, conflict or a refusal's code; stored is the
-- earlier event of a conflict, for who may see it; turned_dirty says that the scope had no work
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
    turned_dirty boolean
);

-- Reserve keys and store what won its own or has none.
create function append_items(p_items append_item[], p_refused jsonb) returns append_outcome[]
language plpgsql as $$
declare
    v_won uuid[];
    v_new append_item[];
    v_dirty uuid[] := '{}';
begin
    with reserved as (
        insert into event_keys (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
        select current_tenant(), current_writer(), i.key_channel, i.source_event_key, i.event_id,
            decode(i.fingerprint, 'hex')
        from unnest(p_items) i
        where i.source_event_key is not null and not p_refused ? i.n::text
        order by i.key_channel, i.source_event_key, i.n  -- crossing batches meet in the same order
        on conflict do nothing
        returning event_keys.event_id)
    select array_agg(r.event_id) into v_won from reserved r;

    v_new := array(
        select i from unnest(p_items) i
        where not p_refused ? i.n::text
            and (i.source_event_key is null or i.event_id = any (v_won))
        order by i.n);
    if cardinality(v_new) > 0 then
        v_dirty := store_events(v_new);
    end if;
    return append_outcomes(p_items, p_refused, v_dirty);
end $$;

-- Read after everything is stored, keys lost to others included.
create function append_outcomes(p_items append_item[], p_refused jsonb, p_dirty uuid[])
returns append_outcome[]
language plpgsql as $$
begin
    return array(
        with said as materialized (
            select i.n, i.event_id, i.participants, i.fingerprint, k.event_id as key_event_id,
                k.fingerprint as key_fingerprint, coalesce(k.event_id, i.event_id) as stored_id
            from unnest(p_items) i
            left join event_keys k on k.tenant_id = current_tenant()
                and k.writer = current_writer() and k.channel = i.key_channel
                and k.source_event_key = i.source_event_key),
        told as (
            select i.*, e as event,
                case
                    when i.key_event_id is null then coalesce(p_refused ->> i.n::text, 'created')
                    when i.key_event_id = i.event_id then 'created'
                    when i.key_fingerprint = decode(i.fingerprint, 'hex') then 'replayed'
                    else 'conflict'
                end as outcome
            from said i
            left join events e on e.tenant_id = current_tenant() and e.event_id = i.stored_id)
        select row(t.n, t.outcome, (t.event).event_id, (t.event).scope_id, (t.event).seq,
            (t.event).cid, (t.event).recorded_at, (t.event).blob_size,
            -- A conflict names what differs only to who may see the event: the bound user, or
            -- everybody the new request names.
            case when t.outcome = 'conflict'
                    and (current_writer() <> '*' or (t.event).participants @> t.participants)
                then to_jsonb(t.event) || jsonb_build_object('edges', coalesce((
                    select jsonb_agg(jsonb_build_object('event_id', m.cited_id, 'weight', m.weight))
                    from memory_edges m
                    where m.tenant_id = current_tenant() and m.event_id = t.stored_id), '[]'))
            end,
            t.outcome = 'created' and (t.event).scope_id = any (p_dirty))::append_outcome
        from told t order by t.n);
end $$;

-- One row an item. Atomic means all or none: where one item fails all is undone, and the rows of the
-- others say what would have been. (Undone by a caught exception, whose words no server log keeps.)
create function append_events(p_items jsonb, p_atomic boolean) returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_material = off
set enable_seqscan = off set enable_bitmapscan = off
set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    v_items append_item[] := array(
        select i from jsonb_populate_recordset(null::append_item, p_items) i order by i.n);
    v_refused jsonb;
    v_outcomes append_outcome[];
begin
    perform lock_new_sessions(v_items);
    v_refused := append_refusals(v_items);
    if not p_atomic then
        v_outcomes := append_items(v_items, v_refused);
    else
        begin
            v_outcomes := append_items(v_items, v_refused);
            if exists (
                select from unnest(v_outcomes) o where o.outcome not in ('created', 'replayed')) then
                raise exception using errcode = 'ST409';
            end if;
        exception when sqlstate 'ST409' then
            null;  -- undone; v_outcomes still says why
        end;
    end if;
    return query select * from unnest(v_outcomes);
end $$;
