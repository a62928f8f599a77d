-- Fields of topics as they are read, and what they refer to.

-- A revision of a topic's field may refer to another topic: the field's relation to it is an edge, and
-- the revision says which topic it was.
alter table topic_field_revisions add column ref_id uuid;  -- null: none, or that topic is gone
alter table topic_field_revisions add constraint topic_field_revisions_ref_fkey
    foreign key (tenant_id, ref_id) references graph_nodes on delete set null (ref_id);
create index topic_field_revisions_ref on topic_field_revisions (tenant_id, ref_id)
    where ref_id is not null;

-- The topics in view that this one is read with: itself, and those of its identity that hold, as it does;
-- with p_as_of those that were there then. Nothing where it is not in view, or is no topic.
create function topic_members(p_node_id uuid, p_as_of timestamptz) returns table (node_id uuid)
language sql stable parallel safe set search_path = pg_catalog, public, pg_temp
begin atomic
    with named as (
        select g.node_id, g.identity, g.valid_to from graph_nodes g
        where g.tenant_id = current_tenant() and g.node_id = p_node_id and g.type = 'topic'
            and (p_as_of is null or g.created_at <= p_as_of))
    select n.node_id from named n
    union
    select g.node_id from named n
    join graph_nodes g on g.tenant_id = current_tenant() and g.type = 'topic'
        and g.identity = n.identity and g.valid_to is null
        and (p_as_of is null or g.created_at <= p_as_of)
    where n.valid_to is null;
end;
