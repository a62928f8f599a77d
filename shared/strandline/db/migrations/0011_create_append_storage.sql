-- Append, second part: assign seq and store. The caller has reserved every key.

-- The size of a cited payload, as its upload or an event that holds it says.
create function payload_size(p_cid text) returns bigint
language plpgsql stable as $$
begin
    return coalesce(
        (select b.size from blobs b where b.tenant_id = current_tenant() and b.cid = p_cid limit 1),
        (select e.blob_size from events e
         where e.tenant_id = current_tenant() and e.blob_cid = p_cid limit 1));
end $$;

-- Create a scope that does not exist yet, with its members.
create function create_scope(p_item append_item) returns void
language plpgsql as $$
begin
    insert into scopes (tenant_id, scope_id, participants)
    values (current_tenant(), p_item.scope_id, p_item.participants)
    on conflict do nothing;
    if found then
        insert into scope_members (tenant_id, participant, scope_id, participants)
        select current_tenant(), member, p_item.scope_id, p_item.participants
        from unnest(p_item.participants) member;
    end if;
end $$;

-- Assign seq: lock the items' scopes, which come in the one order that all appends use, and let each
-- count its events.
create function assign_seqs(p_items append_item[]) returns append_item[]
language plpgsql as $$
declare
    v_item append_item;
    v_first int := 1;  -- index of the present scope's first item
    v_bytes bigint := 0;
    v_base bigint;
    v_recorded_at timestamptz;
begin
    for v_last in 1 .. cardinality(p_items) loop
        v_item := p_items[v_last];
        v_bytes := v_bytes + v_item.bytes;
        continue when v_item.scope_id = p_items[v_last + 1].scope_id;
        loop
            -- The clock is read under the lock: within a scope recorded_at never decreases.
            update scopes s
            set last_seq = s.last_seq + (v_last - v_first + 1),
                last_recorded_at = greatest(clock_timestamp(), s.last_recorded_at),
                stored_bytes = s.stored_bytes + v_bytes
            where s.tenant_id = current_tenant() and s.scope_id = v_item.scope_id
            returning s.last_seq - v_last, s.last_recorded_at into v_base, v_recorded_at;
            exit when found;
            perform create_scope(v_item);
        end loop;
        for v_n in v_first .. v_last loop
            p_items[v_n].seq := v_base + v_n;
            p_items[v_n].recorded_at := v_recorded_at;
        end loop;
        v_first := v_last + 1;
        v_bytes := 0;
    end loop;
    return p_items;
end $$;

-- The index's pieces of events that have their seq. The words of an event's first piece are followed
-- by those of the event before it in its lane (scope and session).
create function append_pieces(p_items append_item[]) returns append_piece[]
language plpgsql as $$
declare
    v_item append_item;
    v_piece jsonb;
    v_words tsvector;
    v_dated tsvector;
    v_scope uuid;
    v_lane int;
    v_previous_id uuid;
    v_previous_words tsvector;
    v_lanes text[];  -- the present scope's lanes; the next two: the last event of each
    v_last_id uuid[];
    v_last_words tsvector[];
    v_pieces append_piece[] := '{}';
begin
    foreach v_item in array p_items loop
        if v_item.scope_id is distinct from v_scope then
            v_scope := v_item.scope_id;
            v_lanes := '{}';
        end if;
        v_lane := array_position(v_lanes, v_item.session_id);
        if v_lane is null then
            v_lanes := v_lanes || v_item.session_id;
            v_lane := cardinality(v_lanes);
            -- By the row's whole key: for a join the planner may read all rows of the scope.
            select s.event_id, ts_filter(s.words, '{a,d}') into v_previous_id, v_previous_words
            from event_search s
            where s.tenant_id = current_tenant() and s.scope_id = v_scope and s.piece = 0
                and s.event_id = (
                    select e.event_id from events e
                    where e.tenant_id = current_tenant() and e.scope_id = v_scope
                        and e.session_id = v_item.session_id and e.seq < v_item.seq
                        and e.erased_at is null
                    order by e.seq desc limit 1);
            v_last_id[v_lane] := v_previous_id;
            v_last_words[v_lane] := v_previous_words;
        end if;
        v_piece := v_item.pieces -> 0;
        v_words := event_tsvector(v_item.label, v_piece ->> 'text');
        v_dated := setweight(to_tsvector('pg_catalog.english', to_char(
            coalesce(v_item.occurred_at, v_item.recorded_at) at time zone 'UTC',
            'FMDD FMMonth YYYY')), 'C');
        v_pieces := v_pieces || row(v_item.event_id, v_scope, v_item.participants, 0,
            v_piece -> 'start', v_piece -> 'end', v_last_id[v_lane],
            v_words || v_dated || setweight(coalesce(v_last_words[v_lane], ''), 'B'))::append_piece;
        if jsonb_array_length(v_item.pieces) > 1 then
            v_pieces := v_pieces || array(
                select row(v_item.event_id, v_scope, v_item.participants, piece.place - 1,
                    piece.body -> 'start', piece.body -> 'end', null,
                    event_tsvector(v_item.label, piece.body ->> 'text') || v_dated)::append_piece
                from jsonb_array_elements(v_item.pieces) with ordinality as piece (body, place)
                where piece.place > 1);
        end if;
        v_last_id[v_lane] := v_item.event_id;
        v_last_words[v_lane] := v_words;
    end loop;
    return v_pieces;
