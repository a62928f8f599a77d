"""The lines of an export file by kind, as an import reads them."""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self, TypeAliasType

from strandline.graph.changes.schemas import Confidence
from strandline.graph.fields.schemas import MAX_FIELD_CHARS
from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.node_types import NodeType
from strandline.graph.nodes.schemas import Alternative, DecisionStatus, RelationType, Text
from strandline.log.schemas_fields import Origin, Role
from strandline.log.statement_events import MAX_STATEMENT_CHARS
from strandline.moments import format_moment, parse_date_or_moment, parse_moment
from strandline.schemas import Moment, Participant, Participants, RequestModel

_MAX_LABEL = 200
Number = TypeAliasType("Number", Annotated[int, Field(ge=1, strict=True)])
"""The number of a scope, a node or an edge within the file, from 1."""


def _check_trimmed(value: str) -> str:
    if not normalise_name(value) or value != value.strip():
        raise ValueError("must have a letter, a digit or a sign, and no white space around it")
    return value


def _normalise_moment(value: str) -> str:
    return parse_moment(value).isoformat()


def _normalise_date(value: str) -> str:
    return format_moment(parse_date_or_moment(value))


MomentText = TypeAliasType(
    "MomentText", Annotated[str, Field(max_length=40), AfterValidator(_normalise_moment)]
)
"""A moment within a patch, in UTC and in the form that patches have."""
DateText = TypeAliasType(
    "DateText", Annotated[str, Field(max_length=40), AfterValidator(_normalise_date)]
)
"""The date of an event within a patch, likewise."""


class FileLine(RequestModel):
    """The fields of every line, beside its hash."""

    line: Number
    kind: str


class HeaderLine(FileLine):
    """The first line."""

    format: Literal["strandline-graph"]
    version: Literal[1]
    exported_at: Moment
    counts: dict[str, int]
    """How many lines of each kind follow."""


class ScopeLine(FileLine):
    """A scope. The lines up to the next scope belong to it."""

    scope: Number
    participants: Participants


class NodeLine(FileLine):
    """A node."""

    node: Number
    id: str = Field(max_length=100)
    """Its id where it was exported."""
    type: NodeType
    name: Annotated[str, Field(min_length=1, max_length=8000), AfterValidator(_check_trimmed)]
    ordinal: Annotated[int, Field(ge=0, le=100_000, strict=True)]
    """How many facts of its name came before it. Each of them has ended."""
    state: dict[str, Any]
    """The values that its observations give together. An import computes them again."""
    vector: dict[str, Any] | None = None
    """Its vector, if the export includes vectors. An import ignores it."""


class EdgeLine(FileLine):
    """An edge between two nodes of the scope."""

    edge: Number
    id: UUID
    type: RelationType
    label: str = Field(default="", max_length=_MAX_LABEL)
    from_node: Number
    to_node: Number
    state: dict[str, Any]


class PatchFields(RequestModel):
    """The fields that an observation sets."""

    upkeep: Literal[True] | None = None
    valid_to: MomentText | None = None
    reason: str | None = Field(default=None, max_length=1000)
    identity: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The hash of the name that a merged node is read as."""
    archived: Annotated[bool, Field(strict=True)] | None = None
    category: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    status: DecisionStatus | None = None
    rationale: Text | None = None
    alternatives: Annotated[list[Alternative], Field(max_length=10)] | None = None
    description: str | None = Field(default=None, max_length=4000)
    summary: str | None = Field(default=None, max_length=4000)
    event_date: DateText | None = None
    nuance: str | None = Field(default=None, max_length=1000)


class ObservationFields(RequestModel):
    """A statement's observation of one node or edge."""

    node: Number | None = None
    edge: Number | None = None
    patch: PatchFields
    confidence: Confidence | None = None
    heat: Annotated[float, Field(ge=0, le=1)] | None = None
    valid_from: Moment

    @model_validator(mode="after")
    def _check_exactly_one_target(self) -> Self:
        if (self.node is None) == (self.edge is None):
            raise ValueError("must be about a node or an edge")
        return self


class RevisionFields(RequestModel):
    """The revision of a topic's field, if the statement is one."""

    node: Number
    field: str = Field(min_length=1, max_length=MAX_FIELD_CHARS)
    value: Any
    valid_from: Moment
    why_changed: str = Field(default="", max_length=1000)
    impact_expected: str = Field(default="", max_length=1000)
    ref_node: Number | None = None
    """The topic that the field refers to."""


class StatementLine(FileLine):
    """A statement, or the observations of one version of a chain with one trust. Lines are in the
    order in which they were observed."""

    id: UUID
    """The statement's event, or the chain."""
    events: list[UUID] = Field(max_length=10_000)
    """The events that it rested on where it was exported."""
    role: Role
    speaker: Participant | None = None
    trust: Origin
    said_at: Moment
    content: str = Field(min_length=1, max_length=MAX_STATEMENT_CHARS)
    says: list[ObservationFields] = Field(max_length=10_000)
    revision: RevisionFields | None = None


class FieldLine(FileLine):
    """A field of a topic."""

    node: Number
    field: str = Field(min_length=1, max_length=MAX_FIELD_CHARS)
    field_type: Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,31}$")]
    salience: Annotated[float, Field(ge=0, le=10)]


class EndLine(FileLine):
    """The last line."""

    lines: Number
