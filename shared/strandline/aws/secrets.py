"""Secrets Manager: reads the secret settings of a deployment, and stores its first key.

Each call is one HTTPS request without boto3, because a cold start waits for it.
"""

import json
import os
import ssl
import time
from collections.abc import Mapping, MutableMapping
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, cast
from urllib.parse import urlsplit
from uuid import uuid4

from strandline.aws.sigv4 import Signer
from strandline.config import PREFIX, ServiceSettings
from strandline.errors import Misconfigured, Unavailable
from strandline.observability import logger

SECRETS_VARIABLE = PREFIX + "SECRETS"
"""The variable that names the secret whose members are settings."""
_JWT_KEYS = ("jwt_secret", "jwt_jwks")
_SERVICE = "secretsmanager"
_TIMEOUT_SECONDS = 3.0
"""Of one try: Lambda allows an init phase ten seconds."""
_RETRY_PAUSES = (0.2, 0.0)
"""The pause after each try, in seconds."""
_TRANSIENT_ERRORS = ("ThrottlingException", "InternalServiceError", "ServiceUnavailable")
_NOT_FOUND_ERROR = "ResourceNotFoundException"


class _SecretsManagerError(Exception):
    """An error that Secrets Manager answered, with its code."""


def load_secret_into_env(env: MutableMapping[str, str]) -> None:
    """Put the members of the secret that STRANDLINE_SECRETS names into `env`, as settings.
    Variables that are set already win. Does nothing without that variable.

    The members for JWTs may be in the secret before a release has a `jwt_issuer`. Until then they
    are skipped, so that no function fails to start over a setting that is not in use yet.

    Raises Unavailable when Secrets Manager cannot be reached (Lambda then repeats the init phase
    with the next request), and Misconfigured when the secret does not exist, may not be read, or is
    not a JSON object of strings.
    """
    arn = env.get(SECRETS_VARIABLE)
    if not arn:
        return
    text = read_secret(arn)
    if text is None:
        raise Misconfigured(
            f"{SECRETS_VARIABLE}: there is no secret {arn}, or it has no value yet."
        )
    members = _parse_settings_object(text)
    # An older release, to which traffic was rolled back, knows fewer settings; it must start
    # nonetheless.
    if unknown := sorted(members.keys() - ServiceSettings.model_fields.keys()):
        logger.warning("the secret has members that are not settings", extra={"settings": unknown})
    if not (env.get(PREFIX + "JWT_ISSUER") or members.get("jwt_issuer")):
        if inactive := sorted(members.keys() & set(_JWT_KEYS)):
            logger.warning("JWTs are off without jwt_issuer", extra={"settings": inactive})
        members = {name: text for name, text in members.items() if name not in _JWT_KEYS}
    for name in members.keys() & ServiceSettings.model_fields.keys():
        if not env.get(PREFIX + name.upper()):
            env[PREFIX + name.upper()] = members[name]


def read_secret(arn: str) -> str | None:
    """A secret's text; None if it has no value yet. Raises Unavailable or Misconfigured."""
    try:
        response = _call_with_retry("GetSecretValue", {"SecretId": arn})
    except _SecretsManagerError as error:
        if str(error) == _NOT_FOUND_ERROR:
            return None
        raise _make_misconfigured_error(arn, error) from None
    return response.get("SecretString")


def write_secret(arn: str, text: str) -> None:
    """Set a secret's value. Raises Unavailable, after which the value may be set or not, and
    Misconfigured."""
    try:
        # The token makes a second try the same version.
        version = uuid4().hex
        _call_with_retry(
            "PutSecretValue",
            {"SecretId": arn, "SecretString": text, "ClientRequestToken": version},
        )
    except _SecretsManagerError as error:
        raise _make_misconfigured_error(arn, error) from None


def _parse_settings_object(text: str) -> Mapping[str, str]:
    try:
        members = json.loads(text)
    except ValueError:
        members = None
    if not isinstance(members, dict):
        raise Misconfigured(f"{SECRETS_VARIABLE}: the secret is not a JSON object of settings.")
    members = cast("dict[str, object]", members)
    for name, value in members.items():
        if not isinstance(value, str):
            raise Misconfigured(
                f"{SECRETS_VARIABLE}: the secret's member {name!r} is not a string."
            )
    return cast("dict[str, str]", members)


def _make_misconfigured_error(arn: str, error: _SecretsManagerError) -> Misconfigured:
    return Misconfigured(f"Secrets Manager refuses {arn}: {error}.")


def _call_with_retry(operation: str, body: dict[str, str]) -> dict[str, Any]:
    """One request, tried a second time if that can help. Raises Unavailable or Misconfigured."""
    reason = ""
    for pause in _RETRY_PAUSES:
        try:
            return _send_signed_request(operation, body)
        except (OSError, HTTPException) as error:
            reason = type(error).__name__
        except _SecretsManagerError as api_error:
            reason = str(api_error)
            if reason not in _TRANSIENT_ERRORS:
                raise
        time.sleep(pause)
    raise Unavailable(
        f"Secrets Manager cannot be reached ({reason}) at {_find_endpoint_url()}: the function's "
        "network needs a route to it: an interface endpoint or a NAT gateway."
    )


def _send_signed_request(operation: str, body: Mapping[str, str]) -> dict[str, Any]:
    url, data = _find_endpoint_url(), json.dumps(body).encode()
    base_headers = {
        "content-type": "application/x-amz-json-1.1",
        "x-amz-target": f"{_SERVICE}.{operation}",
    }
    signer = Signer.from_env(os.environ)
    headers = signer.make_signed_post_headers(
        _SERVICE, url + "/", data, base_headers, datetime.now(UTC)
    )
    connection = _make_http_connection(url)
    try:
        connection.request("POST", "/", data, headers)
        response = connection.getresponse()
        text = response.read()
    finally:
        connection.close()
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError:
        document = {}
    if response.status == 200:
        return document
    kind = str(document.get("__type", "")).rpartition("#")[2]
    raise _SecretsManagerError(
        _TRANSIENT_ERRORS[-1] if response.status >= 500 else kind or f"HTTP {response.status}"
    )


def _make_http_connection(url: str) -> HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "http":
        return HTTPConnection(parts.netloc, timeout=_TIMEOUT_SECONDS)
    tls_context = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE") or None)
    return HTTPSConnection(parts.netloc, timeout=_TIMEOUT_SECONDS, context=tls_context)


def _find_endpoint_url() -> str:
    """The address of Secrets Manager; AWS's own variables override it."""
    for variable in ("AWS_ENDPOINT_URL_SECRETS_MANAGER", "AWS_ENDPOINT_URL"):
        if url := os.environ.get(variable):
            return url.rstrip("/")
    region = Signer.from_env(os.environ).region
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://{_SERVICE}.{region}.{suffix}"
