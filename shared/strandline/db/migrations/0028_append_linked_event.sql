-- Append an event whose edges recall found (POST /api/v1/insert). How they were found is no part of the
-- request, and a replay must answer the same: it is a decision, stored in the event's own transaction.

-- p_items holds one item. p_links is the decision's body.
create function append_linked_event(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_decision_id text, p_links jsonb)
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp as $$
declare
    v_outcome append_outcome;
begin
    select o.* into v_outcome from append_events(p_tenant, p_viewer, p_writer, p_items, false) o;
    if v_outcome.outcome = 'created' then
        insert into decisions
            (tenant_id, decision_id, scope_id, participants, event_id, kind, at_seq, body)
        select current_tenant(), p_decision_id::uuid, v_outcome.scope_id, i.participants,
            v_outcome.event_id, 'links', v_outcome.seq, p_links
        from jsonb_populate_recordset(null::append_item, p_items) i;
    end if;
    return next v_outcome;
end $$;