end $$;

-- Put the scopes that have no work waiting on the work queue, and mark their outcomes as work_enqueued:
-- for the other scopes a message is on its way already.
create function enqueue_scope_work(p_outcomes append_outcome[],
    p_items append_item[]) returns append_outcome[]
language plpgsql as $$
declare
    v_enqueued uuid[];
begin
    with new_work as (
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select distinct on (i.scope_id) current_tenant(), i.scope_id, i.participants, clock_timestamp()
        from unnest(p_items) i order by i.scope_id
        on conflict do nothing
        returning scope_work.scope_id)
    select array_agg(new_work.scope_id) into v_enqueued from new_work;
    return array(
        select row(o.n, o.outcome, o.event_id, o.scope_id, o.seq, o.cid, o.recorded_at, o.blob_size,
            o.stored, coalesce(o.scope_id = any (v_enqueued), false))::append_outcome
        from unnest(p_outcomes) o);
end $$;

-- Store the items, which the caller sorted by scope.
create function store_events(p_items append_item[], p_new_sessions boolean)
returns append_outcome[]
language plpgsql as $$
declare
    v_item append_item;
    v_scopes uuid[] := '{}';
    v_edges boolean := false;
    v_blobs boolean := false;
    v_outcomes append_outcome[] := '{}';
begin
    p_items := assign_seqs(p_items);
    for v_n in 1 .. cardinality(p_items) loop
        v_item := p_items[v_n];
        if v_item.blob_cid is not null and v_item.blob_size is null then
            v_item.blob_size := payload_size(v_item.blob_cid);
            p_items[v_n] := v_item;
        end if;
        v_edges := v_edges or v_item.edges <> '[]';
        v_blobs := v_blobs or v_item.blob_stored;
        if v_item.scope_id is distinct from v_scopes[cardinality(v_scopes)] then
            v_scopes := v_scopes || v_item.scope_id;
        end if;
        v_outcomes := v_outcomes || row(v_item.n, 'created', v_item.event_id, v_item.scope_id,
            v_item.seq, v_item.cid, v_item.recorded_at, v_item.blob_size, null, false)::append_outcome;
    end loop;

    if p_new_sessions then
        insert into sessions (tenant_id, session_id, scope_id, participants, writer)
        select distinct current_tenant(), i.session_id, i.scope_id, i.participants, current_writer()
        from unnest(p_items) i where i.session_id <> ''
        on conflict do nothing;
    end if;
    if v_blobs then
        insert into blobs (tenant_id, cid, writer, size)
        select distinct current_tenant(), i.blob_cid, current_writer(), i.blob_size
        from unnest(p_items) i where i.blob_stored
        order by i.blob_cid
        on conflict do nothing;
    end if;
    insert into events (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role,
        type, origin, speaker, writer, content, parts, stop_reason, blob_cid, blob_size, mime_type,
        file_name, metadata, occurred_at, recorded_at, cid)
    select current_tenant(), i.event_id, i.scope_id, i.seq, i.participants, i.session_id, i.channel,
        i.role, i.type, i.origin, i.speaker, current_writer(), i.content, i.parts, i.stop_reason,
        i.blob_cid, i.blob_size, i.mime_type, i.file_name, i.metadata, i.occurred_at, i.recorded_at, i.cid
    from unnest(p_items) i;
    if v_edges then
        insert into memory_edges
            (tenant_id, scope_id, participants, event_id, cited_id, cited_cid, weight)
        select current_tenant(), i.scope_id, i.participants, i.event_id, edge.event_id, edge.cid,
            edge.weight
        from unnest(p_items) i, jsonb_to_recordset(i.edges) as edge (event_id uuid, cid text, weight float8);
    end if;
    insert into event_search
        (tenant_id, scope_id, event_id, piece, start_char, end_char, participants, cited_id, words)
    select current_tenant(), p.scope_id, p.event_id, p.piece, p.start_char, p.end_char, p.participants,
        p.cited_id, p.words
    from unnest(append_pieces(p_items)) p;

    if cardinality(v_scopes) > (
        select count(*) from scope_work w
        where w.tenant_id = current_tenant() and w.scope_id = any (v_scopes)) then
        return enqueue_scope_work(v_outcomes, p_items);
    end if;
    return v_outcomes;
end $$;
