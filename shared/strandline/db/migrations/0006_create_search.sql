-- Full text: the index of events' words, and the filter that all reads of events share. Under row-level
-- security Postgres cannot use a GIN index (its operators are not leakproof), so search is behind
-- functions with their own test of tenant and visibility.

create table event_search (
    tenant_id text not null,
    scope_id uuid not null,
    event_id uuid not null,
    piece int not null,  -- large content is indexed in pieces
    start_char int not null,
    end_char int not null,
    participants text[] not null,
    cited_id uuid,  -- the event before it in its lane, whose words stand here at weight B
    words tsvector not null,  -- A: the text, B: the event before it, C: the date, D: the speaker
    primary key (tenant_id, scope_id, event_id, piece),
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, cited_id) references events
);
create index event_search_words on event_search using gin (tenant_id, words);

create policy in_view on event_search to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
-- As on events, append_fast_path does this test by itself.
create policy matches_scope on event_search as restrictive for insert to strandline_app, strandline_owner
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy search_reads on event_search for select to strandline_search using (true);
alter table event_search enable row level security;
alter table event_search force row level security;
grant select, insert on event_search to strandline_app;
grant select on event_search to strandline_search;

-- words --------------------------------------------------------------------------------------------

-- In NFC, as questions are. Postgres reads every character for that; plain ASCII does not need it.
create function normalize_nfc(p_text text) returns text language sql immutable parallel safe
    return case when octet_length(p_text) = length(p_text) then p_text else normalize(p_text, NFC) end;

create function event_tsvector(p_label text, p_text text) returns tsvector
language sql immutable parallel safe
    return setweight(to_tsvector('pg_catalog.english', normalize_nfc(coalesce(p_label, ''))), 'D')
        || setweight(to_tsvector('pg_catalog.english', normalize_nfc(p_text)), 'A');

-- The words of a question as alternatives: any of them may match, more matches rank higher.
create function to_or_tsquery(p_question text) returns tsquery language sql immutable parallel safe
    return (
        select coalesce(string_agg(
            '''' || replace(replace(lexeme, '\', '\\'), '''', '''''') || '''', ' | '), '')::tsquery
        from unnest(to_tsvector('pg_catalog.english', normalize(p_question, NFC))));

-- The words that every answer to a web search must hold, negations left out; null where an answer may
-- hold none.
create function required_tsquery(p_text text) returns tsquery language sql immutable parallel safe
    return (
        select case when required <> 'T' then required::tsquery end
        from querytree(websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))) required);

-- The same words, of which any may match.
create function relax_tsquery(p_query tsquery) returns tsquery language sql immutable parallel safe
    return (
        select coalesce(string_agg(lexeme[1], ' | '), '')::tsquery
        from regexp_matches(p_query::text, '''(?:[^'']|'''')*''', 'g') lexeme);

-- All words of several pieces, without their positions: a tsvector has room for few of these.
create aggregate tsvector_agg(tsvector) (sfunc = tsvector_concat, stype = tsvector, initcond = '');

-- Does the event's own text (not its speaker, nor the event before it) answer a web search? The words
-- may stand in different pieces of a large payload; a phrase is found only where there is one piece.
-- By the event's ids: passing the row would unpack all its content first.
create function event_matches_web_search(p_scope_id uuid, p_event_id uuid, p_text text) returns boolean
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan
    return (
        select case when count(*) = 1 then bool_and(ts_filter(w.words, '{a}') @@ search.words)
            else tsvector_agg(strip(ts_filter(w.words, '{a}'))) @@ max(search.words::text)::tsquery end
        from event_search w, websearch_to_tsquery('pg_catalog.english', normalize(p_text, NFC))
            as search (words)
        where w.tenant_id = current_tenant() and w.scope_id = p_scope_id
            and w.event_id = p_event_id);

create function matches_web_search(e events, p_text text) returns boolean
language sql stable parallel safe
    return event_matches_web_search(e.scope_id, e.event_id, p_text);

-- filter -------------------------------------------------------------------------------------------

-- What a caller may narrow by, as JSON: session_id, channel, role, type, speaker, origin, since and
-- until (of occurred_at, else recorded_at), metadata (contained). An absent member allows any value.
create function matches_filter(e events, f jsonb) returns boolean language sql stable parallel safe
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

-- search -------------------------------------------------------------------------------------------

grant create on schema public to strandline_search;

-- Best pieces first. rank is ts_rank with log-length normalisation: this turn, its speaker and its
-- date weigh 1.0, the turn before it 0.7. The viewer is read once, not once per piece that holds a
-- word. A filter looks up events by key, best words first, until there are enough. Planned at each
-- call: a generic plan knows neither whether there is a filter nor how few the scopes are.
create function search_events(p_query tsquery, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, start_char int, end_char int, rank real)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
    select w.event_id, w.start_char, w.end_char, w.rank
    from (
        select w.event_id, w.piece, w.start_char, w.end_char,
            ts_rank('{1.0, 1.0, 0.7, 1.0}', w.words, p_query, 1) as rank
        from event_search w
        where w.tenant_id = current_tenant() and w.participants @> (select current_viewer())
            and (p_scopes is null or w.scope_id = any (p_scopes))
            and w.words @@ p_query
        order by rank desc, w.event_id desc, w.piece
        limit case when p_filter = '{}' then p_limit end) w
    cross join lateral (
        select where p_filter = '{}'
        union all
        (select from events e
         where p_filter <> '{}' and e.tenant_id = current_tenant() and e.event_id = w.event_id
            and matches_filter(e, p_filter)
         offset 0)) event
    order by w.rank desc, w.event_id desc, w.piece
    limit p_limit
$$;

-- Events in view that may answer a web search, among them all that do.
create function web_search_candidates(p_required tsquery) returns table (event_id uuid)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_bitmapscan = on as $$
    select distinct w.event_id from event_search w
    where w.tenant_id = current_tenant() and w.participants @> current_viewer()
        and w.words @@ relax_tsquery(p_required)
        and (w.words @@ p_required or exists (  -- another piece of a large payload may hold the rest
            select from event_search other
            where other.tenant_id = w.tenant_id and other.scope_id = w.scope_id
                and other.event_id = w.event_id and other.piece <> w.piece))
$$;

revoke execute on function search_events, web_search_candidates from public;
grant execute on function search_events, web_search_candidates to strandline_app;
alter function search_events owner to strandline_search;
alter function web_search_candidates owner to strandline_search;
revoke create on schema public from strandline_search;
