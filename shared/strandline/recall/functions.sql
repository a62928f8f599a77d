-- revision: 8
-- What recall reads: words and vectors of what is in view.

-- in view ------------------------------------------------------------------------------------------

-- The share of all ids that are no higher: of its first 48 bits, which are a hash's.
create or replace function id_share(p_id uuid) returns float8 language sql immutable parallel safe
    return (('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint + 1) / 2::float8 ^ 48;

-- What a caller sees: the scopes, narrowed to p_scopes, and how many events they hold. Of many scopes a
-- part is summed up: ids are hashes, so the lowest are a random sample, and how close together they lie
-- tells how many there are. Where there are many scopes and more than p_large events, scope_ids is null:
-- what reads them then goes by visibility alone. Whether a caller is in every scope of the tenant is known
-- after one scope more than the caller's own. Without p_large every id is told, and no sample is taken first.
create or replace function read_view(p_scopes uuid[], p_large bigint)
returns table (scope_ids uuid[], events bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set enable_sort = off as $$
declare
    c_sample constant int := 1000;
    v_scopes uuid[] := coalesce(p_scopes,
        scopes_in_view_up_to(case when p_large is not null then c_sample + 1 end));
    v_lowest uuid[];
    v_events bigint;
begin
    if p_scopes is null and p_large is not null and cardinality(v_scopes) > c_sample then
        v_lowest := array(
            select m.scope_id from scope_members m
            where m.tenant_id = current_tenant()
                and m.participant = (current_viewer())[cardinality(current_viewer())]
                and m.participants @> (select current_viewer())
            order by m.scope_id limit c_sample);
        select sum(s.last_seq) / id_share(v_lowest[c_sample]) into v_events
        from unnest(v_lowest) view (scope_id)
        cross join lateral (
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and s.scope_id = view.scope_id offset 0) s;
        if v_events > p_large then
            return query select null::uuid[], v_events;
            return;
        end if;
        v_scopes := scopes_in_view();
    end if;
    return query
        select v_scopes, coalesce(sum(s.last_seq), 0)::bigint from (
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and s.scope_id = any (v_scopes)
            union all
            select s.last_seq from scopes s
            where s.tenant_id = current_tenant() and v_scopes is null) s;
end $$;

-- How many events of these scopes (null: all in view) are tombstones.
create or replace function count_erased(p_scope_ids uuid[]) returns bigint
language plpgsql stable parallel safe set enable_seqscan = off as $$
begin
    if not exists (select from erased_events d where d.tenant_id = current_tenant()) then
        return 0;
    end if;
    if p_scope_ids is null then
        return (select count(*) from erased_events d where d.tenant_id = current_tenant());
    end if;
    return (
        select count(*) from erased_events d
        where d.tenant_id = current_tenant() and d.scope_id = any (p_scope_ids));
end $$;

-- words --------------------------------------------------------------------------------------------

-- The words of a question, in the index's form; of more than p_limit, the longest.
create or replace function question_words(p_question text, p_limit int) returns text[]
language sql immutable parallel safe
    return (
        select coalesce(array_agg(w.lexeme order by w.lexeme), '{}')
        from (
            select lexeme from unnest(to_tsvector('pg_catalog.english', normalize(p_question, NFC)))
            order by length(lexeme) desc, lexeme limit p_limit) w);

-- A query for one word, in the parts of an event's index that the labels name; '' is all of it.
create or replace function word_query(p_word text, p_labels text) returns tsquery
language sql immutable parallel safe
    return ('''' || replace(replace(p_word, '\', '\\'), '''', '''''') || '''' || p_labels)::tsquery;

-- How much a word tells: the logarithm of how many of p_events pieces do not hold it for each that
-- does (Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009). A small log counts as
-- one of 500 events, or its every word would be common.
create or replace function inverse_frequency(p_pieces bigint, p_events bigint) returns float8
language sql immutable parallel safe
    return ln(1 + (greatest(p_events, p_pieces, 500) - p_pieces + 0.5) / (p_pieces + 0.5));

-- Whether a text holds nothing that could answer a question: it is nothing but short questions, or an
-- agent's answer that it knows nothing. Such an answer is read in English, and only where it is short and
-- does not go on to say something. A question begins as one, in English, German, French, Spanish or a script
-- of its own, and has no digits: people put what is new into a question, "I start on 3 May, is that early?"
create or replace function says_nothing(p_text text, p_is_agent boolean) returns boolean
language sql immutable parallel safe
    return coalesce(octet_length(p_text) <= 200 and (
        octet_length(p_text) <= 100 and p_text ~* (
            '^\s*((((who|whom|whose|what|when|where|why|which|how|do|does|did(?! you know)|is|are|was|were|has|have'
            || '|wo|wer|wann|warum|wieso|wie|welche[mnrs]?|quand|pourquoi|comment|quel(le)?s?)\M)'
            || '|[^\u0001-\u007f])[^.!?\u3002\uff01\uff1f\u061f\n\d]*[?\uff1f\u061f]\s*)+$')
        or p_is_agent and replace(p_text, U&'\2019', '''') ~* (
            '^(hm+|well|sorry|unfortunately|i''m sorry|i am sorry|i''m afraid|i am afraid)?[,.]?\s*(but )?'
            || '((i|we) (do not|don''t)( yet)? (know|remember|recall)'
            || '|(i|we) (have|hold|found|find|see|do not have|don''t have|could not find|couldn''t find'
            || '|can''t find|cannot find)( no| any)?( stored| relevant| such| further)?'
            || ' (information|records?|memory|memories|notes?|data|details|events?|mention)'
            || '|(none of the|no)( stored| recalled| relevant| such)? (events?|memory|memories|information|records?)'
            || ' (clearly )?(answers?|says?|mentions?|tells?|(is|are|was|were) (stored|found|available|known))'
            || '|nothing( about [^.!?,;:\n]*)? (is|was) (known|stored|remembered|recorded|found)'
            || '|there (is|are) no( stored| relevant)? (information|records?|memory|memories|notes?|data|events?))'
            || '(?![^.!?\n]* (but|however|though|except|only|until|yet) )[^.!?,;:\n]*[.!]?'
            || '(\s*(please|could|can|would|do|shall|should|if)\M[^.!\n]*[.?!]?)?\s*$')), false);

set local role strandline_search;

-- The pieces in view that hold words of a question, or follow an event that does, best first; without those
-- of erased events. Bit n of word_bits stands for word n of the piece's own; weight is the sum of the inverse
-- document frequencies of these, and of those with the event before. document_counts says how many pieces in
-- view hold each word, whatever the filter, so that a word tells the same under any; where a filter leaves no
-- piece, a row without an event has them. A filter looks up events by key, best first, until there are enough.
-- Planned at each call: a generic plan knows neither whether there is a filter nor how few the scopes are.
-- The planner expects a piece or two, for which a nested loop would do: joined to 50 weights by one, 400 pieces
-- took a fifth longer.
create or replace function search_words(
    p_words text[], p_scopes uuid[], p_filter jsonb, p_events bigint, p_limit int)
returns table (event_id uuid, start_char int, end_char int, word_bits bigint, weight float8,
    document_counts bigint[])
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_nestloop = off as $$
#variable_conflict use_column
declare
    v_own tsquery[] := array(select word_query(word, ':ACD') from unnest(p_words) word);
    v_all tsquery[] := array(select word_query(word, '') from unnest(p_words) word);
    v_any tsquery := (select string_agg(query::text, ' | ')::tsquery from unnest(v_all) query);
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = current_tenant() and e.erased_at is not null and e.cid is not null
            and e.participants @> (select current_viewer()));
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
                and w.words @@ v_any
                and w.event_id <> all (v_erased)),
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
revoke execute on function search_words from public;
grant execute on function search_words to strandline_app;

-- As search_words, where more events are in view than can be scored: p_events. A sample of the view
-- tells how many pieces hold each word. Those that hold a rare word are read, and those that hold the
-- rarest of the other words together, some thousands in all. Of a rare word document_counts is exact,
-- of another it is an estimate. Where no piece is found that way, the newest in view are read, and
-- where these hold none either, a row without an event has document_counts.
create or replace function search_words_in_large_view(
    p_words text[], p_scopes uuid[], p_events bigint, p_limit int)
returns table (event_id uuid, start_char int, end_char int, word_bits bigint, weight float8,
    document_counts bigint[])
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = off as $$
#variable_conflict use_column
declare
    c_sample constant int := least(200 + p_events / 500, 1000);
    c_sampled_scopes constant int := 50;
    c_most_pieces constant int := 1500;
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_own tsquery[] := array(select word_query(word, ':ACD') from unnest(p_words) word);
    v_all tsquery[] := array(select word_query(word, '') from unnest(p_words) word);
    v_any tsquery := (select string_agg(query::text, ' | ')::tsquery from unnest(v_all) query);
    v_own_bits bigint[];  -- of each piece of the sample
    v_all_bits bigint[];
    v_scale float8;  -- pieces in view for each of the sample
    v_order int[];  -- the words' numbers from 0, rarest first
    v_all_counts float8[];
    v_own_counts float8[];  -- by number
    v_pieces float8 := 0;
    v_rare bigint := 0;
    v_query tsquery;
    v_together tsquery;
    v_together_bits bigint := 0;
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.cid is not null and e.participants @> v_viewer);
    v_place int := 1;
    v_row_count int;
begin
    if v_any is null then
        return;
    end if;
    with chosen as materialized (
        select s.scope_id, s.last_seq from (
            select p_scopes[1 + n * cardinality(p_scopes) / c_sampled_scopes] as scope_id
            from generate_series(0::bigint, c_sampled_scopes - 1) n
            where p_scopes is not null
            union  -- of fewer scopes, each once
            (select m.scope_id from scope_members m
             where p_scopes is null and m.tenant_id = v_tenant
                and (v_viewer = '{}' or m.participant = v_viewer[cardinality(v_viewer)]
                    and m.participants @> v_viewer)
             order by m.participant, m.scope_id limit c_sampled_scopes)) view
        cross join lateral (
            select e.scope_id, e.seq as last_seq from events e
            where e.tenant_id = v_tenant and e.scope_id = view.scope_id
            order by e.seq desc limit 1) s),
    step as materialized (
        select ceil(sum(last_seq) / c_sample)::bigint as length from chosen),
    sample as (
        select b.* from chosen, step
        cross join lateral generate_series(
            1 + mod(abs(hashtext(chosen.scope_id::text)::bigint), step.length), last_seq,
            step.length) place (seq)
        cross join lateral (
            select e.event_id from events e where e.tenant_id = v_tenant
                and e.scope_id = chosen.scope_id and e.seq = place.seq and e.erased_at is null
            offset 0) e
        cross join lateral (
            select w.words from event_search w where w.tenant_id = v_tenant
                and w.scope_id = chosen.scope_id and w.event_id = e.event_id
                and w.participants @> v_viewer
            offset 0) w
        cross join lateral (
            select coalesce(bit_or(1::bigint << (q.n::int - 1))
                    filter (where w.words @@ q.own_query), 0) as own_bits,
                coalesce(bit_or(1::bigint << (q.n::int - 1)), 0) as all_bits
            from unnest(v_own, v_all) with ordinality as q (own_query, all_query, n)
            where w.words @@ q.all_query offset 0) b)
    select array_agg(own_bits), array_agg(all_bits), p_events::float8 / count(*)
    into v_own_bits, v_all_bits, v_scale
    from sample having count(*) > 0;
    v_scale := coalesce(v_scale, 0);
    select array_agg(n order by all_count, n), array_agg(all_count order by all_count, n),
        array_agg(own_count order by n)
    into v_order, v_all_counts, v_own_counts
    from (
        select n, count(*) filter (where s.all_bits >> n & 1 = 1) * v_scale as all_count,
            count(*) filter (where s.own_bits >> n & 1 = 1) * v_scale as own_count
        from generate_series(0, cardinality(p_words) - 1) n
        left join unnest(v_own_bits, v_all_bits) s (own_bits, all_bits) on true
        group by n) counted;

    while v_place <= cardinality(v_order) and v_pieces + v_all_counts[v_place] <= c_most_pieces loop
        v_pieces := v_pieces + v_all_counts[v_place];
        v_rare := v_rare | (1::bigint << v_order[v_place]);
        v_query := coalesce(v_query || v_all[1 + v_order[v_place]], v_all[1 + v_order[v_place]]);
        v_place := v_place + 1;
    end loop;
    while v_place <= cardinality(v_order) loop
        v_together := coalesce(
            v_together && v_all[1 + v_order[v_place]], v_all[1 + v_order[v_place]]);
        v_together_bits := v_together_bits | (1::bigint << v_order[v_place]);
        if v_pieces + v_scale * (
            select count(*) from unnest(v_all_bits) bits
            where bits & v_together_bits = v_together_bits) <= c_most_pieces
        then
            v_query := coalesce(v_query || v_together, v_together);
            exit;
        end if;
        v_place := v_place + 1;
    end loop;

    for v_pass in case when v_query is null then 2 else 1 end .. 2 loop
        return query
            with pieces as (
                select w.* from event_search w
                where v_pass = 1 and w.tenant_id = v_tenant and w.participants @> v_viewer
                    and (p_scopes is null or w.scope_id = any (p_scopes))
                    and w.words @@ v_query
                union all
                select w.* from (
                    select e.scope_id, e.event_id from unnest(p_scopes) view (scope_id)
                    cross join lateral (
                        select e.scope_id, e.event_id from events e
                        where e.tenant_id = v_tenant and e.scope_id = view.scope_id
                        order by e.seq desc limit c_most_pieces / cardinality(p_scopes)) e
                    where v_pass = 2
                    union all
                    (select e.scope_id, e.event_id from events e
                     where v_pass = 2 and p_scopes is null and e.tenant_id = v_tenant
                     order by e.recorded_at desc, e.scope_id desc, e.seq desc
                     limit c_most_pieces)) newest
                cross join lateral (
                    select w.* from event_search w
                    where w.tenant_id = v_tenant and w.scope_id = newest.scope_id
                        and w.event_id = newest.event_id and w.participants @> v_viewer
                        and w.words @@ v_any
                    offset 0) w),
            matched as materialized (
                select w.event_id, w.piece, w.start_char, w.end_char, b.own_bits, b.all_bits
                from pieces w
                cross join lateral (
                    select coalesce(bit_or(1::bigint << (q.n::int - 1))
                            filter (where w.words @@ q.own_query), 0) as own_bits,
                        bit_or(1::bigint << (q.n::int - 1)) as all_bits
                    from unnest(v_own, v_all) with ordinality as q (own_query, all_query, n)
                    where w.words @@ q.all_query offset 0) b
                where w.event_id <> all (v_erased)),
            patterns as materialized (
                select m.own_bits, m.all_bits, count(*) as pieces from matched m
                group by m.own_bits, m.all_bits),
            words as materialized (
                select n, pieces, inverse_frequency(pieces, p_events) as frequency
                from (
                    select n, case when v_rare >> n & 1 = 1 and v_pass = 1 then pieces
                        else greatest(pieces, v_own_counts[1 + n])::bigint end as pieces
                    from generate_series(0, cardinality(p_words) - 1) n
                    cross join lateral (
                        select coalesce(sum(p.pieces), 0)::bigint as pieces from patterns p
                        where p.own_bits >> n & 1 = 1) found) counted),
            weights as materialized (
                select p.own_bits, p.all_bits,
                    sum(w.frequency * (1 + (p.own_bits >> w.n & 1))) as weight
                from patterns p join words w on p.all_bits >> w.n & 1 = 1
                group by p.own_bits, p.all_bits),
            best as (
                select m.event_id, m.piece, m.start_char, m.end_char, m.own_bits, s.weight
                from matched m join weights s using (own_bits, all_bits)
                order by s.weight desc, m.event_id desc, m.piece
                limit p_limit)
            select b.event_id, b.start_char, b.end_char, b.own_bits, b.weight, counts.pieces
            from (
                select array_agg(w.pieces order by w.n) as pieces, sum(w.pieces) as total
                from words w) counts
            left join best b on true
            where b.event_id is not null or v_pass = 2 and counts.total > 0
            order by b.weight desc, b.event_id desc, b.piece;
        get diagnostics v_row_count = row_count;
        exit when v_row_count > 0;
    end loop;
end $$;
revoke execute on function search_words_in_large_view from public;
grant execute on function search_words_in_large_view to strandline_app;

-- The newest pieces in view that hold any word of a query, at most p_limit; without those of erased events.
-- What is in no view of the caller is never counted, so what others store changes nothing. Planned once a
-- session: to plan a query of hundreds of words costs more than to run it, and ends in a scan.
create or replace function newest_pieces_with_words(p_any tsquery, p_scopes uuid[], p_limit int)
returns table (event_id uuid, words tsvector)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off set jit = off as $$
#variable_conflict use_column
begin
    return query
        with erased as materialized (
            select e.event_id from events e
            where e.tenant_id = current_tenant() and e.erased_at is not null and e.cid is not null
                and e.participants @> (select current_viewer()))
        select w.event_id, w.words from event_search w
        where w.tenant_id = current_tenant() and w.participants @> (select current_viewer())
            and (p_scopes is null or w.scope_id = any (p_scopes))
            and w.words @@ p_any
            and not exists (select from erased where erased.event_id = w.event_id)
        order by w.event_id desc, w.piece limit p_limit;
end $$;
revoke execute on function newest_pieces_with_words from public;
grant execute on function newest_pieces_with_words to strandline_app;

reset role;

-- vectors ------------------------------------------------------------------------------------------

set local role strandline_search;

-- The vectors in view nearest to a question, nearest first: of those whose codes differ in the fewest
-- bits, the nearest. p_scopes narrows the view; whose scopes they are is looked up once, as to compare
-- participants costs more than to compare codes. So are the erased events, which are left out.
--
-- Codes that differ in too many bits are not sorted. A sample of the view tells how many are too many: what it
-- says is a bound, and where fewer are within it than are needed, all are sorted. Whether somebody sees the
-- whole tenant is counted, not listed. From some 250,000 codes a worker reads a part of them: to start one costs
-- as much as to read most of 50,000.
--
-- How many codes are compared by their vectors grows with the view: 3 of each wanted event up to some
-- 100,000 events, 7 at a million. Far from all that is in view codes tell less, and of a million more
-- of them are as near as the nearest.
create or replace function nearest_by_code(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set enable_seqscan = off
set max_parallel_workers_per_gather = 1 set parallel_setup_cost = 25000 set parallel_tuple_cost = 0.01 as $$
#variable_conflict use_column
declare
    c_sample constant int := 80;
    c_sampled_scopes constant int := 50;
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_sees_all boolean := false;
    v_scope_count bigint;
    v_scopes uuid[];  -- null: the whole tenant
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.cid is not null
            and e.participants @> v_viewer);
    v_wanted bigint;  -- so many of the nearest codes are compared by their vectors
    v_bound float8;  -- in so many bits codes may differ; null: in any number
begin
    if p_scopes is null and v_viewer = '{}' then
        v_scope_count := (select count(*) from scopes s where s.tenant_id = v_tenant);
    elsif p_scopes is null then
        v_scope_count := (
            select count(*) from scope_members m
            where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
                and (cardinality(v_viewer) = 1 or m.participants @> v_viewer));
        -- who is in every scope sees the whole tenant: to compare scopes costs as much as the codes
        v_sees_all := v_scope_count = (
            select count(*) from (
                select from scopes s where s.tenant_id = v_tenant limit v_scope_count + 1) s);
    end if;
    if v_viewer = '{}' or v_sees_all then
        v_scopes := p_scopes;
    else
        v_scopes := array(
            select m.scope_id from scope_members m
            where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
                and (cardinality(v_viewer) = 1 or m.participants @> v_viewer)
                and (p_scopes is null or m.scope_id = any (p_scopes)));
    end if;
    v_scope_count := coalesce(cardinality(v_scopes), v_scope_count);

    with chosen as materialized (
        select s.scope_id, s.last_seq from (
            select v_scopes[1 + n * cardinality(v_scopes) / c_sampled_scopes] as scope_id
            from generate_series(0::bigint, c_sampled_scopes - 1) n
            where v_scopes is not null
            union  -- of fewer scopes, each once
            (select s.scope_id from scopes s
             where v_scopes is null and s.tenant_id = v_tenant
             order by s.scope_id limit c_sampled_scopes)) view
        cross join lateral (
            select e.scope_id, e.seq as last_seq from events e
            where e.tenant_id = v_tenant and e.scope_id = view.scope_id
            order by e.seq desc limit 1) s),
    step as materialized (
        select ceil(sum(last_seq) / c_sample)::bigint as length,
            sum(last_seq) * v_scope_count / count(*) as events
        from chosen),
    wanted as materialized (
        select ceil(p_limit * (3 + least(step.events / 250000.0, 5)))::bigint as codes from step),
    sample as (
        select c.code <~> v_code as bits, step.events from chosen, step
        cross join lateral generate_series(
            1 + mod(abs(hashtext(chosen.scope_id::text)::bigint), step.length), last_seq,
            step.length) place (seq)
        cross join lateral (
            select e.event_id from events e where e.tenant_id = v_tenant
                and e.scope_id = chosen.scope_id and e.seq = place.seq offset 0) e
        cross join lateral (
            select c.code from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space
                and c.scope_id = chosen.scope_id and c.event_id = e.event_id offset 0) c)
    select coalesce(max(wanted.codes), 3 * p_limit),
        (array_agg(bits order by bits))[3 + ceil(3 * max(wanted.codes) * count(bits) / max(events))]
    into v_wanted, v_bound from wanted left join sample on bits is not null;

    -- a statement each, so that what is not needed starts no worker; `select into` would start none at all
    for v_pass in case when v_bound is null then 2 else 1 end .. 2 loop
        return query
            with within as materialized (
                select c.scope_id, c.event_id from event_vectors c
                where c.tenant_id = v_tenant and c.space = p_space
                    and (v_scopes is null or c.scope_id = any (v_scopes))
                    and (v_erased = '{}' or c.event_id <> all (v_erased))
                    and c.code <~> v_code <= case v_pass when 1 then v_bound else 'infinity' end
                order by c.code <~> v_code, c.event_id limit v_wanted)
            select v.event_id, v.distance
            from within near
            cross join lateral (
                select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
                where v.tenant_id = v_tenant and v.space = p_space and v.scope_id = near.scope_id
                    and v.event_id = near.event_id
                offset 0) v
            where v_pass = 2 or (select count(*) from within) = v_wanted
            order by v.distance, v.event_id limit p_limit;
        exit when found;
    end loop;
end $$;
revoke execute on function nearest_by_code from public;
grant execute on function nearest_by_code to strandline_app;

reset role;

-- The vectors in view nearest to a question whose events pass a filter, nearest first. A filter that
-- many events pass is met by some of the nearest. What these lack is looked for among the events that
-- pass, each vector by its key. A session is looked up that way at once: few events are of it.
create or replace function nearest_matching_filter(
    p_vector halfvec, p_space text, p_scopes uuid[], p_filter jsonb, p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
    v_candidates int := case when p_filter ? 'session_id' then 0 else 10 * p_limit end;
    v_nearest uuid[];
    v_distances double precision[];
    v_row_count int;
begin
    select coalesce(array_agg(n.event_id), '{}'), array_agg(n.distance)
    into v_nearest, v_distances
    from (
        select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
        where v.space = p_space and v.embedding is not null
            and (p_scopes is null or v.scope_id = any ((select p_scopes)::uuid[]))
        order by distance, v.event_id limit v_candidates) n;
    return query
        select n.event_id, n.distance
        from unnest(v_nearest, v_distances) with ordinality as n (event_id, distance, place)
        cross join lateral (
            select from events e where e.event_id = n.event_id
                and matches_filter(e, p_filter) offset 0) e
        order by n.place limit p_limit;
    get diagnostics v_row_count = row_count;
    if v_row_count = p_limit or cardinality(v_nearest) < v_candidates then
        return;
    end if;
    return query
        select v.event_id, v.embedding <=> p_vector as distance
        from (
            select * from events e
            where (p_scopes is null or e.scope_id = any ((select p_scopes)::uuid[]))
                and matches_filter(e, p_filter)) e
        cross join lateral (
            select v.event_id, v.embedding from event_vectors v
            where v.space = p_space and v.scope_id = e.scope_id and v.event_id = e.event_id
            offset 0) v
        where v.embedding is not null and v.event_id <> all (v_nearest)
        order by distance, v.event_id limit p_limit - v_row_count;
end $$;

-- How similar a question is to what is in view at all: its cosines with at most p_limit events that are
-- spread evenly over the seq of the scopes in view, which is gapless. So the same question at the same
-- mark has the same sample, whatever its candidates are. An event that is erased or has no vector is
-- left out. Those of tools' output come apart: sixty lines of one tool are alike, and would make their
-- cosine the usual one of all that is in view. p_scopes narrows the view. Of more than c_scopes those with the lowest ids count: ids are
-- hashes, so these are a random part. With the caller's rights, so that row-level security holds.
-- Planned once a session, because the plan is the same for every view.
create or replace function sample_view(
    p_vector halfvec, p_space text, p_scopes uuid[], p_limit int,
    out cosines float8[], out tool_cosines float8[])
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off as $$
declare
    c_scopes constant int := 1000;
    v_scopes uuid[] := p_scopes;
begin
    if p_vector is null then
        cosines := '{}';
        tool_cosines := '{}';
        return;
    elsif p_scopes is null and current_viewer() = '{}' then
        v_scopes := array(
            select s.scope_id from scopes s
            where s.tenant_id = current_tenant() order by s.scope_id limit c_scopes);
    elsif p_scopes is null then
        v_scopes := array(
            select m.scope_id from scope_members m
            where m.tenant_id = current_tenant()
                and m.participant = (current_viewer())[cardinality(current_viewer())]
                and m.participants @> (select current_viewer())
            order by m.scope_id limit c_scopes);
    elsif cardinality(p_scopes) > c_scopes then
        v_scopes := array(select id from unnest(p_scopes) id order by id limit c_scopes);
    end if;
    with sizes as materialized (
        select s.scope_id, s.last_seq,
            (sum(s.last_seq) over (order by s.scope_id))::bigint as last_place
        from scopes s where s.tenant_id = current_tenant() and s.scope_id = any (v_scopes)),
    total as materialized (
        select nullif(max(last_place), 0) as events,
            least(max(last_place), p_limit) as count from sizes),
    -- all scopes' events in one row have places from 1: number n is in the middle of the n-th of
    -- `count` equal parts, so a scope holds as many as its size asks for
    chosen as (
        select n, s.scope_id,
            ((2 * n + 1) * t.events + 2 * t.count - 1) / (2 * t.count)
                - (s.last_place - s.last_seq) as seq
        from total t
        cross join sizes s
        cross join lateral generate_series(
            (2 * t.count * (s.last_place - s.last_seq) + t.events) / (2 * t.events),
            (2 * t.count * s.last_place + t.events) / (2 * t.events) - 1) n),
    sample as (
        select c.n, e.is_tool, 1 - (v.embedding <=> p_vector) as cosine
        from chosen c
        cross join lateral (
            select e.event_id, e.type = 'observation' as is_tool from events e
            where e.tenant_id = current_tenant() and e.scope_id = c.scope_id and e.seq = c.seq
                and e.erased_at is null offset 0) e
        cross join lateral (
            select v.embedding from event_vectors v
            where v.tenant_id = current_tenant() and v.space = p_space
                and v.scope_id = c.scope_id and v.event_id = e.event_id
                and v.embedding is not null offset 0) v)
    select coalesce(array_agg(s.cosine order by s.n) filter (where not s.is_tool), '{}'),
        coalesce(array_agg(s.cosine order by s.n) filter (where s.is_tool), '{}')
    into cosines, tool_cosines from sample s;
end $$;

-- candidates ---------------------------------------------------------------------------------------

-- The visible events that may answer a question, in no particular order, as search_candidate_events in
-- recall/store.py describes them. The first row also has what is common to all. It is a function only so that
-- it is planned once a session, which takes longer than to run it over a small log: the plan is the same for
-- every view, as what depends on its size is decided by conditions that are checked once. With the caller's
-- rights, so that row-level security holds.
create or replace function search_candidates(
    p_question text, p_spellings text[], p_max_words int, p_vector halfvec, p_space text, p_texts_version int,
    p_filter jsonb, p_scopes uuid[], p_max_scopes int, p_large_view bigint, p_candidates int, p_max_fresh int,
    p_far int, p_sampled int, p_long_bytes int, p_now timestamptz)
returns table (event_id uuid, scope_id uuid, session_id text, seq bigint, speaker text, said_at timestamptz,
    place bigint, said_on date, question_bytes int, is_statement boolean, author text, text_bytes int,
    says_nothing boolean, word_bits bigint, cosine float8, passage_cosines float8[], start_char int, end_char int,
    is_fresh boolean,
    words text[], document_counts bigint[], events_in_view bigint, sampled_cosines float8[],
    sampled_tool_cosines float8[], min_known float8, space_figures jsonb, today date, unfolded_events bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
begin
    return query
        with question as materialized (
            select question_words(p_question, p_max_words - cardinality(p_spellings))
                || p_spellings as words),
        tenant as materialized (
            select coalesce(max(t.time_zone), 'UTC') as time_zone,
                max((t.tuning ->> 'min_known')::float8) as min_known,
                (select f.figures from space_figures f
                 where f.tenant_id = current_tenant() and f.space = p_space
                    and f.texts_version = p_texts_version) as space_figures
            from tenants t where t.tenant_id = current_tenant()),
        view as materialized (
            select v.scope_ids, v.events,
                v.events > p_large_view and p_filter = '{}' as is_large,
                -- a long list of scopes costs more than it saves: visibility is checked anyway
                case when cardinality(v.scope_ids) <= p_max_scopes or p_scopes is not null
                    then v.scope_ids end as few_scope_ids
            from read_view(p_scopes, case when p_filter = '{}'
                then p_large_view end) v),
        -- a tombstone has no CID, and is in no index any more
        erased as materialized (
            select e.event_id from events e
            where e.erased_at is not null and e.cid is not null
                and e.scope_id = any ((select scope_ids from view)::uuid[])
            union all
            select e.event_id from events e
            where e.erased_at is not null and e.cid is not null
                and (select scope_ids from view) is null),
        size as materialized (
            select greatest(view.events - (select count(*) from erased)
                - count_erased(view.scope_ids), 0) as events from view),
        by_words as materialized (
            select w.* from question, view, size, search_words(
                question.words, view.few_scope_ids, p_filter, size.events,
                p_candidates) w
            where not view.is_large
            union all
            select w.* from question, view, size, search_words_in_large_view(
                question.words, view.few_scope_ids, size.events, p_candidates) w
            where view.is_large),
        by_vector as (
            (select v.event_id, 1 - (v.embedding <=> p_vector) as cosine
            from (
                select event_id, space, embedding from event_vectors
                where scope_id = any ((select scope_ids from view)::uuid[])
                union all
                select event_id, space, embedding from event_vectors
                where (select scope_ids from view) is null) v
            where p_vector is not null and p_filter = '{}'
                and not (select is_large from view)
                and v.space = p_space and v.embedding is not null
                and not exists (select from erased where erased.event_id = v.event_id)
            order by v.embedding <=> p_vector, v.event_id
            limit p_candidates)
            union all
            select n.event_id, 1 - n.distance
            from view, nearest_by_code(p_vector, p_space, view.scope_ids,
                p_candidates) n
            where p_vector is not null and view.is_large
            union all
            select n.event_id, 1 - n.distance
            from view, nearest_matching_filter(p_vector, p_space, view.scope_ids,
                p_filter, p_candidates) n
            where p_vector is not null and p_filter <> '{}'),
        -- every scope with events that have no vector or are not folded has pending work
        pending_scopes as materialized (
            select scope_id from scope_work
            where scope_id = any ((select scope_ids from view)::uuid[])
            union all
            select scope_id from scope_work where (select scope_ids from view) is null),
        -- A process hears of a switch within a minute. What it asks until then, in the space that
        -- was left, finds what came since as it finds what has no vector yet.
        is_left as materialized (
            select exists (
                select from space_switches s
                where s.tenant_id = current_tenant() and s.from_space = p_space
                    and s.ended_at > now() - interval '2 minutes' and s.switched) as yes),
        fresh as (
            select e.event_id
            from (
                select scope_id from pending_scopes
                union all
                select s.scope_id from scopes s
                where (select yes from is_left)
                    and s.scope_id not in (select scope_id from pending_scopes)
                    and ((select scope_ids from view) is null
                        or s.scope_id = any ((select scope_ids from view)::uuid[]))) w
            left join embedding_progress p on p.scope_id = w.scope_id and p.space = p_space
            cross join lateral (
                select e.event_id, e.recorded_at from events e
                -- not coalesce: under a policy the planner would not use the index for it
                where e.scope_id = w.scope_id
                    and e.seq > case when p.embedded_seq is null then 0 else p.embedded_seq end
                    and matches_filter(e, p_filter)
                order by e.seq desc limit p_max_fresh) e
            order by e.recorded_at desc, e.event_id desc limit p_max_fresh),
        candidates as materialized (
            select c.event_id, max(c.word_bits) as word_bits, max(c.start_char) as start_char,
                max(c.end_char) as end_char, max(c.cosine) as cosine,
                bool_or(c.is_fresh) as is_fresh
            from (
                (select distinct on (w.event_id) w.event_id, w.word_bits, w.start_char, w.end_char,
                    null::float8 as cosine, false as is_fresh
                from by_words w where w.event_id is not null
                order by w.event_id, w.weight desc)
                union all
                select event_id, null, null, null, cosine, false from by_vector
                union all
                select event_id, null, null, null, null, true from fresh) c
            group by c.event_id),
        in_lanes as (  -- in order, so that the sum of steps below needs no further sort
            select c.*, e.scope_id, lane.session_id, e.seq, e.speaker,
                e.type = 'statement' as is_statement,
                case when e.type = 'observation' then 'tool'
                    when e.role = 'agent' and e.type in ('message', 'thought', 'action')
                    then 'agent' end as author,
                coalesce(e.occurred_at, e.recorded_at) as said_at,
                coalesce(octet_length(e.content), 0) as text_bytes,
                coalesce(octet_length(substring(right(e.content, 300)
                    from '([^.!?\u3002\uff01\uff1f\u061f\n]*[?\uff1f\u061f])\s*$')), 0)
                    as question_bytes,
                says_nothing(e.content, e.role = 'agent' and e.type = 'message')
                    as says_nothing,
                lag(e.seq) over (
                    partition by e.scope_id, lane.session_id collate "C" order by e.seq)
                    as seq_before,
                row_number() over (
                    order by e.scope_id, lane.session_id collate "C", e.seq) as n
            from candidates c
            cross join lateral (  -- by key: the planner may read all events for a join
                select * from events e
                where e.event_id = c.event_id and e.erased_at is null offset 0) e
            cross join lateral (  -- a statement is alone
                select case when e.type = 'statement' then e.event_id::text
                    else e.session_id end as session_id) lane)
        select f.event_id, f.scope_id, f.session_id, f.seq, f.speaker, f.said_at,
            sum(steps.events) over (
                partition by f.scope_id, f.session_id collate "C" order by f.seq)::bigint as place,
            greatest(least((f.said_at at time zone tenant.time_zone)::date, date '9999-12-31'),
                date '0001-01-01') as said_on,
            f.question_bytes, f.is_statement, f.author, f.text_bytes, f.says_nothing,
            coalesce(f.word_bits, 0) as word_bits,
            coalesce(f.cosine, stored.cosine) as cosine, passages.cosines as passage_cosines,
            f.start_char, f.end_char, f.is_fresh,
            head.words, head.document_counts, head.events_in_view, head.sampled_cosines,
            head.sampled_tool_cosines, head.min_known, head.space_figures, head.today,
            head.unfolded_events
        from in_lanes f
        cross join lateral (
            select count(*) as events from (
                select from events e
                where f.seq_before < f.seq - 1
                    and e.scope_id = f.scope_id and e.session_id = f.session_id
                    and e.seq > f.seq_before and e.seq <= f.seq and e.erased_at is null
                    and not is_statement(e.type)
                order by e.seq limit p_far) e) counted
        cross join lateral (  -- how many events of its lane it is after the candidate before it
            select case
                when f.seq_before is null then 0
                when f.seq_before = f.seq - 1 then 1
                else counted.events end as events) steps
        cross join tenant
        left join lateral (
            select question.words, (select document_counts from by_words limit 1),
                size.events as events_in_view,
                sample.cosines as sampled_cosines, sample.tool_cosines as sampled_tool_cosines,
                (select coalesce(sum(s.last_seq - s.folded_seq), 0)::bigint
                    from pending_scopes w cross join lateral (
                        select s.last_seq, s.folded_seq from scopes s
                        where s.tenant_id = current_tenant() and s.scope_id = w.scope_id
                        offset 0) s) as unfolded_events,
                tenant.min_known, tenant.space_figures,
                greatest(least((p_now at time zone tenant.time_zone)::date,
                    date '9999-12-31'), date '0001-01-01') as today
            from question, size, view, sample_view(
                p_vector, p_space, view.scope_ids, p_sampled) sample) head
            on f.n = 1
        left join lateral (
            select 1 - (v.embedding <=> p_vector) as cosine from event_vectors v
            where f.cosine is null and v.space = p_space and v.scope_id = f.scope_id
                and v.event_id = f.event_id and v.embedding is not null offset 0) stored on true
        left join lateral (
            select array(
                select 1 - (p.embedding <=> p_vector)
                from unnest(v.passages) with ordinality p (embedding, n) order by p.n) as cosines
            from event_vectors v
            where p_vector is not null and v.space = p_space
                and (f.text_bytes > p_long_bytes or f.text_bytes = 0)  -- 0: a payload
                and v.scope_id = f.scope_id and v.event_id = f.event_id and v.passages is not null
            offset 0) passages on true;
end $$;
