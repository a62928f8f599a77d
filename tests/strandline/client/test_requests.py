"""What a client sends, how often, and what becomes of a refusal; against answers made here."""

import asyncio
import inspect
import json
import mimetypes
import pydoc
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import httpx2
import pytest

from strandline import AsyncStrandline, ServiceError, Strandline
from strandline.client import errors
from strandline.client.request_building import KEEP, join_participants, to_json_value
from strandline.client.retries import Retry
from strandline.client.scopes_and_payloads import guess_media_type
from tests.strandline.client.scripted_transport import RECEIPT, URL, Answer, Script

NOTHING: dict[str, Any] = {
    "known": 0.1,
    "hits": [],
    "breadth": False,
    "did_not_fit": 0,
    "degraded": [],
    "not_yet_embedded": 0,
    "not_yet_folded": 0,
    "read_token": "t",
}


def error_response(
    status: int, code: str, *, retryable: bool = False, **more: Any
) -> httpx2.Response:
    """An error answer of the service."""
    headers = {"Retry-After": str(more.pop("retry_after"))} if "retry_after" in more else {}
    error = {"code": code, "message": f"{code}: so it is", "details": more, "request_id": "r-1"}
    return httpx2.Response(
        status, json={"error": {**error, "retryable": retryable}}, headers=headers
    )


def stored_response() -> httpx2.Response:
    """The answer to an append."""
    return httpx2.Response(201, json=RECEIPT)


def test_client_sends_verb_as_request() -> None:
    script = Script(httpx2.Response(200, json=NOTHING))
    since = datetime(2026, 5, 8, 13, 56, tzinfo=timezone.utc)
    answer = script.client().recall(
        "Which boat?", user="alice", agent="helper", participants=["user:bob"], since=since
    )
    assert (answer.known, answer.hits) == (0.1, [])
    (request,) = script.requests
    assert (request.method, str(request.url)) == ("POST", f"{URL}/api/v1/recall")
    assert request.headers["X-API-Key"] == "k"
    assert script.bodies == [
        {
            "query": "Which boat?",
            "participants": ["user:alice", "agent:helper", "user:bob"],
            "since": "2026-05-08T13:56:00+00:00",
        }
    ]


def test_client_escapes_paths_and_query_strings() -> None:
    script = Script(httpx2.Response(404, json={}))
    client = script.client(Retry(seconds=0))
    with pytest.raises(errors.NotFoundError):
        client.graph.field("topic:1", "a/b ?", user="ann ä", as_of=1.5)
    url = script.requests[0].url
    assert url.raw_path.split(b"?")[0] == b"/api/v1/graph/topics/topic%3A1/fields/a%2Fb%20%3F"
    assert dict(url.params) == {
        "participants": "user:ann ä",
        "as_of": "1970-01-01T00:00:01.500000+00:00",
    }
    with pytest.raises(errors.NotFoundError):
        next(client.graph.nodes(archived=True, participants=["user:a", "user:b"]))
    assert script.requests[1].url.params.get_list("participants") == ["user:a", "user:b"]
    assert script.requests[1].url.params["archived"] == "true"


