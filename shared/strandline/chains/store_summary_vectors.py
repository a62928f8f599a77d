"""SQL for missing vectors of chain summaries."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector, PackedVectors


@dataclass(frozen=True)
class ChainWithoutVector:
    """An active chain whose summary has no vector, so that vector search cannot find it."""

    chain_id: UUID
    version: int
    summary: str


def list_chains_without_summary_vector(
    access: TenantDb, space: str, after: UUID | None, limit: int
) -> Sequence[ChainWithoutVector]:
    """List the next active chains after `after`, by id, whose summary has no vector in this
    space."""
    return access.fetch(
        ChainWithoutVector,
        """
        select c.chain_id, c.version, v.summary
        from chains c join chain_versions v on v.tenant_id = c.tenant_id
            and v.chain_id = c.chain_id and v.version = c.version
        where c.tenant_id = current_tenant() and c.status = 'active' and c.chain_id > %(after)s
            and not exists (
                select from chain_vectors e
                where e.tenant_id = c.tenant_id and e.space = %(space)s
                    and e.scope_id = c.scope_id and e.chain_id = c.chain_id)
        order by c.chain_id limit %(limit)s
        """,
        {"space": space, "after": after or UUID(int=0), "limit": limit},
    )


@dataclass(frozen=True)
class SummaryVector:
    """A summary's vector."""

    chain_id: UUID
    version: int
    vector: PackedVector


def insert_summary_vectors(access: TenantDb, space: str, vectors: Sequence[SummaryVector]) -> int:
    """Store these vectors, except for chains that have a newer version or are no longer active.
    Returns how many were stored. In a transaction: the chains are locked until it ends."""
    return access.execute(
        """
        with new_vectors as (
            select * from unnest(
                %(chain_ids)s::uuid[], %(versions)s::int[], %(vectors)s::halfvec[])
                r (chain_id, version, vector)),
        locked_chains as materialized (
            select c.chain_id, c.scope_id, c.participants, g.vector
            from new_vectors g join chains c on c.tenant_id = current_tenant()
                and c.chain_id = g.chain_id and c.version = g.version and c.status = 'active'
            order by c.chain_id for no key update of c)
        insert into chain_vectors (tenant_id, space, scope_id, chain_id, participants, embedding)
        select current_tenant(), %(space)s, h.scope_id, h.chain_id, h.participants,
            h.vector
        from locked_chains h on conflict do nothing
        """,
        {
            "space": space,
            "chain_ids": [v.chain_id for v in vectors],
            "versions": [v.version for v in vectors],
            "vectors": PackedVectors(v.vector for v in vectors),
        },
    )
