"""Request and response types of insert: an append whose edges are found by recall."""

from typing import Annotated

from pydantic import Field

from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.log.schemas_read import EdgeOut
from strandline.schemas import RequestModel

MAX_LINKS = 20


class LinkOptions(RequestModel):
    """How an event is linked to the events that are already stored."""

    limit: int = Field(default=5, ge=1, le=MAX_LINKS, strict=True)
    """The maximum number of edges. Edges of the body count first and are all kept; the best results
    fill the rest."""
    min_relevance: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """Events that are less relevant are not linked. By default, the event is linked to those events
    that recall would return: none if `known` is below the threshold."""


class InsertRequest(AppendRequest):
    """An event to append, linked to stored events that its participants can see."""

    recall: LinkOptions = Field(default_factory=LinkOptions)


class InsertReceipt(Receipt):
    """The acknowledgement of an insert. A replay returns the same, with the edges found
    originally."""

    edges: list[EdgeOut]
    """The event's edges, ordered by CID: those of the body, and those found, with the relevance as
    weight."""
    degraded: list[str]
    """The limitations of the recall, empty if there are none. `no_query_vector`: it was searched by
    words alone."""
