"""A new job and a new quota are one row each: the rest of the package derives from it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "shared" / "strandline"
JOB_ROW = """\
    JobSpec(
        name="planted",
        memory=512,
        timeout=60,
        needs=frozenset({"database"}),
        min_spacing=timedelta(minutes=7),
        next_due="%(now)s + %(planted_spacing)s",
    ),
"""
QUOTA_ROW = """\
    QuotaSpec("planted", "planted_units", "planted_limit", 9, "total", "{limit} planted units"),
"""
QUOTA_SETTING = '''\
    tenant_planted_units: int = Field(default=5, ge=0, le=9)
    """Planted units."""
'''
PLANTED = {
    "deployment.py": {
        'type JobName = Literal["archiver"': 'type JobName = Literal["planted", "archiver"',
        "JOBS = (\n": f"JOBS = (\n{JOB_ROW}",
    },
    "config_quotas.py": {
        'type Quota = Literal["requests"': 'type Quota = Literal["planted", "requests"',
        "QUOTAS = (\n": f"QUOTAS = (\n{QUOTA_ROW}",
        "    tenant_burst_seconds": f"{QUOTA_SETTING}    tenant_burst_seconds",
    },
}
REPORT = """
import json
from datetime import UTC, datetime, timedelta
from unittest.mock import MagicMock

from pydantic import TypeAdapter

from strandline.admin.schemas_tenants import LimitsIn, QuotaUse, TenantLimits
from strandline.apidocs import openapi
from strandline.aws.run_requests import MIN_SPACING
from strandline.background.schedule_handler import RunRequest
from strandline.config import ServiceSettings
from strandline.deployment import FUNCTIONS
from strandline.jobs import control, routes, store_due
from strandline.jobs.schemas import JobKind
from strandline.tenants import quotas, store_quotas

connection, now = MagicMock(), datetime(2026, 1, 1, tzinfo=UTC)
connection.execute.return_value.fetchone.return_value = (now, None, None, None)
due = store_due.find_next_runs(connection, space=None, heat={}, grace=timedelta(),
    period=timedelta(), spacing=MIN_SPACING, now=now)
start = openapi.build_document(routes.ROUTES)["paths"]["/api/v1/admin/jobs/{job}"]["post"]
settings = ServiceSettings.from_env({"STRANDLINE_DATABASE_URL": "d", "STRANDLINE_BUCKET": "b",
    "STRANDLINE_KEY_SECRET": "k" * 32})
access = MagicMock()
access.execute.return_value = 1
store_quotas.set_limits(access, {"planted_units": 3})
spent = quotas._quota_error(quotas._LocalBalance(limit=5, at_once=5), "planted", 1)
print(json.dumps({
    "functions": [fn.name for fn in FUNCTIONS],
    "spacing": {job: spacing.total_seconds() for job, spacing in MIN_SPACING.items()},
    "run": RunRequest(job="planted", run="r").job,
    "names": control.JOB_NAMES,
    "kinds": TypeAdapter(JobKind).json_schema()["enum"],
    "description": start["description"],
    "due": sorted(due),
    "due parameters": sorted(connection.execute.call_args[0][1]),
    "limits": [*LimitsIn.model_fields, *TenantLimits.model_fields],
    "quotas": QuotaUse.model_json_schema()["properties"]["name"]["enum"],
    "default": settings.quota_defaults["planted"],
    "set": access.execute.call_args[0],
    "refusal": [spent.code, spent.message, spent.retryable],
}))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the package derives, in a process of its own, from tables with a row more each."""
    copy = tmp_path_factory.mktemp("planted")
    package = copy / "strandline"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, package, ignore=ignore)
    for name, edits in PLANTED.items():
        text = (package / name).read_text()
        for before, after in edits.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (package / name).write_text(text)
    child = subprocess.run(
        [sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": str(copy)},
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


def test_a_new_job_is_a_row(report: dict[str, Any]) -> None:
    assert "planted" in report["functions"]
    assert report["spacing"]["planted"] == 7 * 60
    assert report["run"] == "planted"
    assert "planted" in report["names"]
    assert report["kinds"][0] == "planted"
    assert "`planted`, `archiver`, `builder` or `sweeper`" in report["description"].lower()
    assert report["due"] == ["planted"]
    assert "planted_spacing" in report["due parameters"]


def test_a_new_quota_is_a_row_and_its_setting(report: dict[str, Any]) -> None:
    assert report["limits"].count("planted_units") == 2
    assert report["quotas"][0] == "planted"
    assert report["default"] == 5
    statement, values = report["set"]
    assert "planted_limit = %(planted_units)s" in statement
    assert values["planted_units"] == 3
    code, message, retryable = report["refusal"]
    assert (code, retryable) == ("quota_exceeded", False)
    assert "planted: the tenant's quota is 5 planted units" in message