def test_client_omits_unset_fields_and_unneeded_nulls() -> None:
    script = Script(httpx2.Response(404, json={}))
    client = script.client(Retry(seconds=0))
    for change in ({}, {"agents_share": None, "time_zone": KEEP}):
        with pytest.raises(errors.NotFoundError):
            client.admin.update_tenant("acme", **change)
    with pytest.raises(errors.NotFoundError):
        client.graph.set_field("topic:1", "home", None, user="alice")
    assert script.bodies == [
        {},
        {"agents_share": None},
        {"value": None, "participants": ["user:alice"]},
    ]
    with pytest.raises(errors.NotFoundError):
        client.recall("x", user=None, participants=["user:alice"], limit=None, metadata=None)
    assert script.bodies[-1] == {"query": "x", "participants": ["user:alice"]}
    with pytest.raises(TypeError, match="colour"):
        client.add("x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="participants: give a list"):
        client.add("x", participants="user:alice")


WRONG_TIMES: Sequence[tuple[Callable[[Strandline], object], str, str]] = [
    (lambda c: c.add("x", user="ann", occurred_at=1767583930285), "occurred_at", "seconds"),
    (lambda c: c.add("x", user="ann", occurred_at="2026-05-08T13:56:00"), "occurred_at", "Z "),
    (lambda c: c.add("x", user="ann", occurred_at=datetime(2026, 1, 5)), "occurred_at", "zone"),  # noqa: DTZ001
    (
        lambda c: c.add_batch([{"content": "x"}, {"content": "y", "occurred_at": "soon"}]),
        "events.1.occurred_at",
        "RFC 3339",
    ),
    (lambda c: c.recall("x", user="ann", since="2026-05-08"), "since", "no time zone"),
    (
        lambda c: c.graph.field("topic:1", "x", user="ann", as_of=1e300),
        "as_of",
        "years 1 to 9999",
    ),
    (
        lambda c: c.graph.add([{"type": "event", "title": "x", "event_date": "May"}], user="ann"),
        "nodes.0.event_date",
        "a date",
    ),
]


@pytest.mark.parametrize(("send", "field", "way_out"), WRONG_TIMES)
def test_client_refuses_invalid_time_before_sending(
    send: Callable[[Strandline], object], field: str, way_out: str
) -> None:
    script = Script(stored_response())
    with pytest.raises(errors.InvalidFieldError) as refusal:
        send(script.client())
    assert refusal.value.details["field"] == field
    assert str(refusal.value).startswith(f"{field}: ")
    assert way_out in str(refusal.value)
    assert script.requests == []


def test_client_batch_names_place_of_what_is_no_event() -> None:
    script = Script(stored_response())
    client: Any = script.client()
    for events, place in ((["a"], "0"), ("a", "0"), ([{"content": "x"}, None], "1")):
        with pytest.raises(TypeError, match=rf"^events\[{place}\]: give a mapping, as in"):
            client.add_batch(events)
    assert script.requests == []


@pytest.mark.parametrize("name", [["dora", "bob"], {"dora"}, {"dora": 1}, b"dora", True, 5, [], 0])
@pytest.mark.parametrize("kind", ["user", "agent"])
def test_client_refuses_several_names_as_one(kind: str, name: Any) -> None:
    script = Script(stored_response())
    client: Any = script.client()
    message = rf'^{kind}: give one name, as in {kind}="alice"; several go into participants='
    with pytest.raises(TypeError, match=message):
        client.add("x", **{kind: name})
    with pytest.raises(TypeError, match=message):
        client.session(**{kind: name})
    assert script.requests == []


def test_client_encodes_participants_and_json_values() -> None:
    assert join_participants("alice", None, ["user:alice"]) == ["user:alice"]
    assert join_participants("person:al", "helper", None) == ["person:al", "agent:helper"]
    assert join_participants(None, None, None) is None
    assert to_json_value(
        {"id": UUID(int=0), "at": datetime(2026, 1, 1, tzinfo=timezone.utc), "of": ("a", 1)}
    ) == {
        "id": str(UUID(int=0)),
        "at": "2026-01-01T00:00:00+00:00",
        "of": ["a", 1],
    }


@pytest.mark.parametrize(
    "script",
    [
        [error_response(503, "unavailable", retryable=True)] * 3,
        [error_response(503, "outcome_unknown", retryable=True)],
        [error_response(500, "internal_error", retryable=True)],
        [
            error_response(429, "throttled", retryable=True),
            error_response(504, "timeout", retryable=True),
        ],
        [httpx2.ReadTimeout("late"), httpx2.ConnectError("away"), httpx2.RemoteProtocolError("x")],
        [httpx2.Response(502, text="<html>")],
    ],
)
def test_client_retries_append_with_same_key(script: Sequence[Answer]) -> None:
    async def append_later(service: Script) -> Any:
        return await service.async_client().add("x", user="alice")

    ways: tuple[Callable[[Script], Any], ...] = (
        lambda service: service.client().add("x", user="alice"),
        lambda service: asyncio.run(append_later(service)),
    )
    for append in ways:
        service = Script(*script, stored_response())
        assert append(service).seq == 1
        assert len(service.requests) == len(script) + 1
        keys = {request.headers["Idempotency-Key"] for request in service.requests}
        assert len(keys) == 1
        assert len({request.content for request in service.requests}) == 1


def test_client_retries_unknown_outcome_of_call_it_knows() -> None:
    """The service, which sees no key, says that it is not retryable."""
    unsure = error_response(503, "outcome_unknown", retryable=False)
    script = Script(unsure, error_response(403, "forbidden"))
    with pytest.raises(errors.ForbiddenError):
        script.client().begin_session(session_id="s", user="alice")
    assert len(script.requests) == 2


def test_client_gives_each_append_its_own_key() -> None:
    script = Script(stored_response())
    client = script.client()
    client.add("x", user="alice")
    client.add("x", user="alice")
    client.add("x", user="alice", idempotency_key="mine")
    client.add("x", user="alice", source_event_key="theirs")
    keys = [request.headers.get("Idempotency-Key") for request in script.requests]
    assert len({*keys}) == 4
    assert keys[2:] == ["mine", None], "the service takes one of the two"


def make_key(client: Strandline) -> Any:
    return client.admin.create_key("acme")


@pytest.mark.parametrize(
    ("failure", "attempts"),
    [
        (lambda: httpx2.ReadTimeout("late"), 1),
        (lambda: error_response(503, "outcome_unknown", retryable=True), 1),
        (lambda: error_response(504, "timeout", retryable=True), 1),
        (lambda: error_response(500, "internal_error", retryable=True), 1),
        (lambda: httpx2.ConnectError("away"), 2),
        (lambda: error_response(503, "unavailable", retryable=True), 2),
        (lambda: error_response(429, "throttled", retryable=True), 2),
    ],
    ids=[
        "late",
        "outcome unknown",
        "gateway",
        "refused by Lambda",
        "away",
        "unavailable",
        "throttled",
    ],
)
def test_client_retries_unsafe_request_only_if_not_done(
    failure: Callable[[], Answer], attempts: int
) -> None:
    script = Script(failure(), error_response(403, "forbidden"))
    with pytest.raises(ServiceError):
        make_key(script.client())
    assert len(script.requests) == attempts


def test_client_does_not_retry_refusal() -> None:
    script = Script(error_response(422, "invalid_field", field="role", fields=[{"field": "role"}]))
    with pytest.raises(errors.InvalidFieldError) as failure:
        script.client().add("x", user="alice")
    assert len(script.requests) == 1
    error = failure.value
    assert (error.field, error.status, error.request_id) == ("role", 422, "r-1")
    assert "invalid_field: so it is" in str(error)
    assert "(request r-1)" in str(error)
    with pytest.raises(errors.UnauthorizedError, match="STRANDLINE_API_KEY"):
        Script(error_response(401, "unauthorized")).client().usage()
    newer = Script(error_response(409, "colour_conflict"))
    with pytest.raises(errors.StateConflictError) as caught_newer:
        newer.client().usage()
    assert caught_newer.value.code == "colour_conflict", "a code that came later keeps its name"


def test_client_retry_honours_retry_after_and_limit() -> None:
    script = Script(
        error_response(503, "unavailable", retryable=True, retry_after=1), stored_response()
    )
    began = time.monotonic()
    script.client().add("x", user="alice")
    assert time.monotonic() - began >= 1
    long = Script(
        error_response(429, "quota_exceeded", retryable=True, retry_after=3600, quota="appends")
    )
    with pytest.raises(errors.QuotaExceededError) as error:
        long.client().add("x", user="alice")
    assert error.value.retry_after == 3600
    assert len(long.requests) == 1, "nobody waits for an hour unseen"
    away = Script(httpx2.ConnectError("away"))
    began = time.monotonic()
    with pytest.raises(errors.ConnectionFailedError, match="cannot be reached"):
        away.client(Retry(seconds=0.3, base=0.01)).ping()
    assert time.monotonic() - began < 1
    assert len(away.requests) > 3


def test_client_retry_reports_cause_of_open_breaker() -> None:
    broken, rests = (
        error_response(503, "model_unavailable", retryable=True, reason=reason)
        for reason in ("invalid_output", "breaker_open")
    )
    with pytest.raises(errors.ModelUnavailableError) as failure:
        Script(broken, rests).client(Retry(seconds=0.05, base=0.001)).query("x", user="alice")
    assert failure.value.details["reason"] == "invalid_output"
    with pytest.raises(errors.ModelUnavailableError) as only:
        Script(rests).client(Retry(seconds=0.05, base=0.001)).query("x", user="alice")
    assert only.value.details["reason"] == "breaker_open"


def test_client_does_not_retry_misconfigured_model() -> None:
    script = Script(error_response(503, "model_misconfigured", reason="misconfigured"))
    with pytest.raises(errors.ModelMisconfiguredError, match="setting"):
        script.client().query("x", user="alice")
    assert len(script.requests) == 1


def test_client_retry_pauses_grow_with_jitter() -> None:
    error = errors.UnavailableError("x", status=503, retryable=True)
    call = Strandline.ping.call(Strandline(URL))
    retry = Retry(seconds=1000, base=1, cap=8)
    pauses = [
        [retry.choose_pause_seconds(call, error, n, 0) or 0 for _ in range(200)] for n in range(6)
    ]
    for n, several in enumerate(pauses):
        longest = min(8, 2**n)
        assert longest / 2 <= min(several) < max(several) <= longest * 1.5
        assert len(set(several)) > 100, "jitter"
    assert retry.choose_pause_seconds(call, error, 0, 1000) is None


def test_client_refuses_unexpected_answer() -> None:
    for answer in (httpx2.Response(200, text="<html>"), httpx2.Response(200, json={"known": "x"})):
        with pytest.raises(errors.UnexpectedAnswerError, match="Is this the address"):
            Script(answer).client().recall("x", user="alice")
    newer = httpx2.Response(200, json={**NOTHING, "colour": "red"})
    assert Script(newer).client().recall("x", user="alice").known == 0.1, "a field more is no harm"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("It is not here", "It is not here. Check the id"),
        ("It is not here.", "It is not here. Check the id"),
        ("Did you mean x?", "Did you mean x? Check the id"),
        ("", "Check the id"),
    ],
)
def test_client_error_and_hint_are_two_sentences(message: str, sentence: str) -> None:
    assert str(errors.NotFoundError(message)).startswith(sentence)
    assert str(errors.ServiceError("It is not here", request_id="r")) == (
        "It is not here (request r)"
    )


