"""The settings that say who is let in: API keys, JWTs, client certificates, each on by itself."""

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationInfo, field_validator

type HmacAlgorithm = Literal["HS256", "HS384", "HS512"]
type KeyAlgorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
]
_HASH_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""A secret is at least as long as what it makes (RFC 7518, 3.2)."""
_RIGHTS = ("read", "write", "admin")
_OTHER_METHODS = ("jwt_secret", "jwt_jwks", "client_certificates")


class AuthSettings(BaseModel):
    """Which credentials are asked for. Without any the service does not start."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    client_certificates: bool = False
    """Client certificates are a way in: the gateway asks for one (mutual TLS), and its subject has
    a row that an operator entered."""
    jwt_secret: str | None = None
    """JWTs are a way in, and carry an HMAC under this secret of at least 32 bytes."""
    jwt_jwks: str | None = None
    """JWTs are a way in, and are signed by one of these keys: a JWK Set (RFC 7517) as JSON, or the
    https:// address of one. Instead of `jwt_secret`."""
    jwt_algorithms: tuple[HmacAlgorithm | KeyAlgorithm, ...] = Field(
        default=(), validate_default=True
    )
    """What may have signed a JWT, separated by commas: of a secret HS256 (the default), HS384,
    HS512; of keys RS256, ES256, EdDSA (the default), and RS, PS and ES with 384 and 512. A JWT's
    own header chooses among these at most."""
    jwt_issuer: str = Field(default="", validate_default=True)
    """The `iss` of every JWT, exactly. Required where JWTs are a way in."""
    jwt_audience: str = Field(default="", validate_default=True)
    """What the `aud` of every JWT is or holds. Required where JWTs are a way in."""
    jwt_scope_rights: Json[dict[str, Literal["read", "write", "admin", "operator"]]] = Field(
        default={right: right for right in _RIGHTS}
    )
    """What each word of a JWT's `scope` or `scp` allows, as a JSON object; other words allow
    nothing. `operator` is not among the defaults."""
    jwt_unscoped_rights: tuple[Literal["read", "write", "none"], ...] = ("read", "write")
    """What a JWT without `scope` and `scp` allows to its user, separated by commas; or `none`."""
    auth_require_all: bool = False
    """Every way that is on must be gone: each credential there and good, of one tenant and user. A
    right holds if all of them give it."""
    key_secret: str | None = Field(default=None, min_length=32, validate_default=True)
    """API keys are a way in, and carry a MAC under this secret of the deployment."""

    cursor_secret: str | None = Field(default=None, min_length=32, validate_default=True)
    """What cursors and marks are sealed under, at least 32 characters. Required only where neither
    API keys nor `jwt_secret` is on, whose secret serves (in this order). Another one ends every
    cursor that was given out before."""

    @property
    def sealing_secret(self) -> str:
        """The secret that cursors and marks are sealed under."""
        return self.cursor_secret or self.key_secret or self.jwt_secret or ""

    @property
    def jwt_enabled(self) -> bool:
        """Whether JWTs are a way in."""
        return bool(self.jwt_secret or self.jwt_jwks)

    @field_validator("jwt_algorithms", "jwt_unscoped_rights", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

    @field_validator("jwt_secret")
    @classmethod
    def _check_length(cls, value: str | None) -> str | None:
        if value is not None and len(value.encode()) < 32:
            raise ValueError("must have at least 32 bytes")
        return value

    @field_validator("jwt_jwks")
    @classmethod
    def _check_jwks(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("jwt_secret"):
            raise ValueError("stands instead of the HMAC secret: set one of the two")
        if value.lstrip().startswith("{"):
            _require_jwk_set(value)
        else:
            _require_https_url(value)
        return value

    @field_validator("jwt_algorithms")
    @classmethod
    def _check_algorithms(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        secret = info.data.get("jwt_secret")
        if not value:
            return ("HS256",) if secret else ("RS256", "ES256", "EdDSA")
        for name in value:
            if (name in _HASH_BYTES) is not bool(secret):
                raise ValueError("HS… goes with an HMAC secret, all others with a JWK Set")
            if secret and len(secret.encode()) < _HASH_BYTES[name]:
                raise ValueError(f"{name} needs a secret of {_HASH_BYTES[name]} bytes")
        return value

    @field_validator("jwt_issuer", "jwt_audience")
    @classmethod
    def _check_required(cls, value: str, info: ValidationInfo) -> str:
        if not value and (info.data.get("jwt_secret") or info.data.get("jwt_jwks")):
            raise ValueError("is required where JWTs are a way in")
        return value

    @field_validator("key_secret")
    @classmethod
    def _check_any_method(cls, value: str | None, info: ValidationInfo) -> str | None:
        others = [
            info.data.get(name, True) for name in _OTHER_METHODS
        ]  # an unusable one is told by itself
        if value is None and not any(others):
            raise ValueError(
                "is missing, and no other way to authenticate is on: set it for API keys, "
                "STRANDLINE_JWT_SECRET or STRANDLINE_JWT_JWKS for JWTs, or "
                "STRANDLINE_CLIENT_CERTIFICATES=true"
            )
        return value

    @field_validator("cursor_secret")
    @classmethod
    def _check_cursor_secret(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None and not (info.data.get("key_secret", True) or info.data.get("jwt_secret")):
            raise ValueError(
                "is missing: without API keys and without an HMAC secret for JWTs there is nothing "
                "else that cursors could be sealed under"
            )
        return value


def _require_jwk_set(text: str) -> None:
    try:
        keys = json.loads(text)["keys"]
    except (ValueError, KeyError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not keys:
        raise ValueError('is no JWK Set: {"keys": [...]}')


def _require_https_url(text: str) -> None:
    url = urlsplit(text)
    if url.scheme != "https" or not url.hostname or "@" in url.netloc:
        raise ValueError("must be a JWK Set as JSON, or its https:// address without a password")
