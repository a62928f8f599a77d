"""The jobs' state machine on one machine: the deployed definition, run by moto's interpreter, which
calls the handlers where AWS would invoke Lambda. The interpreter is imported without the services
that none of the functions calls."""

import importlib
import importlib.util
import json
import logging
import re
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Self

from moto.awslambda.models import LambdaBackend
from moto.core.config import default_user_config

from strandline.local.aws import make_local_client
from strandline.local.lambda_context import ACCOUNT_ID, REGION, Handler, LambdaContext

_BATCH = "moto.batch"
"""The interpreter reads one enumeration of this package, and the package imports all of EC2: 0.7 s
of each start."""


def _import_parser_without_batch() -> Any:
    """Import them while a stand-in takes the place of moto's Batch."""
    spec = importlib.util.find_spec(_BATCH)
    if spec is None or _BATCH in sys.modules:
        return _import_parser_backends()
    stand_in = ModuleType(_BATCH)
    stand_in.__path__ = spec.submodule_search_locations or []
    sys.modules[_BATCH] = stand_in
    try:
        return _import_parser_backends()
    finally:
        del sys.modules[_BATCH]


def _import_parser_backends() -> Any:
    models = importlib.import_module("moto.stepfunctions.parser.models")
    return models.stepfunctions_parser_backends


STATE_MACHINES: Any = _import_parser_without_batch()
"""moto's own state machines, by account and Region."""
RUN_THREADS: list[Any] = importlib.import_module("moto.stepfunctions.parser.utils").TMP_THREADS
"""The threads of runs. moto adds each and never reads them, so they would keep what a run held."""

logger = logging.getLogger(__name__)

PREFIX = "strandline-"
"""The prefix of functions' names in the template."""
_FUNCTION_SECONDS = 900.0
_MAX_INVOCATIONS = 20
"""The most steps of all runs at once; the others wait. Each holds a connection to the database, and
a run may begin while others work. In an account, a function's reserved concurrency bounds them."""
_MAX_EXECUTIONS = 50
"""The most executions that moto remembers: by default it keeps all of them, with their
histories."""
_WAIT = re.compile(r'"IntervalSeconds": \d+')
_NO_WAIT = '"IntervalSeconds": 1, "MaxDelaySeconds": 1'
"""For tests: retries wait a second, because nothing frees resources meanwhile."""
_END_SECONDS = 5.0
"""Seconds that a stop waits for runs under way."""
# moto's class has no types; its `invoke` is replaced while a machine runs, to call the handlers.
_LAMBDA: Any = LambdaBackend


