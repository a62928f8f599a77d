"""JWTs: signed by a configured key, for this service, and for an existing tenant.

The settings, never the token, decide what may sign one (RFC 8725): the keys, and the algorithms of
each key. A header's `jku`, `x5u`, `jwk` and `x5c` are ignored. PyJWT verifies; it and
`cryptography` are imported only where JWTs are enabled.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from strandline import participants
from strandline.auth import store_tenants_and_keys
from strandline.auth.credentials import KEY_PREFIX, AuthRequest
from strandline.auth.jwks import JwkSet, VerificationKey, make_hmac_key
from strandline.auth.principals import Principal
from strandline.auth.store_tenants_and_keys import TenantWithSettings
from strandline.auth.ttl_cache import TtlCache
from strandline.config_auth import AuthSettings
from strandline.db.database import NOBODY, Caller, Database
from strandline.errors import Forbidden, Invalid, Unauthorized

if TYPE_CHECKING:
    from jwt.types import Options

_MAX_CHARACTERS = 8192
"""API Gateway accepts 10,240 bytes of headers."""
_LEEWAY_SECONDS = 60
_COMPACT_JWS = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
_TOKEN_TYPES = ("jwt", "at+jwt")
_TENANT = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
"""Same as `schemas.TENANT_PATTERN`: no tenant can have another name."""
_OPTIONS: "Options" = {"require": ["exp", "iss", "aud"], "enforce_minimum_key_length": True}


class Claims(NamedTuple):
    """The claims of a verified JWT."""

    tenant: str
    user: str
    rights: frozenset[str]


@dataclass(frozen=True)
class _TenantLookup:
    """The result of a tenant lookup."""

    tenant: TenantWithSettings | None
    """None: there is none of that name."""


class JwtAuth:
    """Authentication by JWT. Caches tenants; verifies every token every time."""

    credential_hint = "a JWT (Authorization: Bearer, or X-JWT-Token)"
    challenge = "Bearer"

    def __init__(self, database: Database, settings: AuthSettings) -> None:
        self._database = database
        self._settings = settings
        self._keys = (
            make_hmac_key(settings.jwt_secret, settings.jwt_algorithms)
            if settings.jwt_secret
            else JwkSet(settings.jwt_jwks or "", settings.jwt_algorithms)
        )
        self._tenant_cache = TtlCache[_TenantLookup]()

    def find_credential(self, request: AuthRequest) -> str | None:
        """The value of X-JWT-Token, or a Bearer token without the prefix of API keys."""
        token = request.headers.get("x-jwt-token", "").strip()
        if token:
            return token
        bearer = request.bearer_token
        return bearer if bearer and not bearer.startswith(KEY_PREFIX) else None

    def verify_offline(self, credential: str) -> Claims:
        """The claims of a valid token. Raises Unauthorized, or Unavailable when the issuer's keys
        cannot be fetched."""
        header, claims = _decode_unverified_token(credential)
        keys = self._keys
        key = keys if isinstance(keys, VerificationKey) else keys.find_key(header)
        if key is None:
            raise Unauthorized("No key that is known here signed the JWT.")
        self._require_valid_signature_and_claims(credential, key.material, key.algorithms)
        return Claims(
            _require_string_claim(claims, "tenant_id"),
            _to_user_participant(_require_string_claim(claims, "user_id")),
            self._map_scopes_to_rights(claims),
        )

    def authenticate(self, credential: str, deadline: float | None) -> Principal:
        """The token's principal. Raises Unauthorized; Forbidden for a tenant that does not exist,
        as no token creates one; Unavailable when a lookup is not possible. `deadline` is in
        time.monotonic() seconds."""
        claims = self.verify_offline(credential)
        entry = self._tenant_cache.get(claims.tenant) or self._tenant_cache.put(
            claims.tenant, _TenantLookup(self._look_up_tenant(claims.tenant, deadline))
        )
        if entry.tenant is None:
            raise Forbidden("tenant_id: the JWT's tenant does not exist in this deployment.")
        return Principal(
            claims.tenant,
            claims.user,
            claims.rights,
            agents_share=entry.tenant.agents_share,
            reading_space=entry.tenant.reading_space,
        )

    def _look_up_tenant(self, tenant: str, deadline: float | None) -> TenantWithSettings | None:
        if not _TENANT.fullmatch(tenant):
            return None
        access = self._database.connect_as(Caller(tenant, (NOBODY,)), deadline)
        return store_tenants_and_keys.get_tenant(access)

    def _require_valid_signature_and_claims(
        self, token: str, key: Any, algorithms: list[str]
    ) -> None:
        """Verify signature and registered claims with PyJWT. The signature comes first, so that
        only the holder of a genuine token learns what is wrong with it."""
        import jwt

        try:
            jwt.decode(
                token,
                key,
                algorithms=algorithms,
                audience=self._settings.jwt_audience,
                issuer=self._settings.jwt_issuer,
                leeway=_LEEWAY_SECONDS,
                options=_OPTIONS,
            )
        except jwt.ExpiredSignatureError:
            raise Unauthorized("The JWT has expired.") from None
        except jwt.ImmatureSignatureError:
            raise Unauthorized("The JWT is not valid yet.") from None
        except jwt.InvalidAudienceError:
            raise Unauthorized("The JWT is not for this service (aud).") from None
        except jwt.InvalidIssuerError:
            raise Unauthorized("The JWT is from another issuer (iss).") from None
        except jwt.MissingRequiredClaimError as error:
            raise Unauthorized(f"The JWT lacks {error.claim}.") from None
        except jwt.PyJWTError:
            _raise_unauthorized()

    def _map_scopes_to_rights(self, claims: Mapping[str, Any]) -> frozenset[str]:
        """The rights in `scope` (RFC 8693: words separated by spaces) or `scp` (the same, or a
        list). A claim that is present counts even if it is empty; null is not the same as
        absent."""
        name = next((name for name in ("scope", "scp") if name in claims), None)
        if name is None:
            return frozenset(self._settings.jwt_unscoped_rights) - {"none"}
        claim: object = claims[name]
        value: object = claim.split() if isinstance(claim, str) else claim
        if not isinstance(value, list):
            _raise_unauthorized()
        scopes = cast("list[object]", value)
        return frozenset(
            right for scope, right in self._settings.jwt_scope_rights.items() if scope in scopes
        )


def _raise_unauthorized() -> NoReturn:
    raise Unauthorized("The JWT is not one that is accepted here.") from None


def _decode_unverified_token(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and claims of a token that is not verified yet. Raises Unauthorized for anything but a
    JWS in compact form, for a duplicate member, and for a critical header (`crit`)."""
    if len(token) > _MAX_CHARACTERS or not _COMPACT_JWS.fullmatch(token):
        _raise_unauthorized()
    encoded_header, encoded_claims, _ = token.split(".")
    header, claims = _decode_json_segment(encoded_header), _decode_json_segment(encoded_claims)
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower().removeprefix("application/") not in _TOKEN_TYPES:
        _raise_unauthorized()
    if "crit" in header or "b64" in header:
        _raise_unauthorized()
    for name in ("exp", "nbf", "iat"):
        if name in claims and type(claims[name]) not in (int, float):
            _raise_unauthorized()
    return header, claims


