-- What is exported of a scope's graph is read in the order in which it was observed.

create index graph_observations_scope
    on graph_observations (tenant_id, scope_id, observed_at, source_id);
create index topic_field_revisions_scope
    on topic_field_revisions (tenant_id, scope_id, recorded_at, event_id);
