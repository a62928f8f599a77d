"""The HTTP route of insert."""

from strandline.config import get_settings
from strandline.errors import Conflict, Forbidden, Gone, Invalid, StrandlineError
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, replayable_response
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.log import store_links_and_sources
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.event_draft import EventDraft, RecalledLinks
from strandline.recall.link_finder import make_link_finder
from strandline.recall.schemas_insert import InsertReceipt, InsertRequest
from strandline.schemas import check_storable, validate


def post_insert(request: Request) -> Response:
    """Append one event, linked to the events that recall finds for its text. The relevance of each
    is the weight of its edge, and edges lead only to events visible to all participants of the new
    event. Returns 201 and a receipt; a replay returns the same receipt, with the original edges.
    Also requires the right to read."""
    request.principal.require_right("read")
    key = request.idempotency_key
    body = request.parse_json()
    options = validate(InsertRequest, check_storable(body)).recall
    resources, settings = request.resources, get_settings()
    finder = make_link_finder(
        resources.database,
        resources.embedder,
        request.principal.tenant,
        options,
        vector_timeout=settings.query_vector_seconds,
        min_known=settings.tuning.min_known,
        deadline=request.deadline,
    )
    links: list[RecalledLinks] = []

    def find_links(draft: EventDraft) -> RecalledLinks:
        links.append(finder(draft))
        return links[-1]

    event = {name: value for name, value in body.items() if name != "recall"}
    (result,) = append(request.writer, [(event, key)], find_links=find_links)
    if _is_edge_not_found(result.error):  # erased since it was found
        (result,) = append(request.writer, [(event, key)], find_links=find_links)
    request.metrics["EventsAppended"] = int(result.is_new)
    if result.error is not None or result.receipt is None:
        raise result.error or Invalid()
    request.metrics |= {
        "LinksFound": len(links[-1].edges) if result.is_new else 0,
        "RecallsDegraded": int(bool(links[-1].degraded)),
    }
    return _respond(request, result)


def _is_edge_not_found(error: StrandlineError | None) -> bool:
    return error is not None and error.details.get("reason") == "edge_not_found"


def _respond(request: Request, result: AppendResult) -> Response:
    """The response with the stored receipt, so that a replay gets the same response."""
    assert result.receipt is not None, "refused results are raised"
    row = store_links_and_sources.read_links(request.connect_writer(), result.receipt.event_id)
    receipt = InsertReceipt.model_validate(
        {
            **vars(result.receipt),
            "edges": row.edges if row else [],
            "degraded": row.links["degraded"] if row else [],
        }
    )
    return replayable_response(receipt, 201, is_replay=result.is_replay)


ROUTES = {
    "POST /api/v1/insert": Route(
        post_insert,
        "write",
        {201: InsertReceipt},
        body=InsertRequest,
        headers=IdempotencyHeaders,
        response_headers={
            REPLAYED_HEADER: "`true` when this event was already stored under the same key."
        },
        errors=(Forbidden, Conflict, Gone),
    ),
}
