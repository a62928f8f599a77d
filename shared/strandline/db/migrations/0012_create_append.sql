-- Append, third part: the general path (append_batch), the fast path of a single plain event
-- (append_fast_path), and the function that the service calls (append_events).

-- Reserve keys, and store the items that have reserved theirs or have none.
create function append_items(p_items append_item[], p_refused jsonb, p_new_sessions boolean)
returns append_outcome[]
language plpgsql as $$
declare
    v_item append_item;
    v_reserved uuid[];
    v_new append_item[] := p_items;
    v_outcomes append_outcome[] := '{}';
begin
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
    end if;
    if cardinality(v_new) < cardinality(p_items) then
        v_outcomes := v_outcomes || append_failures(p_items, p_refused, v_reserved);
    end if;
    return v_outcomes;
end $$;

-- One row per item. Atomic means all or none: where one item fails all is undone, and the rows of the
-- others say what would have become of them. (Undone by a caught exception, whose text no server log
-- keeps.) Each setting of a function costs time at each call: there are few.
create function append_batch(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_atomic boolean)
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_items append_item[];
    v_item append_item;
    v_new_sessions boolean;
    v_needs_checks boolean;  -- whether something may have to be refused
    v_refused jsonb := '{}';
    v_outcomes append_outcome[];
begin
    perform set_config('strandline.tenant', p_tenant, true),
        set_config('strandline.viewer', p_viewer, true),
        set_config('strandline.writer', p_writer, true);
    v_items := array(select i from jsonb_populate_recordset(null::append_item, p_items) i);
    if cardinality(v_items) = 1 then  -- most appends: they skip what only several items need
        v_item := v_items[1];
        v_needs_checks := v_item.edges <> '[]'
            or (v_item.blob_cid is not null and not v_item.blob_stored);
        v_new_sessions := v_item.session_id <> '' and not exists (
            select from sessions s
            where s.tenant_id = current_tenant() and s.session_id = v_item.session_id
                and s.scope_id = v_item.scope_id and s.ended_at is null);
    else
        select bool_or(i.session_id <> '' and not exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id and s.ended_at is null)),
            bool_or(i.edges <> '[]' or (i.blob_cid is not null and not i.blob_stored))
                -- A session that exists in its scope is no mismatch, unless the request names it twice.
                or count(distinct i.scope_id) filter (where i.session_id <> '') > 1
        into v_new_sessions, v_needs_checks
        from unnest(v_items) i;
    end if;
    if v_new_sessions then
        perform lock_new_sessions(v_items);
    end if;
    if v_new_sessions or v_needs_checks then
        v_refused := append_refusals(v_items);
    end if;
    if not p_atomic then
        v_outcomes := append_items(v_items, v_refused, v_new_sessions);
    else
        begin
            v_outcomes := append_items(v_items, v_refused, v_new_sessions);
            if exists (
                select from unnest(v_outcomes) o where o.outcome not in ('created', 'replayed')) then
                raise exception using errcode = 'ST409';
            end if;
        exception when sqlstate 'ST409' then
            null;  -- all is undone; v_outcomes still says why
        end;
    end if;
    if cardinality(v_outcomes) = 1 then
        return next v_outcomes[1];
    else
        return query select * from unnest(v_outcomes) o order by o.n;
    end if;
end $$;

-- Most appends are one event without edges and payload, in a session that exists. They take a fast
-- path: no more statements than the log's invariants need, in one function. What it cannot do it
-- leaves untouched, and append_batch does it.
--
-- The function is owned by strandline_append, a role that nobody can log in as. Its row-level policies
-- are the application's, so it reads and writes what its caller could. But the guards of erasure
-- (refuse_erased_event and refuse_erased_citation) skip its rows, because it does their work itself:
-- its event is as new as its transaction, and it locks the one event that it cites, whose erased_at it
-- reads under that lock. The application's own inserts meet the guards.

grant select on scopes, sessions, events, event_search, scope_work to strandline_append;
grant insert on event_keys, event_search, scope_members to strandline_append;
grant insert (tenant_id, scope_id, participants, due_at) on scope_work to strandline_append;
grant insert (tenant_id, scope_id, participants) on scopes to strandline_append;
grant insert (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role, type, origin,
    speaker, writer, content, parts, stop_reason, mime_type, file_name, metadata, occurred_at,
    recorded_at, cid) on events to strandline_append;
grant update (last_seq, last_recorded_at, stored_bytes) on scopes to strandline_append;
grant update (erased_at) on events to strandline_append;  -- the right to lock

-- One event, as append_item describes it. It returns null, having done nothing, where the event needs
-- the general path. A scope that is not of the item's participants is not found, and cannot be created.
create function append_fast_path(p_item jsonb) returns append_outcome
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
    select s.event_id, ts_filter(s.words, '{a,d}') into v_previous_id, v_previous_words
    from event_search s
    where s.tenant_id = v_tenant and s.scope_id = v_item.scope_id and s.piece = 0
        and s.event_id = (
            select e.event_id from events e
            where e.tenant_id = v_tenant and e.scope_id = v_item.scope_id
                and e.session_id = v_item.session_id and e.seq < v_seq and e.erased_at is null
            order by e.seq desc limit 1 for key share);
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
revoke execute on function append_fast_path from public;
grant execute on function append_fast_path to strandline_app;
grant create on schema public to strandline_append;
alter function append_fast_path owner to strandline_append;
revoke create on schema public from strandline_append;

-- Append on behalf of a caller, one row per item. Who the caller is are arguments, so that an append is
-- one statement, with no statement before it that sets them.
create function append_events(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_atomic boolean)
returns setof append_outcome
language plpgsql as $$
declare
    v_outcome append_outcome;
begin
    if jsonb_array_length(p_items) = 1 then
        perform set_config('strandline.tenant', p_tenant, true),
            set_config('strandline.viewer', p_viewer, true),
            set_config('strandline.writer', p_writer, true);
        v_outcome := append_fast_path(p_items -> 0);
        if v_outcome.outcome is not null then
            return next v_outcome;
            return;
        end if;
    end if;
    return query select * from append_batch(p_tenant, p_viewer, p_writer, p_items, p_atomic);
end $$;
