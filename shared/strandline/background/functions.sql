-- revision: 1
-- Where the sweeper has something to do, and when next.

set local role strandline_planner;

-- Tenants where a sweep has something to do: by what is due, not by tenants. The scopes themselves, whose
-- work may have no row that names it, are looked through once a day and when the embedding space is new.
create or replace function tenants_to_sweep(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.swept_space is distinct from p_space or t.swept_at < sweep_day_start(p_now)
    union
    select w.tenant_id from scope_work w
    where w.due_at <= p_now and w.leased_until <= p_now
    union
    select l.tenant_id from lanes l  -- a lane is closed only once its scope is folded to the end
    join scopes s on s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
    where l.idle_at <= p_now and s.folded_seq >= s.last_seq
    union
    select j.tenant_id from jobs j where j.ref is not null and j.state = 'queued'
    union
    select j.tenant_id from jobs j
    where j.ref is null and j.state in ('queued', 'running') and j.leased_until < p_now
    order by 1
$$;
revoke execute on function tenants_to_sweep from public;
grant execute on function tenants_to_sweep to strandline_app;

-- When the sweeper has something to do next, in any tenant; null: nothing known. With a space it also
-- counts what a sweep looks through and no row names: tenants that are new to the space, or to these
-- settings of heat. Of each kind the latest that is overdue is enough, because it has the shortest
-- pause, and the earliest to come. Work that failed often is one kind with other work: of all that is
-- overdue, the next try of the latest counts. Lanes and recalls whose scope or chain is not ready are passed
-- over, one by one (a subquery is not turned into a join) and a thousand at most: what makes them ready asks
-- again.
create or replace function next_sweep(
    p_space text, p_deployment jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(next_retry_at(due.at, p_spacing, p_now)) from (
        select unnest(array[max(work.at) filter (where work.at <= p_now),
            min(work.at) filter (where work.at > p_now)]) as at
        from (
            select max(greatest(w.due_at, w.leased_until)) as at from scope_work w
            where w.attempts <= 12 and greatest(w.due_at, w.leased_until) <= p_now
            union all
            select min(greatest(w.due_at, w.leased_until)) from scope_work w
            where w.attempts <= 12 and greatest(w.due_at, w.leased_until) > p_now
            union all
            -- What failed often is tried by every sweep, but starts one ever more seldom.
            select due.at + pause.length from generate_series(13, 20) n (attempts)
            cross join lateral (
                select (2 ^ (n.attempts - 12) - 1) * interval '5 minutes' as length) pause
            cross join lateral (
                select max(greatest(w.due_at, w.leased_until)) as at from scope_work w
                where w.attempts = n.attempts and w.attempts between 13 and 20
                    and greatest(w.due_at, w.leased_until) <= p_now - pause.length
                union all
                select min(greatest(w.due_at, w.leased_until)) from scope_work w
                where w.attempts = n.attempts and w.attempts between 13 and 20
                    and greatest(w.due_at, w.leased_until) > p_now - pause.length) due
        ) work
        union all
        (select l.idle_at from (
            select o.tenant_id, o.scope_id, o.idle_at from lanes o
            where o.idle_at <= p_now order by o.idle_at desc limit 1000) l
        where (select s.folded_seq >= s.last_seq from scopes s
            where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id)
        order by l.idle_at desc limit 1)
        union all
        (select l.idle_at from (
            select o.tenant_id, o.scope_id, o.idle_at from lanes o
            where o.idle_at > p_now order by o.idle_at limit 1000) l
        where (select s.folded_seq >= s.last_seq from scopes s
            where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id)
        order by l.idle_at limit 1)
        union all
        select max(greatest(j.created_at, j.leased_until)) from jobs j
        where j.state = 'queued' and j.ref is not null
            and greatest(j.created_at, j.leased_until) <= p_now
        union all
        select min(greatest(j.created_at, j.leased_until)) from jobs j
        where j.state = 'queued' and j.ref is not null
            and greatest(j.created_at, j.leased_until) > p_now
        union all
        select max(j.leased_until) from jobs j
        where j.state in ('queued', 'running') and j.ref is null and j.leased_until <= p_now
        union all
        select min(j.leased_until) from jobs j
        where j.state in ('queued', 'running') and j.ref is null and j.leased_until > p_now
        union all
        (select r.recalled_at from (
            select o.tenant_id, o.chain_id, o.recalled_at from recalls o
            where o.folded_at is null order by o.recalled_at desc limit 1000) r
        where (select true from chains c
            where c.tenant_id = r.tenant_id and c.chain_id = r.chain_id)
        order by r.recalled_at desc limit 1)
        union all
        select max(u.remove_at) from uploads u where u.remove_at <= p_now
        union all
        select min(u.remove_at) from uploads u where u.remove_at > p_now
        union all
        select max(d.due_since) + interval '10 minutes' from tenant_due_times d
        where d.kind = 'bytes' and d.due_since <= p_now - interval '10 minutes'
        union all
        select min(d.due_since) + interval '10 minutes' from tenant_due_times d
        where d.kind = 'bytes' and d.due_since > p_now - interval '10 minutes'
        union all
        select p_now where p_space is not null and (
            exists (select from tenants t where t.swept_space is null)
            -- by the ends of the index: a plan for any space would expect many that are less
            or (select min(t.swept_space) from tenants t) < p_space
            or (select max(t.swept_space) from tenants t) > p_space
            or exists (select from tenants t where t.heat_recomputed_to is not null)
            or heat_settings_differ(p_deployment))
    ) due
$$;
revoke execute on function next_sweep from public;
grant execute on function next_sweep to strandline_app;

reset role;
