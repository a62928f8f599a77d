-- revision: 1
-- Heat, and what the archiver finds.

-- heat ---------------------------------------------------------------------------------------------

-- Heat in SQL: the formula of heat.py, for statements over many chains. A test holds the two equal; the
-- constants are explained there. `p_tuning` is a Tuning as JSON.

-- Weight times share; 0 where one of them is as good as 0: a product too small is an error in Postgres.
create or replace function heat_term(p_weight float8, p_share float8) returns float8
language sql immutable parallel safe
    return case when least(p_weight, p_share) < 1e-50 then 0 else p_weight * p_share end;

create or replace function initial_heat(p_importance float8, p_density float8, p_tuning jsonb) returns float8
language sql immutable parallel safe
    return least(1, heat_term((p_tuning ->> 'heat_importance')::float8, p_importance)
        + heat_term((p_tuning ->> 'heat_density')::float8, p_density));

-- I·e^(-Δt/(τ·S)), 0..1.
create or replace function heat(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_now timestamptz, p_tuning jsonb)
returns float8 language sql immutable parallel safe
    return initial_heat(p_importance, p_density, p_tuning) * exp(-least(400,
        greatest(0, extract(epoch from p_now - p_accessed_at)::float8 / 3600)
            / ((p_tuning ->> 'heat_hours')::float8 * p_strength)));

-- For how many hours after its last access a chain's heat is at least the setting of this name.
create or replace function hours_above_heat(
    p_setting text, p_importance float8, p_density float8, p_strength float8, p_tuning jsonb)
returns float8 language sql immutable parallel safe
    return case
        when initial_heat(p_importance, p_density, p_tuning) < (p_tuning ->> p_setting)::float8
            then -876600
        else least(876600, (p_tuning ->> 'heat_hours')::float8 * p_strength
            * ln(initial_heat(p_importance, p_density, p_tuning) / (p_tuning ->> p_setting)::float8))
    end;

create or replace function cold_at(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_tuning jsonb)
returns timestamptz language sql stable parallel safe
    return p_accessed_at + make_interval(secs => 3600 * greatest(
        24 * (p_tuning ->> 'archive_days')::float8,
        hours_above_heat('freezing', p_importance, p_density, p_strength, p_tuning)));

create or replace function promote_until(
    p_importance float8, p_density float8, p_strength float8, p_accessed_at timestamptz,
    p_tuning jsonb)
returns timestamptz language sql stable parallel safe
    return p_accessed_at + make_interval(secs => 3600 *
        hours_above_heat('promote', p_importance, p_density, p_strength, p_tuning));

