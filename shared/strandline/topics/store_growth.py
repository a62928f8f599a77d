"""SQL for the growth of one scope's tree: its published tree, and the chain versions to insert."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.packed_vectors import PackedVector, PackedVectors
from strandline.embeddings.vector_formats import unpack_vector
from strandline.topics.tree import TreeSlotRow
from strandline.topics.vectors import MeanVector

_ROWS_PER_STATEMENT = 500
"""The maximum number of nodes that one statement inserts. The text of each includes a vector."""


@dataclass(frozen=True)
class ScopeTreeState:
    """A scope's tree in a snapshot, and whether the chains under it are unchanged."""

    folded_seq: int
    max_folded_seq: int
    """The greatest seq ever folded in the scope; during a refold `folded_seq` is less."""
    cutoff: int | None
    """None: the snapshot has no tree of the scope."""
    position: int | None
    slots: int | None
    space: str | None
    stale_leaves: int
    """The number of leaves whose chain version is missing or has different content."""

    @property
    def is_being_refolded(self) -> bool:
        """Whether the scope's chains are incomplete because they were dropped and are being
        refolded."""
        return self.folded_seq < self.max_folded_seq


def read_scope_tree_state(access: TenantDb, scope_id: UUID, version: int) -> ScopeTreeState | None:
    """Read a scope's state in this snapshot; None for an unknown scope."""
    rows = access.fetch(
        ScopeTreeState,
        """
        select s.folded_seq, s.max_folded_seq, t.cutoff, t.position, t.slots, t.space, (
            select count(*) from topic_tree l
            join topic_nodes n on n.tenant_id = l.tenant_id and n.node_id = l.node_id
            left join chain_versions v on v.tenant_id = l.tenant_id and v.chain_id = l.slot
                and v.version = l.chain_version
            where l.scope_id = s.scope_id and l.is_leaf and l.from_version <= %(version)s
                and (l.to_version is null or l.to_version > %(version)s)
                and v.content_hash is distinct from n.chain_hash) as stale_leaves
        from scopes s
        left join snapshot_scopes t on t.tenant_id = s.tenant_id and t.scope_id = s.scope_id
            and t.from_version <= %(version)s
            and (t.to_version is null or t.to_version > %(version)s)
        where s.scope_id = %(scope_id)s
        """,
        {"scope_id": scope_id, "version": version},
    )
    return rows[0] if rows else None


def read_tree_slots(access: TenantDb, scope_id: UUID, version: int) -> Sequence[TreeSlotRow]:
    """Read the slots of a scope's tree in a snapshot, without their contents."""
    return access.fetch(
        TreeSlotRow,
        "select slot, parent_slot, node_id, is_leaf, chain_version from topic_tree"
        " where scope_id = %(scope_id)s and from_version <= %(version)s"
        " and (to_version is null or to_version > %(version)s)",
        {"scope_id": scope_id, "version": version},
    )


@dataclass(frozen=True)
class _Seq:
    seq: int


def list_leaf_seqs_after(access: TenantDb, scope_id: UUID, version: int, seq: int) -> set[int]:
    """List the seqs greater than `seq` of the events under the leaves of a scope's tree in a
    snapshot."""
    rows = access.fetch(
        _Seq,
        """
        select e.seq from topic_tree t
        join topic_events e on e.tenant_id = t.tenant_id and e.chain_id = t.slot
            and e.since_version <= t.chain_version
        where t.scope_id = %(scope_id)s and t.is_leaf and t.from_version <= %(version)s
            and (t.to_version is null or t.to_version > %(version)s) and e.seq > %(seq)s
        """,
        {"scope_id": scope_id, "version": version, "seq": seq},
    )
    return {row.seq for row in rows}


@dataclass(frozen=True)
class ChainVersionToInsert:
    """A chain version that may be inserted into a tree."""

    position: int
    chain_id: UUID
    version: int
    content_hash: bytes
    topic: str | None
    summary: str
    rejected: str | None
    started_at: datetime
    last_event_at: datetime
    event_count: int
    last_seq: int
    trust: str
    models: dict[str, Any]
    is_embedded: bool
    """Whether all of its events are embedded or were refused by the model."""


