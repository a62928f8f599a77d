"""After a deployment: the outputs' file, a tenant and its first key."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from infra import first_key
from infra.first_key import Deployment, OutputsMissing, make_first_key, read_deployment
from tests.infra.stacks import ROOT, template

OUTPUTS: Mapping[str, Mapping[str, str]] = {
    "strandline-dev": {
        "ApiUrl": "https://a.execute-api.eu-west-1.amazonaws.com/api/",
        "FirstKeySecret": "arn:aws:secretsmanager:eu-west-1:1:secret:dev",
    },
    "strandline-prod": {"ApiUrl": "https://memory.example.com/", "FirstKeySecret": "arn:prod"},
}


def example(operation: str) -> dict[str, Any]:
    """What the service answers to an operation, as its documentation shows it."""
    examples = json.loads((ROOT / "shared/strandline/apidocs/examples.json").read_text())
    return next(one["answer"] for one in examples if one["operation"] == operation)


def test_first_key_finds_deployment_in_outputs() -> None:
    one = {"strandline-dev": OUTPUTS["strandline-dev"]}
    assert read_deployment(one, None).url == "https://a.execute-api.eu-west-1.amazonaws.com/api"
    assert read_deployment(OUTPUTS, "strandline-prod").first_key_secret == "arn:prod"
    none: Mapping[str, Mapping[str, str]] = {}
    for outputs, stack in ((OUTPUTS, None), (OUTPUTS, "other"), (none, None)):
        with pytest.raises(OutputsMissing, match="name one of the stacks"):
            read_deployment(outputs, stack)


def test_first_key_reads_what_stack_and_cdk_write() -> None:
    assert OUTPUTS["strandline-dev"].keys() <= template()["Outputs"].keys()
    assert json.loads((ROOT / "cdk.json").read_text())["outputsFile"] == str(first_key.OUTPUTS)


@pytest.mark.parametrize("is_new", [True, False])
def test_first_key_is_made_in_new_or_known_tenant(is_new: bool) -> None:
    calls: list[tuple[str, str, str, object]] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        calls.append((request.method, request.url.path, request.headers["x-api-key"], body))
        if request.url.path.endswith("/keys"):
            return httpx2.Response(201, json=example("POST /api/v1/admin/tenants/{tenant}/keys"))
        if is_new:
            return httpx2.Response(201, json=example("POST /api/v1/admin/tenants"))
        error: dict[str, Any] = {"code": "conflict", "message": "there", "details": {}}
        error |= {"request_id": "r", "retryable": False}
        return httpx2.Response(409, json={"error": error})

    token = make_first_key(
        Deployment("https://memory.example.com", "arn:prod"),
        "acme",
        {"arn:prod": "strandline_operator"}.__getitem__,
        httpx2.MockTransport(answer),
    )
    assert token == example("POST /api/v1/admin/tenants/{tenant}/keys")["token"]
    assert [call[:3] for call in calls] == [
        ("POST", "/api/v1/admin/tenants", "strandline_operator"),
        ("POST", "/api/v1/admin/tenants/acme/keys", "strandline_operator"),
    ]
    assert calls[1][3] == {"rights": ["read", "write"], "label": "first"}


def test_first_key_without_outputs_says_who_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert first_key.main(["--outputs", str(tmp_path / "none.json")]) == 2
    assert "npx cdk deploy writes build/outputs.json" in capsys.readouterr().err


def test_first_key_shows_call_to_copy() -> None:
    words = first_key.describe_first_call("https://memory.example.com", "strandline_first")
    call = words.split("curl ", 1)[1]
    assert "https://memory.example.com/api/v1/events" in call
    body = call.partition(" -d '")[2].rstrip().rstrip("'")
    assert json.loads(body)["participants"] == ["user:alice", "agent:helper"]
