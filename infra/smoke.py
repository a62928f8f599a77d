"""`KEY=… make smoke URL=`: thirteen checks through a deployment's real API, with a verdict each.

The key has the right `operator`. Two tenants, `smoke` and `smoke-other`, are created at the first
run and stay; each run adds two events, and revokes its keys at the end.
"""

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx2

from strandline import Strandline
from strandline.client import answers
from strandline.client.errors import (
    KeyConflictError,
    NotFoundError,
    ServiceError,
    StateConflictError,
)
from strandline.client.request_building import Call
from strandline.client.retries import Retry

TENANT, OTHER = "smoke", "smoke-other"


class WakingRetry(Retry):
    """Repeats every call whose answer is retryable, since what smoke writes may be written
    twice."""

    def choose_pause_seconds(
        self, call: Call[Any], error: ServiceError, attempt: int, elapsed: float
    ) -> float | None:
        """Seconds until the next attempt; None: there is none."""
        return super().choose_pause_seconds(replace(call, once=False), error, attempt, elapsed)


_WAKING = WakingRetry(seconds=90)
"""A paused database needs some 15 seconds, and a function that was idle for weeks about a
minute."""
_CALL_SECONDS = 30.0
_JOB_SECONDS = 300.0
_POLL_SECONDS = 3.0


class SmokeFailed(Exception):
    """A check that failed: what was expected, and what came."""


@dataclass
class SmokeRun:
    """One run against one deployment."""

    url: str
    operator_key: str
    transport: httpx2.BaseTransport | None = None
    """What carries the requests; None: HTTP."""
    retry: Retry = _WAKING
    wait: Callable[[float], None] = time.sleep
    """Sleeps for this many seconds."""
    run: str = field(default_factory=lambda: uuid.uuid4().hex)
    clients: dict[str, Strandline] = field(default_factory=dict[str, Strandline])
    """Clients with this run's keys, by tenant."""
    key_ids: dict[str, str] = field(default_factory=dict[str, str])
    """The ids of these keys, by tenant."""
    receipts: list[answers.Receipt] = field(default_factory=list[answers.Receipt])
    """The receipt of the first event."""
    headers: httpx2.Headers = field(default_factory=httpx2.Headers)
    """Of the last answer."""

    @cached_property
    def http(self) -> httpx2.Client:
        """What all clients send with."""

        def keep_headers(response: httpx2.Response) -> None:
            self.headers = response.headers

        hooks = {"response": [keep_headers]}
        return httpx2.Client(transport=self.transport, event_hooks=hooks, timeout=_CALL_SECONDS)

    @cached_property
    def operator(self) -> Strandline:
        """A client with the operator's key."""
        return self.make_client(self.operator_key)

    @property
    def client(self) -> Strandline:
        """A client with this run's key of the tenant `smoke`."""
        return self.clients[TENANT]

    @property
    def receipt(self) -> answers.Receipt:
        """Of the event that later checks look for. Raises SmokeFailed if none was stored."""
        _fail_unless(bool(self.receipts), "the event of the check append", "none")
        return self.receipts[0]

    def make_client(self, key: str) -> Strandline:
        """A client with this key."""
        return Strandline(self.url, key, http=self.http, retry=self.retry)

    def create_tenants_and_keys(self) -> None:
        """Create the tenants, unless they are there, and a key of each for an hour."""
        for tenant in (TENANT, OTHER):
            with contextlib.suppress(StateConflictError):  # an earlier run created it
                self.operator.admin.create_tenant(tenant)
            key = self.operator.admin.create_key(
                tenant,
                rights=["read", "write", "admin"],
                label=f"smoke {self.run}",
                expires_at=datetime.now(UTC) + timedelta(hours=1),
            )
            self.clients[tenant] = self.make_client(key.token)
            self.key_ids[tenant] = key.key_id

    def append_smoke_event(self, content: str = "the buoy goes out on Friday.") -> answers.Receipt:
        """Append the event that the checks look for, or another one under its key."""
        return self.client.add(
            f"What smoke {self.run} says: {content}",
            user="smoke",
            agent="smoke",
            idempotency_key=f"smoke-{self.run}",
        )


# the checks --------------------------------------------------------------------------------------


