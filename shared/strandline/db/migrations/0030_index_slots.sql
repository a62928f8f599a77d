-- Provenance asks for a place in a tree by its id alone.
create index topic_tree_slot on topic_tree (tenant_id, slot, from_version);
