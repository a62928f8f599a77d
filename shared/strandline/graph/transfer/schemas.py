"""Requests and answers of exports and imports of the graph."""

from datetime import datetime
from typing import Annotated
from uuid import UUID

from pydantic import Field, model_validator
from typing_extensions import Self

from strandline.log.schemas_fields import Cid
from strandline.schemas import MAX_BODY_BYTES, Participants, RequestModel, ResponseModel


class ExportRequest(RequestModel):
    """Which part of the graph to export."""

    participants: Participants | None = None
    """The participants to read for: only scopes in which all of them took part. A bound user is
    added automatically."""
    scope_id: UUID | None = None
    """Only this scope, for a graph that is too large for one file."""
    vectors: Annotated[bool, Field(strict=True)] = False
    """Whether to include the vectors of nodes. An import does not need them."""


class TransferCounts(ResponseModel):
    """The contents of a file, counted by kind."""

    scopes: int
    nodes: int
    edges: int
    statements: int
    """Statements about nodes and edges, each with its speaker and time."""
    observations: int
    revisions: int
    """Revisions of topics' fields."""
    fields: int


class GraphExportFile(ResponseModel):
    """A file with the graph in view, and its URL."""

    export_id: UUID
    url: str
    """A presigned URL for GET. The response is JSON Lines."""
    expires_at: datetime
    """When the URL expires. The file is removed within two days. Export again for a new one."""
    bytes: int
    """The size of the file."""
    sha256: str
    """The SHA-256 of the file, in hex."""
    lines: int
    counts: TransferCounts


class ImportRequest(RequestModel):
    """An export file, as text or as an upload."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_BODY_BYTES)] | None = None
    """The contents of the file."""
    cid: Cid | None = None
    """The CID of an upload of this credential (`POST /api/v1/uploads`) that no event cites."""

    @model_validator(mode="after")
    def _check_exactly_one_source(self) -> Self:
        if (self.content is None) == (self.cid is None):
            raise ValueError("give exactly one of content and cid")
        return self


class GraphImportResult(ResponseModel):
    """The result of an import."""

    new_statements: int
    """How many statements were added to the log."""
    known_statements: int
    """How many statements the log already had, from an earlier import or because the file was
    exported here."""
    lowered_trust: int
    """How many of the new statements have less trust than in the file, because this credential has
    less."""
    new_nodes: int
    new_edges: int
    new_revisions: int
    counts: TransferCounts
    """The contents of the file."""
