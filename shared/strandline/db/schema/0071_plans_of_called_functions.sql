-- A plan is made for one search path. Policies call these functions in statements of callers, whose path is their
-- own, and in functions with a path of their own: without one here they were planned again at each change.
alter function is_erasing() set search_path = pg_catalog, public, pg_temp;
alter function is_scope_marked(uuid, text[]) set search_path = pg_catalog, public, pg_temp;
alter function is_event_marked(uuid, text[], text, timestamptz, xid8, text, text)
    set search_path = pg_catalog, public, pg_temp;
alter function is_turn_marked(uuid) set search_path = pg_catalog, public, pg_temp;

-- The newest version of a scope by its index: planned while the table is small, all versions would be read.
alter function number_chain_version() set enable_seqscan = off;
alter function number_chain_version() set enable_sort = off;
