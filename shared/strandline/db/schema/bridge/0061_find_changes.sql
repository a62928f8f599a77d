-- What people say that fills a slot of their lives (where they live and work, what they use, plan and
-- prefer) is a decision of the fold, found by whom it is about. A chain that bears a change is promoted
-- whatever its heat, and at once: it ends facts.

alter table decisions add column subject text;  -- of a decision of kind `slots`
create index decisions_by_subject on decisions (tenant_id, subject, decided_at) where subject is not null;

alter table chains add column bears_change boolean not null default false;
grant update (bears_change) on chains to strandline_app;
create index chains_bearing_change on chains (tenant_id, accessed_at)
    where status = 'active' and bears_change and promoted_version < version;
