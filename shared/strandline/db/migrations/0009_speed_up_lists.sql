-- Lists and recall for a caller in thousands of scopes: what grows with the view is read by index and
-- once, and a page reads no more of the log than it must.

-- At most so many of the scopes in which all of Q took part (null: all of them); null for an empty Q,
-- which every scope contains. Looked up by the last of Q: a user, where there is one, is in fewer
-- scopes than an agent that serves many.
create function some_scopes_in_view(p_most int) returns uuid[] language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return case when current_viewer() <> '{}' then array(
        select m.scope_id from scope_members m
        where m.tenant_id = current_tenant()
            and m.participant = (current_viewer())[cardinality(current_viewer())]
            and m.participants @> (select current_viewer())
        limit p_most) end;

create or replace function scopes_in_view() returns uuid[] language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return some_scopes_in_view(null);

-- At most so many of these scopes (null, or more than that: of all in view) that have a session of this
-- name: a list of a session looks into no other. Nobody has two of a name in what they see, but names
-- such as "default" are in as many scopes of a tenant as it has users.
create function scopes_with_session(p_session_id text, p_scopes uuid[], p_most int) returns uuid[]
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off
    return case when cardinality(p_scopes) < p_most then array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
            and s.scope_id = any (p_scopes))
    else array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
        limit p_most) end;

-- Is an event past a list's cursor, in its snapshot, and one of those asked for?
create function is_listed(
    e events, p_narrowing jsonb, p_mark pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint)
returns boolean language sql stable parallel safe
    return (p_at is null or (e.recorded_at, e.scope_id, e.seq) < (p_at, p_after, p_seq))
        and (p_mark is null or seen_by(e.xid, p_mark))
        and passes(e, p_narrowing);

-- What an event counts towards the bytes of a page.
create function page_bytes(e events) returns bigint language sql stable parallel safe
    return coalesce(octet_length(e.content), 0) + octet_length(e.metadata::text) + 1024;

-- Does the event's own text (not its speaker, nor its neighbour) answer a web search? The words may
-- stand in different pieces of a large payload; a phrase is found where there is one piece only. By
-- the event's ids: to hand over a row would be to unpack all its content first.
create function event_holds_words(p_scope_id uuid, p_event_id uuid, p_text text) returns boolean
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan
    return (
        select case when count(*) = 1 then bool_and(ts_filter(w.words, '{a}') @@ wanted.words)
            else all_words(strip(ts_filter(w.words, '{a}'))) @@ max(wanted.words::text)::tsquery end
        from event_search w, websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))
            as wanted (words)
        where w.tenant_id = current_tenant() and w.scope_id = p_scope_id
            and w.event_id = p_event_id);
create or replace function holds_words(e events, p_text text) returns boolean
language sql stable parallel safe
    return event_holds_words(e.scope_id, e.event_id, p_text);

-- The words that an answer to a web search must hold, negations left out; null where it may do
-- without any.
create function needed_words(p_text text) returns tsquery language sql immutable parallel safe
    return (
        select case when needed <> 'T' then needed::tsquery end
        from querytree(websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))) needed);

create function any_of(p_query tsquery) returns tsquery language sql immutable parallel safe
    return (
        select coalesce(string_agg(lexeme[1], ' | '), '')::tsquery
        from regexp_matches(p_query::text, '''(?:[^'']|'''')*''', 'g') lexeme);

-- Append says it by itself by now.
drop function spoken_date;

-- An address to its payload's earliest event, without a look at all that cite it.
drop index events_blob;
create index events_blob on events (tenant_id, blob_cid, recorded_at, event_id)
    where blob_cid is not null;

grant create on schema public to strandline_search;

-- How far back the tenant's newest events reach, so many of them from a moment on; -infinity where
-- there are no more. For any viewer, and past the test of visibility, as it has to count what is not in
-- view; it gives one moment and nothing else: no event, no id, no participant. All that it tells is how
-- busy the asker's own tenant was lately, and a list reads what it shows under row-level security.
create function newest_reach_back(p_at timestamptz, p_events int) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select coalesce((
        select e.recorded_at from events e
        where e.tenant_id = current_tenant() and e.recorded_at <= coalesce(p_at, 'infinity')
        order by e.recorded_at desc, e.scope_id desc, e.seq desc
        offset p_events limit 1), '-infinity')
    where current_tenant() is not null and current_viewer() is not null
