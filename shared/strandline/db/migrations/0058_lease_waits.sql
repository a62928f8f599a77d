-- Requests that wait for something to come. Each holds a lease while it sleeps, so that a tenant's waits and
-- those of a function can be counted by any instance. A lease expires by itself: an instance that is killed
-- frees what it held.
create table waits (
    tenant_id text not null references tenants,
    wait_id uuid not null default gen_random_uuid(),
    function text not null,
    expires_at timestamptz not null,
    primary key (tenant_id, wait_id)
);
create policy own_tenant on waits to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
create policy planner_reads on waits for select to strandline_planner using (true);
alter table waits enable row level security;
alter table waits force row level security;
grant select, insert, delete on waits to strandline_app;
grant select on waits to strandline_planner;

grant create on schema public to strandline_planner;
set local role strandline_planner;
-- How many requests of a function wait, of all tenants together, and nothing else about them.
create function count_waits(p_function text) returns bigint
language sql volatile security definer set search_path = pg_catalog, public, pg_temp as $$
    select count(*) from waits w where w.function = p_function and w.expires_at > clock_timestamp()
$$;
revoke execute on function count_waits from public;
grant execute on function count_waits to strandline_app;
reset role;
revoke create on schema public from strandline_planner;

-- Whether one more request of the tenant may wait.
create function may_wait(p_function text, p_tenant_limit int, p_function_limit int) returns boolean
language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
begin
    return (select count(*) from waits w
            where w.tenant_id = current_tenant() and w.expires_at > clock_timestamp()) < p_tenant_limit
        and count_waits(p_function) < p_function_limit;
end $$;

-- A lease for a request that waits at most so many seconds; null beyond the limits. Those who are refused
-- take no lock. The lock is of all tenants, because one count is: it is held for this function alone, which
-- does not wait for the disk. A lease that a crash loses had its request lost as well.
create function begin_wait(p_function text, p_tenant_limit int, p_function_limit int, p_seconds float8)
returns uuid language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
declare
    v_wait_id uuid;
begin
    if not may_wait(p_function, p_tenant_limit, p_function_limit) then
        return null;
    end if;
    perform set_config('synchronous_commit', 'off', true);
    perform pg_advisory_xact_lock(hashtextextended('waits', 0));
    if may_wait(p_function, p_tenant_limit, p_function_limit) then
        delete from waits w where w.tenant_id = current_tenant() and w.expires_at <= clock_timestamp();
        insert into waits (tenant_id, function, expires_at)
        values (current_tenant(), p_function, clock_timestamp() + make_interval(secs => p_seconds))
        returning wait_id into v_wait_id;
    end if;
    return v_wait_id;
end $$;

-- Give a lease back; false where it is gone.
create function end_wait(p_wait_id uuid) returns boolean
language plpgsql volatile set search_path = pg_catalog, public, pg_temp as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    delete from waits w where w.tenant_id = current_tenant() and w.wait_id = p_wait_id;
    return found;
end $$;