class StateMachine:
    """The machine that runs every job, in a running `LocalAws`; a context manager.

    While it runs, invoking a Lambda in this process calls the handlers of `add_handlers`.
    """

    def __init__(self, definition: Path, bucket: str, *, fast_retries: bool = False) -> None:
        """`fast_retries` is for tests: a retry waits a second, not minutes. Otherwise the
        definition is the template's, byte for byte, with its names filled in."""
        self.arn = ""
        self._definition = definition.read_text()
        for name, value in {"Bucket": bucket, "FunctionPrefix": PREFIX}.items():
            self._definition = self._definition.replace(f"${{{name}}}", value)
        if fast_retries:
            self._definition = _WAIT.sub(_NO_WAIT, self._definition)
        self._handlers: dict[str, Handler] = {}
        self._forget_lock = threading.Lock()
        self._invocations = threading.BoundedSemaphore(_MAX_INVOCATIONS)
        self._original_invoke = _LAMBDA.invoke

    def __enter__(self) -> Self:
        # moto logs every failed step in its own terms; the handlers log failures themselves.
        logging.getLogger("moto.stepfunctions").setLevel(logging.CRITICAL)
        default_user_config["stepfunctions"] = {"execute_state_machine": True}
        _LAMBDA.invoke = self._make_lambda_invoke()
        with closing(make_local_client("stepfunctions")) as states:
            response = states.create_state_machine(
                name="strandline-job",
                definition=self._definition,
                roleArn=f"arn:aws:iam::{ACCOUNT_ID}:role/local",
            )
        self.arn = response["stateMachineArn"]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.wait_for_runs()
        _LAMBDA.invoke = self._original_invoke
        STATE_MACHINES[ACCOUNT_ID][REGION].reset()
        default_user_config["stepfunctions"] = {"execute_state_machine": False}

    def add_handlers(self, handlers: Mapping[str, Handler]) -> None:
        """Add the jobs' functions, by name."""
        self._handlers |= handlers

    def start(self, job: str, tenant: str | None = None) -> str:
        """Start a run of a job, in all tenants or in one. Returns the execution's ARN."""
        run_input = {"job": job} | ({"tenant": tenant} if tenant else {})
        with closing(make_local_client("stepfunctions")) as states:
            response = states.start_execution(
                stateMachineArn=self.arn, name=str(uuid.uuid4()), input=json.dumps(run_input)
            )
        return response["executionArn"]

    def state(self, execution: str) -> Mapping[str, Any]:
        """AWS's description of an execution: its `status`, and its `output` once it has one."""
        with closing(make_local_client("stepfunctions")) as states:
            return states.describe_execution(executionArn=execution)

    def wait(self, execution: str, seconds: float) -> Mapping[str, Any]:
        """The description once the execution has ended, or as it is after so many seconds."""
        deadline = time.monotonic() + seconds
        while (state := self.state(execution))["status"] == "RUNNING":
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return state

    def wait_for_runs(self) -> None:
        """Wait a few seconds for runs under way to end."""
        deadline = time.monotonic() + _END_SECONDS
        while self._has_running_execution() and time.monotonic() < deadline:
            time.sleep(0.02)

    def _has_running_execution(self) -> bool:
        """Whether a run has not ended yet."""
        return any(is_execution_running(execution) for execution in list_executions())

    def _forget_finished_executions(self) -> None:
        """Make moto forget executions that ended, except for the latest."""
        RUN_THREADS.clear()
        with self._forget_lock:  # steps run in several threads
            for machine in STATE_MACHINES[ACCOUNT_ID][REGION].state_machines:
                past_executions = [
                    execution
                    for execution in machine.executions
                    if not is_execution_running(execution)
                ]
                for execution in past_executions[:-_MAX_EXECUTIONS]:
                    machine.executions.remove(execution)

    def _make_lambda_invoke(self) -> Any:
        handlers = self._handlers
        forget_finished = self._forget_finished_executions
        invocations = self._invocations

        def invoke(
            _backend: object,
            function_name: str,
            _qualifier: str | None,
            body: Any,
            _headers: object,
            response_headers: dict[str, Any],
        ) -> bytes:
            """Answer as Lambda does: a function's result, or the type of the error that it failed
            with."""
            forget_finished()  # here, because runs are started through moto's API too
            name = function_name.rpartition(":")[2].removeprefix(PREFIX)
            try:
                with invocations:  # the time limit begins after the wait
                    answer = handlers[name](
                        json.loads(body or "{}"), LambdaContext(name, _FUNCTION_SECONDS)
                    )
            except Exception as error:
                # Without the error's message: a database's may quote a row.
                kind = type(error).__name__
                logger.warning("%s failed: %s", name, kind)
                response_headers["x-amz-function-error"] = "Unhandled"
                answer = {"errorType": kind, "errorMessage": kind}
            return json.dumps(answer).encode()

        return invoke


def list_executions() -> list[Any]:
    """The executions that moto remembers, the oldest first."""
    return [
        execution
        for machine in STATE_MACHINES[ACCOUNT_ID][REGION].state_machines
        for execution in [*machine.executions]  # copied: other threads add and remove some
    ]


def is_execution_running(execution: Any) -> bool:
    """Whether an execution of moto's has not ended: moto lists it before it has a status."""
    return execution.exec_status is None or execution.status == "RUNNING"
