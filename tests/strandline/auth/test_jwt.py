"""JWTs: which hold, and how each forged one fails, without asking the database."""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jwt
import pytest

from strandline.auth import jwt as auth_jwt
from strandline.auth.credentials import AuthRequest
from strandline.auth.jwks import HmacSecret, JwkSet, VerificationKey
from strandline.auth.jwt import JwtAuth
from strandline.config import ServiceSettings
from strandline.db.database import Database
from strandline.errors import Unauthorized, Unavailable
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
    public_pem,
    rsa_by,
    rsa_key,
    signed,
    token,
    word,
)

NOWHERE = Database("postgresql://app:secret@127.0.0.1:1/nothing")
RS: dict[str, object] = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
HS: dict[str, object] = {"alg": "HS256", "typ": "JWT"}
BY_SECRET = hmac_by(SECRET.encode())
BY_RSA = rsa_by("rsa")


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
def test_each_hmac_holds_where_it_is_pinned(algorithm: str) -> None:
    sign = hmac_by(SECRET.encode(), f"sha{algorithm[2:]}")
    jwt_token = signed({"alg": algorithm}, claims(), sign)
    results = by_secret(jwt_algorithms=algorithm).check(jwt_token)
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
def test_each_signature_holds_where_it_is_pinned(algorithm: str, key: Any, sign: Any) -> None:
    key_set = jwks(jwk(key, kid="k", alg=algorithm, use="sig", key_ops=["verify"]))
    checker = JwtAuth(NOWHERE, settings(jwt_jwks=key_set, jwt_algorithms=algorithm))
    for kid in ({"kid": "k"}, {}):  # of one key none needs to be named
        jwt_token = signed({"alg": algorithm, **kid}, claims(), sign)
        assert checker.check(jwt_token).user == "user:alice"


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
def test_what_may_differ_in_a_good_one(other: dict[str, object]) -> None:
    now = time.time()
    results = {n: now + value if isinstance(value, int) else value for n, value in other.items()}
    assert by_secret().check(token(**results)).user == "user:alice"


@pytest.mark.parametrize("kind", ["JWT", "jwt", "at+jwt", "application/at+JWT", None])
def test_a_type_may_be_said(kind: str | None) -> None:
    header = HS if kind is None else {**HS, "typ": kind}
    assert by_secret().check(signed(header, claims(), BY_SECRET))


def test_where_its_header_says_keys_lie_is_not_read() -> None:
    """Nor is a token refused for it: some issuers say where their keys are."""
    elsewhere = {"jku": "https://127.0.0.1:1/keys", "x5u": "https://127.0.0.1:1/x", "x5c": ["x"]}
    assert by_keys().check(signed({**RS, **elsewhere}, claims(), BY_RSA)).tenant == "acme"


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
def test_scopes_are_mapped_to_rights(
    values: dict[str, object], message: dict[str, object], rights: set[str]
) -> None:
    assert by_secret(**values).check(token(**message)).rights == rights


def test_one_user_s_id_is_never_another_s() -> None:
    """Whatever the issuer calls its users: the claim is a name, and no participant."""
    for name, user in (("user:alice", "user:user:alice"), ("Zo\u00eb", "user:Zo\u00eb")):
        assert by_secret().check(token(user_id=name)).user == user
    for name in (" alice", "alice ", "alice\n", "\u00a0alice", "Zoe\u0308", "\u212bsa"):
        with pytest.raises(Unauthorized, match="user_id"):
            by_secret().check(token(user_id=name))


def test_a_key_and_a_jwt_are_told_apart_by_their_form() -> None:
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


