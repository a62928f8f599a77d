"""What S3 checks of a write and moto does not: the body's SHA-256 and length, and conditions."""

import base64
import hashlib
import tempfile
import threading
from collections.abc import Iterable
from urllib.parse import unquote

from moto.s3.models import s3_backends

from strandline.local.aws_signature import Application, Environ, StartResponse
from strandline.local.lambda_context import ACCOUNT_ID

_CHUNK_BYTES = _MAX_MEMORY_BYTES = 1024 * 1024
_ERROR_BODY = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>%s</Message></Error>"
)


class WriteChecks:
    """WSGI middleware that refuses writes as S3 does, without storing anything: 400 BadDigest for a
    body that does not match its x-amz-checksum-sha256, 400 IncompleteBody for one that ends early,
    and 412 if the condition of a put or a copy is false.

    Conditional writes run one at a time, because moto checks first and writes later.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._one_at_a_time = threading.Lock()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] != "PUT":
            return self._application(environ, start_response)
        if (etag := environ.get("HTTP_X_AMZ_COPY_SOURCE_IF_MATCH")) is not None:
            with self._one_at_a_time:
                if etag != _find_source_etag(environ["HTTP_X_AMZ_COPY_SOURCE"]):
                    return _error_response(
                        start_response, "412 Precondition Failed", "PreconditionFailed"
                    )
                return self._application(environ, start_response)
        checksum = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
        if checksum is None or "aws-chunked" in environ.get("HTTP_CONTENT_ENCODING", ""):
            return self._forward_write(environ, start_response)
        with tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES) as body:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            size, digest = _receive_and_hash(environ, body, length)
            if size < length:
                return _error_response(start_response, "400 Bad Request", "IncompleteBody")
            if base64.b64encode(digest).decode() != checksum:
                return _error_response(start_response, "400 Bad Request", "BadDigest")
            body.seek(0)
            environ["wsgi.input"] = body
            # moto stores the checksum under this name with the object, as S3 does by itself.
            environ["HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM"] = "SHA256"
            return self._forward_write(environ, start_response)

    def _forward_write(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ:
            return self._application(environ, start_response)
        with self._one_at_a_time:
            return self._application(environ, start_response)


def _receive_and_hash(
    environ: Environ, body: "tempfile.SpooledTemporaryFile[bytes]", length: int
) -> tuple[int, bytes]:
    """Receive a body; returns its size and SHA-256."""
    digest, size = hashlib.sha256(), 0
    while chunk := environ["wsgi.input"].read(min(_CHUNK_BYTES, length - size)):
        digest.update(chunk)
        body.write(chunk)
        size += len(chunk)
    return size, digest.digest()


def _find_source_etag(source: str) -> str | None:
    """The ETag of a copy's source: `bucket/key`, URL-quoted."""
    bucket, _, key = unquote(source).lstrip("/").partition("/")
    moto_bucket = s3_backends[ACCOUNT_ID]["aws"].buckets.get(bucket)
    moto_key = moto_bucket and moto_bucket.keys.get(key)
    return moto_key.etag if moto_key else None


def _error_response(start_response: StartResponse, status: str, code: str) -> list[bytes]:
    headers = [("Content-Type", "application/xml"), ("Connection", "close")]
    start_response(status, headers)
    return [(_ERROR_BODY % (code, status)).encode()]
