-- When chains are promoted into the knowledge graph: those that are warm, half an hour after they were
-- formed or recalled, so that what is merged meanwhile is promoted once; hot ones at once. A tenant that
-- has switched long-term memory off is left out.
--
-- Two minutes past the half hour: a builder that begins at it has ended by then. A job that ends asks what
-- is due next, and would take the lease of one that still runs for something to look after.

grant create on schema public to strandline_planner;

-- The unpromoted warm chains of each tenant. `p_promotion` has the deployment's `ltm_enabled` and `promote_at_once`,
-- `p_heat` its heat settings.
create function promotions_due(p_promotion jsonb, p_heat jsonb, p_spacing interval, p_now timestamptz)
returns table (tenant_id text, due_at timestamptz, pause interval)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id,
        case when c.is_hot then c.accessed_at
            else period_start(c.accessed_at, interval '30 minutes') + interval '32 minutes' end,
        case when c.is_hot then p_spacing else interval '30 minutes' end
    from tenants t
    cross join lateral (
        select w.accessed_at, coalesce(heat(w.importance, w.density, w.strength, w.accessed_at, p_now,
                heat_settings(p_heat, t.tuning))
            >= coalesce((t.tuning ->> 'promote_at_once')::float8,
                (p_promotion ->> 'promote_at_once')::float8), false) as is_hot
        from chains w
        where w.tenant_id = t.tenant_id and w.status = 'active' and w.promoted_version < w.version
            and w.promote_until >= p_now) c
    where coalesce((t.tuning ->> 'ltm_enabled')::boolean, (p_promotion ->> 'ltm_enabled')::boolean)
    union all  -- failures that an admin has asked to retry
    select j.tenant_id, greatest(j.created_at, j.leased_until), p_spacing from jobs j
    where j.kind = 'promote' and j.ref is not null and j.state = 'queued'
$$;

create function tenants_to_promote(p_promotion jsonb, p_heat jsonb, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select distinct d.tenant_id
    from promotions_due(p_promotion, p_heat, interval '0', p_now) d
    where d.due_at <= p_now order by 1
$$;

-- When the promoter has something to do next, in any tenant; what is a day late waits for the morning.
create function next_promotion(p_promotion jsonb, p_heat jsonb, p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(d.due_at, d.pause, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from promotions_due(p_promotion, p_heat, p_spacing, p_now) d
$$;

do $$
declare
    signature text;
begin
    foreach signature in array array['promotions_due(jsonb, jsonb, interval, timestamptz)',
        'tenants_to_promote(jsonb, jsonb, timestamptz)',
        'next_promotion(jsonb, jsonb, interval, timestamptz)'] loop
        execute format('revoke execute on function %s from public', signature);
    end loop;
    foreach signature in array array['tenants_to_promote(jsonb, jsonb, timestamptz)',
        'next_promotion(jsonb, jsonb, interval, timestamptz)'] loop
        execute format('grant execute on function %s to strandline_app', signature);
    end loop;
    foreach signature in array array['promotions_due(jsonb, jsonb, interval, timestamptz)',
        'tenants_to_promote(jsonb, jsonb, timestamptz)',
        'next_promotion(jsonb, jsonb, interval, timestamptz)'] loop
        execute format('alter function %s owner to strandline_planner', signature);
    end loop;
end $$;
revoke create on schema public from strandline_planner;
