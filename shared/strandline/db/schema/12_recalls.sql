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
    -- So many of event_ids, the first, count as used, for those who want their answers weighted by use.
    used int not null default 0 check (used >= 0),
    folded_at timestamptz,  -- when its use was folded into event_uses
    primary key (tenant_id, recall_id)
);
create index recall_answers_asker on recall_answers (tenant_id, asker, recalled_at);
create index recall_answers_age on recall_answers (tenant_id, recalled_at);
create index recall_answers_unfolded on recall_answers (tenant_id) where folded_at is null and used > 0;

create policy in_view on recall_answers to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy planner_reads on recall_answers for select to strandline_planner using (true);
alter table recall_answers enable row level security, force row level security;
grant select, insert, delete on recall_answers to strandline_app;
grant update (folded_at) on recall_answers to strandline_app;
grant select on recall_answers to strandline_planner;

-- That a recall gave an event, which counts for itself and, by the weights of its edges, for what it
-- rests on in its scope: a row a day for each set of people who asked. Participants are these, not the
-- event's: nobody learns what others ask. A function of recall_answers and memory_edges, and as old as
-- the former: it can be dropped and folded again.
create table event_uses (
    tenant_id text not null,
    cited_id uuid not null,  -- what it counts for
    asker_id uuid not null,  -- a hash of the participants, which are too long for an index
    event_id uuid not null,  -- what was given: the same, or what rests on it
    day date not null,  -- UTC
    participants text[] not null check (cardinality(participants) > 0),  -- who asked: Q
    impact double precision not null check (impact > 0 and impact <= 1),
    primary key (tenant_id, cited_id, asker_id, event_id, day),
    foreign key (tenant_id, cited_id) references events,
    foreign key (tenant_id, event_id) references events
);
create index event_uses_event on event_uses (tenant_id, event_id);
create index event_uses_day on event_uses (tenant_id, day);

create policy in_view on event_uses to strandline_app, strandline_owner
    using (tenant_id = current_tenant() and participants @> (select current_viewer()))
    with check (tenant_id = current_tenant() and participants @> (select current_viewer()));
create policy planner_reads on event_uses for select to strandline_planner using (true);
alter table event_uses enable row level security, force row level security;
grant select, insert, delete on event_uses to strandline_app;
grant select on event_uses to strandline_planner;
