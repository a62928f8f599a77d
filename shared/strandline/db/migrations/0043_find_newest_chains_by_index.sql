-- The newest chains of a scope in view, by their index. The planner does not know which of a deployment's
-- scopes is asked for: in one of a few thousand chains it would read all of them, at each fold.
create function newest_chains(p_scope uuid, p_limit int) returns table (chain_id uuid)
language sql stable set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select c.chain_id from chains c
    where c.tenant_id = current_tenant() and c.scope_id = p_scope
    order by c.last_event_at desc, c.chain_id limit p_limit
$$;
revoke execute on function newest_chains from public;
grant execute on function newest_chains to strandline_app;