def check_health(smoke: SmokeRun) -> str:
    """The database, the bucket, the queue and the model answer."""
    health = smoke.client.health()
    _fail_unless(health.status == "ok", "status ok", health)
    return ", ".join(health.dependencies)


def check_refusal_without_credential(smoke: SmokeRun) -> str:
    """A request without credentials is refused."""
    status = smoke.http.get(f"{smoke.url.rstrip('/')}/api/v1/scopes").status_code
    _fail_unless(status == 401, "401 without a key", status)
    return "401 without a key"


def check_console(smoke: SmokeRun) -> str:
    """The console's page opens, and its script is there."""
    base = smoke.url.rstrip("/")
    page = smoke.http.get(f"{base}/console")
    _fail_unless(page.status_code == 200, "the page", page.status_code)
    policy = page.headers.get("Content-Security-Policy", "")
    _fail_unless(policy.startswith("default-src 'none'"), "a page that loads nothing else", policy)
    script = re.search(r'src="(console/[^"]+)"', page.text)
    status = smoke.http.get(f"{base}/{script[1]}").status_code if script else "none"
    _fail_unless(status == 200, "the page's script", status)
    return f"{len(page.text)} characters and a script"


def check_append(smoke: SmokeRun) -> str:
    """An event is stored."""
    smoke.receipts.append(smoke.append_smoke_event())
    return f"seq {smoke.receipt.seq}"


def check_replay_and_key_conflict(smoke: SmokeRun) -> str:
    """The same request again is the same event; another one under its key is a conflict."""
    again = smoke.append_smoke_event()
    _fail_unless(again == smoke.receipt, "the receipt of the first request", again)
    mark = smoke.headers.get("Idempotent-Replayed")
    _fail_unless(mark == "true", "Idempotent-Replayed: true", mark)
    try:
        smoke.append_smoke_event("something else.")
    except KeyConflictError:
        return "the same receipt, and 409 for another request"
    raise SmokeFailed("expected 409 for another request under the same key, found a receipt")


def check_upload_and_download(smoke: SmokeRun) -> str:
    """A payload is uploaded to the bucket, an event cites it, and its bytes come back."""
    data = f"The log of smoke {smoke.run}.".encode()
    with tempfile.TemporaryDirectory(prefix="strandline-smoke-") as folder:
        file = Path(folder, "smoke.txt")
        file.write_bytes(data)
        payload = smoke.client.upload(file, user="smoke", agent="smoke").blob
    cid = payload.cid if payload else ""
    _fail_unless(bool(cid), "an event that cites the payload", payload)
    bucket_answer = smoke.http.get(smoke.client.file(cid, user="smoke").url)
    _fail_unless(
        bucket_answer.content == data, "the bytes that were put", bucket_answer.status_code
    )
    return f"{len(data)} bytes there and back"


def check_recall(smoke: SmokeRun) -> str:
    """What was just stored is found."""
    answer = smoke.client.recall(f"What does smoke {smoke.run} say?", user="smoke")
    _fail_unless(not answer.degraded, "nothing degraded", answer.degraded)
    event_ids = [hit.event_id for hit in answer.hits]
    _fail_unless(smoke.receipt.event_id in event_ids, "the event among the hits", event_ids)
    return f"{len(event_ids)} hits"


def check_context(smoke: SmokeRun) -> str:
    """A context's text contains the event."""
    text = smoke.client.context(f"smoke {smoke.run}", user="smoke", budget=500).text
    _fail_unless(smoke.run in text, "the event's words", text[:80])
    return f"{len(text)} characters"


def check_gapless_feed(smoke: SmokeRun) -> str:
    """The scope's events come in the order of seq, without a gap."""
    first = smoke.receipt.seq
    page = smoke.client.feed_page(
        smoke.receipt.scope_id, after_seq=first - 1, user="smoke", limit=100
    )
    seqs = [event.seq for event in page.events]
    _fail_unless(seqs[:1] == [first], "to begin with the event", seqs[:3])
    _fail_unless(seqs == list(range(first, first + len(seqs))), "no gap", seqs)
    return f"{len(seqs)} events from seq {first}"


