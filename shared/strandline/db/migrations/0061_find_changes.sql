-- What people say that fills a slot of their lives (where they live and work, what they use, plan and
-- prefer) is a decision of the fold, found by whom it is about. A chain that bears a change is promoted
-- whatever its heat, and at once: it ends facts.

alter table decisions add column subject text;  -- of a decision of kind `slots`
create index decisions_by_subject on decisions (tenant_id, subject, decided_at) where subject is not null;

alter table chains add column bears_change boolean not null default false;
grant update (bears_change) on chains to strandline_app;
create index chains_bearing_change on chains (tenant_id, accessed_at)
    where status = 'active' and bears_change and promoted_version < version;

grant create on schema public to strandline_planner;
set local role strandline_planner;
create or replace function promotions_due(p_promotion jsonb, p_heat jsonb, p_spacing interval, p_now timestamptz)
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
            and w.promote_until >= p_now
        union all
        select w.accessed_at, true
        from chains w
        where w.tenant_id = t.tenant_id and w.status = 'active' and w.promoted_version < w.version
            and w.bears_change) c
    where coalesce((t.tuning ->> 'ltm_enabled')::boolean, (p_promotion ->> 'ltm_enabled')::boolean)
    union all  -- failures that an admin has asked to retry
    select j.tenant_id, greatest(j.created_at, j.leased_until), p_spacing from jobs j
    where j.kind = 'promote' and j.ref is not null and j.state = 'queued'
$$;
reset role;
revoke create on schema public from strandline_planner;
