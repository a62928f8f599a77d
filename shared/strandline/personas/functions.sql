-- revision: 2
-- Sonas and turns: their sums, what is forgotten of them, and which turns wait.

-- Compute the sums of these sonas in these scopes anew, from their members.
create or replace function renew_sona_centroids(p_sona_ids uuid[], p_scope_ids uuid[]) returns void
language sql set search_path = pg_catalog, public, pg_temp
begin atomic
    delete from sona_centroids c
    where c.tenant_id = current_tenant() and c.sona_id = any (p_sona_ids)
        and c.scope_id = any (p_scope_ids);
    insert into sona_centroids (tenant_id, sona_id, scope_id, space, participants, total, memories)
    select m.tenant_id, m.sona_id, m.scope_id, counted.space, m.participants,
        sum(v.embedding::vector), count(*)
    from sona_members m
    cross join lateral unnest(m.counted_in) counted (space)
    cross join lateral (  -- by key: the planner may read all vectors for a join
        select v.embedding from event_vectors v
        where v.tenant_id = m.tenant_id and v.space = counted.space and v.scope_id = m.scope_id
            and v.event_id = m.event_id and v.embedding is not null offset 0) v
    where m.tenant_id = current_tenant() and m.sona_id = any (p_sona_ids)
        and m.scope_id = any (p_scope_ids)
    group by m.tenant_id, m.sona_id, m.scope_id, counted.space, m.participants
    order by m.sona_id, m.scope_id, counted.space;
end;
revoke execute on function renew_sona_centroids from public;
grant execute on function renew_sona_centroids to strandline_app;

set local role strandline_eraser;

-- Forget the turns that rest on these events, whoever asked: an answer to one participant may cite what
-- another one erases. The events are those in the caller's view.
create or replace function forget_turns(p_event_ids uuid[]) returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_tenant constant text := current_tenant();
    v_turns uuid[];
begin
    select array_agg(distinct t.turn_id) into v_turns
    from turn_events t
    join events e on e.tenant_id = t.tenant_id and e.event_id = t.event_id
    where t.tenant_id = v_tenant and t.event_id = any (p_event_ids);
    delete from turn_events t where t.tenant_id = v_tenant and t.turn_id = any (v_turns);
    delete from turns t where t.tenant_id = v_tenant and t.turn_id = any (v_turns);
    return coalesce(cardinality(v_turns), 0);
end $$;
revoke execute on function forget_turns from public;
grant execute on function forget_turns to strandline_app;

-- Forget all names of sonas, for who erases a whole tenant. Returns how many.
create or replace function forget_sona_names() returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    delete from sona_names n where n.tenant_id = current_tenant() and current_viewer() = '{}';
    get diagnostics v_count = row_count;
    return v_count;
end $$;
revoke execute on function forget_sona_names from public;
grant execute on function forget_sona_names to strandline_app;

-- Forget all turns, for who erases a whole tenant: what waits for its answer, and an answer that cites
-- nothing, rest on no event. Returns how many.
create or replace function forget_all_turns() returns bigint
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_count bigint;
begin
    delete from turn_events t where t.tenant_id = current_tenant() and current_viewer() = '{}';
    delete from turns t where t.tenant_id = current_tenant() and current_viewer() = '{}';
    get diagnostics v_count = row_count;
    return v_count;
end $$;
revoke execute on function forget_all_turns from public;
grant execute on function forget_all_turns to strandline_app;

-- Forget the names that a user gave to sonas, and what was asked with that user's own credential or for that
-- user and no other person: they rest on no event. For who erases what somebody said: a bound user reaches what
-- was written with that user's own credential alone. Returns how many of each.
create or replace function forget_words_of_writer(p_writer text) returns table (sona_names bigint, turns bigint)
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
#variable_conflict use_column
declare
    v_is_unbound constant boolean := coalesce(current_viewer() = '{}', false);
    v_names bigint;
    v_turns uuid[];
begin
    if not (v_is_unbound or coalesce(p_writer = current_writer() and p_writer = any (current_viewer()), false)) then
        return;
    end if;
    delete from sona_names n where n.tenant_id = current_tenant() and n.writer = p_writer;
    get diagnostics v_names = row_count;
    v_turns := array(
        select t.turn_id from turns t
        where t.tenant_id = current_tenant() and (t.asked_by = p_writer
            or (v_is_unbound and p_writer = any (t.participants) and not exists (
                select from unnest(t.participants) other (name)
                where other.name <> p_writer and other.name not like 'agent:%'))));
    delete from turn_events t where t.tenant_id = current_tenant() and t.turn_id = any (v_turns);
    delete from turns t where t.tenant_id = current_tenant() and t.turn_id = any (v_turns);
    return query select v_names, cardinality(v_turns)::bigint;
end $$;
revoke execute on function forget_words_of_writer from public;
grant execute on function forget_words_of_writer to strandline_app;

reset role;

-- Forget these events in sonas, threads and turns. The caller holds the locks of the events' rows, which it
-- erases in the same transaction. The centroids are computed anew from what is left. Returns how many rows
-- of each table it concerned. Its plans are as those of erase_events.
create or replace function forget_in_personas(p_event_ids uuid[]) returns table (name text, total bigint)
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_tenant constant text := current_tenant();
    v_sona_ids uuid[];
    v_scope_ids uuid[];
    v_count bigint;
begin
    perform pg_advisory_xact_lock(hashtextextended(v_tenant || ' sona ' || s.scope_id, 0))
    from (
        select distinct m.scope_id from sona_members m
        where m.tenant_id = v_tenant and m.event_id = any (p_event_ids)
        order by m.scope_id) s;
    with gone as (
        delete from sona_members m
        where m.tenant_id = v_tenant and m.event_id = any (p_event_ids)
        returning m.sona_id, m.scope_id)
    select array_agg(distinct g.sona_id), array_agg(distinct g.scope_id), count(*)
    into v_sona_ids, v_scope_ids, v_count from gone g;
    if v_count > 0 then
        perform renew_sona_centroids(v_sona_ids, v_scope_ids);
    end if;
    return query select 'sona_members', v_count;
    with gone as (
        delete from acts a where a.tenant_id = v_tenant and a.event_id = any (p_event_ids)
        returning a.act_id, a.sona_id, a.step, a.scope_id, a.participants)
    insert into erased_acts (tenant_id, act_id, sona_id, step, scope_id, participants)
    select v_tenant, g.act_id, g.sona_id, g.step, g.scope_id, g.participants from gone g;
    get diagnostics v_count = row_count;
    return query select 'acts', v_count;
    return query select 'turns', forget_turns(p_event_ids);
end $$;
revoke execute on function forget_in_personas from public;
grant execute on function forget_in_personas to strandline_app;

set local role strandline_planner;

-- Tenants with a turn of which the worker is to be told again.
create or replace function tenants_with_turns(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct t.tenant_id from turns t where t.due_at <= p_now order by 1
$$;
revoke execute on function tenants_with_turns from public;
grant execute on function tenants_with_turns to strandline_app;

-- When that is next, in any tenant: as of all jobs the latest that is overdue, and the earliest to come.
create or replace function next_turn(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(next_retry_at(due.at, p_spacing, p_now)) from (
        select max(t.due_at) as at from turns t where t.due_at <= p_now
        union all
        select min(t.due_at) from turns t where t.due_at > p_now) due
$$;
revoke execute on function next_turn from public;
grant execute on function next_turn to strandline_app;

reset role;
