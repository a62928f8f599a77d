"""JWTs that differ from a good one in one thing."""

import base64
import json
import re
import time
from collections.abc import Iterator

from tests.tokens import (
    AUDIENCE,
    ISSUER,
    SECRET,
    claims,
    hmac_by,
    jwk,
    public_pem,
    rsa_by,
    rsa_key,
    signed,
    token,
    word,
)

RS: dict[str, object] = {"alg": "RS256", "kid": "rsa", "typ": "JWT"}
HS: dict[str, object] = {"alg": "HS256", "typ": "JWT"}
BY_SECRET = hmac_by(SECRET.encode())
BY_RSA = rsa_by("rsa")


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
