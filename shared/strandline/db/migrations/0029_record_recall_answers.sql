-- What recalls gave, so that its echo is recognised: an event that mostly repeats what a recall gave
-- its participants is no evidence, and its use warms nothing. That an event is an echo is a decision
-- (kind `echo`), taken when it is folded.

-- One row for each answer to a question, not one for each event in it: recording must not slow down the
-- answer. It holds no text, and nothing follows from it but through events that are still there.
create table recall_answers (
    tenant_id text not null references tenants,
    recall_id uuid not null,
    participants text[] not null check (cardinality(participants) > 0),  -- who asked: Q
    asker text not null,  -- the last of them, for the index: a user, if there is one
    writer text not null,  -- the credential's user, or '*'
    event_ids uuid[] not null,
    recalled_at timestamptz not null,
    primary key (tenant_id, recall_id)
);
create index recall_answers_asker on recall_answers (tenant_id, asker, recalled_at);
create index recall_answers_age on recall_answers (tenant_id, recalled_at);

create policy in_view on recall_answers to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy planner_reads on recall_answers for select to strandline_planner using (true);
alter table recall_answers enable row level security;
alter table recall_answers force row level security;
grant select, insert, delete on recall_answers to strandline_app;
grant select on recall_answers to strandline_planner;

create index decisions_echo on decisions (tenant_id, scope_id, event_id) where kind = 'echo';

-- Whether an event only repeats what a recall gave: no evidence for anything that is derived.
create function is_echo(p_scope_id uuid, p_event_id uuid) returns boolean
language sql stable parallel safe
    return exists (
        select from decisions d
        where d.tenant_id = current_tenant() and d.scope_id = p_scope_id
            and d.event_id = p_event_id and d.kind = 'echo');

-- Those of a scope's events that are echoes.
create function echoes_of(p_scope_id uuid, p_event_ids uuid[]) returns uuid[]
language sql stable parallel safe
    return array(
        select d.event_id from decisions d
        where d.tenant_id = current_tenant() and d.scope_id = p_scope_id
            and d.event_id = any (p_event_ids) and d.kind = 'echo'
        order by d.at_seq);

-- As before, and tenants with answers that are to be removed.
grant create on schema public to strandline_planner;
set local role strandline_planner;
create or replace function tenants_with_heat_work(p_deployment jsonb, p_before timestamptz)
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
    union
    select t.tenant_id from tenants t, lateral (
        select from recall_answers a where a.tenant_id = t.tenant_id and a.recalled_at < p_before
        limit 1) old_answers
$$;
reset role;
revoke create on schema public from strandline_planner;
