-- revision: 1
-- When the topic index is built.

set local role strandline_planner;

-- Tenants, since when a build of them is due, and how many scopes wait for it: due as soon as 20 chain
-- versions wait, or once the oldest has waited for 15 minutes. By the rows of scopes that wait, not by
-- tenants.
create or replace function builds_due() returns table (tenant_id text, due_at timestamptz, scopes bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id, least(min(w.oldest_at) + interval '15 minutes',
        case when sum(w.waiting) >= 20 then max(w.newest_at) end), count(*)
    from topic_work w group by w.tenant_id
$$;
revoke execute on function builds_due from public;

create or replace function tenants_to_build(p_now timestamptz) returns table (tenant_id text, scopes bigint)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select d.tenant_id, d.scopes from builds_due() d where d.due_at <= p_now order by 1
$$;
revoke execute on function tenants_to_build from public;
grant execute on function tenants_to_build to strandline_app;

-- When the builder has something to do next, in any tenant; what is a day late waits for the morning.
create or replace function next_build(p_spacing interval, p_now timestamptz) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(d.due_at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from builds_due() d
$$;
revoke execute on function next_build from public;
grant execute on function next_build to strandline_app;

reset role;
