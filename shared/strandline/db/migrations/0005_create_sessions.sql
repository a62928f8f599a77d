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
alter table sessions enable row level security;
alter table sessions force row level security;
grant select, insert on sessions to strandline_app;
grant update (ended_at, metadata) on sessions to strandline_app;

-- At most this many of the given scopes (null, or more than that: of all in view) that have a session
-- of this name: the list of a session reads no other scope. A reader sees few sessions of one name,
-- but a name such as "default" exists in as many scopes of a tenant as it has users.
create function scopes_with_session(p_session_id text, p_scopes uuid[], p_limit int) returns uuid[]
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
set enable_seqscan = off
    return case when cardinality(p_scopes) < p_limit then array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
            and s.scope_id = any (p_scopes))
    else array(
        select s.scope_id from sessions s
        where s.tenant_id = current_tenant() and s.session_id = p_session_id
        limit p_limit) end;
