-- A chain's vectors by the chain alone: its new version takes the old ones out in every space. By the
-- primary key, in which the space comes first, all of a tenant's would be read for that.
create index chain_vectors_chain on chain_vectors (tenant_id, chain_id);
