"""After a deployment: twelve checks through the API, and each notices what it is there for."""

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from infra import smoke
from infra.smoke import CHECKS, Answer, Smoke, run_checks, send_request
from strandline.admin.keys import make_key
from strandline.db.database import Caller, Database
from strandline.local.runtime import connection_file, run_local_service
from tests.strandline.local.programs import migrated_directory

RUN = "0123456789abcdef0123456789abcdef"
OTHERWISE = {"Content-Type": "application/json"}


@dataclass
class Tape:
    """A run's requests and answers, in their order."""

    url: str = ""
    key: str = ""
    calls: list[tuple[str, str, Answer]] = field(default_factory=list[tuple[str, str, Answer]])
    lines: list[str] = field(default_factory=list[str])

    def record(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        answer = send_request(method, url, body, headers)
        self.calls.append((method, url, answer))
        return answer


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
            environment = json.loads(connection_file(directory).read_text())["environment"]
            with closing(Database(environment["STRANDLINE_DATABASE_URL"])) as database:
                access = database.connect_as(Caller("ops", ()))
                key = make_key(
                    access, environment["STRANDLINE_KEY_SECRET"], rights=("operator",)
                ).token
            recording.url, recording.key = service.url, key
            run_checks(Smoke(service.url, key, recording.record, run=RUN), recording.lines.append)
    return recording


def test_every_check_succeeds_against_the_service(tape: Tape) -> None:
    assert [line for line in tape.lines if line.startswith("FAILED")] == []
    assert tape.lines[-1] == "12 of 12 checks succeeded"
    assert len(CHECKS) == 12
    assert tape.key not in " ".join(tape.lines)


type Fault = Callable[[str, str, Answer], Answer | None]


def changed_answer(path: str, answer_status: int | None = None, **members: object) -> Fault:
    """An answer of this path that says something else."""

    def fault(method: str, url: str, answer: Answer) -> Answer | None:
        if path not in f"{method} {url}":
            return None
        body = json.dumps({**answer.json(), **members}).encode() if members else answer.body
        return Answer(answer_status or answer.status, answer.headers, body)

    return fault


def without_mark(method: str, url: str, answer: Answer) -> Answer | None:
    """A replay without its header."""
    names = {name.lower() for name in answer.headers}
    if method == "POST" and "idempotent-replayed" in names and url.endswith("/events"):
        return Answer(answer.status, OTHERWISE, answer.body)
    return None


def open_to_all(method: str, url: str, answer: Answer) -> Answer | None:
    """A door without a lock."""
    return Answer(200, OTHERWISE, b"{}") if answer.status == 401 else None


def visible(method: str, url: str, answer: Answer) -> Answer | None:
    """Another tenant's event is shown."""
    return Answer(200, OTHERWISE, b"{}") if answer.status == 404 else None


def other_bytes(method: str, url: str, answer: Answer) -> Answer | None:
    """The bucket gives something else."""
    return Answer(200, {}, b"other") if answer.body.startswith(b"The log of smoke") else None


FAULTS: Mapping[str, tuple[Fault, str]] = {
    "health": (changed_answer("/api/v1/health", status="degraded"), "health"),
    "a door": (open_to_all, "no credentials"),
    "operator": (changed_answer("/api/v1/admin/tenants", 403), "tenants and keys"),
    "append": (changed_answer("/api/v1/events", 500), "append"),
    "replay": (without_mark, "replay"),
    "bucket": (other_bytes, "upload"),
    "model": (changed_answer("/api/v1/recall", degraded=["embedding"]), "recall"),
    "nothing found": (changed_answer("/api/v1/recall", hits=[]), "recall"),
    "text": (changed_answer("/api/v1/context", text="nothing known"), "context"),
    "feed": (changed_answer("/events?after_seq", events=[]), "feed"),
    "isolation": (visible, "another tenant"),
    "job": (changed_answer("GET", None, state="failed", reason="planted"), "job"),
    "metrics": (changed_answer("/metrics", 403), "metrics"),
    "revocation": (changed_answer("/keys/", revoked_at=None), "revocation"),
}


@pytest.mark.parametrize(("fault", "name"), FAULTS.values(), ids=FAULTS.keys())
def test_what_is_wrong_is_told_by_its_check(tape: Tape, fault: Fault, name: str) -> None:
    """Planted into the run that was recorded, one at a time."""
    rest = iter(tape.calls)
    faults: list[str] = []

    def send(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        del body, headers
        for was_method, was_url, answer in rest:
            if (was_method, was_url) == (method, url):
                wrong = fault(method, url, answer)
                faults.append(url) if wrong else None
                return wrong or answer
        return Answer(500, {}, b"the recorded run ended")

    lines: list[str] = []
    again = Smoke(tape.url, tape.key, send, wait=lambda _seconds: None, run=RUN)
    assert not run_checks(again, lines.append)
    assert faults
    assert any(line.startswith(f"FAILED  {name}") for line in lines), lines