-- The strength and last boost that recalls at these times lead to, in any order and doubled or not.
create or replace function apply_recalls(
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
create or replace function lock_chains_after(p_after uuid, p_limit int) returns setof uuid
language sql set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select c.chain_id from chains c
    where c.tenant_id = current_tenant() and c.chain_id > p_after
    order by c.chain_id limit p_limit for no key update
$$;

-- A tenant's heat settings: the deployment's, which lists them all, with those that the tenant set.
create or replace function heat_settings(p_deployment jsonb, p_tuning jsonb) returns jsonb
language sql immutable parallel safe
    return p_deployment || coalesce((
        select jsonb_object_agg(s.key, s.value) from jsonb_each(p_tuning) s
        where p_deployment ? s.key and s.value <> 'null'), '{}');

set local role strandline_planner;

-- Whether the heat settings that a tenant's chains follow are not those in force. Each combination of
-- settings is judged once, however many tenants have it: the next greater value of the index is looked up
-- until there is none.
create or replace function heat_settings_differ(p_deployment jsonb) returns boolean
language sql stable set search_path = pg_catalog, public, pg_temp as $$
    with recursive kinds as (
        (select md5(t.applied_heat_settings::text || t.tuning::text) as kind,
            t.applied_heat_settings as applied, t.tuning
        from tenants t order by md5(t.applied_heat_settings::text || t.tuning::text) limit 1)
        union all
        select n.kind, n.applied, n.tuning from kinds k
        cross join lateral (
            select md5(t.applied_heat_settings::text || t.tuning::text) as kind,
                t.applied_heat_settings as applied, t.tuning
            from tenants t
            where md5(t.applied_heat_settings::text || t.tuning::text) > k.kind
            order by md5(t.applied_heat_settings::text || t.tuning::text) limit 1) n)
    select exists (select from kinds k where k.applied <> heat_settings(p_deployment, k.tuning))
$$;
revoke execute on function heat_settings_differ from public;

-- Tenant ids, and nothing else about them, with recalls of existing chains that wait to be folded, with
-- recalls folded before `p_before` that are to be removed, with answers to be removed, with use to be folded
-- or removed, or with chains to be recomputed because a setting changed.
create or replace function tenants_with_heat_work(p_deployment jsonb, p_before timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off as $$
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
    union
    select t.tenant_id from tenants t, lateral (
        select from recall_answers a where a.tenant_id = t.tenant_id and a.recalled_at < p_before
        limit 1) old_answers
    union
    select t.tenant_id from tenants t, lateral (
        select from recall_answers a
        where a.tenant_id = t.tenant_id and a.folded_at is null and a.used > 0 limit 1) use
    union
    select t.tenant_id from tenants t, lateral (  -- the oldest, by index: most have none
        select u.day from event_uses u where u.tenant_id = t.tenant_id order by u.day limit 1) oldest
    where oldest.day < (p_before at time zone 'UTC')::date
$$;
revoke execute on function tenants_with_heat_work from public;
grant execute on function tenants_with_heat_work to strandline_app;

reset role;

-- lists --------------------------------------------------------------------------------------------

-- The newest chains of a scope in view, by their index. The planner does not know which of a deployment's
-- scopes is asked for: in one of a few thousand chains it would read all of them, at each fold.
create or replace function newest_chains(p_scope uuid, p_limit int) returns table (chain_id uuid)
language sql stable set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
    select c.chain_id from chains c
    where c.tenant_id = current_tenant() and c.scope_id = p_scope
    order by c.last_event_at desc, c.chain_id limit p_limit
$$;
revoke execute on function newest_chains from public;
grant execute on function newest_chains to strandline_app;

-- Whether an event only repeats what a recall gave: no evidence for anything that is derived.
create or replace function is_echo(p_scope_id uuid, p_event_id uuid) returns boolean
language sql stable parallel safe
    return exists (
        select from decisions d
        where d.tenant_id = current_tenant() and d.scope_id = p_scope_id
            and d.event_id = p_event_id and d.kind = 'echo');

-- Those of a scope's events that are echoes.
create or replace function echoes_of(p_scope_id uuid, p_event_ids uuid[]) returns uuid[]
language sql stable parallel safe
    return array(
        select d.event_id from decisions d
        where d.tenant_id = current_tenant() and d.scope_id = p_scope_id
            and d.event_id = any (p_event_ids) and d.kind = 'echo'
        order by d.at_seq);

-- the archiver -------------------------------------------------------------------------------------

-- By when a payload that a tenant's last append may have left uncited is old enough to be removed: a
-- lease of appends is spent within a minute, by a request of half a minute at most. Null: the tenant
-- never appended.
create or replace function uncited_blobs_removable_at(p_tenant text, p_grace interval) returns timestamptz
language sql stable
    return (select q.theoretical_arrival_at from quotas q where q.tenant_id = p_tenant
        and q.quota = 'appends')
        + p_grace + interval '5 minutes';

set local role strandline_planner;

-- Since when the archiver has something of the topic index to collect in a tenant: a snapshot that is
-- not active is old enough, an answer is, or a build ended that was not published. By the oldest of each
-- tenant.
create or replace function collections_due(p_age interval) returns table (tenant_id text, due_at timestamptz)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select a.tenant_id, (
        select s.published_at + p_age from snapshots s
        where s.tenant_id = a.tenant_id and s.version < a.version
        order by s.version limit 1)
    from active_snapshot a
    union all
    select t.tenant_id, (
        select r.answered_at + p_age from reference_answers r
        where r.tenant_id = t.tenant_id order by r.answered_at limit 1)
    from active_snapshot t
    union all
    select b.tenant_id, max(j.finished_at)
    from topic_build_scopes b join jobs j using (tenant_id, job_id)
    where b.tree is not null and j.state in ('done', 'failed') group by b.tenant_id
$$;
revoke execute on function collections_due from public;

-- Tenants where chains are cold, where payloads are marked to be removed, where uncited ones may have
-- appeared since the last pass, which was in an earlier period, or where something of the topic index is
-- to be collected.
create or replace function tenants_to_archive(
    p_now timestamptz, p_period interval, p_grace interval, p_snapshot_age interval)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select t.tenant_id from tenants t
    left join blob_scans p on p.tenant_id = t.tenant_id
    where p.tenant_id is null or p.position <> ''
        or p.ended_at < period_start(p_now, p_period)
            and p.ended_at < uncited_blobs_removable_at(t.tenant_id, p_grace)
        or exists (select from blob_removals r where r.tenant_id = t.tenant_id
            and coalesce(r.removing_until, r.marked_at + interval '15 minutes') <= p_now)
        or exists (select from chains c
            where c.tenant_id = t.tenant_id and c.status = 'active' and c.cold_at <= p_now)
        or t.tenant_id in (select d.tenant_id from collections_due(p_snapshot_age) d
            where d.due_at <= p_now)
    order by 1
$$;
revoke execute on function tenants_to_archive from public;
grant execute on function tenants_to_archive to strandline_app;

-- Of what the archiver looks for once a period is over, the due times next to p_now: the latest that is
-- overdue and the earliest to come, of payloads and of the topic index.
create or replace function period_ends_due(
    p_grace interval, p_period interval, p_snapshot_age interval, p_now timestamptz)
returns table (at timestamptz)
language sql stable set search_path = pg_catalog, public, pg_temp as $$
    select period_start(d.at, p_period) + p_period from (
        (select d.due_since + p_grace + interval '5 minutes' as at from tenant_due_times d
        left join blob_scans p on p.tenant_id = d.tenant_id
        where d.kind = 'payloads'
            and d.due_since < period_start(p_now, p_period) - p_grace - interval '5 minutes'
            and (coalesce(p.position, '') <> '' or coalesce(p.ended_at, '-infinity')
                < d.due_since + p_grace + interval '5 minutes')
        order by d.due_since desc limit 1)
        union all
        (select d.due_since + p_grace + interval '5 minutes' from tenant_due_times d
        left join blob_scans p on p.tenant_id = d.tenant_id
        where d.kind = 'payloads'
            and d.due_since >= period_start(p_now, p_period) - p_grace - interval '5 minutes'
            and (coalesce(p.position, '') <> '' or coalesce(p.ended_at, '-infinity')
                < d.due_since + p_grace + interval '5 minutes')
        order by d.due_since limit 1)
        union all
        select max(d.due_since) + p_snapshot_age from tenant_due_times d
        where d.kind = 'snapshots' and d.due_since < period_start(p_now, p_period) - p_snapshot_age
        union all
        select min(d.due_since) + p_snapshot_age from tenant_due_times d
        where d.kind = 'snapshots' and d.due_since >= period_start(p_now, p_period) - p_snapshot_age
        union all
        (select r.answered_at + p_snapshot_age from reference_answers r
        join active_snapshot a on a.tenant_id = r.tenant_id
        where r.answered_at < period_start(p_now, p_period) - p_snapshot_age
        order by r.answered_at desc limit 1)
        union all
        (select r.answered_at + p_snapshot_age from reference_answers r
        join active_snapshot a on a.tenant_id = r.tenant_id
        where r.answered_at >= period_start(p_now, p_period) - p_snapshot_age
        order by r.answered_at limit 1)
        union all
        select max(j.finished_at) from topic_build_scopes b
        join jobs j on j.tenant_id = b.tenant_id and j.job_id = b.job_id
        where b.tree is not null and j.state in ('done', 'failed') group by b.tenant_id
    ) d
$$;
revoke execute on function period_ends_due from public;

-- When the archiver has something to do next, in any tenant; what is a day late waits for the morning.
-- What ripens in a period is looked for once the period is over, so that all callers in it get the
-- same answer.
create or replace function next_archive(p_grace interval, p_period interval, p_snapshot_age interval,
    p_spacing interval, p_now timestamptz)
returns timestamptz
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select min(coalesce(next_retry_at(due.at, p_spacing, p_now),
        sweep_day_start(p_now) + interval '1 day'))
    from (
        select max(c.cold_at) as at from chains c where c.status = 'active' and c.cold_at <= p_now
        union all
        select min(c.cold_at) from chains c where c.status = 'active' and c.cold_at > p_now
        union all
        select max(r.marked_at) + interval '15 minutes' from blob_removals r
        where r.removing_until is null and r.marked_at <= p_now - interval '15 minutes'
        union all
        select min(r.marked_at) + interval '15 minutes' from blob_removals r
        where r.removing_until is null and r.marked_at > p_now - interval '15 minutes'
        union all
        select max(r.removing_until) from blob_removals r where r.removing_until <= p_now
        union all
        select min(r.removing_until) from blob_removals r where r.removing_until > p_now
        union all
        select d.at from period_ends_due(p_grace, p_period, p_snapshot_age, p_now) d
    ) due
    where due.at is not null
$$;
revoke execute on function next_archive from public;
grant execute on function next_archive to strandline_app;

reset role;
