"""What CloudFormation calls in a release: it runs `migrate`, and on the way back it does not."""

import io
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from functions.migrate import handler as migrate_handler
from infra import release_function
from strandline.function_specs import FUNCTIONS
from tests.infra.stacks import properties, template

CUT_SECONDS = 350
"""Silent connections are cut after it by what lies between (NAT, load balancers of AWS)."""
MIGRATE = "arn:aws:lambda:eu-west-1:111122223333:function:strandline-dev-migrate"


class Account:
    """Lambda and CloudFormation: versions that fail or not, and what was answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.called: list[str] = []
        self.answers: list[dict[str, Any]] = []
        self.error: dict[str, str] | None = None
        """Of `migrate`."""
        self.cuts = 0
        """Connections that are cut while `migrate` runs."""
        self.on_cut: Callable[[], None] = lambda: None
        self.errors: dict[str, dict[str, str]] = {}
        """Of others, by version."""
        self.busy: list[str] = []
        """The codes with which the next calls of others are refused."""
        self.busy_migrate: list[str] = []
        self.stopped: set[str] = set()
        """Functions with a concurrency of 0."""

    def invoke(self, FunctionName: str, Payload: bytes) -> dict[str, Any]:
        """Lambda's own call."""
        is_migrate = FunctionName.startswith(MIGRATE)
        assert json.loads(Payload) == ({} if is_migrate else {"ping": True})
        self.called.append(FunctionName)
        if is_migrate and self.cuts:
            self.cuts -= 1
            self.on_cut()
            raise ReadTimeoutError(endpoint_url="https://lambda")
        if busy := self.busy_migrate if is_migrate else self.busy:
            raise ClientError({"Error": {"Code": busy.pop()}}, "Invoke")
        error = self.error if is_migrate else self.errors.get(FunctionName)
        if error is None:
            return {"StatusCode": 200, "Payload": io.BytesIO(b"{}")}
        text = json.dumps(error).encode()
        return {"StatusCode": 200, "FunctionError": "Unhandled", "Payload": io.BytesIO(text)}

    def get_function_concurrency(self, FunctionName: str) -> dict[str, int]:
        """Lambda's own call."""
        stopped = {"ReservedConcurrentExecutions": 0}
        return stopped if FunctionName in self.stopped else {}

    def ask(
        self,
        kind: str,
        version: int = 7,
        before: int | None = None,
        others: Sequence[str] = (),
        others_before: Sequence[str] = (),
    ) -> dict[str, Any]:
        """One request of CloudFormation, and the answer to it."""
        event: dict[str, Any] = {
            "RequestType": kind,
            "ResponseURL": self.url,
            "StackId": "stack",
            "RequestId": "request",
            "LogicalResourceId": "ReleaseSchema",
            "ResourceProperties": {
                "ServiceToken": "caller",
                "Version": f"{MIGRATE}:{version}",
                "Others": [*others],
            },
        }
        if before is not None:
            event["OldResourceProperties"] = {
                "Version": f"{MIGRATE}:{before}",
                "Others": [*others_before],
            }
        release_function.handler(event, SimpleNamespace(log_stream_name="stream"))
        return self.answers[-1]


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    class Answers(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            own_account.answers.append(json.loads(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        own_account = Account(f"http://127.0.0.1:{server.server_port}/")

        def client(service: str, config: Any) -> Account:
            assert (service, config.retries["total_max_attempts"]) == ("lambda", 1)
            assert config.read_timeout < CUT_SECONDS
            return own_account

        monkeypatch.setattr(release_function, "_BOTO3", SimpleNamespace(client=client))
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield own_account
        server.shutdown()
        thread.join()


def test_release_runs_migrate_and_waits_for_it(account: Account) -> None:
    for kind, before in (("Create", None), ("Update", 6), ("Update", 7)):
        answer = account.ask(kind, 7, before)
        assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "release")
        assert answer["LogicalResourceId"] == "ReleaseSchema"
    assert account.called == [f"{MIGRATE}:7"] * 3


def test_release_fails_with_reason_of_migrate(account: Account) -> None:
    account.error = {"errorType": "Misconfigured", "errorMessage": "JWT_ISSUER is set, but no key"}
    answer = account.ask("Update", 7, before=6)
    assert answer["Status"] == "FAILED"
    assert answer["Reason"] == f"{MIGRATE}:7: Misconfigured: JWT_ISSUER is set, but no key"


def test_release_waits_for_migrate_longer_than_connections_last(account: Account) -> None:
    """The second run waits for the first, whose answer nobody heard. A third has no time left."""
    account.cuts = 1
    assert account.ask("Update", 7, before=6, others=[f"{QUERY}:3"])["Status"] == "SUCCESS"
    assert account.called == [f"{MIGRATE}:7", f"{MIGRATE}:7", f"{QUERY}:3"]
    account.called.clear()
    account.cuts = 2
    answer = account.ask("Update", 7, before=6)
    assert (answer["Status"], len(account.called)) == ("FAILED", 2)
    assert "Read timeout" in answer["Reason"]


def test_release_migrate_ends_before_its_connection() -> None:
    """What waits for a lock or for a database that wakes up says so while somebody listens."""
    specs = {fn.name: fn for fn in FUNCTIONS}
    assert migrate_handler.WAIT_SECONDS + migrate_handler.RESERVE_SECONDS < CUT_SECONDS
    runs = 2 * release_function._READ_SECONDS  # pyright: ignore[reportPrivateUsage]
    assert specs["migrate"].timeout < runs < 900
    patience = max(release_function._PATIENCE.values())  # pyright: ignore[reportPrivateUsage]
    assert runs + patience < 900, "of the functions that are pinged after it"


def test_release_waits_for_busy_migrate_once(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted from its first call: busy, cut, busy and cut again would outlast Lambda's limit."""
    clock = [0.0]
    monkeypatch.setattr(release_function.time, "monotonic", lambda: clock[0])
    account.on_cut = lambda: clock.__setitem__(0, clock[0] + 340)
    account.cuts = 1
    account.busy_migrate = ["TooManyRequestsException"]
    answer = account.ask("Update", 7, before=6)
    assert (answer["Status"], len(account.called)) == ("FAILED", 2)
    assert "TooManyRequestsException" in answer["Reason"]


def test_release_rollback_applies_nothing(account: Account) -> None:
    """The older `migrate` would read the secret that the newer one has just refused, or miss the
    database that it missed, and the stack would stay in UPDATE_ROLLBACK_FAILED."""
    account.error = {"errorType": "Misconfigured", "errorMessage": "the secret is no JSON object"}
    assert account.ask("Update", 12, before=9)["Status"] == "FAILED"
    assert account.ask("Update", 9, before=12)["Status"] == "SUCCESS"
    assert account.called == [f"{MIGRATE}:12"], "9 < 12, and not by their text"


QUERY, INGEST = (MIGRATE.replace("migrate", name) for name in ("query", "ingest"))


def test_release_pings_every_other_version_after_migrate(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is not ready, whose instances are busy or whose rights are not known yet, again."""
    monkeypatch.setattr(release_function, "_PAUSE", 0.0)
    account.busy = ["ResourceConflictException", "TooManyRequestsException"]
    account.busy += ["AccessDeniedException"]  # Lambda's, for which botocore has no class
    account.busy_migrate = ["AccessDeniedException"]
    assert account.ask("Create", 7, others=[f"{QUERY}:3", f"{INGEST}:5"])["Status"] == "SUCCESS"
    assert account.called[0] == f"{MIGRATE}:7"
    assert account.called[1] == f"{MIGRATE}:7"
    assert set(account.called[2:]) == {f"{QUERY}:3", f"{INGEST}:5"}
    assert len(account.called) == 2 + 2 + 3


def test_release_repeats_ping_whose_login_is_not_known_yet(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The function says so itself: its error is of its own, not of Lambda."""
    refused = {f"{QUERY}:3": {"errorType": "LoginRefused", "errorMessage": "The token is refused."}}
    account.errors = refused

    def wait(seconds: float) -> None:
        del seconds
        refused.clear()

    monkeypatch.setattr(release_function.time, "sleep", wait)
    assert account.ask("Create", 7, others=[f"{QUERY}:3"])["Status"] == "SUCCESS"
    assert account.called[1:] == [f"{QUERY}:3"] * 2


def test_release_does_not_call_stopped_functions(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During a restore nothing may run; a function that is only busy is waited for."""
    monkeypatch.setattr(release_function, "_PATIENCE", {})
    account.stopped = {QUERY, INGEST}
    account.busy = ["TooManyRequestsException"] * 2
    assert account.ask("Create", 7, others=[f"{QUERY}:3", f"{INGEST}:5"])["Status"] == "SUCCESS"
    account.stopped = {INGEST}
    account.busy = ["TooManyRequestsException"]
    assert account.ask("Create", 7, others=[f"{QUERY}:3"])["Status"] == "FAILED"


def test_release_fails_with_reason_of_broken_version(account: Account) -> None:
    """And no alias has moved: one broken layer would take down all functions that have it."""
    error = {
        "errorType": "Runtime.ImportModuleError",
        "errorMessage": "No module named 'tokenizers'",
    }
    account.errors = {f"{QUERY}:4": error}
    others = {
        "others": [f"{QUERY}:4", f"{INGEST}:5"],
        "others_before": [f"{QUERY}:3", f"{INGEST}:5"],
    }
    answer = account.ask("Update", 7, before=7, **others)
    assert answer["Status"] == "FAILED"
    assert answer["Reason"].startswith(f"{QUERY}:4: Runtime.ImportModuleError: No module named")
    account.called.clear()
    account.error = error
    back = {"others": others["others_before"], "others_before": others["others"]}
    assert account.ask("Update", 7, before=7, **back)["Status"] == "SUCCESS"
    assert account.called == [], "the way back judges nothing"


def test_release_ignores_deletion_and_versions_of_other_function(account: Account) -> None:
    """A stack that is deleted, or whose first deployment failed, calls nothing. Numbers of another
    function are no order."""
    assert account.ask("Delete", 7)["Status"] == "SUCCESS"
    assert account.called == []
    event = {
        "RequestType": "Update",
        "ResourceProperties": {"Version": f"{MIGRATE}:1"},
        "OldResourceProperties": {"Version": f"{MIGRATE}-before:30"},
    }
    assert release_function.is_no_rollback(event)


def test_release_template_has_source_and_growing_version() -> None:
    stack = template()
    (caller,) = (n for n in properties(stack, "Lambda::Function") if n.startswith("ReleaseCaller"))
    props = properties(stack, "Lambda::Function")[caller]
    assert "def is_no_rollback" in props["Code"]["ZipFile"]
    assert len(props["Code"]["ZipFile"]) < 4096
    assert "VpcConfig" not in props
    (resource,) = (r for r in stack["Resources"].values() if r["Type"] == "Custom::Release")
    assert resource["Properties"]["ServiceToken"] == {"Fn::GetAtt": [caller, "Arn"]}
    version = resource["Properties"]["Version"]["Ref"]
    assert stack["Resources"][version]["Type"] == "AWS::Lambda::Version"
    assert stack["Resources"][version]["DeletionPolicy"] == "RetainExceptOnCreate"
    others = [other["Ref"] for other in resource["Properties"]["Others"]]
    versions = {n for n, r in stack["Resources"].items() if r["Type"] == "AWS::Lambda::Version"}
    assert {version, *others} == versions
    role = properties(stack, "IAM::Role")[props["Role"]["Fn::GetAtt"][0]]
    actions = [s["Action"] for p in role["Policies"] for s in p["PolicyDocument"]["Statement"]]
    assert actions == [
        "lambda:InvokeFunction",
        "lambda:GetFunctionConcurrency",
        ["logs:CreateLogStream", "logs:PutLogEvents"],
    ]
