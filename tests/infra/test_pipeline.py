"""The example of a pipeline: whom its role trusts, what it may, and that it calls what there is."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import preflight
from tests.infra.stacks import CONTEXT, ROOT, properties, template

CI = ROOT / ".ci"


def load(name: str) -> dict[str, Any]:
    return yaml.safe_load((CI / name).read_text())


def role() -> dict[str, Any]:
    return load("deploy-role.yaml")["Resources"]["Role"]["Properties"]


def test_pipeline_role_trusts_one_environment_of_one_repository() -> None:
    """Not every branch of it, and no other repository on GitHub."""
    (statement,) = role()["AssumeRolePolicyDocument"]["Statement"]
    issuer = "token.actions.githubusercontent.com"
    assert statement["Condition"] == {
        "StringEquals": {
            f"{issuer}:aud": "sts.amazonaws.com",
            f"{issuer}:sub": {"Fn::Sub": "repo:${Repository}:environment:${Stage}"},
        }
    }
    assert statement["Action"] == "sts:AssumeRoleWithWebIdentity"


def test_pipeline_role_changes_things_by_cdk_roles_only() -> None:
    statements = {s["Sid"]: s for s in role()["Policies"][0]["PolicyDocument"]["Statement"]}
    reads = statements.pop("Preflight")["Action"]
    assert [a for a in reads if not re.search(r":(Get|Describe|View|GET)", a)] == []
    assert {s["Action"] for s in statements.values()} == {
        "sts:AssumeRole",
        "secretsmanager:GetSecretValue",
        "kms:Decrypt",
        "lambda:GetAlias",
    }
    (service,) = statements["OperatorsKeyUnderOwnKmsKey"]["Condition"]["StringEquals"].values()
    assert service["Fn::Sub"].startswith("secretsmanager.")
    assert ":role/cdk-hnb659fds-*" in statements["CdkRoles"]["Resource"]["Fn::Sub"]


def test_pipeline_role_reads_operators_key_only() -> None:
    """By the beginning of its name, which CloudFormation makes of the logical id, and its tag."""
    statements = role()["Policies"][0]["PolicyDocument"]["Statement"]
    (reads,) = (s for s in statements if s["Sid"] == "OperatorsKeyForSmoke")
    beginning = reads["Resource"]["Fn::Sub"].rpartition(":secret:")[2].rstrip("*")
    secrets = properties(template(), "SecretsManager::Secret")
    assert [name for name in secrets if name.startswith(beginning)] == [
        template()["Outputs"]["FirstKeySecret"]["Value"]["Ref"]
    ]
    (tag,) = reads["Condition"]["StringEquals"]
    assert tag == "aws:ResourceTag/strandline:stack"


def test_pipeline_role_permits_every_call_of_preflight() -> None:
    statements = role()["Policies"][0]["PolicyDocument"]["Statement"]
    (allowed,) = (set(s["Action"]) for s in statements if s["Sid"] == "Preflight")
    source = Path(preflight.__file__).read_text()
    calls = set(re.findall(r'account\.call\(\s*"([\w-]+)",\s*"(\w+)"', source))
    assert len(calls) >= 8
    programs = {f"{service.replace('-', '')}:{_camel(name)}" for service, name in calls}
    named_otherwise = {
        "apigateway:GetAccount": "apigateway:GET",
        "budgets:DescribeBudgets": "budgets:ViewBudget",
    }
    programs = {named_otherwise.get(action, action) for action in programs}
    assert programs | {"cloudformation:DescribeStacks"} == allowed


def _camel(name: str) -> str:
    words = {"db": "DB"}
    return "".join(words.get(word, word.capitalize()) for word in name.split("_"))


def test_pipeline_stage_that_waits_for_review_holds_no_other() -> None:
    """A run that waits is not complete, and would hold what is of the whole workflow."""
    assert "concurrency" not in load("deploy.yml")
    group = load("deploy-stage.yml")["jobs"]["deploy"]["concurrency"]
    assert group == {"group": "deploy-${{ inputs.stage }}", "cancel-in-progress": False}


def test_pipeline_prod_waits_for_smoke_of_dev() -> None:
    jobs = load("deploy.yml")["jobs"]
    assert (jobs["dev"]["needs"], jobs["prod"]["needs"]) == ("check", "dev")
    assert [jobs[stage]["with"]["stage"] for stage in ("dev", "prod")] == ["dev", "prod"]
    assert {"dev", "prod"} <= CONTEXT["stages"].keys()
    for stage in ("dev", "prod"):
        assert jobs[stage]["permissions"]["id-token"] == "write"
    steps = load("deploy-stage.yml")["jobs"]["deploy"]["steps"]
    commands = [step["run"] for step in steps if "run" in step and "if" not in step]
    order = [re.search(r"make (\w+)|cdk (\w+)", command) for command in commands]
    verbs = [m and (m[1] or m[2]) for m in order]
    assert verbs == ["preflight", "synth", None, "deploy", "smoke"]
    assert "get-alias" in commands[2], "what there is to go back to is kept before"
    assert not [step for step in steps if step.get("continue-on-error")]


def test_pipeline_runs_arm64_layers_where_it_can() -> None:
    """`.ci/run` has the programs looked for that the step needs, and the example installs them."""
    script = (CI / "run").read_text()
    (install,) = (
        step["run"] for step in load("deploy.yml")["jobs"]["check"]["steps"] if "qemu" in str(step)
    )
    programs = re.findall(r"command -v ([\w-]+)", script)
    assert programs == ["qemu-aarch64-static", "mmdebstrap"]
    assert "then\n    make prove ARGS=layers\nfi" in script
    assert install.split()[-2:] == ["qemu-user-static", "mmdebstrap"]
    for program in programs:
        assert program in (ROOT / "layers" / "arm64_root.sh").read_text()


def test_pipeline_keeps_way_back_of_each_stage_and_attempt() -> None:
    """A run refuses a second artifact of one name (409), which would stop `prod` after `dev`."""
    steps = load("deploy-stage.yml")["jobs"]["deploy"]["steps"]
    (kept,) = (s["with"] for s in steps if s.get("uses", "").startswith("actions/upload-artifact"))
    assert {"${{ inputs.stage }}", "${{ github.run_attempt }}"} == set(
        re.findall(r"\${{ [\w.]+ }}", kept["name"])
    )
    assert kept["path"] == "before.txt"


@pytest.mark.parametrize("stack", ["", "memory"])
def test_pipeline_records_versions_of_functions_that_there_are(tmp_path: Path, stack: str) -> None:
    """A function that this release brings has no alias yet, and no line for the way back. What the
    role may not ask stops the release."""
    job = load("deploy-stage.yml")["jobs"]["deploy"]
    assert job["env"]["STACK"] == "${{ vars.STACK }}", "empty where the environment has none"
    (script,) = (s["run"] for s in job["steps"] if "get-alias" in s.get("run", ""))
    aws = tmp_path / "aws"
    aws.write_text(
        '#!/bin/sh\ncase "$*" in\n'
        f"*{stack or 'strandline-dev'}-query*) echo 7;;\n"
        "*-ingest*) echo ResourceNotFoundException >&2; exit 254;;\n"
        "*) echo AccessDeniedException >&2; exit 254;;\nesac\n"
    )
    aws.chmod(0o755)

    def run_script(*functions: str) -> "subprocess.CompletedProcess[str]":
        for name in functions:
            (tmp_path / "functions" / name).mkdir(parents=True)
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "STAGE": "dev", "STACK": stack}
        return subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    process = run_script("ingest", "query")
    assert (process.returncode, process.stdout) == (0, "ingest is new\n")
    assert (tmp_path / "before.txt").read_text() == "query 7\n"
    refused = run_script("admin")
    assert (refused.returncode, refused.stdout) == (1, "AccessDeniedException\n")


def test_pipeline_calls_what_there_is() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for name in ("deploy.yml", "deploy-stage.yml"):
        text = (CI / name).read_text()
        for target in re.findall(r"\bmake (\w[\w-]*)", text):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    outputs = re.findall(r"\(output (\w+)\)", (CI / "deploy-stage.yml").read_text())
    assert set(outputs) == {"FirstKeySecret", "ApiUrl"} <= template()["Outputs"].keys()
    assert json.loads((ROOT / "cdk.json").read_text())["outputsFile"] in text


@pytest.mark.parametrize("verb", ["preflight", "synth"])
def test_pipeline_verb_installs_what_it_reads_of_npm(verb: str) -> None:
    """RDS's certificates; and preflight is the first verb in a fresh clone."""
    rule = re.search(rf"^{verb}: (.+) ##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rule
    assert {"npm", "node_modules"} < set(rule[1].split())


@pytest.mark.proof
def test_pipeline_role_passes_cfn_lint() -> None:
    lint = Path(sys.executable).with_name("cfn-lint")
    process = subprocess.run(
        [lint, "--", CI / "deploy-role.yaml"], capture_output=True, text=True, check=False
    )
    assert (process.stdout + process.stderr, process.returncode) == ("", 0)
