"""Request the next run of every job for when its work comes due; the last step of every worker."""

from datetime import datetime, timedelta

from strandline.aws.run_requests import JobQueue
from strandline.config import ServiceSettings
from strandline.db.database import Database
from strandline.jobs import store_next_run_times
from strandline.jobs.store_next_run_times import GARBAGE_PERIOD
from strandline.jobs.worker_resources import describe_error
from strandline.observability import logger

_FALLBACK_DELAY = timedelta(hours=1)
"""How long to wait before the next look where the database cannot say what is due."""


def schedule_next_runs(
    database: Database,
    job_queue: JobQueue,
    settings: ServiceSettings,
    now: datetime,
    deadline: float,
    *,
    space: str | None = None,
) -> None:
    """Request the next run of each job that has work, now or at a later time.

    `space` is the current embedding space. With it, tenants that were not yet scanned for this
    space count as due; leave it out after a run that made no progress on them. Any failure is
    logged and not raised: the work before this is committed.
    """
    try:
        next_runs = store_next_run_times.find_next_run_times(
            database.connection(deadline),
            space=space,
            heat=settings.tuning.heat_time_parameters(),
            grace=timedelta(seconds=settings.blob_grace_seconds),
            period=GARBAGE_PERIOD,
            spacing=job_queue.spacing,
            now=now,
            snapshot_age=timedelta(days=settings.snapshot_days),
            promotion=settings.tuning.promotion_due_parameters(),
        )
    except Exception as error:
        logger.warning("next runs not determined", extra={"error": describe_error(error)})
        next_runs = {"sweeper": now + _FALLBACK_DELAY}
    for job, due_at in next_runs.items():
        job_queue.request_run(job, due_at, now)
