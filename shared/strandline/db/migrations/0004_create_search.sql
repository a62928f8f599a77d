-- Finding events: one filter for every read, and full text that row-level security cannot use an
-- index for, behind a function with its own tenant and visibility test.

-- What a caller may narrow by, as JSON: session_id, channel, role, type, speaker, origin, since,
-- until (of occurred_at, else recorded_at), metadata (contained). Absent means any.
create function passes(e events, f jsonb) returns boolean language sql stable parallel safe
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

-- The words of a question as alternatives: any of them may match, the more the better.
create function any_word(p_question text) returns tsquery language sql immutable parallel safe
    return (
        select coalesce(string_agg(
            '''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | '), '')::tsquery
        from unnest(to_tsvector('pg_catalog.english', normalize(p_question, NFC))));

-- The scopes in which all of Q took part; null for an empty Q, which every scope contains.
create function scopes_in_view() returns uuid[] language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return case when current_viewer() <> '{}' then array(
        select m.scope_id from scope_members m
        where m.tenant_id = current_tenant() and m.participant = (current_viewer())[1]
            and m.participants @> current_viewer()) end;

-- Best pieces first. rank is ts_rank with log-length normalisation: this turn, its speaker and its
-- date weigh 1.0, the turn before it 0.7.
grant create on schema public to strandline_search;
create function search_events(p_query tsquery, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, start_char int, end_char int, rank real)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.event_id, w.start_char, w.end_char, ts_rank('{1.0, 1.0, 0.7, 1.0}', w.words, p_query, 1)
    from event_search w
    where w.tenant_id = current_tenant() and w.participants @> current_viewer()
        and (p_scopes is null or w.scope_id = any (p_scopes))
        and w.words @@ p_query
        and (p_filter = '{}' or exists (
            select from events e
            where e.tenant_id = w.tenant_id and e.event_id = w.event_id and passes(e, p_filter)))
    order by 4 desc, w.event_id desc, w.piece
    limit p_limit
$$;
revoke execute on function search_events from public;
grant execute on function search_events to strandline_app;
alter function search_events owner to strandline_search;
revoke create on schema public from strandline_search;

-- An event's edges as its readers see them.
create function edges_of(e events) returns jsonb language sql stable parallel safe
    return (
        select coalesce(jsonb_agg(jsonb_build_object(
            'event_id', m.cited_id, 'cid', m.cited_cid, 'weight', m.weight)
            order by m.cited_cid, m.cited_id), '[]')
        from memory_edges m where m.tenant_id = e.tenant_id and m.event_id = e.event_id);

-- What a reader gets of an event. As its caller's rights, so that row-level security holds.
create view event_rows with (security_invoker = true) as
    select e.event_id, e.scope_id, e.seq, e.participants, e.session_id, e.channel, e.role, e.type,
        e.origin, e.speaker, e.content, e.parts, e.stop_reason, e.blob_cid, e.blob_size, e.mime_type,
        e.file_name, e.metadata, e.occurred_at, e.recorded_at, e.cid, edges_of(e) as edges
    from events e where e.erased_at is null;
grant select on event_rows to strandline_app;

-- All the words of several pieces; without their positions, of which a tsvector has room for few.
create aggregate all_words(tsvector) (sfunc = tsvector_concat, stype = tsvector, initcond = '');

-- Does the event's own text (not its speaker, nor its neighbour) answer a web search? The words may
-- stand in different pieces of a large payload; a phrase is found where there is one piece only.
create function holds_words(e events, p_text text) returns boolean language sql stable parallel safe
    set search_path = pg_catalog, public, pg_temp
    return (
        select case when count(*) = 1 then bool_and(ts_filter(w.words, '{a}') @@ wanted.words)
            else all_words(strip(ts_filter(w.words, '{a}'))) @@ max(wanted.words::text)::tsquery end
        from event_search w, websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))
            as wanted (words)
        where w.tenant_id = e.tenant_id and w.scope_id = e.scope_id and w.event_id = e.event_id);

-- Was a row's transaction over when this snapshot was taken? After a logical restore rows bear the
-- numbers of another cluster's transactions, greater than any here: they are old, not of the future.
create function seen_by(p_xid xid8, p_mark pg_snapshot) returns boolean
language sql stable parallel safe
    return pg_visible_in_snapshot(p_xid, p_mark)
        or p_xid >= pg_snapshot_xmax(pg_current_snapshot());
