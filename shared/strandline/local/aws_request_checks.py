"""What AWS checks of a request and moto does not: its signature, version 4, which keeps the local
S3 closed to other users of the machine; and of a write the body's SHA-256, its length, its
conditions."""

import base64
import hashlib
import hmac
import io
import tempfile
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, unquote

from moto.s3.models import s3_backends

from strandline.local.lambda_context import ACCOUNT_ID

type Environ = dict[str, Any]
type StartResponse = Callable[..., Any]
type Application = Callable[[Environ, StartResponse], Iterable[bytes]]

ALGORITHM = "AWS4-HMAC-SHA256"
DENIED_BODY = b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>%s</Message></Error>"


class SignatureCheckMiddleware:
    """WSGI middleware that accepts only requests signed with `keys` (id to secret).

    Presigned URLs are valid until they expire; signed headers are checked regardless of the clock.
    Like moto, it does not compare a body with the signed x-amz-content-sha256; a body's own
    checksum is verified (`WriteCheckMiddleware`).
    """

    def __init__(self, application: Application, keys: dict[str, str]) -> None:
        self._application = application
        self._keys = keys

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        try:
            self._require_signature(environ)
        except ValueError as error:
            headers = [("Content-Type", "application/xml"), ("Connection", "close")]
            start_response("403 Forbidden", headers)
            return [DENIED_BODY % str(error).encode()]
        return self._application(environ, start_response)

    def _require_signature(self, environ: Environ) -> None:
        """Raise ValueError, with the reason, unless the request is signed and not expired."""
        path, _, query = environ["REQUEST_URI"].partition("?")
        pairs = parse_qsl(query, keep_blank_values=True)
        fields = dict(pairs)
        if "X-Amz-Signature" in fields:
            signature = fields["X-Amz-Signature"]
            pairs = [(n, v) for n, v in pairs if n != "X-Amz-Signature"]
            if _find_expiry_time(fields) < datetime.now(UTC):
                raise ValueError("Request has expired")
        else:
            fields = _parse_authorization_header(environ)
            signature = fields.pop("Signature")
        payload = _find_signed_payload_hash(environ, is_presigned="X-Amz-Expires" in fields)
        expected = self._compute_expected_signature(environ, path, pairs, fields, payload)
        if not hmac.compare_digest(signature, expected):
            raise ValueError("The signature does not match")

    def _compute_expected_signature(
        self,
        environ: Environ,
        path: str,
        pairs: list[tuple[str, str]],
        fields: dict[str, str],
        payload: str,
    ) -> str:
        key_id, *scope = _require_signature_field(fields, "X-Amz-Credential").split("/")
        names = _require_signature_field(fields, "X-Amz-SignedHeaders").split(";")
        query = "&".join(sorted(f"{quote(n, safe='~')}={quote(v, safe='~')}" for n, v in pairs))
        headers = "".join(f"{name}:{_get_canonical_header(environ, name)}\n" for name in names)
        request = "\n".join(
            (environ["REQUEST_METHOD"], path, query, headers, ";".join(names), payload)
        )
        moment = _require_signature_field(fields, "X-Amz-Date")
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join((ALGORITHM, moment, "/".join(scope), digest))
        if key_id not in self._keys or len(scope) != 4:
            raise ValueError("The access key is not one of this server's")
        key = f"AWS4{self._keys[key_id]}".encode()
        for part in (*scope, text):
            key = hmac.digest(key, part.encode(), "sha256")
        return key.hex()


def _parse_authorization_header(environ: Environ) -> dict[str, str]:
    """The parts of the Authorization header, under the names that a presigned URL uses."""
    kind, _, fields = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if kind != ALGORITHM:
        raise ValueError("Only signed requests are accepted")
    parts = dict(f.strip().partition("=")[::2] for f in fields.split(","))
    return {
        "X-Amz-Credential": _require_signature_field(parts, "Credential"),
        "X-Amz-SignedHeaders": _require_signature_field(parts, "SignedHeaders"),
        "X-Amz-Date": environ.get("HTTP_X_AMZ_DATE", ""),
        "Signature": _require_signature_field(parts, "Signature"),
    }


