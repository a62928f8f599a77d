"""HTTP routes that read events, scopes, memories by CID, payloads, and blocks.

Blocks are read as the trustless gateway specification has it: a single block, or a CAR file. See
https://specs.ipfs.tech/http-gateways/trustless-gateway/.
"""

import hashlib
from collections.abc import Sequence
from urllib.parse import urlencode

from strandline.config import get_settings
from strandline.errors import Gone, Malformed, TooLarge, Unsupported
from strandline.http.app import error_body
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    AnswerMediaType,
    Response,
    Route,
    binary_response,
    has_matching_etag,
    json_response,
)
from strandline.log import block_lookup, read
from strandline.log.block_lookup import BlockLookup, IpldBlock, encode_car_file
from strandline.log.block_response_formats import (
    CAR_TYPES,
    RAW_TYPE,
    BlockResponseFormat,
    choose_block_format,
)
from strandline.log.schemas_read import (
    BlockQuery,
    EventOut,
    EventPage,
    EventQuery,
    EventTree,
    FeedPage,
    FeedQuery,
    PresignedPayloadUrl,
    ScopeOut,
    ScopePage,
)
from strandline.log.store import Payload
from strandline.schemas import Error, PagedReadQuery, ParticipantsQuery

_MAX_LOCATION_CHARS = 2048
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable", "Vary": "Accept"}
"""A block never changes, but its readers can: only a user's own cache may keep it."""


def get_event(request: Request) -> Response:
    """Get one event by its id."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_event(access, request.path_id("event_id")))


def query_events(request: Request) -> Response:
    """Query raw events: a tree of the query, its scopes, and their events by seq. A page holds the
    newest events that fit."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(EventQuery)
    access = request.connect_reader(query, body.participants)
    return json_response(read.query_events(access, body))


def list_events(request: Request) -> Response:
    """List all visible events, newest first."""
    page = request.parse_query(PagedReadQuery)
    return json_response(read.list_events(request.connect_reader(page), page.limit, page.cursor))


def list_scopes(request: Request) -> Response:
    """List the visible scopes, newest first by creation time."""
    page = request.parse_query(PagedReadQuery)
    return json_response(read.list_scopes(request.connect_reader(page), page.limit, page.cursor))


def get_scope(request: Request) -> Response:
    """Get one scope by its id: its participants and the last seq of its log."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_scope(access, request.path_id("scope_id")))


def feed(request: Request) -> Response:
    """Read a scope's events after a seq, in order. This is the only feed: no event is missed or
    returned twice."""
    query = request.parse_query(FeedQuery)
    access = request.connect_reader(query)
    return json_response(
        read.read_feed(access, request.path_id("scope_id"), query.after_seq, query.limit)
    )


def get_memory(request: Request) -> Response:
    """Get the earliest visible event with this CID."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    return json_response(read.get_memory(access, request.path_parameter("cid")))


def get_file(request: Request) -> Response:
    """Get a payload by its CID: a redirect to a presigned URL, which the body contains too."""
    access = request.connect_reader(request.parse_query(ParticipantsQuery))
    seconds = get_settings().presign_seconds
    file = read.presign_payload_download(
        access, request.resources.blobs, request.path_parameter("cid"), seconds
    )
    return json_response(file, 307, {"Location": file.url, "Cache-Control": "no-store"})


def get_block(request: Request) -> Response:
    """Get a block by its CID, as raw bytes or with all that it links to in a CAR file. A client
    verifies that the bytes hash to the CID. A memory's block is DAG-CBOR, a payload is one raw
    block. Follows the trustless gateway specification; a larger payload is a redirect."""
    query = request.parse_query(BlockQuery)
    form = choose_block_format(query, request.headers.get("accept"), has_path=False)
    lookup = _make_block_lookup(request, query)
    cid = request.path_parameter("cid")
    if form.kind == "car":
        return _answer_car_file(
            request, query, form, lookup.list_blocks_along_path(cid, ()), lookup
        )
    record = lookup.find_event_or_payload(cid)
    headers = _make_block_headers(f'"{cid}.raw"', f"{cid}.bin", query, form)
    if has_matching_etag(request, headers["Etag"]):
        return _answer_not_modified(headers, form)
    if isinstance(record, Payload) and record.size > block_lookup.MAX_BYTES:
        return _redirect_to_payload(request, record)
    return binary_response(lookup.load_block(record).data, RAW_TYPE, headers)


def get_dag(request: Request) -> Response:
    """Get the blocks along a path of links, and those below its end, as a CAR file. The path's
    segments are names and list positions in blocks, as in `edges/0/target`. It must end at a
    link."""
    query = request.parse_query(BlockQuery)
    form = choose_block_format(query, request.headers.get("accept"), has_path=True)
    lookup = _make_block_lookup(request, query)
    segments = [part for part in request.path_parameter("path").split("/") if part]
    path = lookup.list_blocks_along_path(request.path_parameter("cid"), segments)
    return _answer_car_file(request, query, form, path, lookup)


def _make_block_lookup(request: Request, query: BlockQuery) -> BlockLookup:
    access = request.connect_reader(query)
    return BlockLookup(access, request.resources.blobs, request.deadline)


