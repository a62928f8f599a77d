"""SQL for missing vectors of nodes."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector, PackedVectors

_MAX_TEXT = 4000
"""How many characters of a node's text are embedded."""


@dataclass(frozen=True)
class UnembeddedNode:
    """A node without a vector in the current space."""

    node_id: UUID
    text: str


def list_unembedded_in_scopes(
    access: TenantDb, scope_ids: Sequence[UUID], limit: int
) -> Sequence[UnembeddedNode]:
    """Nodes of these scopes that were not embedded since their text last changed."""
    return access.fetch(
        UnembeddedNode,
        """
        select g.node_id, left(node_text(g.name, g.properties), %(max_text)s) as text
        from graph_nodes g
        where g.tenant_id = current_tenant() and g.scope_id = any (%(scope_ids)s)
            and g.space is null
        order by g.scope_id, g.node_id limit %(limit)s
        """,
        {"scope_ids": list(scope_ids), "limit": limit, "max_text": _MAX_TEXT},
    )


def list_unembedded_in_space(
    access: TenantDb, space: str, after: UUID | None, limit: int
) -> Sequence[UnembeddedNode]:
    """The next nodes after `after`, by id, that are not embedded in this space."""
    return access.fetch(
        UnembeddedNode,
        """
        select g.node_id, left(node_text(g.name, g.properties), %(max_text)s) as text
        from graph_nodes g
        where g.tenant_id = current_tenant() and g.node_id > %(after)s
            and g.space is distinct from %(space)s and g.next_space is distinct from %(space)s
        order by g.node_id limit %(limit)s
        """,
        {"space": space, "after": after or UUID(int=0), "limit": limit, "max_text": _MAX_TEXT},
    )


@dataclass(frozen=True)
class EmbeddedNode:
    """A node's vector, with the text that was embedded. The vector is None if the model refused the
    text."""

    node: UnembeddedNode
    vector: PackedVector | None


def store_node_vectors(access: TenantDb, space: str, vectors: Sequence[EmbeddedNode]) -> int:
    """Store these vectors, except for nodes whose text has changed or that a writer has locked:
    they are listed again. Returns how many were stored. In a transaction."""
    return access.execute(
        """
        with computed as (
            select * from unnest(%(node_ids)s::uuid[], %(texts)s::text[], %(vectors)s::halfvec[])
                r (node_id, text, vector)),
        locked as materialized (
            select g.node_id, c.vector
            from computed c join graph_nodes g on g.tenant_id = current_tenant()
                and g.node_id = c.node_id
                and left(node_text(g.name, g.properties), %(max_text)s) = c.text
            order by g.node_id for no key update of g skip locked)
        update graph_nodes g set space = %(space)s, embedding = l.vector
        from locked l where g.tenant_id = current_tenant() and g.node_id = l.node_id
        """,
        {"space": space, "max_text": _MAX_TEXT, **_make_params(vectors)},
    )


def _make_params(vectors: Sequence[EmbeddedNode]) -> dict[str, object]:
    return {
        "node_ids": [v.node.node_id for v in vectors],
        "texts": [v.node.text for v in vectors],
        "vectors": PackedVectors(v.vector for v in vectors),
    }


def store_next_vectors(access: TenantDb, space: str, vectors: Sequence[EmbeddedNode]) -> int:
    """Like `store_node_vectors`, beside the vectors of the space that the tenant reads."""
    return access.execute(
        """
        with computed as (
            select * from unnest(%(node_ids)s::uuid[], %(texts)s::text[], %(vectors)s::halfvec[])
                r (node_id, text, vector)),
        locked as materialized (
            select g.node_id, c.vector
            from computed c join graph_nodes g on g.tenant_id = current_tenant()
                and g.node_id = c.node_id
                and left(node_text(g.name, g.properties), %(max_text)s) = c.text
            order by g.node_id for no key update of g skip locked)
        update graph_nodes g set next_space = %(space)s, next_embedding = l.vector,
            next_code = vector_code(l.vector)
        from locked l where g.tenant_id = current_tenant() and g.node_id = l.node_id
        """,
        {"space": space, "max_text": _MAX_TEXT, **_make_params(vectors)},
    )


def settle_next_vectors(access: TenantDb, reading: str, filling: str, limit: int) -> int:
    """Let vectors that stand beside others take their place where the tenant now reads their space,
    and drop those of a space that is neither read nor filled. At most `limit`; returns how many. In
    a transaction."""
    return access.execute(
        """
        with settled as materialized (
            select g.node_id, g.next_space = %(reading)s as is_read from graph_nodes g
            where g.tenant_id = current_tenant() and g.next_space is not null
                and (g.next_space = %(reading)s or g.next_space <> %(filling)s)
            order by g.node_id limit %(limit)s for no key update of g skip locked)
        update graph_nodes g
        set space = case when s.is_read then g.next_space else g.space end,
            embedding = case when s.is_read then g.next_embedding else g.embedding end,
            next_space = null, next_embedding = null, next_code = null
        from settled s where g.tenant_id = current_tenant() and g.node_id = s.node_id
        """,
        {"reading": reading, "filling": filling, "limit": limit},
    )


def make_scope_work_due(access: TenantDb, scope_ids: Sequence[UUID]) -> None:
    """Make the work of these scopes due, after writing nodes without appending an event. Call it in
    a separate transaction, after the one that wrote the nodes."""
    access.execute(
        """
        insert into scope_work (tenant_id, scope_id, participants, due_at)
        select s.tenant_id, s.scope_id, s.participants, now() from scopes s
        where s.tenant_id = current_tenant() and s.scope_id = any (%(scope_ids)s)
        order by s.scope_id on conflict do nothing
        """,
        {"scope_ids": list(scope_ids)},
    )