def _find_signed_payload_hash(environ: Environ, *, is_presigned: bool) -> str:
    """The body hash that the request signs; services other than S3 do not send it as a header."""
    if content_hash := environ.get("HTTP_X_AMZ_CONTENT_SHA256"):
        return content_hash
    if is_presigned:
        return "UNSIGNED-PAYLOAD"
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    environ["wsgi.input"] = io.BytesIO(body)
    return hashlib.sha256(body).hexdigest()


def _get_canonical_header(environ: Environ, name: str) -> str:
    key = name.upper().replace("-", "_")
    has_no_prefix = key in ("CONTENT_TYPE", "CONTENT_LENGTH")
    return " ".join(str(environ.get(key if has_no_prefix else f"HTTP_{key}", "")).split())


def _find_expiry_time(fields: dict[str, str]) -> datetime:
    moment = datetime.strptime(
        _require_signature_field(fields, "X-Amz-Date"), "%Y%m%dT%H%M%SZ"
    ).replace(tzinfo=UTC)
    return moment + timedelta(seconds=int(_require_signature_field(fields, "X-Amz-Expires")))


def _require_signature_field(fields: dict[str, str], name: str) -> str:
    if name not in fields:
        raise ValueError(f"The signature lacks {name}")
    return fields[name]


_CHUNK_BYTES = _MAX_MEMORY_BYTES = 1024 * 1024
_ERROR_BODY = (
    "<?xml version='1.0' encoding='UTF-8'?><Error><Code>%s</Code><Message>%s</Message></Error>"
)


class WriteCheckMiddleware:
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
                if etag != _find_copy_source_etag(environ["HTTP_X_AMZ_COPY_SOURCE"]):
                    return _respond_with_s3_error(
                        start_response, "412 Precondition Failed", "PreconditionFailed"
                    )
                return self._application(environ, start_response)
        checksum = environ.get("HTTP_X_AMZ_CHECKSUM_SHA256")
        if checksum is None or "aws-chunked" in environ.get("HTTP_CONTENT_ENCODING", ""):
            return self._forward_one_conditional_write_at_a_time(environ, start_response)
        with tempfile.SpooledTemporaryFile(_MAX_MEMORY_BYTES) as body:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            size, digest = _receive_and_hash(environ, body, length)
            if size < length:
                return _respond_with_s3_error(start_response, "400 Bad Request", "IncompleteBody")
            if base64.b64encode(digest).decode() != checksum:
                return _respond_with_s3_error(start_response, "400 Bad Request", "BadDigest")
            body.seek(0)
            environ["wsgi.input"] = body
            # moto stores the checksum under this name with the object, as S3 does by itself.
            environ["HTTP_X_AMZ_SDK_CHECKSUM_ALGORITHM"] = "SHA256"
            return self._forward_one_conditional_write_at_a_time(environ, start_response)

    def _forward_one_conditional_write_at_a_time(
        self, environ: Environ, start_response: StartResponse
    ) -> Iterable[bytes]:
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


def _find_copy_source_etag(source: str) -> str | None:
    """The ETag of a copy's source: `bucket/key`, URL-quoted."""
    bucket, _, key = unquote(source).lstrip("/").partition("/")
    moto_bucket = s3_backends[ACCOUNT_ID]["aws"].buckets.get(bucket)
    moto_key = moto_bucket and moto_bucket.keys.get(key)
    return moto_key.etag if moto_key else None


def _respond_with_s3_error(start_response: StartResponse, status: str, code: str) -> list[bytes]:
    headers = [("Content-Type", "application/xml"), ("Connection", "close")]
    start_response(status, headers)
    return [(_ERROR_BODY % (code, status)).encode()]
