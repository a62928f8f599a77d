-- A chain whose text has no phrase that names it has no topic: its summary shows what it is about.
alter table chain_versions alter column topic drop not null;
