-- Sonas, their threads of acts, and answers that take longer than a request.
--
-- A sona bears no scope: it is its writer's (a bound user's, or of all unbound credentials together), as
-- a source event key is. What was said in it bears the scope of each event: members, centroids and acts
-- are seen by whoever sees the event. A sona is no access rule.
create table sonas (
    tenant_id text not null references tenants,
    sona_id uuid not null,
    writer text not null,  -- a bound user, or '*'
    merged_into uuid,  -- the sona that it became: never one that was itself merged
    head_id uuid,  -- the newest act of its thread, whoever may see it
    steps bigint not null default 0,
    created_at timestamptz not null default now(),
    xid xid8 not null default pg_current_xact_id(),
    primary key (tenant_id, sona_id),
    foreign key (tenant_id, merged_into) references sonas
);
create index sonas_newest on sonas (tenant_id, writer, created_at desc, sona_id desc)
    where merged_into is null;
create index sonas_merged on sonas (tenant_id, merged_into) where merged_into is not null;

create table sona_names (
    tenant_id text not null,
    writer text not null,
    name_key text not null,  -- a hash of the folded name: two names of one writer differ in it
    name text not null check (name <> ''),
    sona_id uuid not null,
    place int not null,  -- its order among the sona's names
    space text,  -- of the embedding
    embedding halfvec,
    primary key (tenant_id, writer, name_key),
    foreign key (tenant_id, sona_id) references sonas,
    check ((space is null) = (embedding is null))
);
create index sona_names_sona on sona_names (tenant_id, sona_id, place);

-- The events that a sona was active in. An event counts in a centroid once for each embedding space.
create table sona_members (
    tenant_id text not null,
    sona_id uuid not null,
    event_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    counted_in text[] not null default '{}',  -- embedding spaces
    primary key (tenant_id, sona_id, event_id),
    foreign key (tenant_id, sona_id) references sonas,
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, scope_id) references scopes
);
create index sona_members_event on sona_members (tenant_id, event_id);

-- The sum of the vectors of a sona's events in one scope: sums are joined over what a reader sees.
create table sona_centroids (
    tenant_id text not null,
    sona_id uuid not null,
    scope_id uuid not null,
    space text not null,
    participants text[] not null,
    total vector not null,
    memories bigint not null check (memories > 0),
    primary key (tenant_id, sona_id, scope_id, space),
    foreign key (tenant_id, sona_id) references sonas,
    foreign key (tenant_id, scope_id) references scopes
);

-- The thread of a sona: each act continues the one before it, and is tied to one event.
create table acts (
    tenant_id text not null,
    sona_id uuid not null,
    step bigint not null check (step > 0),
    act_id uuid not null,  -- random: it tells nothing of others' acts
    previous_id uuid,
    event_id uuid not null,
    scope_id uuid not null,
    participants text[] not null,
    pushed_at timestamptz not null default now(),
    primary key (tenant_id, sona_id, step),
    unique (tenant_id, act_id),
    unique nulls not distinct (tenant_id, sona_id, previous_id),
    foreign key (tenant_id, sona_id) references sonas,
    foreign key (tenant_id, event_id) references events,
    foreign key (tenant_id, scope_id) references scopes
);
create index acts_event on acts (tenant_id, event_id);

-- Answers that a request did not wait for. Kept for a day after they are finished.
create table turns (
    tenant_id text not null references tenants,
    turn_id uuid not null,
    kind text not null check (kind in ('query', 'chat')),
    participants text[] not null check (cardinality(participants) > 0),  -- who asked: Q
    asked_by text not null,  -- the credential's user, or '*'
    request jsonb not null,
    state text not null default 'waiting' check (state in ('waiting', 'done', 'failed')),
    reason text not null default '',
    attempts int not null default 0,
    leased_until timestamptz,
    -- when a sweep tells the worker of it again, whose message may be lost; null: finished
    due_at timestamptz default now() + interval '2 minutes',
    answer jsonb,  -- of a query: a chat's is an event
    created_at timestamptz not null default now(),
    finished_at timestamptz,
    primary key (tenant_id, turn_id),
    check ((due_at is null) = (state <> 'waiting'))
);
create index turns_next on turns (due_at) where due_at is not null;
create index turns_waiting on turns (tenant_id, created_at) where state = 'waiting';
create index turns_finished on turns (tenant_id, finished_at) where state <> 'waiting';

-- The events that a turn rests on: its input, its answer, and what a stored answer cites.
create table turn_events (
    tenant_id text not null,
    turn_id uuid not null,
    event_id uuid not null,
    part text not null check (part in ('input', 'answer', 'source')),
    participants text[] not null check (cardinality(participants) > 0),
    primary key (tenant_id, turn_id, event_id),
    foreign key (tenant_id, turn_id) references turns on delete cascade,
    foreign key (tenant_id, event_id) references events
);
create index turn_events_event on turn_events (tenant_id, event_id);

-- row-level security and grants --------------------------------------------------------------------
do $$
declare
    table_name text;
begin
    foreach table_name in array array['sonas', 'sona_names'] loop
        execute format(
            'create policy own_writer on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and writer = current_writer()) '
            'with check (tenant_id = current_tenant() and writer = current_writer())', table_name);
    end loop;
    foreach table_name in array array['sona_members', 'sona_centroids', 'acts', 'turns',
        'turn_events'] loop
        execute format(
            'create policy in_view on %I to strandline_app, strandline_owner '
            'using (tenant_id = current_tenant() and participants @> (select current_viewer())) '
            'with check (tenant_id = current_tenant() and participants @> (select current_viewer()))',
            table_name);
    end loop;
    foreach table_name in array array['sona_members', 'sona_centroids', 'acts'] loop
        execute format('create policy matches_scope on %I as restrictive for insert to public '
            'with check (is_scope_of(scope_id, tenant_id, participants))', table_name);
    end loop;
    foreach table_name in array array['sonas', 'sona_names', 'sona_members', 'sona_centroids', 'acts',
        'turns', 'turn_events'] loop
        execute format('alter table %I enable row level security', table_name);
        execute format('alter table %I force row level security', table_name);
        execute format('grant select, insert on %I to strandline_app', table_name);
    end loop;
    foreach table_name in array array['sona_names', 'sona_members', 'sona_centroids', 'acts', 'turns',
        'turn_events'] loop
        execute format('grant delete on %I to strandline_app', table_name);
    end loop;
end $$;
grant update (merged_into, head_id, steps) on sonas to strandline_app;
grant update (name, place, space, embedding) on sona_names to strandline_app;
grant update (counted_in) on sona_members to strandline_app;
grant update (total, memories) on sona_centroids to strandline_app;
grant update (state, reason, attempts, leased_until, due_at, answer, finished_at) on turns
    to strandline_app;

-- due ----------------------------------------------------------------------------------------------
create policy planner_reads on turns for select to strandline_planner using (true);
grant select (tenant_id, due_at) on turns to strandline_planner;
