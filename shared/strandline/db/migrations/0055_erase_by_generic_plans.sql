-- Functions that hold the tenant's name in a variable are planned for its value, and a tenant that the
-- statistics do not know was taken for one row, as in 0053: to erase a thousand events read all of the
-- tenant's for each of them. A generic plan takes the average of all tenants. Without a scan from end to
-- end, because a plan lasts for a session, and a table may have been empty when it was made.
alter function forget_in_personas set plan_cache_mode = force_generic_plan set enable_seqscan = off;
set local role strandline_eraser;
alter function erase_events set plan_cache_mode = force_generic_plan set enable_seqscan = off;
alter function blank_chains set plan_cache_mode = force_generic_plan set enable_seqscan = off;
alter function drop_pending_decisions set plan_cache_mode = force_generic_plan set enable_seqscan = off;
alter function forget_turns set plan_cache_mode = force_generic_plan set enable_seqscan = off;
reset role;