def list_next_chain_versions(
    access: TenantDb, scope_id: UUID, space: str, after: int, mark: int, limit: int
) -> Sequence[ChainVersionToInsert]:
    """List the next chain versions of a scope after a position, up to the mark, in order."""
    return access.fetch(
        ChainVersionToInsert,
        """
        select v.position, v.chain_id, v.version, v.content_hash, v.topic, v.summary, v.rejected,
            v.started_at, v.last_event_at, v.event_count, v.last_seq, v.trust, v.models,
            v.last_seq <= coalesce((
                select p.embedded_seq from embedding_progress p
                where p.scope_id = %(scope_id)s and p.space = %(space)s), 0) as is_embedded
        from chain_versions v
        where v.scope_id = %(scope_id)s and v.position > %(after)s and v.position <= %(mark)s
        order by v.position limit %(limit)s
        """,
        {"scope_id": scope_id, "space": space, "after": after, "mark": mark, "limit": limit},
    )


@dataclass(frozen=True)
class _ChainId:
    chain_id: UUID


def find_chain_by_position(access: TenantDb, scope_id: UUID, position: int) -> UUID | None:
    """The chain whose version has this position in its scope, or None."""
    rows = access.fetch(
        _ChainId,
        "select chain_id from chain_versions"
        " where scope_id = %(scope_id)s and position = %(position)s",
        {"scope_id": scope_id, "position": position},
    )
    return rows[0].chain_id if rows else None


@dataclass(frozen=True)
class EventAndVector:
    """An event of a chain, with its vector in one space."""

    chain_id: UUID
    event_id: UUID
    seq: int
    since_version: int
    vector_bytes: bytes | None
    """The vector in the format of `halfvec_send`; None if there is none or it was given up."""
    has_row: bool
    """Whether the event was embedded or refused."""
    is_given_up: bool

    @property
    def vector(self) -> MeanVector | None:
        """The vector, with weight 1."""
        return (
            None
            if self.vector_bytes is None
            else MeanVector(tuple(unpack_vector(self.vector_bytes)), 1)
        )


def list_chain_events_with_vectors(
    access: TenantDb, scope_id: UUID, space: str, chain_ids: Collection[UUID]
) -> Sequence[EventAndVector]:
    """The events of these chains, ordered by chain and seq."""
    return access.fetch(
        EventAndVector,
        """
        select c.chain_id, c.event_id, c.seq, c.since_version,
            case when not g.is_given_up then halfvec_send(v.embedding) end as vector_bytes,
            v.event_id is not null as has_row, g.is_given_up
        from chain_events c
        left join lateral (
            select v.event_id, v.embedding from event_vectors v
            where v.tenant_id = c.tenant_id and v.space = %(space)s and v.scope_id = %(scope_id)s
                and v.event_id = c.event_id offset 0) v on true
        cross join lateral (
            select exists (select from decisions d
                where d.tenant_id = c.tenant_id and d.scope_id = %(scope_id)s
                    and d.event_id = c.event_id and d.kind = 'vector_given_up')
                as is_given_up offset 0) g
        where c.chain_id = any (%(chain_ids)s)
        order by c.chain_id, c.seq
        """,
        {"scope_id": scope_id, "space": space, "chain_ids": list(chain_ids)},
    )


@dataclass(frozen=True)
class StoredNode:
    """The content of a slot."""

    node_id: UUID
    kind: str
    content_hash: bytes
    chain_id: UUID | None
    chain_version: int | None
    chain_hash: bytes | None
    topic: str | None
    summary: str | None
    started_at: datetime
    last_event_at: datetime
    event_count: int
    leaf_count: int
    trust: str
    vector_bytes: bytes | None
    """The vector in the format of `halfvec_send`."""
    vector_count: int
    models: dict[str, Any]

    @property
    def vector(self) -> MeanVector | None:
        """The mean of the vectors of its events."""
        return (
            None
            if self.vector_bytes is None
            else MeanVector(tuple(unpack_vector(self.vector_bytes)), self.vector_count)
        )


