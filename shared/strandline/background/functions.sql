-- revision: 2
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

-- Tenants whose work is late: scopes that a worker has tried in vain or has not come to for five minutes, and
-- erasures that are not complete. At most `p_limit` of each kind, the worst first.
create or replace function tenants_behind(p_now timestamptz, p_limit int) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    (select w.tenant_id from scope_work w
    where w.attempts > 0 or w.due_at <= p_now - interval '5 minutes'
    group by 1 order by max(w.attempts) desc, min(w.due_at), 1 limit p_limit)
    union
    (select e.tenant_id from erasures e where e.due_at is not null
    group by 1 order by min(e.due_at), 1 limit p_limit)
    order by 1
$$;
revoke execute on function tenants_behind from public;
grant execute on function tenants_behind to strandline_app;

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

-- a clock that was put back ------------------------------------------------------------------------
-- What was stored while it ran ahead says that work is due, leased or paid for at a time that may be a year away.
-- No wait of the service is longer than a day: a due time further ahead is of such a clock, and comes due at once.

-- The asker's tenant's times that only a clock that was put back can have stored, put back: what they hold up is
-- due now, and what they hold is free. Returns how many rows that were. `p_now` is the job's clock; what lies
-- ahead of it alone may be of the database's. Facts stay as they are: when an event was recorded, when somebody
-- asked.
create or replace function put_times_back(p_now timestamptz) returns bigint
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_now timestamptz := greatest(p_now, clock_timestamp());
    v_ahead timestamptz := v_now + interval '1 day';
    v_rows bigint;
    v_count bigint := 0;
begin
    update scope_work w set due_at = least(w.due_at, v_now),
        leased_until = case when w.leased_until > v_ahead then '-infinity' else w.leased_until end
    where w.tenant_id = current_tenant() and greatest(w.due_at, w.leased_until) > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update erasures e set due_at = v_now, cleared_at = least(e.cleared_at, v_now)
    where e.tenant_id = current_tenant() and e.due_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update erased_payloads p set marked_at = v_now
    where p.tenant_id = current_tenant() and p.marked_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update turns t set due_at = v_now, leased_until = null
    where t.tenant_id = current_tenant() and t.due_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    -- A mark that is gone is set again, by the next look at the payload.
    delete from blob_removals r
    where r.tenant_id = current_tenant() and coalesce(r.removing_until, r.marked_at) > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update blob_scans p set ended_at = v_now
    where p.tenant_id = current_tenant() and p.ended_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update quotas q set measured_at = v_now
    where q.tenant_id = current_tenant() and q.measured_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update tenant_due_times d set due_since = v_now
    where d.tenant_id = current_tenant() and d.due_since > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update tenants t set swept_at = v_now - interval '2 days'  -- not swept today
    where t.tenant_id = current_tenant() and t.swept_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update model_states s set breaker_open_until = '-infinity'
    where s.tenant_id = current_tenant() and s.breaker_open_until > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    delete from waits w where w.tenant_id = current_tenant() and w.expires_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update topic_work w set oldest_at = least(w.oldest_at, v_now), newest_at = least(w.newest_at, v_now)
    where w.tenant_id = current_tenant() and w.oldest_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    update graph_analyses a set changed_at = v_now
    where a.tenant_id = current_tenant() and a.changed_at > v_ahead;
    get diagnostics v_rows = row_count;
    v_count := v_count + v_rows;
    -- A tenant may let lanes rest for weeks: only those whose events are of such a clock. They are told from
    -- now on, because recorded_at never falls in a scope.
    update lanes l set idle_at = v_now + interval '30 minutes'
    where l.tenant_id = current_tenant() and l.idle_at > v_ahead and exists (
        select from scopes s where s.tenant_id = l.tenant_id and s.scope_id = l.scope_id
            and s.last_recorded_at > v_ahead);
    get diagnostics v_rows = row_count;
    return v_count + v_rows;
end $$;

set local role strandline_planner;

-- Tenant ids, and nothing else about them, with times that `put_times_back` puts back: of those kinds that may
-- hold up work for ever, each by its index.
create or replace function tenants_with_times_ahead(p_now timestamptz) returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id from scope_work w
    where greatest(w.due_at, w.leased_until) > greatest(p_now, now()) + interval '1 day'
    union
    select e.tenant_id from erasures e where e.due_at > greatest(p_now, now()) + interval '1 day'
    union
    select t.tenant_id from turns t where t.due_at > greatest(p_now, now()) + interval '1 day'
    union
    select d.tenant_id from tenant_due_times d
    where d.kind in ('bytes', 'payloads', 'snapshots')
        and d.due_since > greatest(p_now, now()) + interval '1 day'
    union
    select t.tenant_id from tenants t where t.swept_at > greatest(p_now, now()) + interval '1 day'
    order by 1
$$;
revoke execute on function tenants_with_times_ahead from public;
grant execute on function tenants_with_times_ahead to strandline_app;

reset role;