$$;

-- Events in view that may answer a web search, among them all that do: full text that row-level
-- security cannot use an index for, with its own tenant and visibility test.
create function events_with_words(p_needed tsquery) returns table (event_id uuid)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_bitmapscan = on as $$
    select distinct w.event_id from event_search w
    where w.tenant_id = current_tenant() and w.participants @> current_viewer()
        and w.words @@ any_of(p_needed)
        and (w.words @@ p_needed or exists (  -- of a large payload another piece may hold the rest
            select from event_search other
            where other.tenant_id = w.tenant_id and other.scope_id = w.scope_id
                and other.event_id = w.event_id and other.piece <> w.piece))
$$;

revoke execute on function newest_reach_back, events_with_words from public;
grant execute on function newest_reach_back, events_with_words to strandline_app;
alter function newest_reach_back owner to strandline_search;
alter function events_with_words owner to strandline_search;
revoke create on schema public from strandline_search;

-- The newest events in a view of many scopes. First among the tenant's newest: while the view holds a
-- hundredth of them, they are enough. What they lack of a page lies further back, and is found by its
-- words, or by time where everything is in view, or else in the scopes whose newest such event is
-- among the page's. Planned each time: the values say which index serves.
create function newest_of_many(
    p_narrowing jsonb, p_text text, p_mark pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint,
    p_limit int)
returns table (event_id uuid, recorded_at timestamptz, scope_id uuid, seq bigint, bytes bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    v_back_to timestamptz := newest_reach_back(
        p_at, p_limit * case when p_text is null then 100 else 20 end);
    v_needed tsquery := needed_words(p_text);
    v_found int;
begin
    return query
        select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
        where e.tenant_id = current_tenant() and e.recorded_at >= v_back_to
            and is_listed(e, p_narrowing, p_mark, p_at, p_after, p_seq)
            and (p_text is null or holds_words(e, p_text))
        order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit;
    get diagnostics v_found = row_count;
    if v_found = p_limit or v_back_to = '-infinity' then
        return;
    elsif v_needed is not null then
        return query
            select found.* from (
                select e.* from events_with_words(v_needed) w
                cross join lateral (
                    select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
                    where e.tenant_id = current_tenant() and e.event_id = w.event_id
                        and e.recorded_at < v_back_to
                        and is_listed(e, p_narrowing, p_mark, p_at, p_after, p_seq)
                    offset 0) e
                order by e.recorded_at desc, e.scope_id desc, e.seq desc offset 0) found
            where event_holds_words(found.scope_id, found.event_id, p_text)
            limit p_limit - v_found;
    elsif current_viewer() = '{}' then
        return query
            select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
            where e.tenant_id = current_tenant() and e.recorded_at < v_back_to
                and is_listed(e, p_narrowing, p_mark, p_at, p_after, p_seq)
                and (p_text is null or holds_words(e, p_text))
            order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit - v_found;
    else
        return query
            select e.* from (
                select head.scope_id
                from unnest((
                    select case when p_narrowing ? 'session_id'
                        then scopes_with_session(p_narrowing ->> 'session_id', null, null)
                        else scopes_in_view() end)) view (scope_id)
                cross join lateral (
                    select e.scope_id, e.recorded_at from events e
                    where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                        and e.recorded_at < v_back_to
                        and is_listed(e, p_narrowing, p_mark, p_at, p_after, p_seq)
                        and (p_text is null or holds_words(e, p_text))
                    order by e.seq desc limit 1) head
                order by head.recorded_at desc, head.scope_id desc limit p_limit - v_found) best
            cross join lateral (
                select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
                where e.tenant_id = current_tenant() and e.scope_id = best.scope_id
                    and e.recorded_at < v_back_to
                    and is_listed(e, p_narrowing, p_mark, p_at, p_after, p_seq)
                    and (p_text is null or holds_words(e, p_text))
                order by e.seq desc limit p_limit - v_found) e;
    end if;
end $$;
