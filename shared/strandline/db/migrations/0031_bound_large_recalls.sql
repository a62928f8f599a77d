-- Recall where the caller sees many events: what it reads no longer grows with the words that most
-- events hold, and of vectors it reads bit codes, from an index alone.

-- codes --------------------------------------------------------------------------------------------

-- A unit vector in three bits for each dimension: is it above a third of what is usual, above zero, above
-- minus a third? Codes differ in more bits the farther their vectors are apart, and, with signs alone,
-- three of ten of the nearest to a question that nothing answers would be lost. A vector given up, null,
-- has no code.
create function vector_code(p_vector halfvec) returns bit varying
language sql immutable strict parallel safe
    return (
        select binary_quantize(p_vector - level) || binary_quantize(p_vector)
            || binary_quantize(p_vector + level)
        from (select array_fill((0.7 / sqrt(vector_dims(p_vector)))::real,
            array[vector_dims(p_vector)])::halfvec as level) levels);

-- In the key's index, so that a scan of codes reads no rows.
alter table event_vectors add column code bit varying
    generated always as (vector_code(embedding)) stored;
alter table event_vectors drop constraint event_vectors_pkey;
alter table event_vectors add primary key (tenant_id, space, scope_id, event_id) include (code);

create policy search_reads on event_vectors for select to strandline_search using (true);
create policy search_reads on scope_members for select to strandline_search using (true);
grant select (tenant_id, space, scope_id, event_id, embedding, code) on event_vectors
    to strandline_search;
grant select (tenant_id, participant, scope_id, participants) on scope_members to strandline_search;
create policy search_reads on scopes for select to strandline_search using (true);
grant select (tenant_id, scope_id) on scopes to strandline_search;

-- What a caller sees: the scopes, narrowed to p_scopes, and how many events they hold. Of many scopes a
-- part is summed up: ids are hashes, so the lowest are a random sample, and how close together they lie
-- tells how many there are. Where there are many scopes and more than p_large events, scope_ids is null:
-- what reads them then goes by visibility alone.
create function read_view(p_scopes uuid[], p_large bigint)
returns table (scope_ids uuid[], events bigint)
language plpgsql stable set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_sort = off as $$
declare
    c_sample constant int := 1000;
    v_scopes uuid[] := coalesce(p_scopes, scopes_in_view_up_to(c_sample + 1));
    v_lowest uuid[];
    v_events bigint;
begin
    if p_scopes is null and cardinality(v_scopes) > c_sample then
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

-- The share of all ids that are no higher: of its first 48 bits, which are a hash's.
create function id_share(p_id uuid) returns float8 language sql immutable parallel safe
    return (('x' || left(replace(p_id::text, '-', ''), 12))::bit(48)::bigint + 1) / 2::float8 ^ 48;

grant create on schema public to strandline_search;

-- vectors ------------------------------------------------------------------------------------------

-- The vectors in view nearest to a question, nearest first: of those whose codes differ in the fewest
-- bits, the nearest. p_scopes narrows the view; whose scopes they are is looked up once, as to compare
-- participants costs more than to compare codes. So are the erased events, which are left out.
create function nearest_by_code(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_scopes uuid[] := case when v_viewer = '{}' then p_scopes else array(
        select m.scope_id from scope_members m
        where m.tenant_id = v_tenant and m.participant = v_viewer[cardinality(v_viewer)]
            and (cardinality(v_viewer) = 1 or m.participants @> v_viewer)
            and (p_scopes is null or m.scope_id = any (p_scopes))) end;
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.participants @> v_viewer);
begin
    -- who is in every scope sees the whole tenant: to compare scopes costs as much as the codes
    if cardinality(v_scopes) > 1000 and cardinality(v_scopes) = (
        select count(*) from scopes s where s.tenant_id = v_tenant)
    then
        v_scopes := null;
    end if;
    return query
        select v.event_id, v.distance
        from (
            select c.scope_id, c.event_id from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space and c.code is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and c.event_id <> all (v_erased)
            order by c.code <~> v_code, c.event_id limit 3 * p_limit) near
        cross join lateral (
            select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
            where v.tenant_id = v_tenant and v.space = p_space and v.scope_id = near.scope_id
                and v.event_id = near.event_id
            offset 0) v
        order by v.distance, v.event_id limit p_limit;
end $$;

-- words --------------------------------------------------------------------------------------------

-- As search_words, where more events are in view than can be scored: p_events. A sample of the view
-- tells how many pieces hold each word. Those that hold a rare word are read, and those that hold the
-- rarest of the other words together, some thousands in all. Of a rare word document_counts is exact,
-- of another it is an estimate. Where no piece is found that way, the newest in view are read, and
-- where these hold none either, a row without an event has document_counts.
create function search_words_in_large_view(
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
        where e.tenant_id = v_tenant and e.erased_at is not null and e.participants @> v_viewer);
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

revoke execute on function nearest_by_code, search_words_in_large_view from public;
grant execute on function nearest_by_code, search_words_in_large_view to strandline_app;
alter function nearest_by_code owner to strandline_search;
alter function search_words_in_large_view owner to strandline_search;
revoke create on schema public from strandline_search;
