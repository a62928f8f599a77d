"""Serves the console at `/console`: files written by hand, without a build step. They hold no data;
the page reads everything through the API, with the key of the person who looks."""

import functools
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from strandline.errors import NotFound
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    AnswerMediaType,
    Response,
    Route,
    has_matching_etag,
    text_response,
)

PAGE = Path(__file__).parent / "page"
"""The folder of the page's files."""
_INDEX = "index.html"
_HTML = AnswerMediaType("text/html; charset=utf-8")
_MEDIA = {
    ".css": AnswerMediaType("text/css; charset=utf-8"),
    ".js": AnswerMediaType("text/javascript; charset=utf-8"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"
)
"""The Content-Security-Policy: nothing from another origin, no script within the page."""


def get_console(request: Request) -> Response:
    """The console, a page that shows what memory holds and why. It reads through this API with the
    key of the person who looks, sends requests to this service only, and keeps the key in the
    browser's tab."""
    if request.raw_path.endswith("/"):  # the page's links to its files are relative
        return text_response("", _HTML, {"Location": "../console"}) | {"statusCode": 308}
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": POLICY,
        "Referrer-Policy": "no-referrer",
    }
    return _answer_file(request, _make_index(), _HTML, headers)


def get_console_file(request: Request) -> Response:
    """A script or style of the page at `/console`. The page names them with the release of all its
    files, so that caches may keep them."""
    name = request.path_parameter("file")
    text, media = _load_files().get(name), _MEDIA.get(Path(name).suffix)
    if text is None or media is None:
        raise NotFound
    # While a deployment goes on, a page may ask for another release than this instance has.
    is_same = request.path_parameter("release") == _compute_release()
    lifetime = "public, max-age=31536000, immutable" if is_same else "no-cache"
    return _answer_file(request, text, media, {"Cache-Control": lifetime})


def _answer_file(
    request: Request, text: str, media: AnswerMediaType, headers: Mapping[str, str]
) -> Response:
    etag = f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'
    sent = {**headers, "Etag": etag, "X-Content-Type-Options": "nosniff"}
    if has_matching_etag(request, etag):
        return text_response("", media, sent) | {"statusCode": 304}
    return text_response(text, media, sent)


@functools.cache
def _load_files() -> Mapping[str, str]:
    """The text of each of the page's files, by name."""
    return MappingProxyType({path.name: path.read_text() for path in sorted(PAGE.iterdir())})


@functools.cache
def _compute_release() -> str:
    """A name for exactly these files."""
    return hashlib.sha256("\0".join(_load_files().values()).encode()).hexdigest()[:16]


@functools.cache
def _make_index() -> str:
    return _load_files()[_INDEX].replace("{release}", _compute_release())


_FILE_HEADERS = {"Etag": "Names the content.", "X-Content-Type-Options": "`nosniff`."}
ROUTES = {
    "GET /console": Route(
        get_console,
        None,
        {200: _HTML, 304: _HTML, 308: _HTML},
        response_headers={
            **_FILE_HEADERS,
            "Location": "The page's address, for a path that ends with a slash.",
            "Cache-Control": "`no-cache`: ask again.",
            "Content-Security-Policy": "Nothing from another host, no script within the page.",
            "Referrer-Policy": "`no-referrer`.",
        },
    ),
    "GET /console/{release}/{file}": Route(
        get_console_file,
        None,
        dict.fromkeys((200, 304), AnswerMediaType("text/*")),
        response_headers={
            **_FILE_HEADERS,
            "Cache-Control": "A year: the address names the release.",
        },
    ),
}
