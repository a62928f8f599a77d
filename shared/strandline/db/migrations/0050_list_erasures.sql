-- Lists of erasures, newest first, and those that are not complete, which health and metrics count. Both are
-- read by the order of the ids, which are UUIDv7: the primary key does so for who sees all.

-- What one user asked for, however much others did. `participants` holds that user alone; the policy's own
-- condition could use no index with an order.
create index erasures_asked on erasures (tenant_id, (participants[1]), erasure_id);
create index erasures_open on erasures (tenant_id, erasure_id) where completed_at is null;
