"""Requests for job runs: now because a caller asked, or at the time when something comes due.

A request is an SQS message, and the scheduler function carries it out. Run times are rounded up to
slots, so that requests for the same slot are one request: a job never runs more often than its
spacing.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from strandline.aws import client_factory
from strandline.errors import Unavailable
from strandline.function_specs import JOBS
from strandline.observability import logger, make_trace_header

_DELIVERY_TIME = timedelta(seconds=60)
"""The longest that a request is under way, or a whole spacing if that is less. A run in a slot this
near may have started already and miss the work that is requested."""

MIN_SPACING: Mapping[str, timedelta] = {job.name: job.min_spacing for job in JOBS}
"""The least time between two requested runs of a job."""


def min_spacing_by_job(sweep_seconds: int) -> Mapping[str, timedelta]:
    """MIN_SPACING with the sweeper's as it is set."""
    return {**MIN_SPACING, "sweeper": timedelta(seconds=sweep_seconds)}


def find_next_run_slot(due: datetime, now: datetime, spacing: timedelta) -> datetime:
    """The first slot whose run surely sees what is due by then: a multiple of `spacing` since 1970,
    not before `due`, and not so near that the request could arrive late."""
    epoch = datetime.fromtimestamp(0, UTC)
    return epoch - (epoch - max(due, now + min(_DELIVERY_TIME, spacing))) // spacing * spacing


class JobQueue:
    """The queue of run requests. Without a URL no run is requested."""

    def __init__(self, job_queue_url: str, spacing: Mapping[str, timedelta] = MIN_SPACING) -> None:
        self.spacing = spacing
        self._url = job_queue_url
        # The daily sweep finds what no request named.
        self._sqs: Any = client_factory.make_best_effort_sqs_client() if job_queue_url else None
        self._requests_sent: set[tuple[str, datetime]] = set()

    def start_run(self, job: str, tenant: str, run: str) -> None:
        """Request a run of a job in one tenant now. The same `run` again is the same run. Raises
        Unavailable when the queue cannot be reached, and when no queue is configured."""
        if not self._url:
            raise Unavailable(
                "Jobs cannot be started by a request here: the operator has not set "
                "STRANDLINE_JOB_QUEUE_URL. Jobs run by themselves."
            )
        try:
            self._send_request({"job": job, "tenant": tenant, "run": run})
        except client_factory.all_error_classes() as error:
            raise Unavailable("The job queue cannot be reached. Try again.") from error

    def request_run(self, job: str, due: datetime, now: datetime) -> bool:
        """Request a run of a job once `due` is past. Returns whether the request is with the
        scheduler. A queue that does not answer is logged and raises nothing. What this process
        requested before is not sent again."""
        slot = find_next_run_slot(due, now, self.spacing[job])
        self._requests_sent = {request for request in self._requests_sent if request[1] > now}
        if not self._url or (job, slot) in self._requests_sent:
            return bool(self._url)
        try:
            self._send_request({"job": job, "at": slot.isoformat()})
        except client_factory.all_error_classes() as error:
            logger.warning(
                "run request not sent",
                extra={"job": job, "error": client_factory.describe_error(error)},
            )
            return False
        self._requests_sent.add((job, slot))
        return True

    def is_run_requested(self, job: str, now: datetime) -> bool:
        """Whether this process has requested a run of a job that is still to come."""
        return (job, find_next_run_slot(now, now, self.spacing[job])) in self._requests_sent

    def _send_request(self, request: Mapping[str, str]) -> None:
        """Send it, perhaps twice: what it asks for happens once in a slot or a run."""
        body = json.dumps({**request, "trace": make_trace_header()})
        client_factory.call_again_if_closed(
            self._sqs.send_message, or_late=True, QueueUrl=self._url, MessageBody=body
        )
