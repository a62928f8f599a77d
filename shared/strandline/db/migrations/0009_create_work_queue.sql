-- The work queue of scopes: those with events that wait to be embedded and folded.

create table scope_work (
    tenant_id text not null,
    scope_id uuid not null,
    participants text[] not null,
    due_at timestamptz not null,
    leased_until timestamptz not null default '-infinity',
    attempts int not null default 0,
    last_error text,
    primary key (tenant_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);
create index scope_work_due on scope_work (tenant_id, due_at);

create policy in_view on scope_work to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on scope_work as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy planner_reads on scope_work for select to strandline_planner using (true);
alter table scope_work enable row level security;
alter table scope_work force row level security;
grant select, insert, delete on scope_work to strandline_app;
grant update (due_at, leased_until, attempts, last_error) on scope_work to strandline_app;
grant select on scope_work to strandline_planner;

grant create on schema public to strandline_planner;

-- Tenant ids, and nothing else about them, where work is due or vectors are missing in this space.
create function tenants_with_work(p_space text, p_now timestamptz)
returns table (tenant_id text)
language sql stable security definer set search_path = pg_catalog, public, pg_temp as $$
    select w.tenant_id from scope_work w where w.due_at <= p_now and w.leased_until <= p_now
    union
    select s.tenant_id from scopes s
    left join embedding_progress p
        on p.tenant_id = s.tenant_id and p.scope_id = s.scope_id and p.space = p_space
    where s.last_seq > coalesce(p.embedded_seq, 0)
$$;
revoke execute on function tenants_with_work from public;
grant execute on function tenants_with_work to strandline_app;
alter function tenants_with_work owner to strandline_planner;

revoke create on schema public from strandline_planner;
