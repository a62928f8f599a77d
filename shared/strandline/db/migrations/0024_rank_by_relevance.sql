-- Recall scores candidates in the process. The database names them: which of a question's words each
-- holds, and how many events hold each word. search_events and to_or_tsquery stay for the code of
-- before.

-- From an event to its key, which answers show to whoever wrote it.
create index event_keys_event on event_keys (tenant_id, event_id);

-- The words of a question, in the index's form; of more than p_limit, the longest.
create function question_words(p_question text, p_limit int) returns text[]
language sql immutable parallel safe
    return (
        select coalesce(array_agg(w.lexeme order by w.lexeme), '{}')
        from (
            select lexeme from unnest(to_tsvector('pg_catalog.english', normalize(p_question, NFC)))
            order by length(lexeme) desc, lexeme limit p_limit) w);

-- A query for one word, in the parts of an event's index that the labels name; '' is all of it.
create function word_query(p_word text, p_labels text) returns tsquery
language sql immutable parallel safe
    return ('''' || replace(replace(p_word, '\', '\\'), '''', '''''') || '''' || p_labels)::tsquery;

grant create on schema public to strandline_search;

-- The pieces in view that hold words of a question, or follow an event that does, best first. Bit n of
-- word_bits stands for word n of the piece's own; weight is the sum of the inverse document frequencies
-- of these, and of those with the event before. document_counts says how many pieces in view hold each
-- word. A filter looks up events by key, best first, until there are enough. Planned at each call: a
-- generic plan knows neither whether there is a filter nor how few the scopes are.
create function search_words(
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
        with matched as materialized (
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
                and w.words @@ v_any),
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
            limit case when p_filter = '{}' then p_limit end)
        select b.event_id, b.start_char, b.end_char, b.own_bits, b.weight,
            (select array_agg(w.pieces order by w.n) from words w)
        from best b
        cross join lateral (
            select where p_filter = '{}'
            union all
            (select from events e
             where p_filter <> '{}' and e.tenant_id = current_tenant() and e.event_id = b.event_id
                and matches_filter(e, p_filter)
             offset 0)) event
        order by b.weight desc, b.event_id desc, b.piece
        limit p_limit;
end $$;

-- How much a word tells: the logarithm of how many of p_events pieces do not hold it for each that
-- does (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009). A small log counts as
-- one of 500 events, or its every word would be common.
create function inverse_frequency(p_pieces bigint, p_events bigint) returns float8
language sql immutable parallel safe
    return ln(1 + (greatest(p_events, p_pieces, 500) - p_pieces + 0.5) / (p_pieces + 0.5));

revoke execute on function search_words from public;
grant execute on function search_words to strandline_app;
alter function search_words owner to strandline_search;
revoke create on schema public from strandline_search;
