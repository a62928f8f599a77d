-- revision: 1
-- What of a session is being erased.

set local role strandline_eraser;

-- Whether marks are about all that a session has, which goes with the last of it: its name and metadata
-- are as little in view as its events.
create or replace function is_session_marked(p_scope_id uuid, p_participants text[], p_session_id text) returns boolean
language plpgsql stable security definer set search_path = pg_catalog, public, pg_temp as $$
declare
    v_has_events boolean := false;
    v_is_marked boolean;
begin
    if not is_scope_marked(p_scope_id, p_participants) then
        return false;
    end if;
    for v_is_marked in
        select is_event_marked(e.scope_id, e.participants, e.session_id, e.recorded_at, e.xid, e.speaker,
            e.writer)
        from events e
        where e.tenant_id = current_tenant() and e.scope_id = p_scope_id and e.session_id = p_session_id
            and e.erased_at is null
        order by e.seq desc  -- what is said after the mark comes first
    loop
        v_has_events := true;
        exit when not v_is_marked;
    end loop;
    return v_has_events and v_is_marked;
end $$;
revoke execute on function is_session_marked from public;
grant execute on function is_session_marked to strandline_app;

reset role;
