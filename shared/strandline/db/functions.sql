-- revision: 1
-- Shared by all rooms. What policies, triggers, defaults, views and indexes call lies in schema/.

-- Was a row's transaction over when this snapshot was taken? After a logical restore rows bear the
-- transaction numbers of another cluster, which are greater than any here: these rows are old.
create or replace function is_in_snapshot(p_xid xid8, p_snapshot pg_snapshot) returns boolean
language sql stable parallel safe
    return pg_visible_in_snapshot(p_xid, p_snapshot)
        or p_xid >= pg_snapshot_xmax(pg_current_snapshot());
