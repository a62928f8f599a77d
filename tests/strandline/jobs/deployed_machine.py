"""The state machine that is deployed, with the real functions."""

import importlib
import time
from pathlib import Path
from typing import Any

from strandline import function_specs
from strandline.aws.scheduler import RunStarter
from strandline.local.lambda_context import Handler
from tests.support import Gateway, NullJobQueue

DEFINITION = Path(__file__).parents[3] / "infra" / "job.asl.json"
SECONDS = 30
JOBS = "/api/v1/admin/jobs"


def handlers() -> dict[str, Handler]:
    """The jobs' real functions."""
    return {
        fn.name: importlib.import_module(f"functions.{fn.name}.handler").lambda_handler
        for fn in function_specs.JOBS
    }


class AtOnce(NullJobQueue):
    """A queue of runs whose messages the scheduler has read before they are sent."""

    def __init__(self, machine: str) -> None:
        self.wakeups = RunStarter(machine, "no group", "no role")

    def start_run(self, job: str, tenant: str, run: str) -> None:
        self.wakeups.start_run(job, run, tenant)


def wait_for(gateway: Gateway, job_id: str, key: str) -> Any:
    """A job once its run has ended."""
    until = time.monotonic() + SECONDS
    while True:
        job = gateway.call("GET", f"{JOBS}/{job_id}", key=key).body
        if job["state"] in ("done", "failed"):
            return job
        assert time.monotonic() < until, job
        time.sleep(0.05)
