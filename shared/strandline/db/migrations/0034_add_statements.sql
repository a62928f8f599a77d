-- Statements: events that hold what a caller stated directly, for the knowledge graph. They are in no
-- session and no lane. Only the graph writes them: the service refuses the type in every other append.

-- Wider than before, so that rows from before need no check: it would read the whole log under a lock.
alter table events drop constraint events_type_check;
alter table events add constraint events_type_check
    check (type in ('message', 'thought', 'action', 'observation', 'upload', 'statement')) not valid;
alter table events add constraint events_statement_check
    check (type <> 'statement' or session_id = '') not valid;

-- Is an event of this type a statement? A case, for which the planner assumes nothing: if it knew that
-- most events are, it would read and sort all of a scope to find the newest that is none.
create function is_statement(p_type text) returns boolean language sql immutable parallel safe
    return case when p_type = 'statement' then true else false end;

-- The index's pieces of events that have their seq. The words of an event's first piece are followed
-- by those of the event before it in its lane (scope and session). A statement is in no lane: nothing is
-- before it, and it is before nothing.
create or replace function append_pieces(p_items append_item[]) returns append_piece[]
language plpgsql as $$
declare
    v_item append_item;
    v_piece jsonb;
    v_words tsvector;
    v_dated tsvector;
    v_scope uuid;
    v_lane int;  -- null for a statement
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
        v_lane := case when v_item.type <> 'statement'
            then array_position(v_lanes, v_item.session_id) end;
        if v_lane is null and v_item.type <> 'statement' then
            v_lanes := v_lanes || v_item.session_id;
            v_lane := cardinality(v_lanes);
            -- By the row's whole key: for a join the planner may read all rows of the scope.
            select s.event_id, ts_filter(s.words, '{a,d}') into v_previous_id, v_previous_words
            from event_search s
            where s.tenant_id = current_tenant() and s.scope_id = v_scope and s.piece = 0
                and s.event_id = (
                    select e.event_id from events e
                    where e.tenant_id = current_tenant() and e.scope_id = v_scope
                        and e.session_id = v_item.session_id and not is_statement(e.type)
                        and e.seq < v_item.seq and e.erased_at is null
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
        if v_lane is not null then
            v_last_id[v_lane] := v_item.event_id;
            v_last_words[v_lane] := v_words;
        end if;
    end loop;
    return v_pieces;
end $$;

grant create on schema public to strandline_append;
set local role strandline_append;
-- One event, as append_item describes it. It returns null, having done nothing, where the event needs
-- the general path. A scope that is not of the item's participants is not found, and cannot be created.
-- A statement is in no lane, as in append_pieces.
create or replace function append_fast_path(p_item jsonb) returns append_outcome
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_item append_item := jsonb_populate_record(null::append_item, p_item);
    v_tenant text := current_tenant();
    v_writer text := current_writer();
    v_piece jsonb := v_item.pieces -> 0;
    v_seq bigint;
    v_recorded_at timestamptz;
    v_previous_id uuid;
    v_previous_words tsvector;
    v_is_enqueued boolean;
begin
    if (v_item.edges = '[]' and v_item.blob_cid is null and jsonb_array_length(v_item.pieces) = 1)
            is not true then
        return null;
    end if;
    -- The key before the scope: a duplicate takes no seq. A session that is new or has ended may have to
    -- be refused, which append_batch does.
    if v_item.source_event_key is not null then
        insert into event_keys (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
        select v_tenant, v_writer, v_item.key_channel, v_item.source_event_key, v_item.event_id,
            decode(v_item.fingerprint, 'hex')
        where v_item.session_id = '' or exists (
            select from sessions s
            where s.tenant_id = v_tenant and s.session_id = v_item.session_id
                and s.scope_id = v_item.scope_id and s.ended_at is null)
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
        select from scope_work w where w.tenant_id = v_tenant and w.scope_id = v_item.scope_id)
    into v_is_enqueued;
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
