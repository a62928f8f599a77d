"""Request and answer of an insert: an append whose edges recall finds."""

from typing import Annotated

from pydantic import Field

from strandline.log.schemas import EdgeOut
from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.schemas import RequestModel

MAX_LINKS = 20


class LinkOptions(RequestModel):
    """How an event is linked to what is known already."""

    limit: int = Field(default=5, ge=1, le=MAX_LINKS, strict=True)
    """The maximum number of edges. Those of the body count first, and are all kept; the best
    results fill what is left."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant are not linked. By default those that recall would answer
    with: none where `known` is below the threshold."""


class InsertRequest(AppendRequest):
    """An event to append, linked to what its participants know already."""

    recall: LinkOptions = Field(default_factory=LinkOptions)


class InsertReceipt(Receipt):
    """The acknowledgement of an insert. A replay returns the same, with the edges that were found
    at first."""

    edges: list[EdgeOut]
    """The event's edges: those of the body, and those found, with the relevance as weight; in order
    of their CIDs."""
    degraded: list[str]
    """How the recall was limited; empty if it was not. `no_query_vector`: it was searched by words
    alone."""
