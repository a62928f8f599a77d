-- Append again: the same order and the same promises in fewer and smaller statements. An append costs
-- less for what its statements do than for their being started: each sets up all of its plan anew. So
-- what few appends need (new scopes and sessions, edges, payloads, keys that were used before) stands
-- in statements that only run where it is needed, and what plpgsql can do by itself is in none.

-- What a scope's events hold, in bytes; counted where seq is given, so that it costs no write.
alter table scopes add column stored_bytes bigint not null default 0;
grant update (stored_bytes) on scopes to strandline_app;

-- What was stored before is counted now, tenant by tenant: the owner sees nothing without one. A
-- payload counts for the first event of its writer that holds it.
do $$
declare
    v_tenants text[];
    v_tenant text;
    v_counted bigint;
begin
    set local role strandline_planner;
    v_tenants := array(select t.tenant_id from tenants t order by 1);
    reset role;
    foreach v_tenant in array v_tenants loop
        perform set_config('strandline.tenant', v_tenant, true),
            set_config('strandline.viewer', '{}', true);
        with held as (
            select e.scope_id, coalesce(octet_length(e.content), 0) + octet_length(e.metadata::text)
                + case when e.blob_cid is not null and not exists (
                    select from events earlier
                    where earlier.tenant_id = e.tenant_id and earlier.blob_cid = e.blob_cid
                        and earlier.writer = e.writer
                        and (earlier.recorded_at, earlier.event_id) < (e.recorded_at, e.event_id))
                    then e.blob_size else 0 end as bytes
            from events e where e.tenant_id = v_tenant)
        update scopes s set stored_bytes = sums.bytes
        from (select scope_id, sum(bytes) as bytes from held group by scope_id) sums
        where s.tenant_id = v_tenant and s.scope_id = sums.scope_id;
        get diagnostics v_counted = row_count;
        if v_counted <> (select count(*) from scopes s where s.last_seq > 0) then
            raise exception 'counted % scopes of tenant %, not all of them', v_counted, v_tenant;
        end if;
    end loop;
    perform set_config('strandline.tenant', '', true), set_config('strandline.viewer', '', true);
end $$;
-- bytes: what the item adds to its scope. The others are the log's to give, whatever a request says.
alter type append_item
    add attribute bytes bigint,
    add attribute seq bigint,
    add attribute recorded_at timestamptz;

-- A piece of an event on its way into the text index.
create type append_piece as (
    event_id uuid,
    scope_id uuid,
    participants text[],
    piece int,
    start_char int,
    end_char int,
    cited_id uuid,
    words tsvector
);

drop function append_items, append_outcomes, store_events;

-- How large a cited payload is, as whoever uploaded it or an event that holds it says.
create function payload_size(p_cid text) returns bigint
language plpgsql stable as $$
begin
    return coalesce(
        (select b.size from blobs b where b.tenant_id = current_tenant() and b.cid = p_cid limit 1),
        (select e.blob_size from events e
         where e.tenant_id = current_tenant() and e.blob_cid = p_cid limit 1));
end $$;

-- Make a scope that is not there yet, and say who is in it.
create function make_scope(p_item append_item) returns void
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

-- Give seq: lock the items' scopes, which come in their one order, and let each count what it gets.
create function take_seqs(p_items append_item[]) returns append_item[]
language plpgsql as $$
declare
    v_item append_item;
    v_first int := 1;  -- of the items of one scope
    v_bytes bigint := 0;
    v_base bigint;
    v_recorded_at timestamptz;
begin
    for v_last in 1 .. cardinality(p_items) loop
        v_item := p_items[v_last];
        -- Releases before this one do not count.
        v_bytes := v_bytes + coalesce(v_item.bytes, coalesce(octet_length(v_item.content), 0)
            + octet_length(v_item.metadata::text)
            + case when v_item.blob_stored then v_item.blob_size else 0 end);
        continue when v_item.scope_id = p_items[v_last + 1].scope_id;
        loop
            -- The clock is read under the lock: within a scope it never falls.
            update scopes s
            set last_seq = s.last_seq + (v_last - v_first + 1),
                last_recorded_at = greatest(clock_timestamp(), s.last_recorded_at),
                stored_bytes = s.stored_bytes + v_bytes
            where s.tenant_id = current_tenant() and s.scope_id = v_item.scope_id
            returning s.last_seq - v_last, s.last_recorded_at into v_base, v_recorded_at;
            exit when found;
            perform make_scope(v_item);
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