def test_client_upload_sends_credential_to_service_only(tmp_path: Any) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(b"x" * 3_000_000)
    place = {
        "upload_id": RECEIPT["event_id"],
        "cid": "bafk",
        "size": 3_000_000,
        "method": "PUT",
        "url": "https://store.example/put?signature=1",
        "headers": {"If-None-Match": "*", "Content-Length": "3000000"},
        "expires_at": RECEIPT["recorded_at"],
        "cite_until": RECEIPT["recorded_at"],
    }

    def script() -> Script:
        response = httpx2.Response(201, json=place)
        return Script(response, httpx2.Response(503), httpx2.Response(412), stored_response())

    async def upload_later(service: Script) -> Any:
        return await service.async_client().upload(file, user="alice", progress=note)

    progress: list[tuple[int, int]] = []

    def note(sent_bytes: int, size: int) -> None:
        progress.append((sent_bytes, size))

    ways: tuple[Callable[[Script], Any], ...] = (
        lambda service: service.client().upload(file, user="alice", progress=note),
        lambda service: asyncio.run(upload_later(service)),
    )
    for upload in ways:
        service, progress = script(), []
        assert upload(service).seq == 1
        prepare, failed, put, cite = service.requests
        assert all("X-API-Key" not in request.headers for request in (failed, put))
        assert put.headers["Content-Length"] == "3000000"
        assert "Transfer-Encoding" not in put.headers
        assert put.content == failed.content == file.read_bytes()
        assert progress[-3:] == [(1048576, 3000000), (2097152, 3000000), (3000000, 3000000)]
        assert json.loads(prepare.content)["mime_type"] == "text/plain"
        document = json.loads(cite.content)
        assert (document["type"], document["blob"]) == ("upload", {"cid": "bafk"})


