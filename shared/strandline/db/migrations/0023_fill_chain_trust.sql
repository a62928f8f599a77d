-- long: looks up the events of every chain version that was written before chains had a trust
update chain_versions v set trust = least_trust(v.chain_id, v.version)
where (v.tenant_id, v.chain_id, v.version) in (
    select o.tenant_id, o.chain_id, o.version from chain_versions o
    where o.tenant_id = current_tenant() and o.trust is null
        and least_trust(o.chain_id, o.version) is not null
    limit 500)
