-- A time outside of the years 1 to 9999 in UTC can be stored, but no client in Python can load it: one such
-- row took down every list, search and context that held it.

-- The nearest time that clients can hold. Not strict, so that the planner inlines it.
create function nearest_moment(p_at timestamptz) returns timestamptz
language sql immutable parallel safe
    return case when p_at is not null then
        least(greatest(p_at, timestamptz '0001-01-01 00:00:00+00'),
            timestamptz '9999-12-31 23:59:59.999999+00') end;

-- Of every table that takes a time from outside. They hold for what is written from now on, and 0057
-- corrects what was written before: to check that here would lock the log while it is read.
alter table events add constraint events_times
    check (occurred_at = nearest_moment(occurred_at)) not valid;
alter table graph_nodes add constraint graph_nodes_times
    check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to)) not valid;
alter table graph_edges add constraint graph_edges_times
    check (valid_from = nearest_moment(valid_from) and valid_to = nearest_moment(valid_to)) not valid;
alter table graph_observations add constraint graph_observations_times
    check (valid_from = nearest_moment(valid_from)) not valid;
alter table topic_field_revisions add constraint topic_field_revisions_times
    check (valid_from = nearest_moment(valid_from)) not valid;
alter table api_keys add constraint api_keys_times
    check (expires_at = nearest_moment(expires_at)) not valid;
alter table certificate_principals add constraint certificate_principals_times
    check (expires_at = nearest_moment(expires_at)) not valid;

-- Rows that no client can load, for health: there are none, so neither index holds anything.
create index graph_nodes_unreadable on graph_nodes (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);
create index graph_edges_unreadable on graph_edges (tenant_id)
    where valid_from <> nearest_moment(valid_from) or valid_to <> nearest_moment(valid_to);
