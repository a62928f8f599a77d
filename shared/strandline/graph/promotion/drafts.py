"""Nodes and edges of a chain's promotion while they are collected."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from strandline.graph.nodes.node_types import NodeType
from strandline.graph.promotion.store import EvidenceEvent

type NodeKey = tuple[NodeType, str]
"""A node's type and compared name."""


@dataclass
class NodeDraft:
    """A node under construction."""

    type: NodeType
    name: str
    patch: dict[str, Any] = field(default_factory=dict[str, Any])
    confidence: float | None = None
    events: dict[UUID, EvidenceEvent] = field(default_factory=dict[UUID, EvidenceEvent])


@dataclass
class EdgeDraft:
    """An edge under construction."""

    nuance: str | None
    events: dict[UUID, EvidenceEvent] = field(default_factory=dict[UUID, EvidenceEvent])
    confidences: list[float] = field(default_factory=list[float])
    """Of the relations that state it; empty for a link, whose confidence nobody states."""