def _answer_car_file(
    request: Request,
    query: BlockQuery,
    form: BlockResponseFormat,
    path: Sequence[IpldBlock],
    lookup: BlockLookup,
) -> Response:
    """A CAR file of the path and, with the scope `all`, of what its end links to. Raises Malformed
    for a range beyond a payload's end."""
    top = path[-1]
    if top.node is None and 0 < len(top.data) <= query.first_byte(len(top.data)):
        raise Malformed(
            f"entity-bytes: begins beyond the payload's {len(top.data)} bytes",
            field="entity-bytes",
        )
    has_all = query.entity_bytes is None and query.dag_scope in (None, "all")
    headers = _make_block_headers(_make_car_etag(query, form, path), f"{top.cid}.car", query, form)
    if has_matching_etag(request, headers["Etag"]):
        return _answer_not_modified(headers, form)
    below = lookup.list_linked_blocks(top, form.has_duplicates) if has_all else iter(())
    return binary_response(
        encode_car_file(path, below, form.has_duplicates), form.content_type, headers
    )


def _make_car_etag(query: BlockQuery, form: BlockResponseFormat, path: Sequence[IpldBlock]) -> str:
    """A weak ETag: the file of a path loses a block when an event is erased."""
    scope = "entity" if query.entity_bytes else query.dag_scope or "all"
    parts = (scope, query.entity_bytes, form.has_duplicates, [block.cid for block in path])
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return f'W/"{scope}-{digest}-{path[-1].cid}.car"'


def _make_block_headers(
    etag: str, file_name: str, query: BlockQuery, form: BlockResponseFormat
) -> dict[str, str]:
    headers = {
        "Etag": etag,
        "Content-Disposition": f'attachment; filename="{file_name}"',
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "none",
        **_IMMUTABLE,
    }
    if query.format is None:
        options = query.model_dump(by_alias=True, exclude_defaults=True, exclude={"format"})
        parameters = {n: "true" if value is True else value for n, value in options.items()}
        # Relative to the caller's own address, which may have a base path.
        location = f"?{urlencode({'format': form.kind, **parameters}, doseq=True)}"
        if len(location) <= _MAX_LOCATION_CHARS:
            headers["Content-Location"] = location
    return headers


def _answer_not_modified(headers: dict[str, str], form: BlockResponseFormat) -> Response:
    return binary_response(b"", form.content_type, headers) | {"statusCode": 304}


def _redirect_to_payload(request: Request, payload: Payload) -> Response:
    """Redirect to a payload that is too large for an answer. The body says so for a client that
    does not follow redirects."""
    url = request.resources.blobs.presign_get(
        request.principal.tenant,
        payload.cid,
        RAW_TYPE,
        f"{payload.cid}.bin",
        get_settings().presign_seconds,
    )
    error = TooLarge(
        f"The payload has {payload.size} bytes, and an answer at most {block_lookup.MAX_BYTES}. "
        "Follow Location, or GET /file/{cid}.",
        limit=block_lookup.MAX_BYTES,
    )
    body = {"error": error_body(error, request.id)}
    return json_response(body, 307, {"Location": url, "Cache-Control": "no-store"})


_BLOCK_HEADERS = {
    "Etag": "The CID and the form; weak for a CAR file.",
    "Cache-Control": "Only this user's own cache may keep it.",
    "Content-Disposition": "A file name.",
    "Content-Location": "The same with `format=`, where the request had none.",
    "X-Content-Type-Options": "`nosniff`.",
    "Accept-Ranges": "`none`.",
    "Vary": "`Accept`.",
}
_CAR = AnswerMediaType(*CAR_TYPES[:1], others=CAR_TYPES[1:])
_ANY = AnswerMediaType(RAW_TYPE, others=CAR_TYPES)
_BLOCK_ERRORS = (Malformed, TooLarge)

ROUTES = {
    "GET /api/v1/events/{event_id}": Route(
        get_event, "read", {200: EventOut}, query=ParticipantsQuery, errors=(Gone,)
    ),
    "POST /api/v1/events/query": Route(
        query_events,
        "read",
        {200: EventTree},
        query=ParticipantsQuery,
        body=EventQuery,
        errors=(Gone,),
    ),
    "GET /api/v1/scopes": Route(list_scopes, "read", {200: ScopePage}, query=PagedReadQuery),
    "GET /api/v1/scopes/{scope_id}": Route(
        get_scope, "read", {200: ScopeOut}, query=ParticipantsQuery
    ),
    "GET /api/v1/scopes/{scope_id}/events": Route(feed, "read", {200: FeedPage}, query=FeedQuery),
    "GET /memories/list": Route(
        list_events, "read", {200: EventPage}, query=PagedReadQuery, errors=(Gone,)
    ),
    "GET /memory/{cid}": Route(get_memory, "read", {200: EventOut}, query=ParticipantsQuery),
    "GET /file/{cid}": Route(
        get_file,
        "read",
        {307: PresignedPayloadUrl},
        query=ParticipantsQuery,
        response_headers={"Location": "The presigned URL.", "Cache-Control": "`no-store`."},
    ),
    "GET /ipfs/{cid}": Route(
        get_block,
        "read",
        {200: _ANY, 304: _ANY, 307: Error},
        query=BlockQuery,
        errors=_BLOCK_ERRORS,
        response_headers={**_BLOCK_HEADERS, "Location": "A larger payload's presigned URL."},
    ),
    "GET /ipfs/{cid}/{path+}": Route(
        get_dag,
        "read",
        {200: _CAR, 304: _CAR},
        query=BlockQuery,
        errors=(*_BLOCK_ERRORS, Gone, Unsupported),
        response_headers=_BLOCK_HEADERS,
    ),
}
