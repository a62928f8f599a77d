-- A tenant's time zone, in which "yesterday" and "in May" of its questions are read. The operator's call
-- checks the name.
alter table tenants add column time_zone text not null default 'UTC'
    check (time_zone <> '' and length(time_zone) <= 64);
grant update (time_zone) on tenants to strandline_app;

-- Erased events, which searches leave out. There are few.
create index events_erased on events (tenant_id, scope_id, event_id) where erased_at is not null;

-- As before, but without the pieces of erased events; and where a filter leaves no piece, a row without
-- an event still has document_counts. They are of all pieces in view, whatever the filter, so that a word tells
-- the same under any.
grant create on schema public to strandline_search;
set local role strandline_search;
create or replace function search_words(
    p_words text[], p_scopes uuid[], p_filter jsonb, p_events bigint, p_limit int)
returns table (event_id uuid, start_char int, end_char int, word_bits bigint, weight float8,
    document_counts bigint[])
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_own tsquery[] := array(select word_query(word, ':ACD') from unnest(p_words) word);
    v_all tsquery[] := array(select word_query(word, '') from unnest(p_words) word);
    v_any tsquery := (select string_agg(query::text, ' | ')::tsquery from unnest(v_all) query);
begin
    return query
        with erased as materialized (
            select e.event_id from events e
            where e.tenant_id = current_tenant() and e.erased_at is not null
                and e.participants @> (select current_viewer())),
        matched as materialized (
            select w.event_id, w.piece, w.start_char, w.end_char, b.own_bits, b.all_bits
            from event_search w
            cross join lateral (
                select coalesce(bit_or(1::bigint << (q.n::int - 1))
                        filter (where w.words @@ q.own_query), 0) as own_bits,
                    bit_or(1::bigint << (q.n::int - 1)) as all_bits
                from unnest(v_own, v_all) with ordinality as q (own_query, all_query, n)
                where w.words @@ q.all_query offset 0) b
            where w.tenant_id = current_tenant() and w.participants @> (select current_viewer())
                and (p_scopes is null or w.scope_id = any (p_scopes))
                and w.words @@ v_any
                and not exists (select from erased where erased.event_id = w.event_id)),
        patterns as materialized (
            select m.own_bits, m.all_bits, count(*) as pieces from matched m
            group by m.own_bits, m.all_bits),
        words as materialized (
            select n, counted.pieces, inverse_frequency(counted.pieces, p_events) as frequency
            from generate_series(0, cardinality(p_words) - 1) n
            cross join lateral (
                select coalesce(sum(p.pieces), 0)::bigint as pieces from patterns p
                where p.own_bits >> n & 1 = 1) counted),
        weights as materialized (
            select p.own_bits, p.all_bits,
                sum(w.frequency * (1 + (p.own_bits >> w.n & 1))) as weight
            from patterns p join words w on p.all_bits >> w.n & 1 = 1
            group by p.own_bits, p.all_bits),
        best as (
            select m.event_id, m.piece, m.start_char, m.end_char, m.own_bits, s.weight
            from matched m join weights s using (own_bits, all_bits)
            order by s.weight desc, m.event_id desc, m.piece
            limit case when p_filter = '{}' then p_limit end),
        passing as (
            select b.*
            from best b
            cross join lateral (
                select where p_filter = '{}'
                union all
                (select from events e
                 where p_filter <> '{}' and e.tenant_id = current_tenant() and e.event_id = b.event_id
                    and matches_filter(e, p_filter)
                 offset 0)) event
            order by b.weight desc, b.event_id desc, b.piece
            limit p_limit)
        select p.event_id, p.start_char, p.end_char, p.own_bits, p.weight, counts.pieces
        from (
            select array_agg(w.pieces order by w.n) as pieces, sum(w.pieces) as total
            from words w) counts
        left join passing p on true
        where counts.total > 0 or p.event_id is not null
        order by p.weight desc, p.event_id desc, p.piece;
end $$;
reset role;
revoke create on schema public from strandline_search;