def check_other_tenant_sees_nothing(smoke: SmokeRun) -> str:
    """Another tenant's key does not see it."""
    smoke.client.get(smoke.receipt.event_id, user="smoke")
    try:
        smoke.clients[OTHER].get(smoke.receipt.event_id, user="smoke")
    except NotFoundError:
        return "404 for another tenant"
    raise SmokeFailed("expected 404 for another tenant's event, found the event")


def check_job_run_ends(smoke: SmokeRun) -> str:
    """A run of the state machine begins and ends."""
    try:
        job_id = smoke.client.admin.start_job("sweeper").job_id
    except StateConflictError as running:
        job_id = running.details["job_id"]
    seconds = 0.0
    while (job := smoke.client.admin.job(job_id)).state not in ("done", "failed"):
        _fail_unless(seconds < _JOB_SECONDS, f"its end within {_JOB_SECONDS:.0f} s", job.state)
        smoke.wait(_POLL_SECONDS)
        seconds += _POLL_SECONDS
    _fail_unless(job.state == "done", "done", f"{job.state} {job.reason}")
    return f"done {seconds:.0f} s after its start"


def check_metrics_endpoint(smoke: SmokeRun) -> str:
    """The metrics are served."""
    text = smoke.client.admin.metrics()
    _fail_unless("strandline_" in text, "metrics of the service", text[:80])
    return f"{text.count('# TYPE')} metrics"


def check_key_revocation(smoke: SmokeRun) -> str:
    """The run's keys are revoked; instances forget them within a minute."""
    for tenant, key_id in smoke.key_ids.items():
        smoke.operator.admin.revoke_key(tenant, key_id)
        key = smoke.operator.admin.key(tenant, key_id)
        _fail_unless(key.revoked_at is not None, "a key that is revoked", key)
    return f"{len(smoke.key_ids)} keys"


CHECKS: tuple[tuple[str, Callable[[SmokeRun], str]], ...] = (
    ("health", check_health),
    ("no credentials", check_refusal_without_credential),
    ("console", check_console),
    ("append", check_append),
    ("replay", check_replay_and_key_conflict),
    ("upload", check_upload_and_download),
    ("recall", check_recall),
    ("context", check_context),
    ("feed", check_gapless_feed),
    ("another tenant", check_other_tenant_sees_nothing),
    ("job", check_job_run_ends),
    ("metrics", check_metrics_endpoint),
    ("revocation", check_key_revocation),
)
"""The checks in their order: each may rest on those before it."""
FAILURES = (SmokeFailed, ServiceError, httpx2.HTTPError, OSError, ValueError, LookupError)
"""What ends one check, and not the others."""


def run_checks(smoke: SmokeRun, report: Callable[[str], object]) -> bool:
    """Run all checks, and report a line of each. Returns whether all succeeded."""
    try:
        smoke.create_tenants_and_keys()
    except FAILURES as error:
        report(f"FAILED  tenants and keys: {_describe_failure(error)}")
        return False
    failures = 0
    for name, check in CHECKS:
        try:
            report(f"ok      {name}: {check(smoke)}")
        except FAILURES as error:
            failures += 1
            report(f"FAILED  {name}: {_describe_failure(error)}")
    report(f"{len(CHECKS) - failures} of {len(CHECKS)} checks succeeded")
    return not failures


def _describe_failure(error: Exception) -> str:
    if isinstance(error, ServiceError):
        return f"{error.status or 'no answer'} {error.code}: {error.message}"
    return str(error) if isinstance(error, SmokeFailed) else f"{type(error).__name__}: {error}"


def _fail_unless(condition: bool, expected: str, actual: object) -> None:
    if not condition:
        raise SmokeFailed(f"expected {expected}, found {actual}")


def main() -> int:
    """Check the deployment at the given address. Returns 1 if a check failed."""
    parser = argparse.ArgumentParser(prog="make smoke", description=__doc__)
    parser.add_argument("url", help="output ApiUrl, or the custom domain with its base path")
    url: str = parser.parse_args().url
    key = os.environ.get("KEY", "")
    if not key or not url.startswith(("https://", "http://127.0.0.1:")):
        sys.stderr.write("KEY=<a key with the right operator> make smoke URL=https://...\n")
        return 2
    succeeded = run_checks(SmokeRun(url, key), lambda line: sys.stdout.write(f"{line}\n"))
    return 0 if succeeded else 1


if __name__ == "__main__":
    sys.exit(main())
