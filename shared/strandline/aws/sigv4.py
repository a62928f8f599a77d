"""AWS Signature Version 4, for the two requests of a cold start: a database token and a secret.

Written with the standard library: importing botocore's signer costs 64 ms of a cold start's CPU. A
test holds this one equal to botocore's, byte for byte. Source: AWS's documentation of "Signature
Version 4 for API requests".
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from strandline.errors import Misconfigured

_ALGORITHM = "AWS4-HMAC-SHA256"
TOKEN_SECONDS = 900
"""How long a database token can open a connection; AWS's limit. An open connection outlives it."""


@dataclass(frozen=True)
class Signer:
    """Credentials and region of a signature."""

    key_id: str
    secret: str = field(repr=False)
    session_token: str = field(repr=False)
    """The token of temporary credentials; empty for long-term ones."""
    region: str

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Signer":
        """Built from the variables that Lambda sets. Raises Misconfigured naming the missing
        ones."""
        region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or ""
        key_id, secret = env.get("AWS_ACCESS_KEY_ID", ""), env.get("AWS_SECRET_ACCESS_KEY", "")
        required = {
            "AWS_REGION": region,
            "AWS_ACCESS_KEY_ID": key_id,
            "AWS_SECRET_ACCESS_KEY": secret,
        }
        if missing := [name for name, value in required.items() if not value]:
            raise Misconfigured(f"{', '.join(missing)}: Lambda sets them; set them elsewhere.")
        return cls(key_id, secret, env.get("AWS_SESSION_TOKEN", ""), region)

    def sign_database_token(self, host: str, port: int, user: str, now: datetime) -> str:
        """The password of `user` for IAM database authentication: the signed URL of a request to
        connect, without its scheme."""
        timestamp, day = _format_timestamp_and_day(now)
        query = {
            "Action": "connect",
            "DBUser": user,
            "X-Amz-Algorithm": _ALGORITHM,
            "X-Amz-Credential": f"{self.key_id}/{self._make_credential_scope(day, 'rds-db')}",
            "X-Amz-Date": timestamp,
            "X-Amz-Expires": str(TOKEN_SECONDS),
            "X-Amz-SignedHeaders": "host",
        }
        if self.session_token:
            query["X-Amz-Security-Token"] = self.session_token
        endpoint, query_string = f"{host}:{port}", _encode_query_string(query)
        canonical = [
            "GET",
            "/",
            _encode_query_string(dict(sorted(query.items()))),
            f"host:{endpoint}",
            "",
            "host",
        ]
        signature = self._compute_signature("rds-db", timestamp, [*canonical, _sha256_hex(b"")])
        return f"{endpoint}/?{query_string}&X-Amz-Signature={signature}"

    def make_signed_post_headers(
        self, service: str, url: str, body: bytes, headers: Mapping[str, str], now: datetime
    ) -> dict[str, str]:
        """`headers`, with those that sign a POST of `body` to `url`."""
        timestamp, day = _format_timestamp_and_day(now)
        address = urlsplit(url)
        all_headers = {name.lower(): value for name, value in headers.items()}
        all_headers |= {"host": address.netloc, "x-amz-date": timestamp}
        if self.session_token:
            all_headers["x-amz-security-token"] = self.session_token
        names = ";".join(sorted(all_headers))
        lines = [f"{name}:{all_headers[name]}" for name in sorted(all_headers)]
        canonical = ["POST", address.path or "/", "", *lines, "", names, _sha256_hex(body)]
        signature = self._compute_signature(service, timestamp, canonical)
        credential = f"Credential={self.key_id}/{self._make_credential_scope(day, service)}"
        authorization = f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}"
        return all_headers | {"authorization": authorization}

    def _make_credential_scope(self, day: str, service: str) -> str:
        return f"{day}/{self.region}/{service}/aws4_request"

    def _compute_signature(self, service: str, timestamp: str, canonical: list[str]) -> str:
        scope = self._make_credential_scope(timestamp[:8], service)
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        string_to_sign = "\n".join(
            [_ALGORITHM, timestamp, scope, _sha256_hex("\n".join(canonical).encode())]
        )
        return hmac.digest(key, string_to_sign.encode(), "sha256").hex()


def _format_timestamp_and_day(now: datetime) -> tuple[str, str]:
    timestamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    return timestamp, timestamp[:8]


def _encode_query_string(members: Mapping[str, str]) -> str:
    return "&".join(f"{name}={quote(value, safe='-_.~')}" for name, value in members.items())


def _sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
