-- Heat in SQL: the formula of heat.py, for statements over many chains. A test holds the two equal; the
-- constants are explained there. `p_tuning` is a Tuning as JSON.

-- Weight times share; 0 where one of them is as good as 0: a product too small is an error in Postgres.
create function heat_term(p_weight float8, p_share float8) returns float8
language sql immutable parallel safe
    return case when least(p_weight, p_share) < 1e-50 then 0 else p_weight * p_share end;

create function initial_heat(p_importance float8, p_density float8, p_tuning jsonb) returns float8
language sql immutable parallel safe
    return least(1, heat_term((p_tuning ->> 'heat_importance')::float8, p_importance)
        + heat_term((p_tuning ->> 'heat_density')::float8, p_density));

-- I·e^(-Δt/(τ·S)), 0..1.
create function heat(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_now timestamptz, p_tuning jsonb)
returns float8 language sql immutable parallel safe
    return initial_heat(p_importance, p_density, p_tuning) * exp(-least(400,
        greatest(0, extract(epoch from p_now - p_accessed_at)::float8 / 3600)
            / ((p_tuning ->> 'heat_hours')::float8 * p_strength)));

-- For how many hours after its last access a chain's heat is at least the setting of this name.
create function hours_above_heat(
    p_setting text, p_importance float8, p_density float8, p_strength float8, p_tuning jsonb)
returns float8 language sql immutable parallel safe
    return case
        when initial_heat(p_importance, p_density, p_tuning) < (p_tuning ->> p_setting)::float8
            then -876600
        else least(876600, (p_tuning ->> 'heat_hours')::float8 * p_strength
            * ln(initial_heat(p_importance, p_density, p_tuning) / (p_tuning ->> p_setting)::float8))
    end;

create function cold_at(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_tuning jsonb)
returns timestamptz language sql stable parallel safe
    return p_accessed_at + make_interval(secs => 3600 * greatest(
        24 * (p_tuning ->> 'archive_days')::float8,
        hours_above_heat('freezing', p_importance, p_density, p_strength, p_tuning)));

create function promote_until(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_tuning jsonb)
returns timestamptz language sql stable parallel safe
    return p_accessed_at + make_interval(secs => 3600 *
        hours_above_heat('promote', p_importance, p_density, p_strength, p_tuning));

-- The strength and last boost that recalls at these times lead to, in any order and doubled or not.
create function apply_recalls(
    p_strength float8, p_boosted_at timestamptz, p_times timestamptz[], p_tuning jsonb,
    out strength float8, out boosted_at timestamptz)
language plpgsql immutable parallel safe as $$
declare
    cooldown interval := make_interval(secs => 3600 * (p_tuning ->> 'heat_cooldown_hours')::float8);
    recalled_at timestamptz;
begin
    strength := p_strength;
    boosted_at := p_boosted_at;
    for recalled_at in select distinct t from unnest(p_times) t order by t loop
        if boosted_at is null
            or recalled_at > boosted_at and recalled_at - boosted_at >= cooldown then
            strength := least(1e6, strength * (p_tuning ->> 'heat_growth')::float8);
            boosted_at := recalled_at;
        end if;
    end loop;
end $$;

-- Lock the next chains after this one. The planner expects few chains to be in view, and would sort all
-- of a tenant's chains for each call.
create function lock_chains_after(p_after uuid, p_limit int) returns setof uuid
language sql set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select c.chain_id from chains c
    where c.tenant_id = current_tenant() and c.chain_id > p_after
    order by c.chain_id limit p_limit for no key update
$$;

-- A tenant's heat settings: the deployment's, which lists them all, with those that the tenant set.
create function heat_settings(p_deployment jsonb, p_tuning jsonb) returns jsonb
language sql immutable parallel safe
    return p_deployment || coalesce((
        select jsonb_object_agg(s.key, s.value) from jsonb_each(p_tuning) s
        where p_deployment ? s.key and s.value <> 'null'), '{}');

grant create on schema public to strandline_planner;

-- Tenant ids, and nothing else about them, with recalls of existing chains that wait to be folded, with
-- recalls folded before `p_before` that are to be removed, or with chains to be recomputed because a
-- setting changed.
create function tenants_with_heat_work(p_deployment jsonb, p_before timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    where t.heat_recomputed_to is not null
        or t.applied_heat_settings <> heat_settings(p_deployment, t.tuning)
    union
    select t.tenant_id from tenants t, lateral (
        select from recalls r join chains c using (tenant_id, chain_id)
        where r.tenant_id = t.tenant_id and r.folded_at is null limit 1) due
    union
    select t.tenant_id from tenants t, lateral (
        select from recalls r where r.tenant_id = t.tenant_id and r.folded_at < p_before
        limit 1) old
$$;
revoke execute on function tenants_with_heat_work from public;
grant execute on function tenants_with_heat_work to strandline_app;
alter function tenants_with_heat_work owner to strandline_planner;

revoke create on schema public from strandline_planner;