def read_stored_nodes(access: TenantDb, node_ids: Collection[UUID]) -> Mapping[UUID, StoredNode]:
    """Read those of these nodes that are stored, by id."""
    if not node_ids:
        return {}
    rows = access.fetch(
        StoredNode,
        """
        select node_id, kind, content_hash, chain_id, chain_version, chain_hash, topic, summary,
            started_at, last_event_at, event_count, leaf_count, trust,
            halfvec_send(embedding) as vector_bytes, vector_count, models
        from topic_nodes where node_id = any (%(node_ids)s)
        """,
        {"node_ids": list(node_ids)},
    )
    return {row.node_id: row for row in rows}


def insert_nodes(
    access: TenantDb,
    scope_id: UUID,
    participants: Sequence[str],
    space: str,
    nodes: Sequence[StoredNode],
) -> None:
    """Store nodes; nodes that are already stored are left unchanged. In a transaction."""
    for first in range(0, len(nodes), _ROWS_PER_STATEMENT):
        batch = nodes[first : first + _ROWS_PER_STATEMENT]
        access.execute(
            """
            insert into topic_nodes (tenant_id, node_id, scope_id, participants, kind,
                content_hash, chain_id, chain_version, chain_hash, topic, summary, started_at,
                last_event_at, event_count, leaf_count, trust, space, embedding, vector_count,
                models)
            select current_tenant(), r.node_id, %(scope_id)s, %(participants)s, r.kind,
                decode(r.content_hash, 'hex'), r.chain_id, r.chain_version,
                decode(r.chain_hash, 'hex'), r.topic, r.summary, r.started_at, r.last_event_at,
                r.event_count, r.leaf_count, r.trust, %(space)s, r.embedding,
                r.vector_count, r.models
            from rows from (
                jsonb_to_recordset(%(rows)s::jsonb) as (node_id uuid, kind text,
                    content_hash text, chain_id uuid, chain_version int, chain_hash text,
                    topic text, summary text, started_at timestamptz, last_event_at timestamptz,
                    event_count int, leaf_count int, trust text, vector_count int, models jsonb),
                unnest(%(vectors)s::halfvec[])) as r (node_id, kind, content_hash, chain_id,
                    chain_version, chain_hash, topic, summary, started_at, last_event_at,
                    event_count, leaf_count, trust, vector_count, models, embedding)
            order by r.node_id
            on conflict do nothing
            """,
            {
                "scope_id": scope_id,
                "participants": list(participants),
                "space": space,
                "rows": json.dumps(list(map(_to_json_fields, batch))),
                "vectors": PackedVectors(
                    PackedVector(node.vector_bytes) if node.vector_bytes else None for node in batch
                ),
            },
        )


def _to_json_fields(node: StoredNode) -> dict[str, Any]:
    return {
        **{name: value for name, value in vars(node).items() if name != "vector_bytes"},
        "node_id": str(node.node_id),
        "content_hash": node.content_hash.hex(),
        "chain_id": node.chain_id and str(node.chain_id),
        "chain_hash": node.chain_hash and node.chain_hash.hex(),
        "started_at": node.started_at.isoformat(),
        "last_event_at": node.last_event_at.isoformat(),
    }


def insert_leaf_events(
    access: TenantDb, scope_id: UUID, participants: Sequence[str], events: Sequence[EventAndVector]
) -> None:
    """Store the events of leaves; links that are already stored are left unchanged. In a
    transaction."""
    if not events:
        return
    access.execute(
        """
        insert into topic_events
            (tenant_id, chain_id, event_id, scope_id, participants, seq, since_version)
        select current_tenant(), r.chain_id, r.event_id, %(scope_id)s, %(participants)s, r.seq,
            r.since_version
        from jsonb_to_recordset(%(rows)s::jsonb) r
            (chain_id uuid, event_id uuid, seq bigint, since_version int)
        order by r.event_id
        on conflict do nothing
        """,
        {
            "scope_id": scope_id,
            "participants": list(participants),
            "rows": json.dumps(
                [
                    {
                        "chain_id": str(event.chain_id),
                        "event_id": str(event.event_id),
                        "seq": event.seq,
                        "since_version": event.since_version,
                    }
                    for event in events
                ]
            ),
        },
    )
