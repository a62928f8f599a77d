"""`make smoke URL= KEY=`: twelve calls through a deployment's real API, with a verdict each.

The key has the right `operator`. Two tenants, `smoke` and `smoke-other`, are created at the first
run and stay; each run adds two events, and revokes its keys at the end.
"""

import argparse
import hashlib
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, Protocol, cast

TENANT, OTHER = "smoke", "smoke-other"
WHO = ["user:smoke", "agent:smoke"]
_CALL_SECONDS = 30.0
_WAKE_SECONDS = 90.0
"""How long a 503 or a 429 is repeated: a paused database needs some 15 seconds."""
_JOB_SECONDS = 300.0
_POLL_SECONDS = 3.0


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; an empty object if it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError:
            return {}


class Send(Protocol):
    """Sends one request."""

    def __call__(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        """The answer, whatever its status. Redirects are not followed."""
        ...


class SmokeFailed(Exception):
    """A check that failed: what was expected, and what came."""


@dataclass
class Smoke:
    """One run against one deployment."""

    url: str
    operator_key: str
    send: Send
    wait: Callable[[float], None] = time.sleep
    """Sleeps for this many seconds."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """The keys of this run by tenant."""
    key_paths: list[str] = field(default_factory=list[str])
    """The paths under which they are revoked."""
    receipt: dict[str, Any] = field(default_factory=dict[str, Any])
    """The receipt of the first event."""

    # the calls -----------------------------------------------------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """One call of the API; with the run's key by default, without any for None. One that is
        refused for now is repeated."""
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        if key is not None:
            all_headers["X-API-Key"] = key or self.keys[TENANT]
        data = None if body is None else json.dumps(body).encode()
        seconds = 0.0
        while True:
            answer = self.send(method, self.url.rstrip("/") + path, data, all_headers)
            if answer.status not in (429, 503) or seconds >= _WAKE_SECONDS:
                return answer
            self.wait(_POLL_SECONDS)
            seconds += _POLL_SECONDS

    def prepare(self) -> None:
        """Create the tenants, unless they are there, and a key of each for an hour."""
        for tenant in (TENANT, OTHER):
            tenant_response = self.call(
                "POST", "/api/v1/admin/tenants", {"tenant_id": tenant}, self.operator_key
            )
            _expect(tenant_response, f"tenant {tenant}", 201, 409)
            expires_at = datetime.now(UTC) + timedelta(hours=1)
            key_request = {
                "rights": ["read", "write", "admin"],
                "label": f"smoke {self.run}",
                "expires_at": expires_at.isoformat(),
            }
            path = f"/api/v1/admin/tenants/{tenant}/keys"
            key = _expect(
                self.call("POST", path, key_request, self.operator_key), f"key of {tenant}", 201
            )
            self.keys[tenant] = key["token"]
            self.key_paths.append(f"{path}/{key['key_id']}")

    # the checks ----------------------------------------------------------------------------------

    def health(self) -> str:
        """The database, the bucket, the queue and the model answer."""
        parts = _expect(self.call("GET", "/api/v1/health"), "health", 200)
        _require(parts.get("status") == "ok", "status ok", parts)
        return ", ".join(parts["dependencies"])

    def refusal(self) -> str:
        """A request without credentials is refused."""
        _expect(self.call("GET", "/api/v1/scopes", key=None), "no credentials", 401)
        return "401 without a key"

    def append(self) -> str:
        """An event is stored."""
        receipt = _expect(self._append(), "append", 201)
        _require(isinstance(receipt.get("seq"), int), "a receipt with seq", receipt)
        self.receipt = receipt
        return f"seq {receipt['seq']}"

    def replay(self) -> str:
        """The same request again is the same event; another one under its key is a conflict."""
        again = self._append()
        receipt = _expect(again, "replay", 201)
        _require(receipt == self.receipt, "the receipt of before", receipt)
        marks = {name.lower(): value for name, value in again.headers.items()}
        _require(marks.get("idempotent-replayed") == "true", "Idempotent-Replayed: true", marks)
        _expect(self._append("Something else."), "another request under its key", 409)
        return "the same receipt, and 409 for another request"

    def upload(self) -> str:
        """A payload is uploaded to the bucket by its URL, and an event cites it."""
        data = f"The log of smoke {self.run}.".encode()
        upload_request = {
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "mime_type": "text/plain",
            "name": "smoke.txt",
        }
        upload = _expect(self.call("POST", "/api/v1/uploads", upload_request), "upload", 201)
        put = self.send(upload["method"], upload["url"], data, upload["headers"])
        _require(put.status in (200, 204), "the bucket takes the payload", put.status)
        event_response = self.call(
            "POST",
            "/api/v1/events",
            {"participants": WHO, "role": "user", "type": "upload", "blob": {"cid": upload["cid"]}},
        )
        _expect(event_response, "an event that cites it", 201)
        download = self.call("GET", f"/file/{upload['cid']}?participants=user:smoke")
        place = _expect(download, "the payload's address", 307)["url"]
        got = self.send("GET", place, None, {})
        _require(got.body == data, "the bytes that were put", len(got.body))
        return f"{len(data)} bytes there and back"

    def recall(self) -> str:
        """What was just stored is found."""
        body = {"query": f"What does smoke {self.run} say?", "participants": ["user:smoke"]}
        answer = _expect(self.call("POST", "/api/v1/recall", body), "recall", 200)
        _require(answer.get("degraded") == [], "nothing degraded", answer.get("degraded"))
        event_ids = [hit["event_id"] for hit in answer["hits"]]
        _require(self.receipt["event_id"] in event_ids, "the event among the hits", event_ids)
        return f"{len(event_ids)} hits"

    def context(self) -> str:
        """A context's text contains the event."""
        body = {"query": f"smoke {self.run}", "participants": ["user:smoke"], "budget": 500}
        answer = _expect(self.call("POST", "/api/v1/context", body), "context", 200)
        _require(
            self.run in answer.get("text", ""), "the event's words", answer.get("text", "")[:80]
        )
        return f"{len(answer['text'])} characters"

    def feed(self) -> str:
        """The scope's events come in the order of seq, without a gap."""
        before = max(0, self.receipt["seq"] - 1)
        path = f"/api/v1/scopes/{self.receipt['scope_id']}/events?after_seq={before}&limit=100"
        page = _expect(self.call("GET", f"{path}&participants=user:smoke"), "feed", 200)
        seqs = [event["seq"] for event in page["events"]]
        _require(seqs[:1] == [self.receipt["seq"]], "to begin with the event", seqs[:3])
        _require(seqs == list(range(seqs[0], seqs[0] + len(seqs))), "no gap", seqs)
        return f"{len(seqs)} events from seq {seqs[0]}"

    def other_tenant(self) -> str:
        """Another tenant's key does not see it."""
        path = f"/api/v1/events/{self.receipt['event_id']}?participants=user:smoke"
        _expect(self.call("GET", path), "the own tenant's event", 200)
        _expect(self.call("GET", path, key=self.keys[OTHER]), "another tenant's event", 404)
        return "404 for another tenant"

    def job(self) -> str:
        """A run of the state machine begins and ends."""
        start = self.call("POST", "/api/v1/admin/jobs/sweeper")
        job = _expect(start, "a job started", 202, 409)
        job_id = job["job_id"] if start.status == 202 else job["error"]["details"]["job_id"]
        seconds = 0.0
        while True:
            job = _expect(self.call("GET", f"/api/v1/admin/jobs/{job_id}"), "the job", 200)
            if job["state"] in ("done", "failed") or seconds >= _JOB_SECONDS:
                break
            self.wait(_POLL_SECONDS)
            seconds += _POLL_SECONDS
        _require(job["state"] == "done", "done", f"{job['state']} {job['reason']}")
        return f"done {seconds:.0f} s after its start"

    def metrics(self) -> str:
        """The metrics are served."""
        answer = self.call("GET", "/metrics")
        _expect(answer, "metrics", 200)
        _require(b"strandline_" in answer.body, "metrics of the service", answer.body[:80])
        return f"{answer.body.count(b'# TYPE')} metrics"

    def revoked(self) -> str:
        """The run's keys are revoked; instances forget them within a minute."""
        for path in self.key_paths:
            _expect(self.call("DELETE", path, None, self.operator_key), "a key revoked", 200, 204)
            key = _expect(self.call("GET", path, None, self.operator_key), "the key", 200)
            _require(bool(key.get("revoked_at")), "a key that is revoked", key)
        return f"{len(self.key_paths)} keys"

    def _append(self, content: str | None = None) -> Answer:
        event = {
            "participants": WHO,
            "role": "user",
            "content": content or f"What smoke {self.run} says: the buoy goes out on Friday.",
        }
        return self.call(
            "POST", "/api/v1/events", event, headers={"Idempotency-Key": f"smoke-{self.run}"}
        )


CHECKS: tuple[tuple[str, Callable[[Smoke], str]], ...] = (
    ("health", Smoke.health),
    ("no credentials", Smoke.refusal),
    ("append", Smoke.append),
    ("replay", Smoke.replay),
    ("upload", Smoke.upload),
    ("recall", Smoke.recall),
    ("context", Smoke.context),
    ("feed", Smoke.feed),
    ("another tenant", Smoke.other_tenant),
    ("job", Smoke.job),
    ("metrics", Smoke.metrics),
    ("revocation", Smoke.revoked),
)
"""The checks in their order: each may rest on those before it."""


def run_checks(smoke: Smoke, report: Callable[[str], object]) -> bool:
    """Run all checks, and report a line of each. Returns whether all succeeded. A check that fails
    does not stop the others."""
    try:
        smoke.prepare()
    except (SmokeFailed, OSError, LookupError, TypeError) as error:
        report(f"FAILED  tenants and keys: {_describe(error)}")
        return False
    failures = 0
    for name, check in CHECKS:
        try:
            report(f"ok      {name}: {check(smoke)}")
        except (SmokeFailed, OSError, LookupError, TypeError) as error:
            failures += 1
            report(f"FAILED  {name}: {_describe(error)}")
    report(f"{len(CHECKS) - failures} of {len(CHECKS)} checks succeeded")
    return not failures


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, SmokeFailed) else f"{type(error).__name__}: {error}"


