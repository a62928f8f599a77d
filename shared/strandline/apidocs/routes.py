"""Serves the API document, and a page to read and try it. Swagger UI (Apache-2.0) comes from
Powertools' package; the page loads nothing from other hosts."""

import functools
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

import aws_lambda_powertools

from strandline.admin import routes as admin_routes
from strandline.admin import routes_usage
from strandline.apidocs import examples, openapi, security
from strandline.apidocs.error_responses import JSON
from strandline.config import get_settings
from strandline.console import routes as console_routes
from strandline.context import routes as context_routes
from strandline.erasure import routes as erasure_routes
from strandline.errors import NotFound
from strandline.graph import routes as graph_routes
from strandline.graph.communities import routes_admin as graph_routes_admin
from strandline.http.request import Request
from strandline.http.routes_and_responses import AnswerMediaType, Response, Route, text_response
from strandline.jobs import routes as jobs_routes
from strandline.log import routes_read as log_routes_read
from strandline.log import routes_write as log_routes_write
from strandline.personas import routes as personas_routes
from strandline.provenance import routes as provenance_routes
from strandline.recall import routes as recall_routes
from strandline.sessions import routes_read as sessions_routes_read
from strandline.sessions import routes_write as sessions_routes_write
from strandline.status import routes as status_routes
from strandline.topics import routes_admin as topics_routes_admin
from strandline.topics import routes_read as topics_routes_read

_PAGE = Path(__file__).parent / "page"
_SWAGGER = Path(aws_lambda_powertools.__file__).parent / "event_handler/openapi/swagger_ui"
_HTML = AnswerMediaType("text/html; charset=utf-8")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class _PageFile(NamedTuple):
    path: Path
    media: AnswerMediaType


_CSS, _SCRIPT = (
    AnswerMediaType("text/css; charset=utf-8"),
    AnswerMediaType("text/javascript; charset=utf-8"),
)
_FILES = {
    "page.css": _PageFile(_PAGE / "page.css", _CSS),
    "page.js": _PageFile(_PAGE / "page.js", _SCRIPT),
    "swagger-ui.css": _PageFile(_SWAGGER / "swagger-ui.min.css", _CSS),
    "swagger-ui.js": _PageFile(_SWAGGER / "swagger-ui-bundle.min.js", _SCRIPT),
}


def get_openapi(request: Request) -> Response:
    """This document. OpenAPI 3.1, made from the types that check requests and write answers."""
    del request
    return text_response(
        _build_document_json(), AnswerMediaType(JSON), {"Cache-Control": "no-cache"}
    )


def get_root(request: Request) -> Response:
    """Redirect to the page at `/docs`."""
    # Relative to the caller's own address, because a proxy or a base path may hide a part of it.
    last_segment = request.path_with_stage.rpartition("/")[2]
    location = f"{last_segment}/docs" if last_segment else "docs"
    return text_response("", _HTML, {"Location": location}) | {"statusCode": 307}


def get_docs(request: Request) -> Response:
    """A page to read this document and to try its calls. It needs no internet access and sends
    requests to this service only; a key that is entered stays in the browser's tab."""
    if request.raw_path.endswith("/"):  # the page's links to its files are relative
        return text_response("", _HTML, {"Location": "../docs"}) | {"statusCode": 308}
    headers = {
        "Cache-Control": "no-cache",
        "Content-Security-Policy": _POLICY,
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return text_response(_make_docs_page(), _HTML, headers)


def get_docs_file(request: Request) -> Response:
    """A script or style of the page at `/docs`. The page names them with their version, so that
    caches may keep them."""
    file = _FILES.get(request.path_parameter("file"))
    if file is None:
        raise NotFound
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }
    return text_response(_read_text(file.path), file.media, headers)


@functools.cache
def _read_text(path: Path) -> str:
    return path.read_text()


@functools.cache
def _make_docs_page() -> str:
    contents = "".join(_read_text(file.path) for file in _FILES.values())
    version = hashlib.sha256(contents.encode()).hexdigest()[:16]
    return _read_text(_PAGE / "docs.html").replace("{version}", version)


@functools.cache
def _build_document_json() -> str:
    """Built on first use, so that importing this module costs nothing."""
    all_routes = {
        **log_routes_write.ROUTES,
        **(
            log_routes_read.ROUTES
            | recall_routes.ROUTES
            | routes_usage.ROUTES
            | status_routes.ROUTES
        ),
        **sessions_routes_write.ROUTES,
        **sessions_routes_read.ROUTES,
        **context_routes.ROUTES,
        **topics_routes_read.ROUTES,
        **provenance_routes.ROUTES,
        **graph_routes.ROUTES,
        **personas_routes.ROUTES,
        **erasure_routes.ROUTES,
        **console_routes.ROUTES,
    }
    all_routes |= {
        **admin_routes.ROUTES,
        **jobs_routes.ROUTES,
        **topics_routes_admin.ROUTES,
        **graph_routes_admin.ROUTES,
        **ROUTES,
    }
    alternatives = security.list_security_alternatives(get_settings())
    return json.dumps(
        openapi.build_openapi_document(all_routes, examples.load_examples(), alternatives)
    )


_NO_CACHE = {"Cache-Control": "`no-cache`: ask again."}
_NOSNIFF = {"X-Content-Type-Options": "`nosniff`."}
ROUTES = {
    "GET /": Route(
        get_root, None, {307: _HTML}, response_headers={"Location": "The page at `/docs`."}
    ),
    "GET /openapi.json": Route(
        get_openapi, None, {200: AnswerMediaType(JSON)}, response_headers=_NO_CACHE
    ),
    "GET /docs": Route(
        get_docs,
        None,
        {200: _HTML, 308: _HTML},
        response_headers={
            "Location": "The page's address, for a path that ends with a slash.",
            **_NO_CACHE,
            **_NOSNIFF,
            "Content-Security-Policy": "Nothing from another host, no script within the page.",
            "Referrer-Policy": "`no-referrer`.",
        },
    ),
    "GET /docs/{file}": Route(
        get_docs_file,
        None,
        {200: AnswerMediaType("text/*")},
        response_headers={**_NOSNIFF, "Cache-Control": "A year: the address names the version."},
    ),
}
