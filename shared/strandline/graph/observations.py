"""What a source says of nodes and edges, and the rows that come of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.graph.identity import NodeType, hash_name


@dataclass(frozen=True)
class Source:
    """Who says it: a version of a chain, or a statement; in one scope."""

    source_id: UUID
    """The chain's id, or the statement's event id."""
    version: int | None
    """The chain's version; None: a statement."""
    scope_id: UUID
    participants: Sequence[str]
    event_ids: Sequence[UUID]
    """The events it rests on, at least one."""
    trust: str
    """The least trusted origin of these."""
    observed_at: datetime
    """When the last of these was recorded."""
    valid_from: datetime
    """When the first of these was said: by default what is said holds from then on."""


@dataclass(frozen=True)
class NodeObservation:
    """A node that a source speaks of."""

    source: Source
    type: NodeType
    name: str
    patch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The fields that it sets; with the value None: clears."""
    confidence: float | None = None
    heat: float | None = None
    valid_from: datetime | None = None
    node_id: UUID | None = None
    """The node, where its id is known; else it is looked up by type and name."""

    @property
    def name_hash(self) -> bytes:
        """The hash of the name as it is compared."""
        return hash_name(self.name)


@dataclass(frozen=True)
class EdgeObservation:
    """An edge that a source speaks of. The source observes both ends too, in the same call."""

    source: Source
    from_node: int
    """The number of an end: its place among the node observations."""
    to_node: int
    type: str
    label: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    confidence: float | None = None
    heat: float | None = None
    valid_from: datetime | None = None


@dataclass(frozen=True)
class WrittenGraph:
    """The ids of what was observed, in the order of the observations."""

    node_ids: Sequence[UUID]
    edge_ids: Sequence[UUID]
    new_nodes: int
    new_edges: int
