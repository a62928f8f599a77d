-- Functions as they were before: next_sweep and next_archive looked at each tenant; the append did without
-- a look for what is being erased.

create function next_sweep(p_space text, p_deployment jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(next_retry_at(due.at, p_spacing, p_now)) from (
        -- Of what is overdue the latest is enough: it has the shortest pause.
        select unnest(array[max(work.at) filter (where work.at <= p_now),
            min(work.at) filter (where work.at > p_now)]) as at
        from (
            select greatest(w.due_at, w.leased_until) as at from scope_work w where w.attempts <= 12
            union all
            -- What failed often is tried by every sweep, but starts one ever more seldom.
            select greatest(w.due_at, w.leased_until)
                + (2 ^ (w.attempts - 12) - 1) * interval '5 minutes'
            from scope_work w where w.attempts between 13 and 20) work
        union all
        select unnest(array[overdue.idle_at, upcoming.idle_at]) from tenants t
        left join lateral (
            select l.idle_at from lanes l
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at <= p_now and s.folded_seq >= s.last_seq
            order by l.idle_at desc limit 1) overdue on true
        left join lateral (
            select l.idle_at from lanes l
            join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            where l.tenant_id = t.tenant_id and l.idle_at > p_now and s.folded_seq >= s.last_seq
            order by l.idle_at limit 1) upcoming on true
        union all
        select greatest(j.created_at, j.leased_until) from jobs j
        where j.state = 'queued' and j.ref is not null
        union all
        select j.leased_until from jobs j where j.state in ('queued', 'running') and j.ref is null
        union all
        select max(r.recalled_at) from recalls r join chains c using (tenant_id, chain_id)
        where r.folded_at is null
        union all
        select max(u.remove_at) from uploads u where u.remove_at <= p_now
        union all
        select min(u.remove_at) from uploads u where u.remove_at > p_now
        union all
        select coalesce(q.measured_at, q.recent_since) + interval '10 minutes' from quotas q
        where q.quota = 'stored_bytes' and q.leased > 0 and q.level is distinct from q.measured
        union all
        select p_now from tenants t
        where p_space is not null and (t.swept_space is distinct from p_space
            or t.heat_recomputed_to is not null
                or t.applied_heat_settings <> heat_settings(p_deployment, t.tuning))
    ) due
$$;

create function next_archive(p_grace interval, p_period interval, p_snapshot_age interval,
    p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select unnest(array[overdue.cold_at, upcoming.cold_at]) as at from tenants t
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now
            order by c.cold_at desc limit 1) overdue on true
        left join lateral (
            select c.cold_at from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at > p_now
            order by c.cold_at limit 1) upcoming on true
        union all
        select coalesce(r.removing_until, r.marked_at + interval '15 minutes') from blob_removals r
        union all
        select period_start(removable.at, p_period) + p_period from tenants t
        left join blob_scans p on p.tenant_id = t.tenant_id
        cross join lateral uncited_blobs_removable_at(t.tenant_id, p_grace) removable (at)
        where coalesce(p.ended_at, '-infinity') < removable.at or p.position <> ''
        union all
        select period_start(d.due_at, p_period) + p_period from collections_due(p_snapshot_age) d
    ) due
    where due.at is not null
$$;

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