def _expect(answer: Answer, what: str, *statuses: int) -> dict[str, Any]:
    """The JSON of an answer of one of these statuses. Raises SmokeFailed."""
    if answer.status not in statuses:
        text = answer.body[:300].decode(errors="replace")
        expected = " or ".join(map(str, statuses))
        raise SmokeFailed(f"{what}: {answer.status} instead of {expected}: {text}")
    return cast("dict[str, Any]", answer.json())


def _require(condition: bool, expected: str, actual: object) -> None:
    if not condition:
        raise SmokeFailed(f"expected {expected}, found {actual}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        """Follow none: its answer is what is checked."""


def send_request(method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
    """Send one request over HTTP. Raises OSError when no answer comes."""
    request = urllib.request.Request(url, body, dict(headers), method=method)  # noqa: S310
    opener = urllib.request.build_opener(_NoRedirect)
    try:
        with opener.open(request, timeout=_CALL_SECONDS) as answer:
            return Answer(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read())


def main() -> int:
    """Check the deployment at the given address. Returns 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="make smoke", description=__doc__)
    parser.add_argument("url", help="output ApiUrl, or the custom domain with its base path")
    url: str = parser.parse_args().url
    key = os.environ.get("KEY", "")
    if not key or not url.startswith(("https://", "http://127.0.0.1:")):
        sys.stderr.write("make smoke URL=https://... KEY=<a key with the right operator>\n")
        return 2
    succeeded = run_checks(
        Smoke(url, key, send_request), lambda line: sys.stdout.write(f"{line}\n")
    )
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
