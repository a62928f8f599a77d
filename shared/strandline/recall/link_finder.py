"""Insert: append an event, linked to the events that recall finds for its text."""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import islice

from strandline.db.database import NOBODY, Caller, Database
from strandline.embeddings.embedder import Embedder
from strandline.log.event_draft import EventDraft, RecalledLinks
from strandline.log.schemas_append import MAX_EDGES, EdgeIn
from strandline.recall.recall import SearchResult, search
from strandline.recall.relevance import ScoredEvent
from strandline.recall.schemas_insert import LinkOptions

_QUESTION_CHARS = 8000
"""How many characters of a text are searched for: the maximum length of a question."""


def make_link_finder(
    database: Database,
    embedder: Embedder,
    tenant: str,
    options: LinkOptions,
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
        text = _make_question(draft)
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
        events = (e for e in _select(result, options) if e.candidate.event_id not in own_ids)
        edges = [
            EdgeIn(event_id=event.candidate.event_id, weight=round(event.relevance, 4))
            for event in islice(events, room)
        ]
        return RecalledLinks(links.options, edges, result.degraded)

    return find_links


def _make_question(draft: EventDraft) -> str:
    """The text to search for; for a payload, its file name and the beginning of its text."""
    if draft.text is not None:
        return draft.text[:_QUESTION_CHARS].strip()
    payload = draft.cited_payload
    parts = (draft.request.name or (payload and payload.file_name), payload and payload.text)
    return "\n".join(filter(None, parts))[:_QUESTION_CHARS].strip()


def _select(search: SearchResult, options: LinkOptions) -> list[ScoredEvent]:
    """Select the events to cite, best first. Edges are permanent, so, unlike in an answer, events
    that neither share a word with the text nor are similar to it are left out: a degraded search,
    or one that finds very new events, may return such events."""
    floor = options.min_relevance or 0.0
    return [
        event
        for event in search.select(options.min_relevance)
        if event.relevance >= floor and (event.candidate.word_bits or event.is_similar)
    ]
