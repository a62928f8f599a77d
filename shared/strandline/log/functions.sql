-- revision: 1
-- The log: what of it is in view, its lists, and the append.

-- in view ------------------------------------------------------------------------------------------

-- At most this many of the scopes in which all of Q took part (null: all of them); null for an empty Q,
-- which every scope contains. Looked up by the last of Q: a user, if there is one, is in fewer scopes
-- than an agent that serves many users.
create or replace function scopes_in_view_up_to(p_limit int) returns uuid[] language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return case when current_viewer() <> '{}' then array(
        select m.scope_id from scope_members m
        where m.tenant_id = current_tenant()
            and m.participant = (current_viewer())[cardinality(current_viewer())]
            and m.participants @> (select current_viewer())
        limit p_limit) end;

create or replace function scopes_in_view() returns uuid[] language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return scopes_in_view_up_to(null);

-- At most this many of the given scopes (null, or more than that: of all in view) that have a session
-- of this name: the list of a session reads no other scope. A reader sees few sessions of one name,
-- but a name such as "default" exists in as many scopes of a tenant as it has users.
create or replace function scopes_with_session(p_session_id text, p_scopes uuid[], p_limit int) returns uuid[]
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off
    return case when cardinality(p_scopes) < p_limit then array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
            and s.scope_id = any (p_scopes))
    else array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
        limit p_limit) end;

-- How far an origin is trusted, from 1. `system` comes from the tenant's own service, since no
-- credential bound to a user can write it; `user` from a person, `agent` from a model, `tool` from
-- wherever an agent reached, `document` from its unknown author. An unknown origin is trusted least.
create or replace function trust_rank(p_origin text) returns int language sql immutable parallel safe
    return coalesce(array_position(array['document', 'tool', 'agent', 'user', 'system'], p_origin), 0);

-- Is an event of this type a statement? A case, for which the planner assumes nothing: if it knew that
-- most events are, it would read and sort all of a scope to find the newest that is none.
create or replace function is_statement(p_type text) returns boolean language sql immutable parallel safe
    return case when p_type = 'statement' then true else false end;

-- What a caller may narrow by, as JSON: session_id, channel, role, type, speaker, origin, since and
-- until (of occurred_at, else recorded_at), metadata (contained). An absent member allows any value.
create or replace function matches_filter(e events, f jsonb) returns boolean language sql stable parallel safe
    return e.erased_at is null
        and (not f ? 'session_id' or e.session_id = f ->> 'session_id')
        and (not f ? 'channel' or e.channel = f ->> 'channel')
        and (not f ? 'role' or e.role = f ->> 'role')
        and (not f ? 'type' or e.type = f ->> 'type')
        and (not f ? 'speaker' or e.speaker = f ->> 'speaker')
        and (not f ? 'origin' or e.origin = f ->> 'origin')
        and (not f ? 'since' or coalesce(e.occurred_at, e.recorded_at) >= (f ->> 'since')::timestamptz)
        and (not f ? 'until' or coalesce(e.occurred_at, e.recorded_at) < (f ->> 'until')::timestamptz)
        and (not f ? 'metadata' or e.metadata @> (f -> 'metadata'));

-- texts --------------------------------------------------------------------------------------------

create or replace function event_tsvector(p_label text, p_text text) returns tsvector
language sql immutable parallel safe
    return setweight(to_tsvector('pg_catalog.english', normalize_nfc(coalesce(p_label, ''))), 'D')
        || setweight(to_tsvector('pg_catalog.english', normalize_nfc(p_text)), 'A');

-- All words of several pieces, without their positions: a tsvector has room for few of these.
create or replace aggregate tsvector_agg(tsvector) (sfunc = tsvector_concat, stype = tsvector, initcond = '');

-- The words that every answer to a web search must hold, negations left out; null where an answer may
-- hold none.
create or replace function required_tsquery(p_text text) returns tsquery language sql immutable parallel safe
    return (
        select case when required <> 'T' then required::tsquery end
        from querytree(websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))) required);

