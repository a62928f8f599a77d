-- Lists of events for a caller in thousands of scopes: what grows with the view is read by index and
-- once, and a page reads no more of the log than it must.

-- Is an event past a list's cursor, in its snapshot, and one that the caller narrowed to?
create function is_listed(
    e events, p_filter jsonb, p_snapshot pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint)
returns boolean language sql stable parallel safe
    return (p_at is null or (e.recorded_at, e.scope_id, e.seq) < (p_at, p_after, p_seq))
        and (p_snapshot is null or is_in_snapshot(e.xid, p_snapshot))
        and matches_filter(e, p_filter);

-- What an event counts towards the bytes of a page.
create function page_bytes(e events) returns bigint language sql stable parallel safe
    return coalesce(octet_length(e.content), 0) + octet_length(e.metadata::text) + 1024;

grant create on schema public to strandline_search;

-- How far back the tenant's newest events reach: the time of the one that is p_events before p_at;
-- -infinity where there are fewer. It ignores visibility, as it has to count what is not in view. It
-- returns one moment: no event, no id, no participant. All that this tells is how busy the caller's
-- own tenant was lately; a list then reads what it shows under row-level security.
create function nth_newest_recorded_at(p_at timestamptz, p_events int) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select coalesce((
        select e.recorded_at from events e
        where e.tenant_id = current_tenant() and e.recorded_at <= coalesce(p_at, 'infinity')
        order by e.recorded_at desc, e.scope_id desc, e.seq desc
        offset p_events limit 1), '-infinity')
    where current_tenant() is not null and current_viewer() is not null
$$;
revoke execute on function nth_newest_recorded_at from public;
grant execute on function nth_newest_recorded_at to strandline_app;
alter function nth_newest_recorded_at owner to strandline_search;

revoke create on schema public from strandline_search;

-- The newest events in a view of many scopes. First among the tenant's newest: while the view holds a
-- hundredth of them, these are enough. The rest of a page lies further back. It is found by its words;
-- or by time, where everything is in view; or else in the scopes whose newest such event is among the
-- page's. Planned at each call: the values say which index serves.
create function newest_in_many_scopes(
    p_filter jsonb, p_text text, p_snapshot pg_snapshot, p_at timestamptz, p_after uuid, p_seq bigint,
    p_limit int)
returns table (event_id uuid, recorded_at timestamptz, scope_id uuid, seq bigint, bytes bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
#variable_conflict use_column
declare
    v_since timestamptz := nth_newest_recorded_at(
        p_at, p_limit * case when p_text is null then 100 else 20 end);
    v_required tsquery := required_tsquery(p_text);
    v_row_count int;
begin
    return query
        select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
        where e.tenant_id = current_tenant() and e.recorded_at >= v_since
            and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
            and (p_text is null or matches_web_search(e, p_text))
        order by e.recorded_at desc, e.scope_id desc, e.seq desc limit p_limit;
    get diagnostics v_row_count = row_count;
    if v_row_count = p_limit or v_since = '-infinity' then
        return;
    elsif v_required is not null then
        return query
            select candidate.* from (
                select e.* from web_search_candidates(v_required) w
                cross join lateral (
                    select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
                    where e.tenant_id = current_tenant() and e.event_id = w.event_id
                        and e.recorded_at < v_since
                        and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                    offset 0) e
                order by e.recorded_at desc, e.scope_id desc, e.seq desc offset 0) candidate
            where event_matches_web_search(candidate.scope_id, candidate.event_id, p_text)
            limit p_limit - v_row_count;
    elsif current_viewer() = '{}' then
        return query
            select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
            where e.tenant_id = current_tenant() and e.recorded_at < v_since
                and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                and (p_text is null or matches_web_search(e, p_text))
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
                    select e.scope_id, e.recorded_at from events e
                    where e.tenant_id = current_tenant() and e.scope_id = view.scope_id
                        and e.recorded_at < v_since
                        and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                        and (p_text is null or matches_web_search(e, p_text))
                    order by e.seq desc limit 1) head
                order by head.recorded_at desc, head.scope_id desc limit p_limit - v_row_count) best
            cross join lateral (
                select e.event_id, e.recorded_at, e.scope_id, e.seq, page_bytes(e) from events e
                where e.tenant_id = current_tenant() and e.scope_id = best.scope_id
                    and e.recorded_at < v_since
                    and is_listed(e, p_filter, p_snapshot, p_at, p_after, p_seq)
                    and (p_text is null or matches_web_search(e, p_text))
                order by e.seq desc limit p_limit - v_row_count) e;
    end if;
end $$;
