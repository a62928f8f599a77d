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
ACCEPTED: Mapping[str, str] = {}
"""Check → why what it finds is accepted."""


@pytest.fixture(scope="module")
def checkov() -> Path:
    """The program; the first run installs it from its lock."""
    lock = build.ROOT / "requirements" / "checkov.lock"
    script = build.ROOT / "layers" / "venv.sh"
    subprocess.run(["/bin/sh", script, ENVIRONMENT, lock], check=True)
    return ENVIRONMENT / "bin" / "checkov"


def findings(checkov: Path, directory: Path, found: Mapping[str, Any]) -> dict[str, set[str]]:
    """Check → the resources that fail it."""
    file = directory / "template.json"
    file.write_text(json.dumps(found))
    done = subprocess.run(
        [checkov, "-f", file, "--framework", "cloudformation", "-o", "json", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin", "LOG_LEVEL": "ERROR", "BC_SKIP_MAPPING": "TRUE"},
    )
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["passed"] > 100
    failed: defaultdict[str, set[str]] = defaultdict(set)
    for check in report["results"]["failed_checks"]:
        failed[check["check_id"]].add(check["resource"])
    return dict(failed)


@pytest.mark.parametrize("name", ["as it comes", "own key"])
def test_every_finding_has_its_reason(checkov: Path, tmp_path: Path, name: str) -> None:
    failed = findings(checkov, tmp_path, template(**VARIANTS[name]))
    assert failed.keys() <= ACCEPTED.keys(), {c: failed[c] for c in failed.keys() - ACCEPTED.keys()}
    if name == "as it comes":
        assert failed.keys() == ACCEPTED.keys(), "a reason that nothing needs"


def test_a_finding_without_a_reason_is_noticed(checkov: Path, tmp_path: Path) -> None:
    found = template()
    for resource in found["Resources"].values():
        if resource["Type"] == "AWS::S3::Bucket":
            del resource["Properties"]["PublicAccessBlockConfiguration"]
    assert findings(checkov, tmp_path, found).keys() - ACCEPTED.keys()
