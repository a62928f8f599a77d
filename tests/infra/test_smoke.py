"""After a deployment: thirteen checks through the API, and each notices what it is there for."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import httpx2
import pytest

from infra import smoke
from infra.smoke import CHECKS, SmokeRun, WakingRetry, run_checks
from strandline.admin.keys import make_key
from strandline.client.retries import Retry
from strandline.db.database import Caller, Database
from strandline.http import gateway_generated_responses
from strandline.local.runtime import make_connection_file_path, run_local_service
from tests.strandline.local.programs import migrated_directory

RUN = "0123456789abcdef0123456789abcdef"


@dataclass
class Tape(httpx2.BaseTransport):
    """A run's requests and answers, in their order."""

    url: str = ""
    key: str = ""
    calls: list[tuple[str, str, httpx2.Response]] = field(
        default_factory=list[tuple[str, str, httpx2.Response]]
    )
    lines: list[str] = field(default_factory=list[str])

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        with httpx2.HTTPTransport() as network:
            response = network.handle_request(request)
            response.read()
        self.calls.append((request.method, str(request.url), response))
        return copy_response(response)


def copy_response(
    response: httpx2.Response, status: int | None = None, content: bytes | None = None
) -> httpx2.Response:
    """A response that was not read yet, as the one given or with another status or body."""
    headers = httpx2.Headers(response.headers)
    del headers["content-length"]
    body = response.content if content is None else content
    return httpx2.Response(status or response.status_code, headers=headers, content=body)


@pytest.fixture(scope="module")
def tape() -> Tape:
    """A run against the whole service."""
    recording = Tape()
    with pytest.MonkeyPatch.context() as patch, migrated_directory() as directory:
        for name in ("DATABASE_URL", "BUCKET", "WORK_QUEUE_URL", "STATE_MACHINE", "KEY_SECRET"):
            patch.setenv(f"STRANDLINE_{name}", "")
        patch.setenv("STRANDLINE_EMBEDDING_THREADS", "1")  # those that have nothing to do spin
        patch.setattr(smoke, "_POLL_SECONDS", 0.5)
        with run_local_service(directory, 0) as service:
            environment = json.loads(make_connection_file_path(directory).read_text())[
                "environment"
            ]
            with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
                access = database.connect_as(Caller("ops", ()))
                key = make_key(
                    access, environment["STRANDLINE_KEY_SECRET"], rights=("operator",)
                ).token
            recording.url, recording.key = service.url, key
            run_checks(SmokeRun(service.url, key, recording, run=RUN), recording.lines.append)
    return recording


def test_smoke_checks_succeed_against_service(tape: Tape) -> None:
    assert [line for line in tape.lines if line.startswith("FAILED")] == []
    assert tape.lines[-1] == "13 of 13 checks succeeded"
    assert len(CHECKS) == 13
    assert tape.key not in " ".join(tape.lines)


type Fault = Callable[[str, str, httpx2.Response], httpx2.Response | None]


def changed_answer(path: str, answer_status: int | None = None, **members: object) -> Fault:
    """An answer of this path that says something else."""

    def fault(method: str, url: str, answer: httpx2.Response) -> httpx2.Response | None:
        if path not in f"{method} {url}":
            return None
        if not members:
            return copy_response(answer, answer_status)
        try:
            content = json.dumps({**answer.json(), **members}).encode()
        except ValueError:
            return None  # no JSON, as metrics and what the bucket gives
        return copy_response(answer, answer_status, content)

    return fault


def without_mark(method: str, url: str, answer: httpx2.Response) -> httpx2.Response | None:
    """A replay without its header."""
    if method == "POST" and "Idempotent-Replayed" in answer.headers and url.endswith("/events"):
        other = copy_response(answer)
        del other.headers["Idempotent-Replayed"]
        return other
    return None


