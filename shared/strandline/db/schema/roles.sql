-- Roles and extensions, created by the administrator before any migration: once per cluster (roles) and
-- database (the rest). On Aurora that is the master user, on one machine the embedded server's superuser.
-- Idempotent. Passwords are set elsewhere.

do $$
declare
    role_name text;
begin
    -- owner: migrations only. app: the service. Each of the others owns SECURITY DEFINER functions of
    -- one kind, cannot log in, and can do nothing else.
    foreach role_name in array array[
        'strandline_owner', 'strandline_app',
        'strandline_keys', 'strandline_search', 'strandline_planner', 'strandline_guard',
        'strandline_append', 'strandline_eraser'
    ] loop
        begin
            execute format('create role %I nologin nosuperuser nobypassrls nocreatedb nocreaterole',
                role_name);
        exception when duplicate_object or unique_violation then
            null;  -- roles belong to the cluster: another database or session has created it
        end;
    end loop;
end $$;

alter role strandline_owner login;
alter role strandline_app login;

-- On Aurora both log in by IAM tokens and have no password.
do $$
begin
    if exists (select from pg_roles where rolname = 'rds_iam') then
        grant rds_iam to strandline_owner, strandline_app;
    end if;
end $$;

-- A client that died must not hold a lock or a horizon: seconds, not hours. RDS Proxy refuses
-- start-up options, so these lie on the role.
alter role strandline_app set idle_in_transaction_session_timeout = '10s';
alter role strandline_app set lock_timeout = '10s';
-- Aurora pauses when nobody is connected, and a Lambda that is frozen between two calls cannot
-- disconnect: the server does, and the next call connects again (see db.py). RDS Proxy ends idle
-- sessions by itself, and a database behind it never pauses.
alter role strandline_app set idle_session_timeout = '1min';
-- The default; a caller with another deadline sets its own in its transaction (see db.py).
alter role strandline_app set statement_timeout = '20s';
-- Times are read and written in UTC, whatever the server's zone: year 1 has no earlier one.
alter role strandline_app set timezone = 'UTC';

-- SET without INHERIT: the owner may make these roles the owners of functions, but their policies,
-- which see all tenants, never apply to the owner itself.
grant strandline_keys, strandline_search, strandline_planner, strandline_guard, strandline_append,
        strandline_eraser
    to strandline_owner with inherit false, set true;

-- Temporary tables could fill the disk past every quota, and no role here needs one. (Large objects
-- could too, but the functions that create them belong to the superuser, which Aurora gives to nobody.)
do $$
begin
    execute format('revoke temporary on database %I from public', current_database());
end $$;

create extension if not exists vector;
create extension if not exists btree_gin;
grant usage, create on schema public to strandline_owner with grant option;
grant usage on schema public
    to strandline_app, strandline_keys, strandline_search, strandline_planner, strandline_guard,
        strandline_append, strandline_eraser;
