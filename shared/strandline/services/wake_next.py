"""Have the next run of every job begun when something comes due: what whoever worked ends with."""

from datetime import datetime, timedelta

from strandline.config import Settings
from strandline.db import Database
from strandline.observability import logger
from strandline.runs import Runs
from strandline.services.worker import reason_of
from strandline.store import due, garbage

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
        coming = due.next_runs(
            database.connection(deadline),
            space=space,
            heat=limits.tuning.of_heat(),
            grace=timedelta(seconds=limits.blob_grace_seconds),
            period=garbage.LOOK_PERIOD,
            spacing=runs.spacing,
            now=now,
        )
    except Exception as error:
        logger.warning("nobody knows what is due", extra={"error": reason_of(error)})
        coming = {"sweeper": now + _BLIND}
    for job, moment in coming.items():
        runs.wish(job, moment, now)
