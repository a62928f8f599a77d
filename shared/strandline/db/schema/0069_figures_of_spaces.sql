-- What the cosines of an embedding space usually are, measured with texts that ship: thresholds and
-- probabilities rest on it, so it is stored once for a tenant and never changed. Spaces whose figures ship
-- have no row.
create table space_figures (
    tenant_id text not null references tenants,
    space text not null,
    texts_version int not null check (texts_version > 0),
    figures jsonb not null,
    measured_at timestamptz not null default now(),
    primary key (tenant_id, space, texts_version)
);
create policy own_tenant on space_figures to strandline_app, strandline_owner
    using (tenant_id = current_tenant()) with check (tenant_id = current_tenant());
alter table space_figures enable row level security, force row level security;
grant select, insert on space_figures to strandline_app;