def test_client_reads_address_and_key_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="STRANDLINE_URL"):
        Strandline()
    monkeypatch.setenv("STRANDLINE_URL", f"{URL}/api/v1/")
    monkeypatch.setenv("STRANDLINE_API_KEY", "from the environment")
    settings = Strandline().connection.settings
    assert settings.url == URL
    assert settings.headers == {"X-API-Key": "from the environment"}
    assert Strandline(token="jwt").connection.settings.headers == {"Authorization": "Bearer jwt"}


def test_client_add_turn_raises_cause_of_refusal() -> None:
    other: dict[str, Any] = {
        "code": "batch_refused",
        "message": "m",
        "details": {},
        "request_id": "r",
    }
    cause = {**other, "code": "key_conflict", "retryable": False}
    items = [
        {"status": 424, "event": None, "error": {**other, "retryable": False}},
        {"status": 409, "event": None, "error": cause},
    ]
    answer = httpx2.Response(200, json={"stored": 0, "failed": 2, "results": items})
    with pytest.raises(errors.KeyConflictError):
        Script(answer).client().add_turn("a", "b", user="alice", agent="helper")


def test_client_verbs_look_like_methods() -> None:
    client = Strandline(URL)
    assert (client.recall.__doc__ or "").startswith("The events that answer")
    assert client.recall.__name__ == "recall"
    assert inspect.iscoroutinefunction(AsyncStrandline(URL).recall)
    assert Strandline.recall.declaration.operation.name == "POST /api/v1/recall"


