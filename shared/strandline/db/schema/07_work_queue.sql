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
-- When work is next due, in any tenant, and which work fails.
create index scope_work_next on scope_work (greatest(due_at, leased_until)) where attempts <= 12;
create index scope_work_failing on scope_work (attempts, greatest(due_at, leased_until))
    where attempts between 13 and 20;

create policy in_view on scope_work to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on scope_work as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
create policy planner_reads on scope_work for select to strandline_planner using (true);
alter table scope_work enable row level security, force row level security;
grant select, insert, delete on scope_work to strandline_app;
grant update (due_at, leased_until, attempts, last_error) on scope_work to strandline_app;
grant select on scope_work to strandline_planner;
