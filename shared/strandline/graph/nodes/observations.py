"""A source's observations of nodes and edges, the rows that are written for them, and the rule that
combines the confidences of several sources."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.config import get_settings
from strandline.graph.nodes.identity import hash_normalised_name
from strandline.graph.nodes.node_types import NodeType

UPKEEP: Mapping[str, Any] = {"upkeep": True}
"""Part of the patch of an observation that is not evidence, such as an end, a merge or an archive
flag. It counts in neither the weight nor the confidence: to archive a doubtful node would make it
surer."""


MERGE_REFUSAL = "refuse_merge"
"""The operation of a statement that two nodes are not the same. It observes both."""


@dataclass(frozen=True)
class ObservationSource:
    """The source of an observation: a version of a chain, or a statement; in one scope."""

    source_id: UUID
    """The chain's id, or the statement's event id."""
    version: int | None
    """The chain's version; None: a statement."""
    scope_id: UUID
    participants: Sequence[str]
    event_ids: Sequence[UUID]
    """The events it rests on, at least one."""
    trust: str
    """The least trusted origin of these events."""
    observed_at: datetime
    """When the last of these events was recorded."""
    valid_from: datetime
    """When the first of these events occurred. An observation holds from then on unless it says
    otherwise."""


@dataclass(frozen=True)
class NodeObservation:
    """A source's observation of a node."""

    source: ObservationSource
    type: NodeType
    name: str
    patch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The fields that it sets. The value None clears a field."""
    confidence: float | None = None
    heat: float | None = None
    valid_from: datetime | None = None
    node_id: UUID | None = None
    """The node's id, if known; else the node is looked up by type and name."""

    @property
    def name_hash(self) -> bytes:
        """The hash of the name's compared form."""
        return hash_normalised_name(self.name)


@dataclass(frozen=True)
class EdgeObservation:
    """A source's observation of an edge. The source must observe both ends in the same call."""

    source: ObservationSource
    from_node: int
    """The index of one end among the node observations."""
    to_node: int
    type: str
    label: str = ""
    patch: Mapping[str, Any] = field(default_factory=dict[str, Any])
    confidence: float | None = None
    heat: float | None = None
    valid_from: datetime | None = None


@dataclass(frozen=True)
class GraphWriteResult:
    """The ids of the observed nodes and edges, in the order of the observations."""

    node_ids: Sequence[UUID]
    edge_ids: Sequence[UUID]
    new_nodes: int
    new_edges: int


def combines_confidences_by_halving_by_default() -> bool:
    """Whether the deployment combines confidences by halving. A tenant's own setting takes
    precedence."""
    return get_settings().tuning.edge_confidence == "halving"