-- The same words, of which any may match.
create or replace function relax_tsquery(p_query tsquery) returns tsquery language sql immutable parallel safe
    return (
        select coalesce(string_agg(lexeme[1], ' | '), '')::tsquery
        from regexp_matches(p_query::text, '''(?:[^'']|'''')*''', 'g') lexeme);

set local role strandline_search;

-- Events in view that may answer a web search, among them all that do.
create or replace function web_search_candidates(p_required tsquery, p_scopes uuid[] default null)
returns table (event_id uuid)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = on as $$
    select distinct w.event_id from event_search w
    where w.tenant_id = current_tenant() and w.participants @> (select current_viewer())
        and (p_scopes is null or w.scope_id = any (p_scopes))
        and w.words @@ relax_tsquery(p_required)
        and (w.words @@ p_required or exists (  -- another piece of a large payload may hold the rest
            select from event_search other
            where other.tenant_id = w.tenant_id and other.scope_id = w.scope_id
                and other.event_id = w.event_id and other.piece <> w.piece))
$$;
revoke execute on function web_search_candidates from public;
grant execute on function web_search_candidates to strandline_app;

-- Events in view whose indexed text contains this one, which is folded. With fewer than three
-- characters it reads all that is in view.
create or replace function indexed_events_containing(p_folded text, p_scopes uuid[]) returns table (event_id uuid)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = on as $$
    select t.event_id from event_texts t
    where t.tenant_id = current_tenant() and t.participants @> (select current_viewer())
        and (p_scopes is null or t.scope_id = any (p_scopes))
        and trigrams_of(t.text) @> trigrams_of(p_folded)
        and strpos(t.text, p_folded) > 0
$$;
revoke execute on function indexed_events_containing from public;
grant execute on function indexed_events_containing to strandline_app;

reset role;

-- Events in view whose text contains this one: by the index, and by scan what it lacks so far.
create or replace function events_containing(p_text text, p_scopes uuid[]) returns table (event_id uuid)
language sql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off as $$
    select indexed.event_id from indexed_events_containing(fold_text(p_text), p_scopes) indexed
    union all
    select e.event_id from scopes s
    cross join lateral (
        select e.event_id, e.content from events e
        where e.tenant_id = current_tenant() and e.scope_id = s.scope_id and e.seq > s.indexed_seq
        offset 0) e
    where s.tenant_id = current_tenant() and (p_scopes is null or s.scope_id = any (p_scopes))
        and s.last_seq > s.indexed_seq and strpos(fold_text(e.content), fold_text(p_text)) > 0
$$;

-- The events that may match a list's text, where an index can tell; else null.
create or replace function text_candidates(p_filter jsonb, p_text text, p_scopes uuid[]) returns uuid[]
language plpgsql stable set search_path = pg_catalog, public, pg_temp as $$
declare
    v_required tsquery := required_tsquery(p_text);
begin
    if v_required is not null then
        return array(select c.event_id from web_search_candidates(v_required, p_scopes) c);
    elsif p_filter ? 'contains' then
        return array(select c.event_id from events_containing(p_filter ->> 'contains', p_scopes) c);
    end if;
    return null;
end $$;

-- A row where the event answers the web search, or where there is none. Inlined into the statement: to call a
-- function costs ten times the look at the index.
create or replace function match_text(p_scope_id uuid, p_event_id uuid, p_text text)
returns table (is_match boolean) language sql stable parallel safe as $$
    select true where p_text is null
    union all
    select true from (
        select case when count(*) = 1 then bool_and(ts_filter(w.words, '{a}')
                @@ websearch_to_tsquery('pg_catalog.english', normalize_nfc(p_text)))
            else tsvector_agg(strip(ts_filter(w.words, '{a}')))
                @@ websearch_to_tsquery('pg_catalog.english', normalize_nfc(p_text)) end as is_match
        from event_search w
        where w.tenant_id = current_tenant() and w.scope_id = p_scope_id
            and w.event_id = p_event_id) pieces
    where p_text is not null and pieces.is_match
