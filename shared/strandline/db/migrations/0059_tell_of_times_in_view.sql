-- Who sees no scope of a tenant does not learn when its newest events came: for them it reaches nowhere,
-- and a list reads nothing. Else as in 0007: it has to count what is not in view.
grant create on schema public to strandline_search;
set local role strandline_search;
create or replace function nth_newest_recorded_at(p_at timestamptz, p_events int) returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select case
        when current_viewer() <> '{}' and not exists (
            select from scope_members m
            where m.tenant_id = current_tenant() and m.participant = (current_viewer())[1]
                and m.participants @> current_viewer())
        then 'infinity'
        else coalesce((
            select e.recorded_at from events e
            where e.tenant_id = current_tenant() and e.recorded_at <= coalesce(p_at, 'infinity')
            order by e.recorded_at desc, e.scope_id desc, e.seq desc
            offset p_events limit 1), '-infinity')
        end
    where current_tenant() is not null and current_viewer() is not null
$$;
reset role;
revoke create on schema public from strandline_search;
