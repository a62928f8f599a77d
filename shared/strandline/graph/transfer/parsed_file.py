"""The graph in an export file, after the file was read completely."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from strandline.graph.nodes.node_types import NodeType
from strandline.graph.transfer.schemas import TransferCounts
from strandline.graph.transfer.schemas_file import FieldLine, RevisionFields
from strandline.log.schemas_fields import Role


@dataclass
class FileNode:
    """A node of a file."""

    line: int
    scope: int
    """The index of its scope."""
    type: NodeType
    name: str
    name_hash: bytes
    ordinal: int
    is_observed: bool = False
    has_ended: bool = False


@dataclass
class FileEdge:
    """An edge of a file. Its nodes are given by their index."""

    line: int
    scope: int
    type: str
    label: str
    from_node: int
    to_node: int
    is_observed: bool = False


@dataclass(frozen=True)
class FileObservation:
    """A statement's observation of a node or an edge."""

    is_edge: bool
    target: int
    """The index of the node or the edge."""
    patch: Mapping[str, Any]
    confidence: float | None
    heat: float | None
    valid_from: datetime


@dataclass(frozen=True)
class FileStatement:
    """A statement of a file."""

    line: int
    scope: int
    source_id: UUID
    role: Role
    speaker: str | None
    trust: str
    said_at: datetime
    content: str
    says: Sequence[FileObservation]
    revision: RevisionFields | None
    """Its nodes are numbers from 1, as in the file."""


@dataclass
class GraphFile:
    """The complete contents of a file."""

    scopes: list[list[str]] = field(default_factory=list[list[str]])
    """The participants of each scope, in canonical form."""
    nodes: list[FileNode] = field(default_factory=list[FileNode])
    edges: list[FileEdge] = field(default_factory=list[FileEdge])
    statements: list[FileStatement] = field(default_factory=list[FileStatement])
    fields: dict[tuple[int, str], FieldLine] = field(
        default_factory=dict[tuple[int, str], FieldLine]
    )
    """Fields by the index of the topic and the field's name."""

    @property
    def counts(self) -> TransferCounts:
        """How many rows of each kind the file has."""
        return TransferCounts(
            scopes=len(self.scopes),
            nodes=len(self.nodes),
            edges=len(self.edges),
            statements=len(self.statements),
            observations=sum(len(statement.says) for statement in self.statements),
            revisions=sum(statement.revision is not None for statement in self.statements),
            fields=len(self.fields),
        )
