"""Routes, and the answers of their handlers in API Gateway's format."""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from strandline.errors import StrandlineError
from strandline.http.request import Request, RequiredRight
from strandline.http.schemas_idempotency import REPLAYED_HEADER

type Response = dict[str, Any]


@dataclass(frozen=True)
class AnswerMediaType:
    """The media type of an answer that is not JSON."""

    type: str
    """The value of Content-Type."""
    others: tuple[str, ...] = ()
    """Other values that it may have."""

    @property
    def content_types(self) -> tuple[str, ...]:
        """All values that Content-Type may have."""
        return (self.type, *self.others)


@dataclass(frozen=True)
class Route:
    """One operation: its handler, and what the API document says about it. The handler's docstring
    is the operation's description; `openapi` adds the answers that every operation may give."""

    handler: Callable[[Request], Response]
    right: RequiredRight
    responses: Mapping[int, type[BaseModel] | AnswerMediaType]
    """The types of its successful answers, by status."""
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    headers: type[BaseModel] | None = None
    """Request headers besides the credential's; the fields' aliases are the headers' names."""
    errors: tuple[type[StrandlineError], ...] = ()
    """The errors that it raises itself, besides those that follow from its query, body, path and
    credential."""
    audits_in_transaction: bool = False
    """Its row in the audit trail commits in the transaction of the change itself."""
    audits_refusals_only: bool = False
    """It shows counts and times, no content of memory. A served call leaves no row in the audit
    trail, because a scraper's calls would bury the others; a refused call does."""
    placeholders: Mapping[str, str] = field(default_factory=dict[str, str])
    """What replaces `{name}` in the handler's docstring, for words that come from a table."""
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Headers of its answers, by name with a description; all but Content-Type."""


def may_be_repeated(request: Request, route: Route | None) -> bool:
    """Whether a request that may be done already may be sent again: it changes nothing, or nothing
    more the second time. A POST that writes needs a key."""
    is_post = request.operation.startswith("POST ")
    if route is None or not is_post or route.right in (None, "issued", "read"):
        return True
    if route.headers is None or "idempotency_key" not in route.headers.model_fields:
        return False
    if "idempotency-key" in request.headers:
        return True
    try:
        body = request.parse_json()
        items: list[Any] = body.get("events", [body])
        return bool(items) and all(item.get("source_event_key") for item in items)
    except (StrandlineError, AttributeError):  # no such body
        return False


def has_matching_etag(request: Request, etag: str) -> bool:
    """Whether the caller has this answer already (If-None-Match, by weak comparison)."""
    tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
    return "*" in tags or etag.removeprefix("W/") in [tag.removeprefix("W/") for tag in tags]


def _dump_json_as_utf8(body: Mapping[str, Any]) -> str:
    """JSON in UTF-8: an escaped emoji would be three times as long, and an answer has a limit. A
    lone surrogate stays escaped."""
    text = json.dumps(body, default=str, ensure_ascii=False)
    return text.encode(errors="backslashreplace").decode()


def json_response(
    body: BaseModel | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A JSON answer in API Gateway's format."""
    text = body.model_dump_json() if isinstance(body, BaseModel) else _dump_json_as_utf8(body)
    return {
        "statusCode": status,
        "headers": {"Content-Type": "application/json", **(headers or {})},
        "body": text,
        "isBase64Encoded": False,
    }


def replayable_response(body: BaseModel, status: int, *, is_replay: bool) -> Response:
    """A JSON answer, whose headers say whether it is an earlier one again."""
    return json_response(body, status, {REPLAYED_HEADER: "true"} if is_replay else None)


def text_response(
    body: str, media: AnswerMediaType, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer of text: not JSON, or JSON that is serialised already."""
    response = json_response({}, 200, {"Content-Type": media.type, **(headers or {})})
    return response | {"body": body}


def binary_response(data: bytes, content_type: str, headers: Mapping[str, str]) -> Response:
    """An answer of bytes, in base64."""
    return {
        "statusCode": 200,
        "headers": {"Content-Type": content_type, **headers},
        "body": base64.b64encode(data).decode(),
        "isBase64Encoded": True,
    }
