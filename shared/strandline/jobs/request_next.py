"""Have the next run of every job begun when something comes due: what whoever worked ends with."""

from datetime import datetime, timedelta

from strandline.aws.run_requests import Runs
from strandline.config import Settings
from strandline.db.database import Database
from strandline.jobs import store_due
from strandline.jobs.context import reason_of
from strandline.jobs.table import GARBAGE_PERIOD
from strandline.observability import logger

_BLIND = timedelta(hours=1)
"""After so long is looked again where the database cannot say what is due."""


def wake_next(
    database: Database,
    runs: Runs,
    limits: Settings,
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
        coming = store_due.next_runs(
            database.connection(deadline),
            space=space,
            heat=limits.tuning.of_heat(),
            grace=timedelta(seconds=limits.blob_grace_seconds),
            period=GARBAGE_PERIOD,
            spacing=runs.spacing,
            now=now,
        )
    except Exception as error:
        logger.warning("nobody knows what is due", extra={"error": reason_of(error)})
        coming = {"sweeper": now + _BLIND}
    for job, moment in coming.items():
        runs.wish(job, moment, now)
