"""Requests and answers of exports and imports of the graph."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import Field, model_validator

from strandline.log.schemas_fields import Cid
from strandline.schemas import MAX_BODY_BYTES, Participants, RequestModel, ResponseModel


class ExportRequest(RequestModel):
    """Which part of the graph to export."""

    participants: Participants | None = None
    """The participants to read for: only scopes in which all of them took part. A bound user is
    added automatically."""
    scope_id: UUID | None = None
    """Only this scope: for a graph that is too large for one file."""
    vectors: Annotated[bool, Field(strict=True)] = False
    """Whether nodes have their vectors. An import does not need them."""


class TransferCounts(ResponseModel):
    """How much of the graph a file has."""

    scopes: int
    nodes: int
    edges: int
    statements: int
    """What was said of nodes and edges, by whom and when."""
    observations: int
    revisions: int
    """Of fields of topics."""
    fields: int


class GraphExport(ResponseModel):
    """A file of the graph in view, and where it can be fetched."""

    export_id: UUID
    url: str
    """A presigned address for one GET. It gives JSON Lines."""
    expires_at: datetime
    """When the address expires; the file is removed within two days. Export again for another
    one."""
    bytes: int
    """Of the file."""
    sha256: str
    """The SHA-256 of the file, in hex."""
    lines: int
    counts: TransferCounts


class ImportRequest(RequestModel):
    """An export file: as a text, or as an upload."""

    content: Annotated[str, Field(min_length=1, max_length=MAX_BODY_BYTES)] | None = None
    """The file itself."""
    cid: Cid | None = None
    """The CID of an upload of this credential (`POST /api/v1/uploads`) that no event cites."""

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if (self.content is None) == (self.cid is None):
            raise ValueError("give exactly one of content and cid")
        return self


class GraphImport(ResponseModel):
    """What an import stored."""

    new_statements: int
    """How many statements the log has now that it did not have before."""
    known_statements: int
    """How many it had already, by an earlier import or because the file was exported here."""
    lowered_trust: int
    """How many of the new ones are less trusted than the file says: as far as this credential."""
    new_nodes: int
    new_edges: int
    new_revisions: int
    counts: TransferCounts
    """What the file has."""