$$;

-- lists --------------------------------------------------------------------------------------------

-- Lists of events for a caller in thousands of scopes: what grows with the view is read by index and
-- once, and a page reads no more of the log than it must.

-- Is an event past a list's cursor, in its snapshot, and one that the caller narrowed to; and where the filter
-- has `contains`: does the event's content contain this text?
create or replace function is_listed(
    e events, p_filter jsonb, p_snapshot pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint)
returns boolean language sql stable parallel safe
    return (p_at is null or (e.recorded_at, e.scope_id, e.seq) < (p_at, p_after, p_seq))
        and (p_snapshot is null or is_in_snapshot(e.xid, p_snapshot))
        and matches_filter(e, p_filter)
        and (not p_filter ? 'contains'
            or strpos(fold_text(e.content), fold_text(p_filter ->> 'contains')) > 0);

-- What an event counts towards the bytes of a page.
create or replace function page_bytes(e events) returns bigint language sql stable parallel safe
    return coalesce(octet_length(e.content), 0) + octet_length(e.metadata::text) + 1024;

set local role strandline_search;

-- How far back the tenant's newest events reach: the time of the one that is p_events before p_at;
-- -infinity where there are fewer. It ignores visibility, as it has to count what is not in view. It
-- returns one moment: no event, no id, no participant. All that this tells is how busy the caller's
-- own tenant was lately; a list then reads what it shows under row-level security. Who sees no scope of the
-- tenant does not learn it: for them it reaches nowhere, and a list reads nothing.
create or replace function nth_newest_recorded_at(p_at timestamptz, p_events int) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select case
        when current_viewer() <> '{}' and not exists (
            select from scope_members m
            where m.tenant_id = current_tenant() and m.participant = (current_viewer())[1]
                and m.participants @> current_viewer())
        then 'infinity'
        else coalesce((
            select e.recorded_at from events e
            where e.tenant_id = current_tenant() and e.recorded_at <= coalesce(p_at, 'infinity')
            order by e.recorded_at desc, e.scope_id desc, e.seq desc
            offset p_events limit 1), '-infinity')
        end
    where current_tenant() is not null and current_viewer() is not null
$$;
revoke execute on function nth_newest_recorded_at from public;
grant execute on function nth_newest_recorded_at to strandline_app;

reset role;

-- Of these events, those on a list of what a text matches, newest first: the loop over match_text keeps
-- the order, and ends at the limit.
create or replace function newest_of_candidates(
    p_candidates uuid[], p_filter jsonb, p_text text, p_snapshot pg_snapshot, p_at timestamptz,
    p_after uuid, p_seq bigint, p_limit int)
returns table (event_id uuid, recorded_at timestamptz, scope_id uuid, seq bigint, bytes bigint)
language sql stable parallel safe as $$
    select listed.* from (
        select e.* from unnest(p_candidates) candidate (event_id)
        cross join lateral (
            select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) as bytes from events e
            where e.tenant_id = current_tenant() and e.event_id = candidate.event_id
                and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
            offset 0) e
        order by e.recorded_at desc, e.scope_id desc, e.seq desc offset 0) listed
    cross join lateral match_text(listed.scope_id, listed.event_id, p_text)
    limit p_limit
$$;

-- The newest events of a few scopes that a text matches. The newest of all are read first: a text that
-- many events match needs no more. What lies further back is found by index; by scan where the index
-- names so many that a scan meets a page of them sooner, or knows nothing of the text.
create or replace function newest_matches_in_few_scopes(
    p_scopes uuid[], p_filter jsonb, p_text text, p_snapshot pg_snapshot, p_at timestamptz,
    p_after uuid, p_seq bigint, p_limit int)
