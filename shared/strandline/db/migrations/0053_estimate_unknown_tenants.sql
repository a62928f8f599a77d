-- A tenant whose rows came after the last ANALYZE is missing from the statistics. While these list all other
-- tenants, the planner takes it for a tenant of one row: every index that begins with the tenant looks as
-- good as the right one, and a look by key read all of the tenant, once for each row of a join.

-- As nullif(current_setting(...), ''), which the planner evaluates to find the value in the statistics. It
-- does not evaluate a comparison of rows: a tenant is estimated as the average of all.
create or replace function current_tenant() returns text language sql stable parallel safe
    return case when (current_setting('strandline.tenant', true), '') > ('', '')
        then current_setting('strandline.tenant', true) end;

-- It looks into each tenant; from end to end, it would read a table as often as there are tenants.
set local role strandline_planner;
alter function tenants_with_heat_work set enable_seqscan = off;
reset role;
