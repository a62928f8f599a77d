"""A new job and a new quota are one row each, a new field of an event three lines: the rest of the
package derives from it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.schemas import quote_job_names
from strandline.log.schemas_read import EventOut
from tests.strandline.event_rows import BODY, draft_of, event_of

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "shared" / "strandline"
JOB_ROW = """\
    JobSpec(
        name="planted",
        module="planted.py",
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
FAULTS = {
    "function_specs.py": {
        'Literal["archiver"': 'Literal["planted", "archiver"',
        "JOBS = (\n": f"JOBS = (\n{JOB_ROW}",
    },
    "config_quotas.py": {
        'Quota", Literal["requests"': 'Quota", Literal["planted", "requests"',
        "QUOTAS = (\n": f"QUOTAS = (\n{QUOTA_ROW}",
        "    tenant_burst_seconds": f"{QUOTA_SETTING}    tenant_burst_seconds",
    },
    "log/schemas_append.py": {
        "    stop_reason: StopReason | None = None\n": "    stop_reason: StopReason | None = None\n"
        "    planted_field: str | None = None\n"
    },
    "log/cid.py": {
        "    blob_cid: str | None\n": "    planted_field: str | None\n    blob_cid: str | None\n"
    },
    "log/schemas_read.py": {
        "    stop_reason: StopReason | None\n": "    stop_reason: StopReason | None\n"
        "    planted_field: str | None\n"
    },
}
REPORT = """
import dataclasses
import json
from datetime import UTC, datetime, timedelta
from unittest.mock import MagicMock

from pydantic import TypeAdapter

from strandline.admin.schemas import LimitsIn, QuotaUse, TenantLimits
from strandline.apidocs import openapi
from strandline.aws.run_requests import MIN_SPACING
from strandline.background.run_request_handler import RunRequest
from strandline.config import ServiceSettings
from strandline.function_specs import FUNCTIONS, JOBS
from strandline.jobs import admin_verbs, routes, next_runs
from strandline.jobs.schemas import JobKind
from strandline.log.refusals import list_differing_fields
from strandline.log.read import to_event_out
from strandline.log.store import Event
from tests.strandline.event_rows import BODY, draft_of, event_of, row_of
from strandline.tenants import quotas, store_quotas

connection, now = MagicMock(), datetime(2026, 1, 1, tzinfo=UTC)
connection.execute.return_value.fetchone.return_value = (now, *[None] * (len(JOBS) - 1))
due = next_runs.find_next_run_times(connection, space=None, heat={}, grace=timedelta(),
    period=timedelta(), spacing=MIN_SPACING, now=now)
start = openapi.build_openapi_document(routes.ROUTES)["paths"]["/api/v1/admin/jobs/{job}"]["post"]
settings = ServiceSettings.from_env({"STRANDLINE_DATABASE_URL": "d", "STRANDLINE_BUCKET": "b",
    "STRANDLINE_KEY_SECRET": "k" * 32})
access = MagicMock()
access.execute.return_value = 1
store_quotas.set_quota_limits(access, {"planted_units": 3})
old, new = draft_of(BODY), draft_of({**BODY, "planted_field": "low"})
row = {**row_of(new), "seq": 1, "recorded_at": now, "scope_id": new.scope_id}
names = [column.name for column in dataclasses.fields(Event)]
spent = quotas._make_quota_error(quotas._LocalBalance(limit=5, at_once=5), "planted", 1)
print(json.dumps({
    "functions": [fn.name for fn in FUNCTIONS],
    "spacing": {job: spacing.total_seconds() for job, spacing in MIN_SPACING.items()},
    "run": RunRequest(job="planted", run="r").job,
    "names": admin_verbs.JOB_NAMES,
    "kinds": TypeAdapter(JobKind).json_schema()["enum"],
    "description": start["description"],
    "due": sorted(due),
    "due parameters": sorted(connection.execute.call_args[0][1]),
    "limits": [*LimitsIn.model_fields, *TenantLimits.model_fields],
    "quotas": QuotaUse.model_json_schema()["properties"]["name"]["enum"],
    "default": settings.quota_defaults["planted"],
    "set": access.execute.call_args[0],
    "refusal": [spent.code, spent.message, spent.retryable],
    "fingerprints": [draft.compute_fingerprint() for draft in (old, new)],
    "cid": event_of(old).cid,
    "stored": [event_of(draft).as_json()["planted_field"] for draft in (old, new)],
    "differences": [list_differing_fields(old, row_of(new), []),
        list_differing_fields(new, row_of(old), []), list_differing_fields(new, row_of(new), [])],
    "shown": to_event_out(Event(**{name: row[name] for name in names})).model_dump(mode="json"),
}))
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the package derives, in a process of its own, from tables with a row more each."""
    copy = tmp_path_factory.mktemp("planted")
    package = copy / "strandline"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, package, ignore=ignore)
    for name, edits in FAULTS.items():
        text = (package / name).read_text()
        for before, after in edits.items():
            assert text.count(before) == 1, before
            text = text.replace(before, after)
        (package / name).write_text(text)
    child = subprocess.run(
        [sys.executable, "-c", REPORT],
        env={**os.environ, "PYTHONPATH": f"{copy}:{ROOT}"},
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout.splitlines()[-1])


def test_table_takes_new_job_as_row(report: dict[str, Any]) -> None:
    assert "planted" in report["functions"]
    assert report["spacing"]["planted"] == 7 * 60
    assert report["run"] == "planted"
    assert "planted" in report["names"]
    assert report["kinds"][0] == "planted"
    assert f"`planted`, {quote_job_names('or')}" in report["description"].lower()
    assert report["due"] == ["planted"]
    assert "planted_spacing" in report["due parameters"]


def test_table_takes_new_quota_as_row_and_setting(report: dict[str, Any]) -> None:
    assert report["limits"].count("planted_units") == 2
    assert report["quotas"][0] == "planted"
    assert report["default"] == 5
    statement, values = report["set"]
    assert "planted_limit = %(planted_units)s" in statement
    assert values["planted_units"] == 3
    code, message, retryable = report["refusal"]
    assert (code, retryable) == ("quota_exceeded", False)
    assert "planted: the tenant's quota is 5 planted units" in message


def test_table_takes_new_event_field_as_three_lines(report: dict[str, Any]) -> None:
    assert report["stored"] == [None, "low"]
    assert report["shown"]["planted_field"] == "low"
    assert (
        list(report["shown"]).index("planted_field")
        == [*EventOut.model_fields].index("stop_reason") + 1
    )
    assert report["differences"] == [["planted_field"], ["planted_field"], ["edges"]]


def test_table_new_event_field_keeps_old_fingerprints(
    report: dict[str, Any],
) -> None:
    old, new = report["fingerprints"]
    assert old == draft_of(BODY).compute_fingerprint() != new
    assert report["cid"] == event_of(draft_of(BODY)).cid