def forge() -> Iterator[tuple[str, str, str]]:
    """(what it is, "rsa" or "hmac", the token): each differs from a good one in one thing."""
    good = claims()
    pem = public_pem("rsa")
    genuine = signed(RS, good, BY_RSA)
    head, body, signature = genuine.split(".")
    own = jwk(rsa_key("own"), kid="own")
    for name in ("none", "None", "NONE", "nOnE", "", None, 0, ["RS256"]):
        yield f"alg {name!r}, unsigned", "rsa", signed({**RS, "alg": name}, good, lambda _: b"")
        yield f"alg {name!r}, signed", "rsa", signed({**RS, "alg": name}, good, BY_RSA)
        yield f"alg {name!r}, by the secret", "hmac", signed({**HS, "alg": name}, good, BY_SECRET)
    yield "no alg", "rsa", signed({"kid": "rsa"}, good, BY_RSA)
    for label, secret in (
        ("PEM", pem),
        ("PEM without its last line break", pem.strip()),
        ("DER", base64.b64decode(b"".join(pem.splitlines()[1:-1]))),
        ("JWK", json.dumps(jwk(rsa_key("rsa"), kid="rsa")).encode()),
        ("nothing", b""),
    ):
        header = {**RS, "alg": "HS256"}
        yield f"HMAC under the public {label}", "rsa", signed(header, good, hmac_by(secret))
    for name in ("RS384", "RS512", "PS256"):
        header = {**RS, "alg": name}
        yield f"{name}, which is not pinned", "rsa", signed(header, good, rsa_by("rsa", name))
    for name in ("HS384", "HS512"):
        sign = hmac_by(SECRET.encode(), f"sha{name[2:]}")
        yield f"{name}, which is not pinned", "hmac", signed({**HS, "alg": name}, good, sign)
    yield "an RSA key's, said to be ES256", "rsa", signed({**RS, "alg": "ES256"}, good, BY_RSA)
    yield "another key's name", "rsa", signed({**RS, "kid": "ec"}, good, BY_RSA)
    for kid in ("none", "../../../../dev/null", "' or 1=1 --", "", "RSA", ["rsa"], 1, {"a": 1}):
        yield f"kid {kid!r}", "rsa", signed({**RS, "kid": kid}, good, BY_RSA)
        header = {"alg": "HS256", "kid": kid}
        yield f"kid {kid!r}, HMAC under nothing", "rsa", signed(header, good, hmac_by(b""))
    yield "no kid, of two keys", "rsa", signed({"alg": "RS256"}, good, BY_RSA)
    by_own = rsa_by("own")
    yield "of another key", "rsa", signed(RS, good, by_own)
    yield "jwk embedded", "rsa", signed({**RS, "jwk": own}, good, by_own)
    yield "jwk embedded and named", "rsa", signed({**RS, "kid": "own", "jwk": own}, good, by_own)
    for name in ("jku", "x5u"):
        header = {**RS, "kid": "own", name: "https://127.0.0.1:1/keys"}
        yield f"{name} of another", "rsa", signed(header, good, by_own)
    yield "x5c embedded", "rsa", signed({**RS, "x5c": [word(pem)]}, good, by_own)
    yield "crit", "rsa", signed({**RS, "crit": ["exp"], "exp": 1}, good, BY_RSA)
    yield "crit, empty", "rsa", signed({**RS, "crit": []}, good, BY_RSA)
    yield "b64 false", "rsa", signed({**RS, "b64": False, "crit": ["b64"]}, good, BY_RSA)
    for kind in ("JWE", "secevent+jwt", "", 7, ["JWT"], "logout+jwt"):
        yield f"typ {kind!r}", "rsa", signed({**RS, "typ": kind}, good, BY_RSA)
    yield from _of_wrong_claims()
    yield "signature stripped", "rsa", f"{head}.{body}."
    yield "signature and its dot stripped", "rsa", f"{head}.{body}"
    yield "signature cut", "rsa", f"{head}.{body}.{signature[:-4]}"
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    yield "signature flipped", "rsa", f"{head}.{body}.{flipped}"
    others = signed({**RS, "x": 1}, claims(user_id="bob"), BY_RSA).split(".")
    yield "claims of another", "rsa", f"{head}.{others[1]}.{signature}"
    yield "header of another", "rsa", f"{others[0]}.{body}.{signature}"
    for label, text in (
        ("padding", f"{head}.{body}.{signature}=="),
        ("a line break", f"{head}.{body}\n.{signature}"),
        ("a blank", f"{head}. {body}.{signature}"),
        ("letters that are none", f"{head}.{body}.{signature[:-2]}++"),
        ("other letters", f"{head}.{body}.{signature[:-1]}é"),
        ("four parts", f"{genuine}.x"),
        ("five parts", f"{head}..{body}.{body}.{signature}"),
        ("two dots", ".."),
        ("a letter", "x"),
        ("an API key's look", f"strandlin_{'A' * 86}"),
    ):
        yield label, "rsa", text
    for label, text in (
        ("a list", "[]"),
        ("text", '"x"'),
        ("no JSON", "{"),
        ("UTF-16", json.dumps(good).encode("utf-16")),
        ("broken UTF-8", b'{"a": "\xff"}'),
        ("deep", "[" * 5000 + "]" * 5000),
    ):
        yield f"claims are {label}", "rsa", signed(RS, text, BY_RSA)
        yield f"header is {label}", "rsa", signed(text, good, BY_RSA)


