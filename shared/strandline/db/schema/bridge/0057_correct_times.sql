-- Ends from before 0056 that no client can load: the nearest moment. What a statement's event says stays as it
-- is; observed_state computes the same from it. Only a graph's import could store one.
do $$
declare
    v_tenants text[];
    v_tenant text;
    v_visible bigint;
    v_corrected uuid[];
    v_left bigint;
begin
    set local role strandline_planner;  -- the owner sees no tenant
    select coalesce(array_agg(t.tenant_id order by t.tenant_id), '{}') into v_tenants from tenants t;
    reset role;
    foreach v_tenant in array v_tenants loop
        perform set_config('strandline.tenant', v_tenant, true),
            set_config('strandline.viewer', '{}', true);
        select count(*) into v_visible from tenants t where t.tenant_id = current_tenant();
        if v_visible <> 1 then
            raise exception 'the rows of tenant % are not visible', v_tenant;
        end if;
        with corrected as (
            update graph_observations o set patch = jsonb_set(o.patch, '{valid_to}', to_jsonb(
                to_char(nearest_moment((o.patch ->> 'valid_to')::timestamptz) at time zone 'UTC',
                    'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"')))
            where o.tenant_id = current_tenant() and o.patch ->> 'valid_to' is not null
                and (o.patch ->> 'valid_to')::timestamptz
                    <> nearest_moment((o.patch ->> 'valid_to')::timestamptz)
            returning o.target_id)
        select coalesce(array_agg(c.target_id), '{}') into v_corrected from corrected c;
        update graph_nodes n set valid_to = nearest_moment(n.valid_to)
        where n.tenant_id = current_tenant() and n.node_id = any (v_corrected);
        update graph_edges e set valid_to = nearest_moment(e.valid_to)
        where e.tenant_id = current_tenant() and e.edge_id = any (v_corrected);
        select (select count(*) from graph_nodes n where n.tenant_id = current_tenant()
                and n.valid_to <> nearest_moment(n.valid_to))
            + (select count(*) from graph_edges e where e.tenant_id = current_tenant()
                and e.valid_to <> nearest_moment(e.valid_to))
            into v_left;
        if v_left > 0 then
            raise exception '% rows of tenant % keep a time that no client can load', v_left, v_tenant;
        end if;
    end loop;
end $$;
