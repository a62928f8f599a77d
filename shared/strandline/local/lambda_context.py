"""A handler: its module, its type, and the context that Lambda passes to it."""

import importlib
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

# Events and answers are JSON of many shapes; only handlers know what is in them.
type Event = dict[str, Any]
type Handler = Callable[[Event, Any], Any]

ACCOUNT_ID = "123456789012"  # moto's account: the ARNs of queues and functions use the same
REGION = "us-east-1"
MEMORY_MB = 1024


class LambdaContext:
    """One invocation's context; the remaining time counts down from `seconds`."""

    def __init__(self, function_name: str, seconds: float, request_id: str | None = None) -> None:
        self.function_name = function_name
        self.function_version = "$LATEST"
        self.memory_limit_in_mb = MEMORY_MB
        self.aws_request_id = request_id or str(uuid.uuid4())
        self.invoked_function_arn = f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{function_name}"
        self.log_group_name = f"/aws/lambda/{function_name}"
        self.log_stream_name = "local"
        self.identity = None
        self.client_context = None
        self._deadline = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Milliseconds until Lambda would end the invocation; never negative."""
        return max(0, round((self._deadline - time.monotonic()) * 1000))


def derive_function_name(handler: Handler) -> str:
    """`ingest` for functions/ingest/handler.py; any other handler's own name."""
    module = getattr(handler, "__module__", "").split(".")
    if module[-1] == "handler" and len(module) > 1:
        return module[-2]
    return getattr(handler, "__name__", type(handler).__name__)


_REPOSITORY = Path(__file__).parents[3]
_BUNDLE = Path(__file__).parent / "bundle"
"""Where the wheel has them: pyproject.toml, `force-include`."""


def find_state_machine_definition() -> Path:
    """The file of the state machine's definition."""
    beside = _REPOSITORY / "infra" / "job.asl.json"
    return beside if beside.exists() else _BUNDLE / "job.asl.json"


def import_handler_module(name: str) -> ModuleType:
    """The module of a function's handler."""
    is_repository = (_REPOSITORY / "functions" / name / "handler.py").exists()
    prefix = "" if is_repository else "strandline.local.bundle."
    return importlib.import_module(f"{prefix}functions.{name}.handler")
