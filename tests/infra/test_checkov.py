"""checkov's findings about the template are those that stand here with their reasons. It runs in an
environment of its own, because it needs an older boto3 than the service."""

import json
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from layers import build
from tests.infra.stacks import VARIANTS, template

pytestmark = pytest.mark.proof
ENVIRONMENT = build.BUILD / "checkov"
ACCEPTED: Mapping[str, str] = {
    "CKV_AWS_111": "Lambda's network interfaces have no ARN beforehand; the code is denied them.",
    "CKV_AWS_115": "The scheduler and the release's caller hold no connection to the database.",
    "CKV_AWS_116": "Calls are synchronous or come from a queue, which has dead letters of its own.",
    "CKV_AWS_117": "The scheduler and the release's caller must reach AWS's services, no database.",
    "CKV_AWS_118": "Enhanced monitoring would keep a paused database awake, and costs.",
    "CKV_AWS_120": "An answer is one caller's: a cache of the gateway would give it to another.",
    "CKV_AWS_149": "AWS's own key by default; the setting `key` takes a customer's.",
    "CKV_AWS_158": "As with the secrets.",
    "CKV_AWS_173": "Variables hold ARNs and addresses, no secret; AWS's own key encrypts them.",
    "CKV_AWS_18": "The service logs and audits each access to a payload.",
    "CKV_AWS_27": "SQS encrypts its queues itself (SqsManagedSseEnabled): not seen by the check.",
    "CKV_AWS_73": "Traces are a setting (tracing), off because they cost.",
}
"""Check → why what it finds is accepted."""


@pytest.fixture(scope="module")
def checkov() -> Path:
    """The program; the first run installs it from its lock."""
    lock = build.ROOT / "requirements" / "checkov.lock"
    script = build.ROOT / "layers" / "venv.sh"
    subprocess.run(["/bin/sh", script, ENVIRONMENT, lock], check=True)
    return ENVIRONMENT / "bin" / "checkov"


def findings(checkov: Path, directory: Path, results: Mapping[str, Any]) -> dict[str, set[str]]:
    """Check → the resources that fail it."""
    file = directory / "template.json"
    file.write_text(json.dumps(results))
    process = subprocess.run(
        [checkov, "-f", file, "--framework", "cloudformation", "-o", "json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LOG_LEVEL": "ERROR", "BC_SKIP_MAPPING": "TRUE"},
    )
    report = json.loads(process.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 100
    failed: defaultdict[str, set[str]] = defaultdict(set)
    for check in report["results"]["failed_checks"]:
        failed[check["check_id"]].add(check["resource"])
    return dict(failed)


@pytest.mark.parametrize("name", ["as it comes", "own key"])
def test_checkov_findings_have_reasons(checkov: Path, tmp_path: Path, name: str) -> None:
    failed = findings(checkov, tmp_path, template(**VARIANTS[name]))
    assert failed.keys() <= ACCEPTED.keys(), {c: failed[c] for c in failed.keys() - ACCEPTED.keys()}
    if name == "as it comes":
        assert failed.keys() == ACCEPTED.keys(), "a reason that nothing needs"


def test_checkov_test_detects_unexplained_finding(checkov: Path, tmp_path: Path) -> None:
    stack = template()
    for resource in stack["Resources"].values():
        if resource["Type"] == "AWS::S3::Bucket":
            del resource["Properties"]["PublicAccessBlockConfiguration"]
    assert findings(checkov, tmp_path, stack).keys() - ACCEPTED.keys()
