-- Most appends are one event without edges and payload, in a session that is known. They go a way of
-- their own: no more statements than the log's promises take, in one function. What it cannot do it
-- leaves untouched, and the long way (append_many) does it.
--
-- The function is owned by a role that nobody can be. The row-level policies are the application's, so
-- it sees and writes what its caller could. But the guards of erasure leave its rows alone, because it
-- keeps their promise by itself: its event is as new as its transaction, and it holds the one event
-- that it cites, whose mark it read under the lock. The application's own inserts meet the guards.

do $$
declare
    v_shared text;
begin
    if not exists (select from pg_roles where rolname = 'strandline_append') then
        raise exception 'the role strandline_append is missing: let an administrator run roles.sql first';
    end if;
    foreach v_shared in array array[
        'scopes', 'scope_members', 'sessions', 'events', 'event_search', 'scope_work'
    ] loop
        execute format(
            'alter policy in_view on %I to strandline_app, strandline_owner, strandline_append', v_shared);
    end loop;
end $$;
alter policy own on event_keys to strandline_app, strandline_owner, strandline_append;

grant select on scopes, sessions, events, event_search, scope_work to strandline_append;
grant insert on event_keys, event_search, scope_members to strandline_append;
grant insert (tenant_id, scope_id, participants, due_at) on scope_work to strandline_append;
grant insert (tenant_id, scope_id, participants) on scopes to strandline_append;
grant insert (tenant_id, event_id, scope_id, seq, participants, session_id, channel, role, type, origin,
    speaker, writer, content, parts, stop_reason, mime_type, file_name, metadata, occurred_at,
    recorded_at, cid) on events to strandline_append;
grant update (last_seq, last_recorded_at, stored_bytes) on scopes to strandline_append;
grant update (erased_at) on events to strandline_append;  -- the right to lock

-- One event as append_item tells it; nothing, and nothing done, where it takes the long way.
create function append_plain(p_item jsonb) returns append_outcome
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_item append_item := jsonb_populate_record(null::append_item, p_item);
    v_tenant text := current_tenant();
    v_writer text := current_writer();
    v_piece jsonb := v_item.pieces -> 0;
    v_seq bigint;
    v_recorded_at timestamptz;
    v_before_id uuid;
    v_before tsvector;
    v_waiting boolean;
begin
    if v_item.edges <> '[]' or v_item.blob_cid is not null or jsonb_array_length(v_item.pieces) <> 1
            or v_item.bytes is null then  -- releases before 0008 count nothing
        return null;
    end if;
    -- The key before the scope: a double takes no seq. A session that is new or has ended may
    -- have to be refused.
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
    for v_try in 1 .. 2 loop
        -- The clock is read under the lock: within a scope it never falls.
        update scopes s
        set last_seq = s.last_seq + 1,
            last_recorded_at = greatest(clock_timestamp(), s.last_recorded_at),
            stored_bytes = s.stored_bytes + v_item.bytes
        where s.tenant_id = v_tenant and s.scope_id = v_item.scope_id
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
    -- The event before it in its lane, held until the commit: erasure waits, or was there first.
    select s.event_id, ts_filter(s.words, '{a,d}') into v_before_id, v_before
    from event_search s
    where s.tenant_id = v_tenant and s.scope_id = v_item.scope_id and s.piece = 0
        and s.event_id = (
            select e.event_id from events e
            where e.tenant_id = v_tenant and e.scope_id = v_item.scope_id
                and e.session_id = v_item.session_id and e.seq < v_seq and e.erased_at is null
            order by e.seq desc limit 1 for key share);
    with stored as (
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
        v_item.participants, v_before_id, speaker_words(v_item.label, v_piece ->> 'text')
            || setweight(to_tsvector('pg_catalog.english', to_char(
                coalesce(v_item.occurred_at, v_recorded_at) at time zone 'UTC', 'FMDD FMMonth YYYY')), 'C')
            || setweight(coalesce(v_before, ''), 'B'))
    returning exists (
        select from scope_work w where w.tenant_id = v_tenant and w.scope_id = v_item.scope_id)
    into v_waiting;
    if not v_waiting then
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        values (v_tenant, v_item.scope_id, v_item.participants, clock_timestamp())
        on conflict do nothing;
        v_waiting := not found;
    end if;
    return row(v_item.n, 'created', v_item.event_id, v_item.scope_id, v_seq, v_item.cid, v_recorded_at,
        null, null, not v_waiting)::append_outcome;
end $$;
revoke execute on function append_plain from public;
grant execute on function append_plain to strandline_app;
grant create on schema public to strandline_append;
alter function append_plain owner to strandline_append;
revoke create on schema public from strandline_append;

alter function append_events(text, text, text, jsonb, boolean) rename to append_many;

-- As before: append on behalf of who asks, one row an item.
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
        v_outcome := append_plain(p_items -> 0);
        if v_outcome.outcome is not null then
            return next v_outcome;
            return;
        end if;
    end if;
    return query select * from append_many(p_tenant, p_viewer, p_writer, p_items, p_atomic);
end $$;

drop trigger refuse_erased_event on event_keys;
drop trigger refuse_erased_citation on event_search;
grant create on schema public to strandline_guard;
set local role strandline_guard;
grant execute on function refuse_erased_event, refuse_erased_citation to strandline_owner;
reset role;
create trigger refuse_erased_event after insert on event_keys referencing new table as citing
for each statement when (current_user <> 'strandline_append') execute function refuse_erased_event();
create trigger refuse_erased_citation after insert on event_search referencing new table as citing
for each statement when (current_user <> 'strandline_append') execute function refuse_erased_citation();
set local role strandline_guard;
revoke execute on function refuse_erased_event, refuse_erased_citation from strandline_owner;
reset role;
revoke create on schema public from strandline_guard;