-- In NFC, as questions are. Postgres looks at every character for that; plain ASCII it need not.
create function composed(p_text text) returns text language sql immutable parallel safe
    return case when octet_length(p_text) = length(p_text) then p_text else normalize(p_text, NFC) end;

create or replace function speaker_words(p_label text, p_text text) returns tsvector
language sql immutable parallel safe
    return setweight(to_tsvector('pg_catalog.english', composed(coalesce(p_label, ''))), 'D')
        || setweight(to_tsvector('pg_catalog.english', composed(p_text)), 'A');

-- The index's pieces of events that have their seq. The words of an event's first piece are followed
-- by those of the event before it in its lane (scope and session).
create function append_pieces(p_items append_item[]) returns append_piece[]
language plpgsql as $$
declare
    v_item append_item;
    v_piece jsonb;
    v_words tsvector;
    v_dated tsvector;
    v_scope uuid;
    v_lane int;
    v_before_id uuid;
    v_before tsvector;
    v_lanes text[];  -- of one scope, and what came last in each
    v_last_id uuid[];
    v_last_words tsvector[];
    v_pieces append_piece[] := '{}';
begin
    foreach v_item in array p_items loop
        if v_item.scope_id is distinct from v_scope then
            v_scope := v_item.scope_id;
            v_lanes := '{}';
        end if;
        v_lane := array_position(v_lanes, v_item.session_id);
        if v_lane is null then
            v_lanes := v_lanes || v_item.session_id;
            v_lane := cardinality(v_lanes);
            -- By the whole key of its row: joined, the planner may walk all rows of the scope.
            select s.event_id, ts_filter(s.words, '{a,d}') into v_before_id, v_before
            from event_search s
            where s.tenant_id = current_tenant() and s.scope_id = v_scope and s.piece = 0
                and s.event_id = (
                    select e.event_id from events e
                    where e.tenant_id = current_tenant() and e.scope_id = v_scope
                        and e.session_id = v_item.session_id and e.seq < v_item.seq
                        and e.erased_at is null
                    order by e.seq desc limit 1);
            v_last_id[v_lane] := v_before_id;
            v_last_words[v_lane] := v_before;
        end if;
        v_piece := v_item.pieces -> 0;
        v_words := speaker_words(v_item.label, v_piece ->> 'text');
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
                    speaker_words(v_item.label, piece.body ->> 'text') || v_dated)::append_piece
                from jsonb_array_elements(v_item.pieces) with ordinality as piece (body, place)
                where piece.place > 1);
        end if;
        v_last_id[v_lane] := v_item.event_id;
        v_last_words[v_lane] := v_words;
    end loop;
    return v_pieces;
end $$;

-- Store. The caller holds every key.
create function store_events(p_items append_item[], p_new_sessions boolean)
returns append_outcome[]
language plpgsql as $$
declare
    v_item append_item;
    v_scopes uuid[] := '{}';
    v_edges boolean := false;
    v_blobs boolean := false;
    v_outcomes append_outcome[] := '{}';
begin
    p_items := take_seqs(p_items);
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
        return name_work(v_outcomes, p_items);
    end if;
    return v_outcomes;
end $$;

-- Name the scopes that have no work waiting, and say so: for the others a hint is on its way already.
create function name_work(p_outcomes append_outcome[], p_items append_item[]) returns append_outcome[]
language plpgsql as $$
declare
    v_dirty uuid[];
begin
    with due as (
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select distinct on (i.scope_id) current_tenant(), i.scope_id, i.participants, clock_timestamp()
        from unnest(p_items) i order by i.scope_id
        on conflict do nothing
        returning scope_work.scope_id)
    select array_agg(due.scope_id) into v_dirty from due;
    return array(
        select row(o.n, o.outcome, o.event_id, o.scope_id, o.seq, o.cid, o.recorded_at, o.blob_size,
            o.stored, coalesce(o.scope_id = any (v_dirty), false))::append_outcome
        from unnest(p_outcomes) o);
