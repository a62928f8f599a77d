-- How much recalls used an event, for those who want their answers weighted by it. And a scan of codes
-- that sorts few of them.

-- use ----------------------------------------------------------------------------------------------

-- So many of event_ids, the first, count as used. Earlier answers count as no use.
alter table recall_answers add column used int not null default 0 check (used >= 0);
alter table recall_answers add column folded_at timestamptz;  -- when its use was folded into event_uses
grant update (folded_at) on recall_answers to strandline_app;
create index recall_answers_unfolded on recall_answers (tenant_id) where folded_at is null and used > 0;

-- That a recall gave an event, which counts for itself and, by the weights of its edges, for what it
-- rests on in its scope: a row a day for each set of people who asked. Participants are these, not the
-- event's: nobody learns what others ask. A function of recall_answers and memory_edges, and as old as
-- the former: it can be dropped and folded again.
create table event_uses (
    tenant_id text not null,
    cited_id uuid not null,  -- what it counts for
    asker_id uuid not null,  -- a hash of the participants, which are too long for an index
    event_id uuid not null,  -- what was given: the same, or what rests on it
    day date not null,  -- UTC
    participants text[] not null check (cardinality(participants) > 0),  -- who asked: Q
    impact double precision not null check (impact > 0 and impact <= 1),
    primary key (tenant_id, cited_id, asker_id, event_id, day),
    foreign key (tenant_id, cited_id) references events,
    foreign key (tenant_id, event_id) references events
);
create index event_uses_event on event_uses (tenant_id, event_id);
create index event_uses_day on event_uses (tenant_id, day);

create policy in_view on event_uses to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy planner_reads on event_uses for select to strandline_planner using (true);
alter table event_uses enable row level security;
alter table event_uses force row level security;
grant select, insert, delete on event_uses to strandline_app;
grant select on event_uses to strandline_planner;

set local role strandline_guard;
grant execute on function refuse_erased_citation to strandline_owner;
reset role;
create trigger refuse_erased_citation after insert on event_uses referencing new table as citing
for each statement execute function refuse_erased_citation();
set local role strandline_guard;
revoke execute on function refuse_erased_citation from strandline_owner;
reset role;

-- As before, and tenants with use to be folded or removed.
grant create on schema public to strandline_planner;
set local role strandline_planner;
create or replace function tenants_with_heat_work(p_deployment jsonb, p_before timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.heat_recomputed_to is not null
        or t.applied_heat_settings <> heat_settings(p_deployment, t.tuning)
    union
    select t.tenant_id from tenants t, lateral (
        select from recalls r join chains c using (tenant_id, chain_id)
        where r.tenant_id = t.tenant_id and r.folded_at is null limit 1) due
    union
    select t.tenant_id from tenants t, lateral (
        select from recalls r where r.tenant_id = t.tenant_id and r.folded_at < p_before
        limit 1) old
    union
    select t.tenant_id from tenants t, lateral (
        select from recall_answers a where a.tenant_id = t.tenant_id and a.recalled_at < p_before
        limit 1) old_answers
    union
    select t.tenant_id from tenants t, lateral (
        select from recall_answers a
        where a.tenant_id = t.tenant_id and a.folded_at is null and a.used > 0 limit 1) use
    union
    select t.tenant_id from tenants t, lateral (  -- the oldest, by index: most have none
        select u.day from event_uses u where u.tenant_id = t.tenant_id order by u.day limit 1) oldest
    where oldest.day < (p_before at time zone 'UTC')::date
$$;
reset role;
revoke create on schema public from strandline_planner;

-- codes --------------------------------------------------------------------------------------------

-- As before, but codes that differ in too many bits are not sorted. A sample of the view tells how many
-- are too many: what it says is a bound, and where fewer are within it than are needed, all are sorted.
-- Whether somebody sees the whole tenant is counted, not listed. From some 20,000 codes a worker reads a
-- part of them.
grant create on schema public to strandline_search;
set local role strandline_search;
create or replace function nearest_by_code(p_vector halfvec, p_space text, p_scopes uuid[], p_limit int)
returns table (event_id uuid, distance double precision)
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_custom_plan set jit = off set enable_seqscan = off
set max_parallel_workers_per_gather = 1 set parallel_setup_cost = 300 set parallel_tuple_cost = 0.01 as $$
#variable_conflict use_column
declare
    c_sample constant int := 80;
    c_sampled_scopes constant int := 50;
    v_wanted constant int := 3 * p_limit;
    v_tenant text := current_tenant();
    v_viewer text[] := current_viewer();
    v_code bit varying := vector_code(p_vector);
    v_sees_all boolean := false;
    v_scope_count bigint;
    v_scopes uuid[];  -- null: the whole tenant
    v_erased uuid[] := array(
        select e.event_id from events e
        where e.tenant_id = v_tenant and e.erased_at is not null and e.participants @> v_viewer);
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
    select (array_agg(bits order by bits))[3 + ceil(3 * v_wanted * count(bits) / max(events))]
    into v_bound from sample where bits is not null;

    return query
        with within as materialized (
            select c.scope_id, c.event_id from event_vectors c
            where c.tenant_id = v_tenant and c.space = p_space
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and (v_erased = '{}' or c.event_id <> all (v_erased))
                and c.code <~> v_code <= coalesce(v_bound, 'infinity')
            order by c.code <~> v_code, c.event_id limit v_wanted),
        near as (
            select w.scope_id, w.event_id from within w
            where v_bound is null or (select count(*) from within) = v_wanted
            union all
            (select c.scope_id, c.event_id from event_vectors c
            where v_bound is not null and (select count(*) from within) < v_wanted
                and c.tenant_id = v_tenant and c.space = p_space and c.code is not null
                and (v_scopes is null or c.scope_id = any (v_scopes))
                and (v_erased = '{}' or c.event_id <> all (v_erased))
            order by c.code <~> v_code, c.event_id limit v_wanted))
        select v.event_id, v.distance
        from near
        cross join lateral (
            select v.event_id, v.embedding <=> p_vector as distance from event_vectors v
            where v.tenant_id = v_tenant and v.space = p_space and v.scope_id = near.scope_id
                and v.event_id = near.event_id
            offset 0) v
        order by v.distance, v.event_id limit p_limit;
end $$;
reset role;
revoke create on schema public from strandline_search;
