-- Nothing may cite an erased event. A statement that inserts citing rows locks the cited events against
-- erasure (which takes FOR UPDATE), and fails where one of them is marked as erased: one look per
-- statement, whatever it cites. SECURITY DEFINER, because locking a row takes a right that the
-- application lacks.
--
-- This file is the last because its triggers stand on tables of several subjects. A later file that adds a table
-- that cites events adds its trigger: for that the owner needs EXECUTE on the function during the statement,
-- which strandline_guard grants (`set local role`) and then revokes.

create policy guard_reads on events for select to strandline_guard using (true);
create policy guard_locks on events for update to strandline_guard using (true);
grant select, update (erased_at) on events to strandline_guard;

-- For tables with an event_id.
create function refuse_erased_event() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
    -- no filter instead: it would be applied before the lock
    if (select bool_or(cited_event.erased_at is not null)
        from (select tenant_id, event_id from citing order by 1, 2) c
        cross join lateral (
            select e.erased_at from events e
            where e.tenant_id = c.tenant_id and e.event_id = c.event_id for key share) cited_event) then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;

-- For tables with an event_id and a cited_id.
create function refuse_erased_citation() returns trigger
language plpgsql security definer set search_path = pg_catalog, public, pg_temp as $$
begin
    if (select bool_or(cited_event.erased_at is not null)
        from (
            select tenant_id, event_id from citing
            union all
            select tenant_id, cited_id from citing where cited_id is not null
            order by 1, 2) c
        cross join lateral (
            select e.erased_at from events e
            where e.tenant_id = c.tenant_id and e.event_id = c.event_id for key share) cited_event) then
        raise exception 'an erased event cannot be cited' using errcode = 'ST410';
    end if;
    return null;
end $$;

do $$
declare
    table_name text;
begin
    foreach table_name in array array['decisions', 'event_vectors', 'embedding_cache', 'chain_events',
        'event_texts', 'topic_events', 'graph_sources', 'topic_field_revisions', 'sona_members', 'acts', 'turn_events'] loop
        execute format('create trigger refuse_erased_event after insert on %I '
            'referencing new table as citing for each statement execute function refuse_erased_event()',
            table_name);
    end loop;
    foreach table_name in array array['memory_edges', 'event_uses'] loop
        execute format('create trigger refuse_erased_citation after insert on %I '
            'referencing new table as citing for each statement execute function refuse_erased_citation()',
            table_name);
    end loop;
end $$;

-- append_fast_path does the guard's work by itself: see there.
create trigger refuse_erased_event after insert on event_keys referencing new table as citing
for each statement when (current_user <> 'strandline_append') execute function refuse_erased_event();
create trigger refuse_erased_citation after insert on event_search referencing new table as citing
for each statement when (current_user <> 'strandline_append') execute function refuse_erased_citation();

grant create on schema public to strandline_guard;
revoke execute on function refuse_erased_event, refuse_erased_citation from public;
alter function refuse_erased_event owner to strandline_guard;
alter function refuse_erased_citation owner to strandline_guard;
revoke create on schema public from strandline_guard;
