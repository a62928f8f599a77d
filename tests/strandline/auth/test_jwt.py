"""JWTs: which hold, and how each forged one fails, without asking the database."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jwt
import pytest

from strandline.auth import jwt as auth_jwt
from strandline.auth.credentials import AuthRequest
from strandline.auth.jwks import JwkSet, VerificationKey
from strandline.auth.jwt import JwtAuth
from strandline.config import ServiceSettings
from strandline.db.database import Database
from strandline.errors import Unauthorized, Unavailable
from tests.strandline.auth.forged_tokens import BY_RSA, BY_SECRET, HS, RS, forge
from tests.tokens import (
    AUDIENCE,
    HASHES,
    ISSUER,
    SECRET,
    claims,
    ec_by,
    ec_key,
    ed_key,
    hmac_by,
    jwk,
    jwks,
    rsa_by,
    rsa_key,
    signed,
    token,
)

NOWHERE = Database("postgresql://app:secret@127.0.0.1:1/nothing")


def settings(**options: object) -> ServiceSettings:
    base: dict[str, object] = {"database_url": "x", "bucket": "x", "cursor_secret": "c" * 32}
    fields = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE}
    return ServiceSettings.model_validate(base | fields | options)


def by_secret(**options: object) -> JwtAuth:
    return JwtAuth(NOWHERE, settings(jwt_secret=SECRET, **options))


def by_keys(**options: object) -> JwtAuth:
    key_set = jwks(jwk(rsa_key("rsa"), kid="rsa"), jwk(ec_key("P-256"), kid="ec", use="sig"))
    return JwtAuth(NOWHERE, settings(jwt_jwks=key_set, **options))


# what holds --------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
def test_jwt_with_pinned_hmac_is_accepted(algorithm: str) -> None:
    sign = hmac_by(SECRET.encode(), f"sha{algorithm[2:]}")
    jwt_token = signed({"alg": algorithm}, claims(), sign)
    results = by_secret(jwt_algorithms=algorithm).verify_offline(jwt_token)
    assert results == ("acme", "user:alice", {"read", "write"})


@pytest.mark.parametrize(
    ("algorithm", "key", "sign"),
    [
        *((f"RS{n}", rsa_key("rsa"), rsa_by("rsa", f"RS{n}")) for n in HASHES),
        *((f"PS{n}", rsa_key("rsa"), rsa_by("rsa", f"PS{n}")) for n in HASHES),
        ("ES256", ec_key("P-256"), ec_by("P-256")),
        ("ES384", ec_key("P-384"), ec_by("P-384")),
        ("ES512", ec_key("P-521"), ec_by("P-521")),
        ("EdDSA", ed_key(), ed_key().sign),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_jwt_with_pinned_signature_is_accepted(algorithm: str, key: Any, sign: Any) -> None:
    key_set = jwks(jwk(key, kid="k", alg=algorithm, use="sig", key_ops=["verify"]))
    checker = JwtAuth(NOWHERE, settings(jwt_jwks=key_set, jwt_algorithms=algorithm))
    for kid in ({"kid": "k"}, {}):  # of one key none needs to be named
        jwt_token = signed({"alg": algorithm, **kid}, claims(), sign)
        assert checker.verify_offline(jwt_token).user == "user:alice"


@pytest.mark.parametrize(
    "other",
    [
        {"exp": -50},
        {"nbf": 50, "iat": 50},
        {"aud": ["others", AUDIENCE]},
        {"iat": None},
        {"sub": "somebody", "jti": "1"},
    ],
    ids=str,
)
def test_jwt_optional_claims_may_vary(other: dict[str, object]) -> None:
    now = time.time()
    results = {n: now + value if isinstance(value, int) else value for n, value in other.items()}
    assert by_secret().verify_offline(token(**results)).user == "user:alice"


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+JWT", None])
def test_jwt_type_header_is_optional(kind: str | None) -> None:
    header = HS if kind is None else {**HS, "typ": kind}
    assert by_secret().verify_offline(signed(header, claims(), BY_SECRET))


def test_jwt_ignores_key_locations_in_header() -> None:
    """Nor is a token refused for it: some issuers say where their keys are."""
    elsewhere = {"jku": "https://127.0.0.1:1/keys", "x5u": "https://127.0.0.1:1/x", "x5c": ["x"]}
    assert by_keys().verify_offline(signed({**RS, **elsewhere}, claims(), BY_RSA)).tenant == "acme"


@pytest.mark.parametrize(
    ("values", "message", "rights"),
    [
        ({}, {"scope": "read"}, {"read"}),
        ({}, {"scope": "openid read admin profile"}, {"read", "admin"}),
        ({}, {"scope": "operator"}, set[str]()),
        ({}, {"scope": "READ reads"}, set[str]()),
        ({}, {"scope": ""}, set[str]()),
        ({}, {"scope": None, "scp": ["write", 7]}, {"write"}),
        ({}, {"scope": None, "scp": "read write"}, {"read", "write"}),
        ({}, {"scope": "read", "scp": ["admin"]}, {"read"}),
        ({}, {"scope": "", "scp": ["admin"]}, set[str]()),
        ({}, {"scope": None}, {"read", "write"}),
        ({"jwt_unscoped_rights": "read"}, {"scope": None}, {"read"}),
        ({"jwt_unscoped_rights": "none"}, {"scope": None}, set[str]()),
        ({"jwt_scope_rights": '{"memory.ops": "operator"}'}, {"scope": "memory.ops"}, {"operator"}),
        ({"jwt_scope_rights": '{"memory.ops": "operator"}'}, {"scope": "read"}, set[str]()),
    ],
)
def test_jwt_scopes_map_to_rights(
    values: dict[str, object], message: dict[str, object], rights: set[str]
) -> None:
    assert by_secret(**values).verify_offline(token(**message)).rights == rights


def test_jwt_user_ids_never_collide() -> None:
    """Whatever the issuer calls its users: the claim is a name, and no participant."""
    for name, user in (("user:alice", "user:user:alice"), ("Zo\u00eb", "user:Zo\u00eb")):
        assert by_secret().verify_offline(token(user_id=name)).user == user
    for name in (" alice", "alice ", "alice\n", "\u00a0alice", "Zoe\u0308", "\u212bsa"):
        with pytest.raises(Unauthorized, match="user_id"):
            by_secret().verify_offline(token(user_id=name))


def test_jwt_is_distinguished_from_api_key_by_form() -> None:
    checker = by_secret()
    for headers, result in (
        ({"x-jwt-token": " a.b.c "}, "a.b.c"),
        ({"authorization": "Bearer a.b.c"}, "a.b.c"),
        ({"authorization": "Bearer strandline_x"}, None),
        ({"authorization": "Bearer strandline_x", "x-jwt-token": "a.b.c"}, "a.b.c"),
        ({"authorization": "Basic YTpi"}, None),
        ({"x-api-key": "a.b.c"}, None),
        ({}, None),
    ):
        assert checker.find_credential(AuthRequest(headers)) == result


# what does not -----------------------------------------------------------------------------------


def accepted() -> dict[str, Exception]:
    """The forged ones that are not 401, as a request brings them: with what they are instead."""
    results: dict[str, Exception] = {}
    checkers = {"rsa": by_keys(), "hmac": by_secret()}
    for label, kind, text in forge():
        try:
            checkers[kind].authenticate(text, None)
        except Unauthorized:
            continue
        except Exception as error:  # Unavailable: it held, and its tenant was looked up nowhere
            results[label] = error
    return results


def test_jwt_forgeries_are_refused_without_database() -> None:
    assert len(list(forge())) > 100
    assert accepted() == {}
    for checker, result in ((by_keys(), signed(RS, claims(), BY_RSA)), (by_secret(), token())):
        with pytest.raises(Unavailable):  # while a genuine one has its tenant looked up
            checker.authenticate(result, None)


def _algorithms_of_the_header(patch: pytest.MonkeyPatch) -> None:
    def find(keys: Any, header: Mapping[str, Any]) -> VerificationKey | None:
        result = find_key(keys, header)
        return result and VerificationKey(result.material, [str(header.get("alg"))])

    find_key = JwkSet.find_key
    patch.setattr(JwkSet, "find_key", find)


def _any_hmac(patch: pytest.MonkeyPatch) -> None:
    def make(secret: str, _: Sequence[str]) -> VerificationKey:
        return VerificationKey(secret, ["HS256", "HS384", "HS512"])

    patch.setattr(auth_jwt, "make_hmac_key", make)


def _any_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JwkSet, "_select_key", lambda keys, _: keys._keys[0][1])  # pyright: ignore


def _no_audience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_OPTIONS", {"require": ["exp"], "verify_aud": False})


def _no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_LEEWAY_SECONDS", 10**10)


def _last_member_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_reject_duplicate_members", dict)


def _any_size(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_MAX_CHARACTERS", 10**6)


def _embedded_keys(patch: pytest.MonkeyPatch) -> None:
    def find(keys: Any, header: Mapping[str, Any]) -> VerificationKey | None:
        own = header.get("jwk")
        return (
            VerificationKey(jwt.PyJWK(own, "RS256").key, ["RS256"])
            if own
            else find_key(keys, header)
        )

    find_key = JwkSet.find_key
    patch.setattr(JwkSet, "find_key", find)


@pytest.mark.parametrize(
    ("plant", "let_in"),
    [
        (_algorithms_of_the_header, {"RS384, which is not pinned", "PS256, which is not pinned"}),
        (_any_hmac, {"HS384, which is not pinned", "HS512, which is not pinned"}),
        (_any_key, {"kid 'none'", "no kid, of two keys", "another key's name"}),
        (_no_audience, {"aud 'other'", "aud None"}),
        (_no_end, {"exp 0", "exp -1"}),
        (_last_member_counts, {"tenant_id twice", "alg twice", "a member twice, within"}),
        (_any_size, {"huge"}),
        (_embedded_keys, {"jwk embedded", "jwk embedded and named"}),
    ],
)
def test_jwt_omitted_check_is_noticed(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], let_in: set[str]
) -> None:
    plant(monkeypatch)
    assert let_in <= set(accepted())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"exp": 1}, "The JWT has expired."),
        ({"nbf": time.time() + 3600}, "The JWT is not valid yet."),
        ({"aud": "other"}, "The JWT is not for this service (aud)."),
        ({"iss": "other"}, "The JWT is from another issuer (iss)."),
        ({"exp": None}, "The JWT lacks exp."),
        ({"tenant_id": None}, "The JWT lacks tenant_id."),
    ],
)
def test_jwt_genuine_but_refused_says_why(other: dict[str, object], message: str) -> None:
    with pytest.raises(Unauthorized) as error:
        by_secret().verify_offline(token(**other))
    assert error.value.message == message
    with pytest.raises(Unauthorized) as error:  # and who forged one does not
        by_secret().verify_offline(token(SECRET[::-1], **other))
    assert error.value.message == "The JWT is not one that is accepted here."
