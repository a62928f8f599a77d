"""The console's files: who may load them, under which policy, and how caches keep them."""

import re

import pytest

from strandline.console.routes import PAGE
from tests.support import Gateway, Reply

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"
)


def find_linked_files(page: Reply) -> list[str]:
    return re.findall(r'(?:src|href)="(console/[^"]+)"', page.text)


def test_console_page_opens_without_key(gateway: Gateway) -> None:
    page = gateway.call("GET", "/console")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"] == POLICY
    assert page.headers["Referrer-Policy"] == "no-referrer"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Cache-Control"] == "no-cache"
    assert "http" not in page.text.replace("HTTP", ""), "no other host"
    assert len(find_linked_files(page)) >= 2


def test_console_files_are_kept_by_release(gateway: Gateway) -> None:
    release = find_linked_files(gateway.call("GET", "/console"))[0].split("/")[1]
    for file in sorted([*PAGE.glob("*.js"), *PAGE.glob("*.css")]):
        reply = gateway.call("GET", f"/console/{release}/{file.name}")
        assert (reply.status, reply.text) == (200, file.read_text())
        assert reply.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert reply.headers["Content-Type"].startswith("text/")
    other = gateway.call("GET", "/console/0123456789abcdef/app.js")
    assert (other.status, other.headers["Cache-Control"]) == (200, "no-cache")


@pytest.mark.parametrize("path", ["/console", "/console/any/app.js"])
def test_console_answers_304_to_known_etag(gateway: Gateway, path: str) -> None:
    first = gateway.call("GET", path)
    etag = first.headers["Etag"]
    again = gateway.call("GET", path, headers={"If-None-Match": etag})
    assert (again.status, again.text, again.headers["Etag"]) == (304, "", etag)
    assert gateway.call("GET", path, headers={"If-None-Match": '"other"'}).status == 200
    assert gateway.call("HEAD", path).headers["Etag"] == etag


@pytest.mark.parametrize("name", ["index.html", "routes.py", "..%2Froutes.py", "nothing.js"])
def test_console_serves_no_other_file(gateway: Gateway, name: str) -> None:
    assert gateway.call("GET", f"/console/any/{name}").status == 404


def test_console_address_with_slash_leads_to_page(gateway: Gateway) -> None:
    reply = gateway.call("GET", "/console/")
    assert (reply.status, reply.headers["Location"]) == (308, "../console")


def test_console_health_names_the_caller(gateway: Gateway) -> None:
    key = gateway.new_key(user="user:alice", rights=("read", "erase"))
    caller = gateway.call("GET", "/api/v1/health", key=key.token).body["caller"]
    assert caller == {
        "tenant": "acme",
        "user": "user:alice",
        "rights": ["read", "erase"],
        "key_id": key.key_id,
        "may_read_everybody": False,
        "agents_share": False,
    }
    admin = gateway.call("GET", "/api/v1/health", key=gateway.key(rights=("admin",)))
    assert admin.body["caller"]["may_read_everybody"]
