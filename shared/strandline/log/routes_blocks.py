"""HTTP routes that read blocks, as the trustless gateway specification has them: a single block, or
a CAR file. See https://specs.ipfs.tech/http-gateways/trustless-gateway/."""

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
    json_response,
)
from strandline.log import block_lookup
from strandline.log.block_lookup import BlockLookup, IpldBlock, encode_car
from strandline.log.block_response_formats import (
    CAR_TYPES,
    RAW_TYPE,
    BlockResponseFormat,
    choose_format,
)
from strandline.log.schemas_read import BlockQuery
from strandline.log.store import Payload
from strandline.schemas import Error

_MAX_LOCATION_CHARS = 2048
_IMMUTABLE = {"Cache-Control": "private, max-age=300, immutable", "Vary": "Accept"}
"""A block never changes, but its readers can: only a user's own cache may keep it."""


def get_block(request: Request) -> Response:
    """Get a block by its CID, as raw bytes or with all that it links to in a CAR file. A client
    verifies that the bytes hash to the CID. A memory's block is DAG-CBOR, a payload is one raw
    block. Follows the trustless gateway specification; a larger payload is a redirect."""
    query = request.parse_query(BlockQuery)
    form = choose_format(query, request.headers.get("accept"), has_path=False)
    lookup = _make_lookup(request, query)
    cid = request.path_parameter("cid")
    if form.kind == "car":
        return _answer_car(request, query, form, lookup.list_along_path(cid, ()), lookup)
    record = lookup.find_record(cid)
    headers = _make_headers(f'"{cid}.raw"', f"{cid}.bin", query, form)
    if _is_unchanged(request, headers["Etag"]):
        return _answer_unchanged(headers, form)
    if isinstance(record, Payload) and record.size > block_lookup.MAX_BYTES:
        return _redirect(request, record)
    return binary_response(lookup.load(record).data, RAW_TYPE, headers)


def get_dag(request: Request) -> Response:
    """Get the blocks along a path of links, and those below its end, as a CAR file. The path's
    segments are names and list positions in blocks, as in `edges/0/target`. It must end at a
    link."""
    query = request.parse_query(BlockQuery)
    form = choose_format(query, request.headers.get("accept"), has_path=True)
    lookup = _make_lookup(request, query)
    segments = [part for part in request.path_parameter("path").split("/") if part]
    path = lookup.list_along_path(request.path_parameter("cid"), segments)
    return _answer_car(request, query, form, path, lookup)


def _make_lookup(request: Request, query: BlockQuery) -> BlockLookup:
    access = request.connect_reader(query)
    return BlockLookup(access, request.resources.blobs, request.deadline)


def _answer_car(
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
    headers = _make_headers(_car_etag(query, form, path), f"{top.cid}.car", query, form)
    if _is_unchanged(request, headers["Etag"]):
        return _answer_unchanged(headers, form)
    below = lookup.list_below(top, form.has_duplicates) if has_all else iter(())
    return binary_response(encode_car(path, below, form.has_duplicates), form.content_type, headers)


def _car_etag(query: BlockQuery, form: BlockResponseFormat, path: Sequence[IpldBlock]) -> str:
    """A weak ETag: the file of a path loses a block when an event is erased."""
    scope = "entity" if query.entity_bytes else query.dag_scope or "all"
    parts = (scope, query.entity_bytes, form.has_duplicates, [block.cid for block in path])
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    return f'W/"{scope}-{digest}-{path[-1].cid}.car"'


def _make_headers(
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
        parameters = query.model_dump(by_alias=True, exclude_none=True, exclude={"format"})
        # Relative to the caller's own address, which may have a base path.
        location = f"?{urlencode({'format': form.kind, **parameters}, doseq=True)}"
        if len(location) <= _MAX_LOCATION_CHARS:
            headers["Content-Location"] = location
    return headers


def _is_unchanged(request: Request, etag: str) -> bool:
    """Whether the caller has this answer already (If-None-Match, by weak comparison)."""
    tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    return "*" in tags or etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in tags]


def _answer_unchanged(headers: dict[str, str], form: BlockResponseFormat) -> Response:
    return binary_response(b"", form.content_type, headers) | {"statusCode": 304}


def _redirect(request: Request, payload: Payload) -> Response:
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


_HEADERS = {
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
_ERRORS = (Malformed, TooLarge)
ROUTES = {
    "GET /ipfs/{cid}": Route(
        get_block,
        "read",
        {200: _ANY, 304: _ANY, 307: Error},
        query=BlockQuery,
        errors=_ERRORS,
        response_headers={**_HEADERS, "Location": "A larger payload's presigned URL."},
    ),
    "GET /ipfs/{cid}/{path+}": Route(
        get_dag,
        "read",
        {200: _CAR, 304: _CAR},
        query=BlockQuery,
        errors=(*_ERRORS, Gone, Unsupported),
        response_headers=_HEADERS,
    ),
}
