"""How late the background work of the whole stage is. Each sweep measures it as it begins and ends,
because alarms look at it: a sweep itself sees only the tenants whose work is due just then."""

from datetime import datetime

from strandline.db.database import Caller
from strandline.jobs import store_sweeps
from strandline.jobs.runner import JobResources, error_code
from strandline.log.store_tenant_counts import DueWork, read_due_work
from strandline.observability import logger, make_emf_fields
from strandline.tenants.store_spaces import read_space

_MAX_TENANTS = 100
"""How many tenants are looked at: those whose work failed most often, and whose erasures wait
longest."""


def log_stage_backlog(resources: JobResources, job: str, function_name: str, now: datetime) -> None:
    """Log the metrics of the stage's late work, all 0 where none is. A tenant that cannot be read
    is left out."""
    backlogs: list[DueWork] = []
    connection = resources.database.connection()
    for tenant in store_sweeps.list_tenants_behind(connection, now, _MAX_TENANTS):
        access = resources.database.connect_as(Caller.background(tenant))
        try:
            space = resources.embedder_of(read_space(access).reading_space).space
            backlogs.append(read_due_work(access, space))
        except Exception as error:  # no tenant stops the sweep of all
            log_fields = {"tenants": [tenant], "reason": error_code(error)}
            logger.warning("backlog not measured", extra=log_fields)
    metrics = {
        "ScopesStuck": sum(one.stuck_scopes for one in backlogs),
        "OldestUnembeddedSeconds": max((one.unembedded_seconds for one in backlogs), default=0),
        "OldestUnfoldedSeconds": max((one.unfolded_seconds for one in backlogs), default=0),
        "OldestErasureSeconds": max((one.erasure_seconds for one in backlogs), default=0),
    }
    logger.info("backlog", extra=make_emf_fields({"function": function_name, "job": job}, metrics))