returns table (event_id uuid, recorded_at timestamptz, scope_id uuid, seq bigint, bytes bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    v_per_scope int := ceil(4.0 * p_limit / greatest(cardinality(p_scopes), 1));
    v_newest uuid[];
    v_at timestamptz;  -- the last of these: before it everything is still to be read
    v_after uuid;
    v_seq bigint;
    v_candidates uuid[];
    v_row_count int;
begin
    with newest as materialized (
        select e.* from unnest(p_scopes) view (scope_id)
        cross join lateral (
            select e.event_id, e.recorded_at, e.scope_id, e.seq,
                row_number() over (order by e.seq desc) as place
            from events e
            where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                and is_listed(e, p_filter - 'contains', p_snapshot, p_at, p_after, p_seq)
            order by e.seq desc limit v_per_scope) e),
    last as materialized (
        select * from newest where place = v_per_scope
        order by recorded_at desc, scope_id desc, seq desc limit 1)
    select array_agg(newest.event_id), max(last.recorded_at), (array_agg(last.scope_id))[1],
        max(last.seq)
    into v_newest, v_at, v_after, v_seq
    from newest left join last on true
    where last.seq is null or (newest.recorded_at, newest.scope_id, newest.seq)
        >= (last.recorded_at, last.scope_id, last.seq);
    return query
        select * from newest_of_candidates(
            v_newest, p_filter, p_text, p_snapshot, p_at, p_after, p_seq, p_limit);
    get diagnostics v_row_count = row_count;
    if v_row_count = p_limit or v_at is null then
        return;
    end if;
    v_candidates := text_candidates(p_filter, p_text, p_scopes);
    if cardinality(v_candidates) <= 20 * p_limit then
        return query
            select * from newest_of_candidates(v_candidates, p_filter, p_text, p_snapshot, v_at,
                v_after, v_seq, p_limit - v_row_count);
    else
        return query
            select e.* from unnest(p_scopes) view (scope_id)
            cross join lateral (
                select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e)
                from events e cross join lateral match_text(e.scope_id, e.event_id, p_text)
                where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                    and is_listed(e, p_filter, p_snapshot, v_at, v_after, v_seq)
                order by e.seq desc limit p_limit - v_row_count) e
            order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit - v_row_count;
    end if;
end $$;

-- The newest events in a view of many scopes. First among the tenant's newest: while the view holds a
-- hundredth of them, these are enough. The rest of a page lies further back. It is found by its words or by
-- what it contains; or by time, where everything is in view; or else in the scopes whose newest such event is
-- among the page's. Planned at each call: the values say which index serves.
create or replace function newest_in_many_scopes(
    p_filter jsonb, p_text text, p_snapshot pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint,
    p_limit int)
returns table (event_id uuid, recorded_at timestamptz, scope_id uuid, seq bigint, bytes bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    v_since timestamptz := nth_newest_recorded_at(
        p_at, p_limit * case when p_text is null and not p_filter ? 'contains' then 100 else 20 end);
    v_row_count int;
    v_candidates uuid[];
begin
    return query
        select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e)
        from events e cross join lateral match_text(e.scope_id, e.event_id, p_text)
        where e.tenant_id = current_tenant() and e.recorded_at >= v_since
            and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
        order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit;
    get diagnostics v_row_count = row_count;
    if v_row_count = p_limit or v_since = '-infinity' then
        return;
    end if;
    v_candidates := text_candidates(p_filter, p_text, null);
    if v_candidates is not null then  -- among them those above, which count towards the limit again
        return query
            select e.* from newest_of_candidates(
                v_candidates, p_filter, p_text, p_snapshot, p_at, p_after, p_seq, p_limit) e
            where e.recorded_at < v_since;
    elsif current_viewer() = '{}' then
        return query
            select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e)
            from events e cross join lateral match_text(e.scope_id, e.event_id, p_text)
            where e.tenant_id = current_tenant() and e.recorded_at < v_since
                and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
            order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit - v_row_count;
    else
        return query
            select e.* from (
                select head.scope_id
                from unnest((
                    select case when p_filter ? 'session_id'
                        then scopes_with_session(p_filter ->> 'session_id', null, null)
                        else scopes_in_view() end)) view (scope_id)
                cross join lateral (
                    select e.scope_id, e.recorded_at
                    from events e cross join lateral match_text(e.scope_id, e.event_id, p_text)
                    where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                        and e.recorded_at < v_since
                        and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                    order by e.seq desc limit 1) head
                order by head.recorded_at desc, head.scope_id desc limit p_limit - v_row_count) best
            cross join lateral (
                select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e)
                from events e cross join lateral match_text(e.scope_id, e.event_id, p_text)
                where e.tenant_id = current_tenant() and e.scope_id = best.scope_id
                    and e.recorded_at < v_since
                    and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                order by e.seq desc limit p_limit - v_row_count) e;
    end if;