def _decode_json_segment(segment: str) -> dict[str, Any]:
    try:
        raw = base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4))
        document: object = json.loads(
            raw.decode(),
            object_pairs_hook=_reject_duplicate_members,
            parse_constant=_reject_nan_and_infinity,
        )
    except (ValueError, binascii.Error, RecursionError):
        _raise_unauthorized()
    if not isinstance(document, dict):
        _raise_unauthorized()
    return cast("dict[str, Any]", document)


def _reject_duplicate_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object's members. Raises ValueError for a duplicate name: parsers differ in which one
    counts."""
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError
    return members


def _reject_nan_and_infinity(name: str) -> NoReturn:
    raise ValueError(name)


def _require_string_claim(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value.strip():
        raise Unauthorized(f"The JWT lacks {name}.")
    return value


def _to_user_participant(name: str) -> str:
    """The participant of a user claim: always `user:` and the claim unchanged, so that two users
    never share an id. A claim that is not in normal form is refused: to the issuer it may be
    another user."""
    participant = f"user:{name}"
    try:
        if participants.normalize_participant(participant, "user_id") == participant:
            return participant
    except Invalid:
        pass
    raise Unauthorized(
        "The JWT's user_id cannot be a participant: it must be trimmed, in NFC, and without "
        "control characters."
    )
