"""A private AWS in this process: S3 stored in files, SQS in memory, closed to other users of the
machine."""

import json
import os
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import boto3  # pyright: ignore[reportMissingTypeStubs]
from moto.core.model_instances import model_data
from moto.moto_server.werkzeug_app import (  # pyright: ignore[reportMissingTypeStubs]
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from moto.s3.models import s3_backends
from moto.scheduler.models import scheduler_backends
from moto.sqs.models import sqs_backends
from moto.stepfunctions.parser.asl.utils import boto_client
from werkzeug.serving import BaseWSGIServer, make_server

from strandline.local import s3_object_files
from strandline.local.aws_request_checks import (
    Application,
    Environ,
    SignatureCheckMiddleware,
    StartResponse,
    WriteCheckMiddleware,
)
from strandline.local.lambda_context import ACCOUNT_ID, REGION

HOST = "127.0.0.1"
# Neither has types: boto3 creates its clients at run time, and moto's module gets a replacement for
# boto3.
BOTO3: Any = boto3
STATE_MACHINES: Any = boto_client
KEY_ID = "strandline-local"
MAX_RECEIVES = 3  # after these a message goes to the dead-letter queue
VISIBILITY_SECONDS = 180


class SilentMotoRequestHandler(MotoRequestHandler):
    """moto's request handler without a log line per request."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing: a served request is not news."""


class LocalAws:
    """S3 and SQS for this process and its children; a context manager.

    An object put into `bucket` is in `directory`/blobs/<bucket> before the put is answered, and is
    there again at the next start: its bytes and time, not its metadata. Queues are empty at a
    start.

    While it runs it owns every AWS_* variable of the environment, so that no client of this process
    can reach a real account; clients created before keep their settings. The secret key is new at
    each start: another process has it only if it inherits or is given the environment.
    """

    def __init__(self, directory: Path, *, bucket: str = "strandline-local") -> None:
        self.bucket = bucket
        self.endpoint = ""
        self.work_queue_url = ""
        self.work_dead_letter_url = ""
        self.job_queue_url = ""
        self.job_dead_letter_url = ""
        self.keys = {KEY_ID: secrets.token_urlsafe(30)}
        self.blobs = directory / "blobs" / bucket
        self._server: BaseWSGIServer | None = None
        self._thread: threading.Thread | None = None
        self._environment: dict[str, str] = {}

    def start(self) -> Self:
        """Create bucket and queues, and serve on a free port of the loopback interface."""
        _stop_moto_instance_tracking()
        application: Any = DomainDispatcherApplication(create_backend_app)
        checked_application = SignatureCheckMiddleware(
            WriteCheckMiddleware(_hide_form_content_type_of_puts(application)), self.keys
        )
        server = make_server(
            HOST, 0, checked_application, threaded=True, request_handler=SilentMotoRequestHandler
        )
        self._server, self.endpoint = server, f"http://{HOST}:{server.port}"
        # Seconds between two checks for a stop; requests do not wait for it.
        serve, pause = server.serve_forever, 0.05
        self._thread = threading.Thread(target=serve, args=(pause,), name="aws", daemon=True)
        self._thread.start()
        self._replace_aws_environment()
        self._use_own_keys_in_moto_calls()
        with closing(make_local_client("s3")) as s3:
            s3.create_bucket(Bucket=self.bucket)
        s3_object_files.keep_bucket_in_files(
            s3_backends[ACCOUNT_ID]["aws"], self.bucket, self.blobs
        )
        with closing(make_local_client("sqs")) as sqs:
            self.work_queue_url, self.work_dead_letter_url = _create_queue_with_dead_letter_queue(
                sqs, "strandline"
            )
            self.job_queue_url, self.job_dead_letter_url = _create_queue_with_dead_letter_queue(
                sqs, "strandline-runs"
            )
        return self

    def stop(self) -> None:
        """Stop the server, drop its queues, and restore the environment."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server = self._thread = None
        s3_backends[ACCOUNT_ID]["aws"].reset()
        sqs_backends[ACCOUNT_ID][REGION].reset()
        scheduler_backends[ACCOUNT_ID][REGION].reset()
        STATE_MACHINES.boto3 = boto3
        for name in _select_aws_variables(os.environ):
            del os.environ[name]
        os.environ.update(self._environment)
        BOTO3.DEFAULT_SESSION = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def environment(self) -> dict[str, str]:
        """The variables that make this server a process's only AWS; they include the secret key."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": self.keys[KEY_ID],
            "AWS_DEFAULT_REGION": REGION,
            "AWS_REGION": REGION,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def _replace_aws_environment(self) -> None:
        """Make this server the only AWS that new clients can find."""
        self._environment = _select_aws_variables(os.environ)
        for name in self._environment:
            del os.environ[name]
        os.environ.update(self.environment())
        # boto3's default session caches the first credentials that it finds.
        BOTO3.DEFAULT_SESSION = None

    def _use_own_keys_in_moto_calls(self) -> None:
        """moto's own state machines call AWS with made-up keys; make them use this server's."""
        overrides: dict[str, Any] = {
            "endpoint_url": self.endpoint,
            "aws_access_key_id": KEY_ID,
            "aws_secret_access_key": self.keys[KEY_ID],
        }

        def make_client(**options: Any) -> Any:
            return make_local_client(**(options | overrides))

        STATE_MACHINES.boto3 = SimpleNamespace(client=make_client)


def make_local_client(*service: str, **options: Any) -> Any:
    """A boto3 client with the environment's endpoint and credentials."""
    return BOTO3.client(*service, **options)


def _create_queue_with_dead_letter_queue(sqs: Any, name: str) -> tuple[str, str]:
    """Create a queue and its dead-letter queue; returns both URLs."""
    dead_letter_url: str = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    response = sqs.get_queue_attributes(QueueUrl=dead_letter_url, AttributeNames=["QueueArn"])
    dead_arn = response["Attributes"]["QueueArn"]
    redrive = {"deadLetterTargetArn": dead_arn, "maxReceiveCount": MAX_RECEIVES}
    attributes = {
        "RedrivePolicy": json.dumps(redrive),
        "VisibilityTimeout": str(VISIBILITY_SECONDS),
    }
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"], dead_letter_url


def _hide_form_content_type_of_puts(application: Application) -> Application:
    """Keep moto from reading the body of a PUT as a form, which stores an empty object.

    A plain HTTP client (urllib, curl) sends a form's content type by default.
    """

    def serve(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] == "PUT" and "form" in environ.get("CONTENT_TYPE", ""):
            environ["CONTENT_TYPE"] = "binary/octet-stream"
        return application(environ, start_response)

    return serve


def _select_aws_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that configure AWS clients."""
    return {name: value for name, value in environment.items() if name.startswith("AWS_")}


def _stop_moto_instance_tracking() -> None:
    """Keep moto from holding on to every object and message for its dashboard."""
    for service in ("s3", "sqs"):
        for model in model_data[service].values():
            model_class: Any = model
            model_class.instances_tracked = deque[object](maxlen=0)
