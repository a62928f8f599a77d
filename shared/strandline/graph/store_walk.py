"""SQL that follows edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from strandline.db.database import TenantDb

MAX_NODES = 500
"""The most nodes that a walk reaches."""
MAX_HOPS = 3
"""The most edges in a row, but for a chain of invalidations, which is followed to its ends."""


@dataclass(frozen=True)
class Step:
    """An edge that leads to a node that was not reached before."""

    hop: int
    edge_id: UUID
    node_id: UUID


@dataclass(frozen=True)
class WalkFilter:
    """Which edges are followed, in either direction."""

    edge_types: Sequence[str] | None
    """None: all."""
    hops: int = 1
    min_confidence: float = 0.0
    as_of: datetime | None = None
    archived: bool = False
    """Whether to reach archived nodes."""
    ended: bool = False
    """Whether to reach what does not hold any more."""
    halves_confidence: bool = False
    """How the deployment computes confidences as of a time."""


def walk_graph(access: TenantDb, start_ids: Sequence[UUID], walk: WalkFilter) -> Sequence[Step]:
    """The steps of a walk from these nodes and those of their identities in view: hop by hop, along
    the heaviest edges first, up to MAX_NODES nodes."""
    return access.fetch(
        Step,
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
