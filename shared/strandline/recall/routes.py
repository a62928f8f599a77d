"""The HTTP routes of recall, and of insert: append an event, linked to the events that recall finds
for its text."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from strandline.config import get_settings
from strandline.db.database import NOBODY, Caller, Database
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.store_space_figures import read_thresholds
from strandline.errors import Conflict, Forbidden, Gone, Invalid, StrandlineError
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response, replayable_response
from strandline.http.schemas_idempotency import REPLAYED_HEADER, IdempotencyHeaders
from strandline.log import store_links_and_sources
from strandline.log.append import append
from strandline.log.append_state import AppendResult
from strandline.log.event_draft import EventDraft, RecalledLinks
from strandline.log.schemas_append import MAX_EDGES, EdgeIn
from strandline.log.store_scopes import can_see_any_scope
from strandline.recall.recall import recall, record_use_of_hits
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas import (
    InsertLinkOptions,
    InsertReceipt,
    InsertRequest,
    RecallAnswer,
    RecallRequest,
)
from strandline.recall.search import SearchResult, search
from strandline.recall.sona_lookup import require_sona_by_id_or_name
from strandline.schemas import ParticipantsQuery, check_storable, validate

_QUESTION_CHARS = 8000
"""How many characters of a text are searched for: the maximum length of a question."""


def post_recall(request: Request) -> Response:
    """Search visible events by words and by meaning. Hits are sorted best first, each with its
    relevance. The answer is empty if no event is relevant enough. The chains of the best ten hits
    are warmed."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(RecallRequest)
    access = request.connect_reader(query, body.participants)
    now, settings = datetime.now(UTC), get_settings()
    embedder, timeout = request.embedder, settings.query_vector_seconds
    sona_id = (
        require_sona_by_id_or_name(
            access,
            embedder,
            body.sona,
            min_cosine=read_thresholds(access, embedder.space, settings.tuning).merge,
            timeout=timeout,
        )
        if body.sona
        else None
    )
    response = recall(
        access,
        embedder,
        request.resources.blobs,
        body,
        now,
        timeout,
        settings.tuning.min_known,
        sona_id=sona_id,
    )
    if not response.hits and not can_see_any_scope(access):
        response.degraded.append("no_scope_in_view")
    is_recorded = record_use_of_hits(access, response, now)
    request.metrics |= {
        "SearchHits": len(response.hits),
        "RecallsDegraded": int(bool(response.degraded)),
        "RecallsNotRecorded": int(not is_recorded),
    }
    return json_response(response)


def make_link_finder(
    database: Database,
    embedder: Embedder,
    tenant: str,
    options: InsertLinkOptions,
    *,
    vector_timeout: float,
    min_known: float | None,
    deadline: float,
) -> Callable[[EventDraft], RecalledLinks]:
    """Make the function with which `append` finds the links of a draft. `vector_timeout` is in
    seconds, `deadline` in time.monotonic() seconds; `min_known` is the deployment's threshold. The
    function raises Unavailable."""

    def find_links(draft: EventDraft) -> RecalledLinks:
        links = RecalledLinks(options.model_dump(mode="json"))
        room = min(options.limit, MAX_EDGES) - len(draft.request.edges)
        text = _choose_search_text(draft)
        if room < 1 or not text:
            return links
        # Every reader of the new event must see what it cites, no matter who writes it.
        readers = Caller(tenant, tuple(draft.participants), NOBODY)
        result = search(
            database.connect_as(readers, deadline),
            embedder,
            text,
            now=datetime.now(UTC),
            vector_timeout=vector_timeout,
            filters={},
            min_known=min_known,
        )
        own_ids = {edge.event_id for edge in draft.request.edges}
        events = (
            e
            for e in _select_events_to_link(result, options)
            if e.candidate.event_id not in own_ids
        )
        edges = [
            EdgeIn(event_id=event.candidate.event_id, weight=round(event.relevance, 4))
            for event in islice(events, room)
        ]
        return RecalledLinks(links.options, edges, result.degraded)

    return find_links


def _choose_search_text(draft: EventDraft) -> str:
    """The text to search for; for a payload, its file name and the beginning of its text."""
    if draft.text is not None:
        return draft.text[:_QUESTION_CHARS].strip()
    payload = draft.cited_payload
    parts = (draft.request.name or (payload and payload.file_name), payload and payload.text)
    return "\n".join(filter(None, parts))[:_QUESTION_CHARS].strip()


def _select_events_to_link(search: SearchResult, options: InsertLinkOptions) -> list[ScoredEvent]:
    """Select the events to cite, best first. Edges are permanent, so, unlike in an answer, events
    that neither share a word with the text nor are similar to it are left out: a degraded search,
    or one that finds very new events, may return such events."""
    floor = options.min_relevance or 0.0
    return [
        event
        for event in search.select_relevant_events(options.min_relevance)
        if event.relevance >= floor and (event.candidate.word_bits or event.is_similar_to_question)
    ]


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
        request.embedder,
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
    return _respond_with_stored_receipt(request, result)


def _is_edge_not_found(error: StrandlineError | None) -> bool:
    return error is not None and error.details.get("reason") == "edge_not_found"


def _respond_with_stored_receipt(request: Request, result: AppendResult) -> Response:
    """The response with the stored receipt, so that a replay gets the same response."""
    assert result.receipt is not None, "refused results are raised"
    row = store_links_and_sources.read_edges_and_links(
        request.connect_writer(), result.receipt.event_id
    )
    receipt = InsertReceipt.model_validate(
        {
            **vars(result.receipt),
            "edges": row.edges if row else [],
            "degraded": row.links["degraded"] if row else [],
        }
    )
    return replayable_response(receipt, 201, is_replay=result.is_replay)


ROUTES = {
    "POST /api/v1/recall": Route(
        post_recall, "read", {200: RecallAnswer}, query=ParticipantsQuery, body=RecallRequest
    ),
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
