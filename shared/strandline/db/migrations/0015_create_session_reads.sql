-- Sessions as callers ask for them: begun and ended by request, listed, and read with their chains.

-- A session may begin before anything is said in it; its scope then bears the time of that.
grant insert (last_recorded_at) on scopes to strandline_app;

-- Sessions of a scope that have not ended, newest first.
create index sessions_newest on sessions (tenant_id, scope_id, created_at desc)
    where ended_at is null;

-- A chain as each of its versions tells it, with the first 200 of the events that it rests on. As its
-- caller's rights, so that row-level security holds.
create view chain_rows with (security_invoker = true) as
    select c.chain_id, c.scope_id, c.participants, c.session_id, c.status, c.created_at, c.importance,
        c.density, c.strength, c.accessed_at, c.boosted_at, c.cold_at, c.promote_until, c.archived_at,
        v.version, v.closed_by, v.merged, v.first_seq, v.last_seq, v.event_count, v.started_at,
        v.last_event_at, v.topic, v.summary, v.entities, v.coherence, v.quality, v.rejected, v.models,
        cited.event_ids
    from chains c
    join chain_versions v on v.tenant_id = c.tenant_id and v.chain_id = c.chain_id
    cross join lateral (
        select coalesce(array_agg(e.event_id order by e.seq), '{}') as event_ids
        from (
            select e.event_id, e.seq from chain_events e
            where e.tenant_id = c.tenant_id and e.chain_id = c.chain_id and e.since_version <= v.version
            order by e.seq limit 200) e) cited;
grant select on chain_rows to strandline_app;

-- Nothing is added to a session that has ended. To an append such a session is as good as one that it
-- does not know: only then it asks why, so that appends to all others pay nothing for this.
create or replace function append_refusals(p_items append_item[]) returns jsonb
language plpgsql stable
set enable_hashjoin = off set enable_mergejoin = off
set enable_material = off set enable_bitmapscan = off as $$
begin
    return (
        with found as materialized (
            -- An edge's target must be visible to every reader of the new event.
            select i.n, 'edge_not_found' as code
            from unnest(p_items) i, jsonb_to_recordset(i.edges) as edge (event_id uuid, cid text)
            where not exists (
                select from events e
                where e.tenant_id = current_tenant() and e.event_id = edge.event_id
                    and e.cid = edge.cid and e.participants @> i.participants)
            union
            -- A blob: this principal uploaded it, or sees an event that holds it.
            select i.n, 'blob_not_found'
            from unnest(p_items) i
            where i.blob_cid is not null and not i.blob_stored
                and not exists (
                    select from blobs b
                    where b.tenant_id = current_tenant() and b.cid = i.blob_cid
                        and b.writer = current_writer())
                and not exists (
                    select from events e
                    where e.tenant_id = current_tenant() and e.blob_cid = i.blob_cid
                        and (e.participants @> i.participants or current_writer() <> '*'))
            union
            select i.n, 'session_ended'
            from unnest(p_items) i
            where i.session_id <> '' and exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id and s.ended_at is not null)
            union
            -- A session's events fall in one scope, as far as this writer can see. What a bound
            -- user began binds nobody else: or any user could take a name from all.
            select i.n, 'session_mismatch'
            from unnest(p_items) i
            where i.session_id <> ''
                and not exists (
                    select from sessions s
                    where s.tenant_id = current_tenant() and s.session_id = i.session_id
                        and s.scope_id = i.scope_id)
                and exists (
                    select from sessions s
                    where s.tenant_id = current_tenant() and s.session_id = i.session_id
                        and s.scope_id <> i.scope_id and s.writer in (current_writer(), '*'))),
        beginning as (  -- nor may one request begin a session in two scopes
            select i.n, i.scope_id,
                first_value(i.scope_id) over (partition by i.session_id order by i.n) as first_scope
            from unnest(p_items) i
            where i.session_id <> '' and not exists (select from found f where f.n = i.n))
        select coalesce(jsonb_object_agg(refused.n, refused.code), '{}') from (
            select f.n, min(f.code) as code from found f group by f.n
            union all
            select b.n, 'session_mismatch' from beginning b where b.scope_id <> b.first_scope
        ) refused);
end $$;

create or replace function append_events(
    p_tenant text, p_viewer text, p_writer text, p_items jsonb, p_atomic boolean)
returns setof append_outcome
language plpgsql set search_path = pg_catalog, public, pg_temp
set plan_cache_mode = force_generic_plan set enable_seqscan = off as $$
declare
    v_items append_item[];
    v_item append_item;
    v_new_sessions boolean;
    v_doubtful boolean;  -- whether there is something to refuse
    v_refused jsonb := '{}';
    v_outcomes append_outcome[];
begin
    perform set_config('strandline.tenant', p_tenant, true),
        set_config('strandline.viewer', p_viewer, true),
        set_config('strandline.writer', p_writer, true);
    v_items := array(select i from jsonb_populate_recordset(null::append_item, p_items) i);
    if cardinality(v_items) = 1 then  -- most appends: spares them what only several items need
        v_item := v_items[1];
        v_doubtful := v_item.edges <> '[]' or (v_item.blob_cid is not null and not v_item.blob_stored);
        v_new_sessions := v_item.session_id <> '' and not exists (
            select from sessions s
            where s.tenant_id = current_tenant() and s.session_id = v_item.session_id
                and s.scope_id = v_item.scope_id and s.ended_at is null);
    else
        select bool_or(i.session_id <> '' and not exists (
                select from sessions s
                where s.tenant_id = current_tenant() and s.session_id = i.session_id
                    and s.scope_id = i.scope_id and s.ended_at is null)),
            bool_or(i.edges <> '[]' or (i.blob_cid is not null and not i.blob_stored))
                -- A session known in its scope mismatches nothing, unless the request names it twice.
                or count(distinct i.scope_id) filter (where i.session_id <> '') > 1
        into v_new_sessions, v_doubtful
        from unnest(v_items) i;
    end if;
    if v_new_sessions then
        perform lock_new_sessions(v_items);
    end if;
    if v_new_sessions or v_doubtful then
        v_refused := append_refusals(v_items);
    end if;
    if not p_atomic then
        v_outcomes := append_items(v_items, v_refused, v_new_sessions);
    else
        begin
            v_outcomes := append_items(v_items, v_refused, v_new_sessions);
            if exists (
                select from unnest(v_outcomes) o where o.outcome not in ('created', 'replayed')) then
                raise exception using errcode = 'ST409';
            end if;
        exception when sqlstate 'ST409' then
            null;  -- undone; v_outcomes still says why
        end;
    end if;
    if cardinality(v_outcomes) = 1 then
        return next v_outcomes[1];
    else
        return query select * from unnest(v_outcomes) o order by o.n;
    end if;
end $$;
