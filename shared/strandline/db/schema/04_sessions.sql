-- Sessions: the lanes of a scope that callers name.
create table sessions (
    tenant_id text not null,
    session_id text not null check (session_id <> ''),
    scope_id uuid not null,
    participants text[] not null,
    writer text not null,  -- who began it: see append_refusals, session_mismatch
    created_at timestamptz not null default now(),
    ended_at timestamptz,
    metadata jsonb not null default '{}',
    primary key (tenant_id, session_id, scope_id),
    foreign key (tenant_id, scope_id) references scopes
);
-- A scope's sessions that have not ended, newest first.
create index sessions_newest on sessions (tenant_id, scope_id, created_at desc)
    where ended_at is null;

create policy in_view on sessions to strandline_app, strandline_owner, strandline_append
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy matches_scope on sessions as restrictive for insert to public
    with check (is_scope_of(scope_id, tenant_id, participants));
alter table sessions enable row level security, force row level security;
grant select, insert, delete on sessions to strandline_app;
grant update (ended_at, metadata) on sessions to strandline_app;
