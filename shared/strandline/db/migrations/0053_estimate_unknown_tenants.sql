-- A tenant whose rows came after the last ANALYZE is missing from the statistics. While these list all other
-- tenants, the planner takes it for a tenant of one row: every index that begins with the tenant looks as
-- good as the right one, and a look by key read all of the tenant, once for each row of a join.

-- The planner evaluates a stable function to find its value in the statistics, but none that returns a
-- record. So a tenant is estimated as the average of all, at most as the largest.
create function tenant_setting(out tenant text, out is_set boolean)
language plpgsql stable parallel safe cost 1 as $$
begin
    tenant := nullif(current_setting('strandline.tenant', true), '');
    is_set := tenant is not null;
end $$;
create or replace function current_tenant() returns text language sql stable parallel safe
    return (tenant_setting()).tenant;

-- It looks into each tenant; from end to end, it would read a table as often as there are tenants.
set local role strandline_planner;
alter function tenants_with_heat_work set enable_seqscan = off;
reset role;
