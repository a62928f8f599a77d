"""Have the next run of every job begun when something comes due: what whoever worked ends with."""

from datetime import datetime, timedelta

from strandline.aws.run_requests import JobQueue
from strandline.config import ServiceSettings
from strandline.db.database import Database
from strandline.jobs import store_due
from strandline.jobs.context import describe_error
from strandline.jobs.table import GARBAGE_PERIOD
from strandline.observability import logger

_FALLBACK_DELAY = timedelta(hours=1)
"""After so long is looked again where the database cannot say what is due."""


def request_next_runs(
    database: Database,
    job_queue: JobQueue,
    settings: ServiceSettings,
    now: datetime,
    deadline: float,
    *,
    space: str | None = None,
) -> None:
    """Wish for the next run of each job that has something to do, ever.

    `space` is the present embedding space, where tenants that nobody looked through for it are to
    be found: not after a run that got nowhere with that. Whatever fails here is logged, and no
    error: what was worked on is committed.
    """
    try:
        next_runs = store_due.find_next_runs(
            database.connection(deadline),
            space=space,
            heat=settings.tuning.heat_parameters(),
            grace=timedelta(seconds=settings.blob_grace_seconds),
            period=GARBAGE_PERIOD,
            spacing=job_queue.spacing,
            now=now,
        )
    except Exception as error:
        logger.warning("nobody knows what is due", extra={"error": describe_error(error)})
        next_runs = {"sweeper": now + _FALLBACK_DELAY}
    for job, due_at in next_runs.items():
        job_queue.request_run(job, due_at, now)
