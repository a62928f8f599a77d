-- A plan is made for one search path. Policies call this function in statements of callers, whose path is their
-- own, and in functions with a path of their own: without one here it was planned again at each change.
alter function is_erasing() set search_path = pg_catalog, public, pg_temp;

-- The newest version of a scope by its index: planned while the table is small, all versions would be read.
alter function number_chain_version() set enable_seqscan = off;
alter function number_chain_version() set enable_sort = off;
