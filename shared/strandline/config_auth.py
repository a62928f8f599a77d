"""The settings of authentication: API keys, JWTs and client certificates, each enabled by
itself."""

import json
from typing import Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, Json, ValidationInfo, field_validator
from typing_extensions import TypeAliasType

HmacAlgorithm = TypeAliasType("HmacAlgorithm", Literal["HS256", "HS384", "HS512"])
KeyAlgorithm = TypeAliasType(
    "KeyAlgorithm",
    Literal[
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
    ],
)
_HASH_BYTES = {"HS256": 32, "HS384": 48, "HS512": 64}
"""An HMAC secret has at least as many bytes as its hash (RFC 7518, 3.2)."""
_RIGHTS = ("read", "write", "admin")
_OTHER_METHODS = ("jwt_secret", "jwt_jwks", "client_certificates")


class AuthSettings(BaseModel):
    """The credentials that are accepted. The service does not start without any."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    client_certificates: bool = False
    """Enables client certificates: the gateway asks for one (mutual TLS), and an operator must have
    registered its subject."""
    jwt_secret: str | None = None
    """Enables JWTs with an HMAC under this secret of at least 32 bytes."""
    jwt_jwks: str | None = None
    """Enables JWTs that are signed by one of these keys: a JWK Set (RFC 7517) as JSON, or the
    https:// address of one. An alternative to `jwt_secret`."""
    jwt_algorithms: tuple[HmacAlgorithm | KeyAlgorithm, ...] = Field(
        default=(), validate_default=True
    )
    """The algorithms that a JWT may be signed with, separated by commas. With a secret: HS256 (the
    default), HS384, HS512. With keys: RS256, ES256, EdDSA (the default), and RS, PS and ES with 384
    and 512. A JWT's own header can only choose among these."""
    jwt_issuer: str = Field(default="", validate_default=True)
    """The exact `iss` of every JWT. Required if JWTs are enabled."""
    jwt_audience: str = Field(default="", validate_default=True)
    """A value that every JWT's `aud` must be or contain. Required if JWTs are enabled."""
    jwt_scope_rights: Json[dict[str, Literal["read", "write", "admin", "operator", "erase"]]] = (
        Field(default={right: right for right in _RIGHTS})
    )
    """The right that each word of a JWT's `scope` or `scp` gives, as a JSON object; other words
    give none. The defaults include neither `operator` nor `erase`."""
    jwt_unscoped_rights: tuple[Literal["read", "write", "none"], ...] = ("read", "write")
    """The rights of a JWT without `scope` and `scp`, separated by commas; or `none`."""
    auth_require_all: bool = False
    """Every enabled method is required: each credential present and valid, of the same tenant and
    user. A right applies only if all of them give it."""
    key_secret: str | None = Field(default=None, min_length=32, validate_default=True)
    """Enables API keys, which carry a MAC under this secret of the deployment."""

    cursor_secret: str | None = Field(default=None, min_length=32, validate_default=True)
    """The secret that cursors and marks are sealed under, at least 32 characters. By default the
    secret of API keys is used, else `jwt_secret`; required only if neither is set. A change
    invalidates every cursor that was returned before."""

    @property
    def sealing_secret(self) -> str:
        """The secret that cursors and marks are sealed under."""
        return self.cursor_secret or self.key_secret or self.jwt_secret or ""

    @property
    def jwt_enabled(self) -> bool:
        """Whether JWTs are enabled."""
        return bool(self.jwt_secret or self.jwt_jwks)

    @field_validator("jwt_algorithms", "jwt_unscoped_rights", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

    @field_validator("jwt_secret")
    @classmethod
    def _check_jwt_secret_length(cls, value: str | None) -> str | None:
        if value is not None and len(value.encode()) < 32:
            raise ValueError("must have at least 32 bytes")
        return value

    @field_validator("jwt_jwks")
    @classmethod
    def _check_jwks(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is None:
            return value
        if info.data.get("jwt_secret"):
            raise ValueError("is an alternative to STRANDLINE_JWT_SECRET: set only one of the two")
        if value.lstrip().startswith("{"):
            _require_jwk_set(value)
        else:
            _require_https_url(value)
        return value

    @field_validator("jwt_algorithms")
    @classmethod
    def _check_jwt_algorithms(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
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
    def _require_if_jwt_enabled(cls, value: str, info: ValidationInfo) -> str:
        if not value and (info.data.get("jwt_secret") or info.data.get("jwt_jwks")):
            raise ValueError("is required when JWTs are enabled")
        return value

    @field_validator("key_secret")
    @classmethod
    def _require_any_auth_method(cls, value: str | None, info: ValidationInfo) -> str | None:
        others = [
            info.data.get(name, True) for name in _OTHER_METHODS
        ]  # an invalid one has an error of its own
        if value is None and not any(others):
            raise ValueError(
                "is missing, and no other way to authenticate is enabled: set it for API keys, "
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
        raise ValueError('is not a JWK Set: {"keys": [...]}')


def _require_https_url(text: str) -> None:
    url = urlsplit(text)
    if url.scheme != "https" or not url.hostname or "@" in url.netloc:
        raise ValueError("must be a JWK Set as JSON, or its https:// address without a password")
