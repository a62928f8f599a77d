-- What is read of a scope as a whole: for an export in the order in which it was observed, for the status of
-- the graph by when it was promoted last.

create index graph_observations_scope
    on graph_observations (tenant_id, scope_id, observed_at, source_id);
create index topic_field_revisions_scope
    on topic_field_revisions (tenant_id, scope_id, recorded_at, event_id);

-- When chains of a scope were promoted last.
create index decisions_extracted on decisions (tenant_id, scope_id, decided_at)
    where kind = 'extracted';