end $$;

-- Reserve keys and store what won its own or has none.
create function append_items(p_items append_item[], p_refused jsonb, p_new_sessions boolean)
returns append_outcome[]
language plpgsql as $$
declare
    v_item append_item;
    v_won uuid[];
    v_new append_item[] := p_items;
    v_outcomes append_outcome[] := '{}';
begin
    if cardinality(p_items) = 1 and p_refused = '{}' then
        v_item := p_items[1];
        if v_item.source_event_key is not null then
            insert into event_keys
                (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
            values (current_tenant(), current_writer(), v_item.key_channel, v_item.source_event_key,
                v_item.event_id, decode(v_item.fingerprint, 'hex'))
            on conflict do nothing
            returning array[event_id] into v_won;
        end if;
    else
        with reserved as (
            insert into event_keys
                (tenant_id, writer, channel, source_event_key, event_id, fingerprint)
            select current_tenant(), current_writer(), i.key_channel, i.source_event_key, i.event_id,
                decode(i.fingerprint, 'hex')
            from unnest(p_items) i
            where i.source_event_key is not null and not p_refused ? i.n::text
            order by i.key_channel, i.source_event_key, i.n  -- crossing batches meet in one order
            on conflict do nothing
            returning event_keys.event_id)
        select array_agg(r.event_id) into v_won from reserved r;
    end if;

    if p_refused <> '{}' or coalesce(cardinality(v_won), 0) < cardinality(p_items) then
        v_new := array(
            select i from unnest(p_items) i
            where not p_refused ? i.n::text
                and (i.source_event_key is null or i.event_id = any (v_won)));
    end if;
    if cardinality(v_new) > 1 then  -- scopes are locked in one order, by all
        v_new := array(select i from unnest(v_new) i order by i.scope_id, i.n);
    end if;
    if cardinality(v_new) > 0 then
        v_outcomes := store_events(v_new, p_new_sessions);
    end if;
    if cardinality(v_new) < cardinality(p_items) then
        v_outcomes := v_outcomes || append_failures(p_items, p_refused, v_won);
    end if;
    return v_outcomes;
end $$;

-- What became of the items that were not stored. Read after everything is stored, keys lost to
-- others included.
create function append_failures(p_items append_item[], p_refused jsonb, p_won uuid[])
returns append_outcome[]
language plpgsql as $$
begin
    return array(
        with said as materialized (
            select i.n, i.event_id, i.participants, i.fingerprint, k.event_id as key_event_id,
                k.fingerprint as key_fingerprint
            from unnest(p_items) i
            left join event_keys k on k.tenant_id = current_tenant()
                and k.writer = current_writer() and k.channel = i.key_channel
                and k.source_event_key = i.source_event_key
            where p_refused ? i.n::text
                or (i.source_event_key is not null and not i.event_id = any (coalesce(p_won, '{}')))),
        told as (
            select i.*, e as event,
                case
                    when i.key_event_id is null then p_refused ->> i.n::text
                    when i.key_fingerprint = decode(i.fingerprint, 'hex') then 'replayed'
                    else 'conflict'
                end as outcome
            from said i
            left join events e on e.tenant_id = current_tenant() and e.event_id = i.key_event_id)
        select row(t.n, t.outcome, (t.event).event_id, (t.event).scope_id, (t.event).seq,
            (t.event).cid, (t.event).recorded_at, (t.event).blob_size,
            -- A conflict names what differs only to who may see the event: the bound user, or
            -- everybody the new request names.
            case when t.outcome = 'conflict'
                    and (current_writer() <> '*' or (t.event).participants @> t.participants)
                then to_jsonb(t.event) || jsonb_build_object('edges', coalesce((
                    select jsonb_agg(jsonb_build_object('event_id', m.cited_id, 'weight', m.weight))
                    from memory_edges m
                    where m.tenant_id = current_tenant() and m.event_id = t.key_event_id), '[]'))
            end,
            false)::append_outcome
        from told t);
end $$;

-- Append on behalf of who asks: that is an argument, so that an append is one statement, and not one
-- after another that says who asks. One row an item. A setting of a function is paid at each call: few.
-- Atomic means all or none: where one item fails all is undone, and the rows of the
-- others say what would have been. (Undone by a caught exception, whose words no server log keeps.)
create function append_events(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_atomic boolean)
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_items append_item[];
    v_item append_item;
    v_new_sessions boolean;
    v_doubtful boolean;  -- whether there is something to refuse
    v_refused jsonb := '{}';
    v_outcomes append_outcome[];
begin
    perform set_config('strandline.tenant', p_tenant, true),
        set_config('strandline.viewer', p_viewer, true),
        set_config('strandline.writer', p_writer, true);
    v_items := array(select i from jsonb_populate_recordset(null::append_item, p_items) i);
    if cardinality(v_items) = 1 then  -- most appends: spares them what only several items need
        v_item := v_items[1];
        v_doubtful := v_item.edges <> '[]' or (v_item.blob_cid is not null and not v_item.blob_stored);
        v_new_sessions := v_item.session_id <> '' and not exists (
            select from sessions s
            where s.tenant_id = current_tenant() and s.session_id = v_item.session_id
                and s.scope_id = v_item.scope_id);
    else
        select bool_or(i.session_id <> '' and not exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id)),
            bool_or(i.edges <> '[]' or (i.blob_cid is not null and not i.blob_stored))
                -- A session known in its scope mismatches nothing, unless the request names it twice.
                or count(distinct i.scope_id) filter (where i.session_id <> '') > 1
        into v_new_sessions, v_doubtful
        from unnest(v_items) i;
    end if;
    if v_new_sessions then
        perform lock_new_sessions(v_items);
    end if;
    if v_new_sessions or v_doubtful then
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
            null;  -- undone; v_outcomes still says why
        end;
    end if;
    if cardinality(v_outcomes) = 1 then
        return next v_outcomes[1];
    else
        return query select * from unnest(v_outcomes) o order by o.n;
    end if;