def test_client_timeout_applies_to_requests() -> None:
    ids: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        ids.append(request.extensions["timeout"])
        return httpx2.Response(200, json={"status": "ok"})

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    Strandline(URL, timeout=timedelta(seconds=2).total_seconds(), http=http).ping()
    assert ids == [{"connect": 2.0, "read": 2.0, "write": 2.0, "pool": 2.0}]


@pytest.mark.parametrize("owner", [Strandline, AsyncStrandline])
def test_client_class_verbs_have_signature_and_help(owner: type) -> None:
    for name in ("recall", "get_all", "add_turn"):
        verb: Any = getattr(owner, name)
        assert inspect.isfunction(verb)
        assert "user" in inspect.signature(verb).parameters
        text = pydoc.plain(pydoc.render_doc(verb))
        assert f"{name}(" in text
        assert "participants" in text
    assert Strandline.recall.declaration.operation.name == "POST /api/v1/recall"


def test_client_wrong_argument_error_names_verb() -> None:
    client = Script(httpx2.Response(404, json={})).client()
    with pytest.raises(TypeError, match=r"nodes\(\): got an unexpected keyword argument 'limit'"):
        next(cast("Any", client.graph.nodes)(limit=5))


@pytest.mark.parametrize(
    ("name", "content", "media"),
    [
        ("deploy.log", b"09:27:11 \x1b[31mERROR\x1b[0m permission denied\n", "text/plain"),
        ("settings.yaml", "größe: 3\n".encode("latin-1"), "text/plain"),
        ("Dockerfile", b"FROM scratch\n", "text/plain"),
        ("shell.log", "Häfen\n".encode("utf-16"), "text/plain"),
        ("main.go", b"package main\n" * 9000, "text/plain"),
        ("report.json", b"{}", "application/json"),
        ("notes.md", b"\x00", "text/markdown"),
        ("drawing.svg", b"<svg/>", "image/svg+xml"),
        ("scan.pdf", b"%PDF-1.4 plain", "application/pdf"),
        ("photo.png", b"\x89PNG\r\n\x1a\n\x00", "image/png"),
        ("old.txt.gz", b"\x1f\x8b\x08\x00", "application/octet-stream"),
        ("program", b"\x7fELF\x02\x01", "application/octet-stream"),
        ("nothing", b"", "application/octet-stream"),
    ],
)
def test_client_upload_tells_media_type_by_name_or_beginning(
    tmp_path: Path, name: str, content: bytes, media: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert guess_media_type(file) == media


def test_client_upload_tells_media_type_of_program_from_film(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some systems' tables have TypeScript's ending for MPEG streams."""

    def guess_type(_: str) -> tuple[str, None]:
        return "video/mp2t", None

    monkeypatch.setattr(mimetypes, "guess_type", guess_type)
    file = tmp_path / "app.ts"
    file.write_text("export const port = 8087;\n")
    assert guess_media_type(file) == "text/plain"
    file.write_bytes(b"G@\x00\x10\x00")
    assert guess_media_type(file) == "video/mp2t"
