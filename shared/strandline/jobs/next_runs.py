"""Find when jobs next have work, over all tenants, and request their runs: the last step of every
worker. Only times leave the database, no tenant's data."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from strandline.aws.run_requests import JobQueue
from strandline.config import ServiceSettings
from strandline.db.connection import Connection, translate_errors
from strandline.db.database import Database
from strandline.function_specs import JOBS
from strandline.jobs.worker_resources import describe_error
from strandline.observability import logger
from strandline.tuning import DEFAULTS

GARBAGE_PERIOD = timedelta(hours=6)
"""A tenant's payloads are scanned at most once in each such period, counted since 1970: each scan
costs calls to the object store."""


def find_next_run_times(
    connection: Connection,
    *,
    space: str | None,
    heat: Mapping[str, object],
    grace: timedelta,
    period: timedelta,
    spacing: Mapping[str, timedelta],
    now: datetime,
    snapshot_age: timedelta = timedelta(days=30),
    promotion: Mapping[str, object] | None = None,
) -> dict[str, datetime]:
    """For each job, the earliest time at which work comes due; a job without work is left out.
    Overdue work comes due again after growing pauses, never before its job's `spacing`.

    With an embedding `space`, tenants that need a scan for it count as well. `heat` has the
    deployment's heat settings, `grace` is the minimum age of a payload that may be removed, and
    payloads are scanned once per `period`. A snapshot of the topic index is collected at
    `snapshot_age`. `promotion` has the deployment's settings of promotion.
    """
    with translate_errors(connection):
        row: tuple[Any, ...] | None = connection.execute(
            "select " + ", ".join([job.next_due for job in JOBS]),
            {
                "space": space,
                "heat": json.dumps(heat),
                "blob_grace": grace,
                "garbage_period": period,
                "snapshot_age": snapshot_age,
                "promotion": json.dumps(promotion or DEFAULTS.promotion_due_parameters()),
                "now": now,
                **{f"{job.name}_spacing": spacing[job.name] for job in JOBS},
            },
        ).fetchone()
    assert row is not None, "a select without a table returns one row"
    return {job.name: due for job, due in zip(JOBS, row, strict=True) if due}


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
        due_times = find_next_run_times(
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
        due_times = {"sweeper": now + _FALLBACK_DELAY}
    for job, due_at in due_times.items():
        job_queue.request_run(job, due_at, now)
