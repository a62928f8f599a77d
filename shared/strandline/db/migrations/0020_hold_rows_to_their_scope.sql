-- A row is of the scope that it names. The policies test the copy of the participants that the row
-- bears, the foreign keys its scope's id: whoever writes both at will could say one and name the other,
-- and so write into a scope that the viewer is not in. The id is a hash of tenant and participants
-- (participants.py), so the row itself shows whether they belong together, at the cost of one SHA-256
-- and no look-up. With that the viewer, who is held against the copy, is held against the scope.

-- The same as participants.scope_id, compared bit by bit: SHA-256 over the JSON list of both, its
-- first half as a UUID of version 8 (RFC 9562). One expression in which each argument stands once, so
-- that Postgres puts it into the policy instead of calling it.
create function is_scope_of(p_scope_id uuid, p_tenant text, p_participants text[]) returns boolean
language sql stable parallel safe
    return ('x' || replace(p_scope_id::text, '-', ''))::bit(128)
        = ('x' || left(encode(sha256(convert_to(
                to_jsonb(array_prepend(p_tenant, p_participants))::text, 'UTF8')), 'hex'), 32))::bit(128)
            & x'ffffffffffff0fff3fffffffffffffff' | x'00000000000080008000000000000000';

-- Beside the permissive policy of each table. Only for INSERT: nobody may update a scope's id or a
-- row's participants. It binds every role but one: append_plain writes events and their words itself
-- under the lock of a scope that it compared with them (see below), where the hash would cost an
-- append a twentieth.
do $$
declare
    v_table text;
    v_roles text;
    v_test text;
begin
    for v_table in
        select c.relname from pg_class c
        where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and (
            select count(*) = 2 from pg_attribute a
            where a.attrelid = c.oid and a.attname in ('scope_id', 'participants'))
        order by 1
    loop
        v_roles := case when v_table in ('events', 'event_search')
            then 'strandline_app, strandline_owner' else 'public' end;
        v_test := 'is_scope_of(scope_id, tenant_id, participants)';
        if v_table = 'jobs' then  -- one of no scope is the whole tenant's, who has no participants
            v_test := 'case when scope_id is null then participants = ''{}'' else ' || v_test || ' end';
        elsif v_table = 'scope_members' then
            v_test := v_test || ' and participant = any (participants)';
        end if;
        execute format('create policy of_scope on %I as restrictive for insert to %s with check (%s)',
            v_table, v_roles, v_test);
    end loop;
end $$;

-- As before (0016), but the scope must be of the item's participants: one that is of others is not
-- found, and cannot be made.
grant create on schema public to strandline_append;
set local role strandline_append;
create or replace function append_plain(p_item jsonb) returns append_outcome
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
reset role;
revoke create on schema public from strandline_append;