def _of_wrong_claims() -> Iterator[tuple[str, str, str]]:
    now = time.time()
    wrong: dict[str, tuple[object, ...]] = {
        "exp": (None, now - 61, 0, -1, str(int(now + 300)), True, [now + 300], {"a": 1}),
        "nbf": (now + 120, "0", True, [0]),
        "iat": (now + 120, "0", [0]),
        "iss": (None, "", "https://issuer.example/", ISSUER.upper(), [ISSUER], "other", 7),
        "aud": (None, "", AUDIENCE.upper(), "other", ["other"], [], [7], {AUDIENCE: 1}),
        "tenant_id": (None, "", " ", 7, ["acme"], {"acme": 1}, True),
        "user_id": (None, "", " ", 7, ["alice"], "a\nb", "a\x00b", "a\ud800", "x" * 200, True),
        "scope": (7, {"read": 1}, True),
        "sub": (7,),
    }
    for name, values in wrong.items():
        for value in values:
            claim_set = claims(**{name: value})
            yield f"{name} {value!r:.30}", "hmac", signed(HS, claim_set, BY_SECRET)
    for name, more in (("scope", {"scp": ["read"]}), ("scope", {}), ("scp", {})):
        nothing = {**claims(scope=None), **more, name: None}
        yield f"{name} null, {more}", "hmac", signed(HS, nothing, BY_SECRET)
    text = json.dumps(claims())
    for name in ("tenant_id", "exp", "aud"):
        twice = text[:-1] + f', "{name}": {json.dumps(claims()[name])}' + "}"
        yield f"{name} twice", "hmac", signed(HS, twice, BY_SECRET)
    within = text[:-1] + ', "a": {"b": 1, "b": 2}}'
    yield "a member twice, within", "hmac", signed(HS, within, BY_SECRET)
    header = '{"alg": "HS256", "alg": "HS256"}'
    yield "alg twice", "hmac", signed(header, claims(), BY_SECRET)
    for number in ("1e999", "Infinity", "NaN", "9" * 5000):
        endless = re.sub(r'"exp": \d+', f'"exp": {number}', text)
        yield f"exp {number[:9]}", "hmac", signed(HS, endless, BY_SECRET)
    yield "huge", "hmac", token(more="x" * 8192)
    yield "of another secret", "hmac", token(SECRET[::-1])
    yield "under no secret", "hmac", token("")


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


def test_every_forged_one_is_refused_without_a_connection() -> None:
    assert len(list(forge())) > 100
    assert accepted() == {}
    for checker, result in ((by_keys(), signed(RS, claims(), BY_RSA)), (by_secret(), token())):
        with pytest.raises(Unavailable):  # while a genuine one has its tenant looked up
            checker.authenticate(result, None)


def _algorithms_of_the_header(patch: pytest.MonkeyPatch) -> None:
    def find(keys: Any, header: Mapping[str, Any]) -> VerificationKey | None:
        result = find_key(keys, header)
        return result and VerificationKey(result.material, [str(header.get("alg"))])

    find_key = JwkSet.find
    patch.setattr(JwkSet, "find", find)


def _any_hmac(patch: pytest.MonkeyPatch) -> None:
    def find(_: HmacSecret, header: Mapping[str, object]) -> VerificationKey:
        return VerificationKey(SECRET, [str(header.get("alg"))])

    patch.setattr(HmacSecret, "find", find)


def _any_key(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JwkSet, "_select", lambda keys, _: keys._keys[0][1])  # pyright: ignore


def _no_audience(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_OPTIONS", {"require": ["exp"], "verify_aud": False})


def _no_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_LEEWAY_SECONDS", 10**10)


def _last_member_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(auth_jwt, "_reject_duplicates", dict)


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

    find_key = JwkSet.find
    patch.setattr(JwkSet, "find", find)


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
def test_a_check_left_out_is_noticed(
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
def test_who_holds_a_genuine_one_learns_what_to_mend(
    other: dict[str, object], message: str
) -> None:
    with pytest.raises(Unauthorized) as error:
        by_secret().check(token(**other))
    assert error.value.message == message
    with pytest.raises(Unauthorized) as error:  # and who forged one does not
        by_secret().check(token(SECRET[::-1], **other))
    assert error.value.message == "The JWT is not one that is accepted here."