end $$;

-- append -------------------------------------------------------------------------------------------

-- An append is one function and one round trip: append_events. The order of its steps: check, reserve keys,
-- lock scopes, assign seq, insert. append_batch is the general path, append_fast_path that of a single plain
-- event. An append costs less for what its statements do than for starting them: each sets up its whole plan
-- anew. So what few appends need (new scopes and sessions, edges, payloads, keys that were used before) stands
-- in statements that run only where needed, and what plpgsql can do by itself needs no statement.
--
-- These functions are in plpgsql because it keeps its plans: planning them at every append costs more
-- than running them. They run within append_batch and under its settings: a plan that is made once,
-- maybe while the tables were empty, must hold for any size, by index and row by row. Under row-level
-- security an index serves a plain column = column only: what is computed for a comparison (a cast, a
-- coalesce) is computed before.

-- The items whose key is that of an erased event, as append_refusals gives what it refuses.
create or replace function erased_key_refusals(p_items append_item[]) returns jsonb
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

-- Why each item that cannot be stored is refused: {"<n>": code}. Reads only. Nothing is added to a
-- session that has ended: append_batch treats such a session as unknown, and only then calls this, so
-- that appends to all others pay nothing for it. Few appends need this function, and it joins: its own
-- settings make it go by index.
create or replace function append_refusals(p_items append_item[]) returns jsonb
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
create or replace function lock_new_sessions(p_items append_item[]) returns void
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
-- that were lost to others. A key whose event is marked is that of an erased event, though it is still there.
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

-- The size of a cited payload, as its upload or an event that holds it says.
create or replace function payload_size(p_cid text) returns bigint
language plpgsql stable as $$
begin
    return coalesce(
        (select b.size from blobs b where b.tenant_id = current_tenant() and b.cid = p_cid limit 1),
        (select e.blob_size from events e
         where e.tenant_id = current_tenant() and e.blob_cid = p_cid limit 1));
end $$;

-- Create a scope that does not exist yet, with its members.
create or replace function create_scope(p_item append_item) returns void
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
-- count its events. The caller has reserved every key.
create or replace function assign_seqs(p_items append_item[]) returns append_item[]
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