end $$;

-- What joins, and only some appends need, says by itself that it goes by index.
alter function append_refusals set enable_hashjoin = off;
alter function append_refusals set enable_mergejoin = off;
alter function append_refusals set enable_material = off;
alter function append_refusals set enable_bitmapscan = off;
alter function append_failures set enable_hashjoin = off;
alter function append_failures set enable_mergejoin = off;
alter function append_failures set enable_material = off;
alter function append_failures set enable_bitmapscan = off;

-- As releases before this one call it, with who asks said in a statement of its own.
create or replace function append_events(p_items jsonb, p_atomic boolean)
returns setof append_outcome language sql set search_path = pg_catalog, public, pg_temp as $$
    select * from append_events(current_tenant(), current_setting('strandline.viewer', true),
        current_writer(), p_items, p_atomic)
$$;

-- The guards against citing what was erased, in one look a statement whatever it cites.
drop trigger refuse_erased_citation on event_search;
drop trigger refuse_erased_event on event_search;
drop trigger refuse_erased_citation on memory_edges;
drop trigger refuse_erased_event on memory_edges;

grant create on schema public to strandline_guard;
set local role strandline_guard;
create or replace function refuse_erased_event() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
    if (select bool_or(held.erased_at is not null)  -- no filter: it would reach below the lock
        from (select tenant_id, event_id from citing order by 1, 2) c
        cross join lateral (
            select e.erased_at from events e
            where e.tenant_id = c.tenant_id and e.event_id = c.event_id for key share) held) then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;

create or replace function refuse_erased_citation() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
    if (select bool_or(held.erased_at is not null)
        from (
            select tenant_id, event_id from citing
            union all
            select tenant_id, cited_id from citing where cited_id is not null
            order by 1, 2) c
        cross join lateral (
            select e.erased_at from events e
            where e.tenant_id = c.tenant_id and e.event_id = c.event_id for key share) held) then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;
grant execute on function refuse_erased_citation to strandline_owner;  -- to hang it on tables
reset role;
create trigger refuse_erased_citation after insert on event_search referencing new table as citing
for each statement execute function refuse_erased_citation();
create trigger refuse_erased_citation after insert on memory_edges referencing new table as citing
for each statement execute function refuse_erased_citation();
set local role strandline_guard;
revoke execute on function refuse_erased_citation from strandline_owner;
reset role;
revoke create on schema public from strandline_guard;
