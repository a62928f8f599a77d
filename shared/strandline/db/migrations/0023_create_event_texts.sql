-- Substring search: the index of events' texts, and lists of what a text matches that go by index.
--
-- A worker fills the index, as the trigrams of a text would cost an append a sixth. What it has not
-- reached yet (events past indexed_seq) is searched by scan, so that an append can be found at once.

-- text ---------------------------------------------------------------------------------------------

-- What two texts have in common that differ in case and composition only: letter by letter, and the
-- same on every platform, as the collation is Postgres's own.
create function fold_text(p_text text) returns text language sql immutable parallel safe
    return lower(normalize_nfc(p_text) collate "pg_c_utf8");

-- Every three characters that stand together, also spaces and punctuation: pg_trgm knows only those of
-- words, and would read the whole index for `C++` or `->`.
create function trigrams_of(p_text text) returns text[] language sql immutable parallel safe
    return array(
        select distinct t.first || t.second || t.third
        from (
            select c.char as first, lead(c.char) over by_place as second,
                lead(c.char, 2) over by_place as third
            from unnest(string_to_array(p_text, null)) with ordinality as c (char, place)
            window by_place as (order by c.place)) t
        where t.third is not null);

-- Every event up to here has its row in event_texts, where it has a text. Changed by workers only.
alter table scopes add column indexed_seq bigint not null default 0;
grant update (indexed_seq) on scopes to strandline_app;

create table event_texts (
    tenant_id text not null,
    scope_id uuid not null,
    event_id uuid not null,
    participants text[] not null,
    text text collate "C" not null,  -- folded; "C", as the index must not depend on a platform's order
    primary key (tenant_id, scope_id, event_id),
    foreign key (tenant_id, event_id) references events
);
-- No pending list: workers can wait, and each search would read all of it.
create index event_texts_trigrams on event_texts using gin (tenant_id, trigrams_of(text))
    with (fastupdate = off);

create policy in_view on event_texts to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on event_texts as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy search_reads on event_texts for select to strandline_search using (true);
alter table event_texts enable row level security;
alter table event_texts force row level security;
grant select, insert on event_texts to strandline_app;
grant select on event_texts to strandline_search;

set local role strandline_guard;
grant execute on function refuse_erased_event to strandline_owner;
reset role;
create trigger refuse_erased_event after insert on event_texts referencing new table as citing
for each statement execute function refuse_erased_event();
set local role strandline_guard;
revoke execute on function refuse_erased_event from strandline_owner;
reset role;

-- candidates ---------------------------------------------------------------------------------------

grant create on schema public to strandline_search;

-- Events in view whose indexed text contains this one, which is folded. With fewer than three
-- characters it reads all that is in view.
create function indexed_events_containing(p_folded text, p_scopes uuid[]) returns table (event_id uuid)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_bitmapscan = on as $$
    select t.event_id from event_texts t
    where t.tenant_id = current_tenant() and t.participants @> (select current_viewer())
        and (p_scopes is null or t.scope_id = any (p_scopes))
        and trigrams_of(t.text) @> trigrams_of(p_folded)
        and strpos(t.text, p_folded) > 0
$$;

set local role strandline_search;
-- contract: since 0.1.0 it is called by functions of the schema only
drop function web_search_candidates(tsquery);
reset role;

-- Events in view that may answer a web search, among them all that do.
create function web_search_candidates(p_required tsquery, p_scopes uuid[] default null)
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

revoke execute on function indexed_events_containing, web_search_candidates from public;
grant execute on function indexed_events_containing, web_search_candidates to strandline_app;
alter function indexed_events_containing owner to strandline_search;
alter function web_search_candidates owner to strandline_search;
revoke create on schema public from strandline_search;

-- Events in view whose text contains this one: by the index, and by scan what it lacks so far.
create function events_containing(p_text text, p_scopes uuid[]) returns table (event_id uuid)
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
create function text_candidates(p_filter jsonb, p_text text, p_scopes uuid[]) returns uuid[]
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

-- lists --------------------------------------------------------------------------------------------

-- As before, and where the filter has `contains`: does the event's content contain this text?
create or replace function is_listed(
    e events, p_filter jsonb, p_snapshot pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint)
returns boolean language sql stable parallel safe
    return (p_at is null or (e.recorded_at, e.scope_id, e.seq) < (p_at, p_after, p_seq))
        and (p_snapshot is null or is_in_snapshot(e.xid, p_snapshot))
        and matches_filter(e, p_filter)
        and (not p_filter ? 'contains'
            or strpos(fold_text(e.content), fold_text(p_filter ->> 'contains')) > 0);

-- A row where the event answers the web search, as event_matches_web_search says, or where there is none.
-- Inlined into the statement: to call the other costs ten times the look at the index.
create function match_text(p_scope_id uuid, p_event_id uuid, p_text text)
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

-- Of these events, those on a list of what a text matches, newest first: the loop over match_text keeps
-- the order, and ends at the limit.
create function newest_of_candidates(
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
create function newest_matches_in_few_scopes(
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

-- As before, and for a filter with `contains` as for words: what lies further back is found by index.
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