def open_to_all(method: str, url: str, answer: httpx2.Response) -> httpx2.Response | None:
    """A door without a lock."""
    return copy_response(answer, 200, b"{}") if answer.status_code == 401 else None


def shown_to_all() -> Fault:
    """Another tenant sees the event."""
    events: list[bytes] = []

    def fault(method: str, url: str, answer: httpx2.Response) -> httpx2.Response | None:
        if "/api/v1/events/" not in url:
            return None
        events.append(answer.content)
        return copy_response(answer, 200, events[0]) if answer.status_code == 404 else None

    return fault


def other_bytes(method: str, url: str, answer: httpx2.Response) -> httpx2.Response | None:
    """The bucket gives something else."""
    if answer.content.startswith(b"The log of smoke"):
        return copy_response(answer, 200, b"other")
    return None


FAULTS: Mapping[str, tuple[Fault, str]] = {
    "health": (changed_answer("/api/v1/health", status="degraded"), "health"),
    "a door": (open_to_all, "no credentials"),
    "operator": (changed_answer("/api/v1/admin/tenants", 403), "tenants and keys"),
    "console": (changed_answer("/console", 404), "console"),
    "append": (changed_answer("/api/v1/events", 500), "append"),
    "replay": (without_mark, "replay"),
    "bucket": (other_bytes, "upload"),
    "model": (changed_answer("/api/v1/recall", degraded=["embedding"]), "recall"),
    "nothing found": (changed_answer("/api/v1/recall", hits=[]), "recall"),
    "text": (changed_answer("/api/v1/context", text="nothing known"), "context"),
    "feed": (changed_answer("/events?after_seq", events=[]), "feed"),
    "isolation": (shown_to_all(), "another tenant"),
    "job": (changed_answer("GET", None, state="failed", reason="planted"), "job"),
    "metrics": (changed_answer("/metrics", 403), "metrics"),
    "revocation": (changed_answer("/keys/", revoked_at=None), "revocation"),
}


@pytest.mark.parametrize(("fault", "name"), FAULTS.values(), ids=FAULTS.keys())
def test_smoke_names_failing_check(tape: Tape, fault: Fault, name: str) -> None:
    """Planted into the run that was recorded, one at a time."""
    rest = iter(tape.calls)
    faults: list[str] = []

    def replay(request: httpx2.Request) -> httpx2.Response:
        for method, url, answer in rest:
            if (method, url) == (request.method, str(request.url)):
                wrong = fault(method, url, answer)
                faults.append(url) if wrong else None
                return wrong or copy_response(answer)
        return httpx2.Response(500)

    lines: list[str] = []
    again = SmokeRun(
        tape.url,
        tape.key,
        httpx2.MockTransport(replay),
        retry=Retry(seconds=0),
        wait=lambda _seconds: None,
        run=RUN,
    )
    assert not run_checks(again, lines.append)
    assert faults
    assert any(line.startswith(f"FAILED  {name}") for line in lines), lines


def test_smoke_repeats_what_lambda_refuses(tape: Tape) -> None:
    """Functions that were idle for weeks refuse at first, a key that is created as well."""
    rest, refused = iter(tape.calls), set[str]()
    refusal = gateway_generated_responses.FUNCTION_FAILED.make_json_body("r-1")

    def replay(request: httpx2.Request) -> httpx2.Response:
        place = f"{request.method} {request.url.path}"
        if request.headers.get("X-API-Key") and place not in refused:
            refused.add(place)
            return httpx2.Response(500, text=refusal)
        return next(
            copy_response(answer)
            for method, url, answer in rest
            if (method, url) == (request.method, str(request.url))
        )

    lines: list[str] = []
    again = SmokeRun(
        tape.url,
        tape.key,
        httpx2.MockTransport(replay),
        retry=WakingRetry(seconds=60, base=0),
        wait=lambda _seconds: None,
        run=RUN,
    )
    assert run_checks(again, lines.append), lines
    assert "POST /api/v1/admin/tenants/smoke/keys" in refused
