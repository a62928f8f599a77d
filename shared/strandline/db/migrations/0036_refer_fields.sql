-- A revision of a topic's field may refer to another topic: the field's relation to it is an edge, and
-- the revision says which topic it was.

alter table topic_field_revisions add column ref_id uuid;  -- null: none, or that topic is gone
alter table topic_field_revisions add constraint topic_field_revisions_ref_fkey
    foreign key (tenant_id, ref_id) references graph_nodes on delete set null (ref_id);
create index topic_field_revisions_ref on topic_field_revisions (tenant_id, ref_id)
    where ref_id is not null;
