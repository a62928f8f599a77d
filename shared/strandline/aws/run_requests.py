"""Runs of jobs, wished for: at once, because somebody asked, or when something comes due.

A wish is a message to a queue, and the scheduler makes it come true. Times are slots, so that
whoever wishes for the same asks for the same: a run more often than the job's spacing is nobody's
wish.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from strandline.aws import clients
from strandline.errors import Unavailable
from strandline.observability import logger, trace_header

_DELIVERY_TIME = timedelta(seconds=60)
"""A wish is on its way for so long at most, or for a whole spacing if that is less. A slot this
near may be running already, and not have seen what is wished for."""

MIN_SPACING: Mapping[str, timedelta] = {
    "sweeper": timedelta(minutes=5),
    "archiver": timedelta(minutes=60),
}
"""The least time between two runs of a job that wishes bring about; `strandline.deployment` says it
too, and a test that they agree."""
JOB_NAMES = frozenset({*MIN_SPACING, "migrate"})
"""What there can be a run of: the jobs, and the migration that takes long."""


def next_slot(due: datetime, now: datetime, spacing: timedelta) -> datetime:
    """The first moment in which a run may begin that surely sees what is due then: a whole multiple
    of `spacing` since 1970, no earlier than `due`, and no nearer than a wish takes."""
    epoch = datetime.fromtimestamp(0, UTC)
    return epoch - (epoch - max(due, now + min(_DELIVERY_TIME, spacing))) // spacing * spacing


class JobQueue:
    """The queue of wishes for runs; without a URL nothing is wished for."""

    def __init__(self, work_queue_url: str, spacing: Mapping[str, timedelta] = MIN_SPACING) -> None:
        self.spacing = spacing
        self._url = work_queue_url
        # The daily sweep finds what nobody was woken for.
        self._sqs: Any = clients.best_effort_sqs_client() if work_queue_url else None
        self._requests_sent: set[tuple[str, datetime]] = set()

    def start_run(self, job: str, tenant: str, run: str) -> None:
        """Have a run of a job in one tenant begin now; again it is the same run. Raises
        Unavailable."""
        if not self._url:
            raise Unavailable(
                "No job can be started by a request here: the operator has not set "
                "STRANDLINE_JOB_QUEUE_URL. Jobs run by themselves."
            )
        try:
            self._send({"job": job, "tenant": tenant, "run": run})
        except clients.all_errors() as error:
            raise Unavailable("The queue of runs cannot be reached. Try again.") from error

    def request_run(self, job: str, due: datetime, now: datetime) -> bool:
        """Have a run of a job begin once `due` is past; gives whether somebody was told. A queue
        that does not answer is logged, and no error; what this process wished for before is not
        sent again."""
        slot = next_slot(due, now, self.spacing[job])
        self._requests_sent = {request for request in self._requests_sent if request[1] > now}
        if not self._url or (job, slot) in self._requests_sent:
            return bool(self._url)
        try:
            self._send({"job": job, "at": slot.isoformat()})
        except clients.all_errors() as error:
            logger.warning("wish not sent", extra={"job": job, "error": type(error).__name__})
            return False
        self._requests_sent.add((job, slot))
        return True

    def is_run_requested(self, job: str, now: datetime) -> bool:
        """Whether this process wished for a run of a job that comes next, whatever comes due."""
        return (job, next_slot(now, now, self.spacing[job])) in self._requests_sent

    def _send(self, request: Mapping[str, str]) -> None:
        body = json.dumps({**request, "trace": trace_header()})
        self._sqs.send_message(QueueUrl=self._url, MessageBody=body)
