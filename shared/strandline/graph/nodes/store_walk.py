"""SQL that follows edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb

MAX_NODES = 500
"""The most nodes that a walk reaches."""
MAX_HOPS = 3
"""The most edges in a row. A chain of invalidations is exempt and followed to its ends."""


@dataclass(frozen=True)
class WalkStep:
    """An edge to a node that was not reached before."""

    hop: int
    edge_id: UUID
    node_id: UUID


@dataclass(frozen=True)
class WalkFilter:
    """Which edges a walk follows, in either direction."""

    edge_types: Sequence[str] | None
    """None: all types."""
    hops: int = 1
    min_confidence: float = 0.0
    as_of: datetime | None = None
    archived: bool = False
    """Whether archived nodes are reached."""
    ended: bool = False
    """Whether nodes and edges that no longer hold are followed."""
    combines_by_halving: bool = False
    """Whether confidences as of a time are combined by halving."""


def walk_graph(access: TenantDb, start_ids: Sequence[UUID], walk: WalkFilter) -> Sequence[WalkStep]:
    """The steps of a walk from these nodes and the nodes of their identities in view. It proceeds
    hop by hop, along the heaviest edges first, up to MAX_NODES nodes."""
    return access.fetch(
        WalkStep,
        """
        select w.hop, w.edge_id, w.node_id
        from walk_graph(%(start)s, %(types)s, %(hops)s, %(nodes)s, %(min_confidence)s, %(as_of)s,
            %(archived)s, %(ended)s)
            with ordinality as w (hop, edge_id, node_id, place)
        order by w.place
        """,
        {
            "start": list(start_ids),
            "types": None if walk.edge_types is None else list(walk.edge_types),
            "hops": walk.hops,
            "nodes": MAX_NODES,
            "min_confidence": walk.min_confidence,
            "as_of": walk.as_of,
            "archived": walk.archived,
            "ended": walk.ended,
        },
    )