-- Put the scopes that have no work waiting on the work queue, and mark their outcomes as work_enqueued:
-- for the other scopes a message is on its way already.
create or replace function enqueue_scope_work(p_outcomes append_outcome[],
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
create or replace function store_events(p_items append_item[], p_new_sessions boolean)
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

-- Reserve keys, and store the items that have reserved theirs or have none. An item whose key is that of an
-- erased event is refused.
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

-- One row per item. Atomic means all or none: where one item fails all is undone, and the rows of the
-- others say what would have become of them. (Undone by a caught exception, whose text no server log
-- keeps.) Each setting of a function costs time at each call: there are few.
create or replace function append_batch(
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

set local role strandline_append;

-- One event, as append_item describes it. Most appends are one event without edges and payload, in a session
-- that exists: for these no more statements than the log's invariants need, in one function. It returns null,
-- having done nothing, where the event needs the general path: so does a key of an erased event, and every
-- event while events are being erased, as what this one reads is not held to the marks. A scope that is not of
-- the item's participants is not found, and cannot be created. A statement is in no lane, as in append_pieces.
-- Its role and what that may do: see 08_append.sql.
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
revoke execute on function append_fast_path from public;
grant execute on function append_fast_path to strandline_app;

reset role;

-- Append on behalf of a caller, one row per item. Who the caller is are arguments, so that an append is
-- one statement, with no statement before it that sets them.
create or replace function append_events(
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

-- Append an event whose edges recall found (POST /api/v1/insert). How they were found is no part of the
-- request, and a replay must answer the same: it is a decision, stored in the event's own transaction.
-- p_items holds one item. p_links is the decision's body.
create or replace function append_linked_event(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_decision_id text, p_links jsonb)
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_outcome append_outcome;
begin
    select o.* into v_outcome from append_events(p_tenant, p_viewer, p_writer, p_items, false) o;
    if v_outcome.outcome = 'created' then
        insert into decisions
            (tenant_id, decision_id, scope_id, participants, event_id, kind, at_seq, body)
        select current_tenant(), p_decision_id::uuid, v_outcome.scope_id, i.participants,
            v_outcome.event_id, 'links', v_outcome.seq, p_links
        from jsonb_populate_recordset(null::append_item, p_items) i;
    end if;
    return next v_outcome;
end $$;

set local role strandline_guard;

-- Lock these events against erasure until the end of the transaction. Returns how many of them are in the
-- caller's view and not erased. SECURITY DEFINER, because locking a row takes a right that the application
-- lacks.
create or replace function lock_sources(p_event_ids uuid[]) returns bigint
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

reset role;

-- Append one event that rests on others without citing them: what a model says of what it was shown. It
-- fails, and stores nothing, where one of these is erased or being erased. The caller saw all of them.
create or replace function append_resting_event(
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

-- upkeep -------------------------------------------------------------------------------------------

set local role strandline_eraser;

-- Those of these events that the caller could see if no mark were about them: an answer to who asks for
-- one by its id.
create or replace function events_marked(p_event_ids uuid[])
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
revoke execute on function events_marked from public;
grant execute on function events_marked to strandline_app;

reset role;

set local role strandline_planner;

-- Tenant ids, and nothing else about them, where work is due or vectors are missing in this space.
create or replace function tenants_with_work(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id from scope_work w where w.due_at <= p_now and w.leased_until <= p_now
    union
    select s.tenant_id from scopes s
    left join embedding_progress p
        on p.tenant_id = s.tenant_id and p.scope_id = s.scope_id and p.space = p_space
    where s.last_seq > coalesce(p.embedded_seq, 0)
$$;
revoke execute on function tenants_with_work from public;
grant execute on function tenants_with_work to strandline_app;

-- Tenant ids, and nothing else about them, where uploads are past their time.
create or replace function tenants_with_expired_uploads(p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct u.tenant_id from uploads u where u.remove_at <= p_now
$$;
revoke execute on function tenants_with_expired_uploads from public;
grant execute on function tenants_with_expired_uploads to strandline_app;

-- The writers of a tenant's uploads that are past their time, the longest due first: for background
-- work in this tenant, which removes each writer's rows on the writer's behalf, because by itself it
-- sees none. Planned with p_now, which shows the planner that the uploads are few.
create or replace function writers_of_expired_uploads(p_now timestamptz, p_limit int)
returns table (writer text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select u.writer from uploads u
    where u.tenant_id = current_tenant() and current_viewer() = '{}' and u.remove_at <= p_now
    group by u.writer order by min(u.remove_at), u.writer limit p_limit
$$;
revoke execute on function writers_of_expired_uploads from public;
grant execute on function writers_of_expired_uploads to strandline_app;

-- Of these payloads the ones that some writer stored with an event: for background work in this tenant,
-- which by itself sees no user's rows.
create or replace function stored_blobs(p_cids text[])
returns table (cid text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct b.cid from blobs b
    where b.tenant_id = current_tenant() and current_viewer() = '{}' and b.cid = any (p_cids)
$$;
revoke execute on function stored_blobs from public;
grant execute on function stored_blobs to strandline_app;

reset role;
