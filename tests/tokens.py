"""JWTs for tests: an issuer's keys, and tokens put together by hand, so that they can be wrong."""

import base64
import functools
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils

ISSUER, AUDIENCE = "https://issuer.example", "strandline"
SECRET = "what only the issuer and the deployment know: sixty-four bytes of it"

type Sign = Callable[[bytes], bytes]


def word(raw: bytes) -> str:
    """base64url, without padding."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def hmac_by(secret: bytes, name: str = "sha256") -> Sign:
    """Signs as HS256 does, and with the others' hashes."""
    return lambda data: hmac.digest(secret, data, name)


@functools.cache
def rsa_key(name: str) -> rsa.RSAPrivateKey:
    """A key of 2048 bits for each name."""
    del name
    return rsa.generate_private_key(65537, 2048)


@functools.cache
def ec_key(curve: str) -> ec.EllipticCurvePrivateKey:
    """A key on P-256, P-384 or P-521."""
    curves = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
    return ec.generate_private_key(curves[curve])


@functools.cache
def ed_key() -> ed25519.Ed25519PrivateKey:
    """An Ed25519 key."""
    return ed25519.Ed25519PrivateKey.generate()


HASHES = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def rsa_by(name: str, algorithm: str = "RS256") -> Sign:
    """Signs as RS… and PS… do."""
    digest = HASHES[algorithm[2:]]
    pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
    how = pss if algorithm[:2] == "PS" else padding.PKCS1v15()
    return lambda data: rsa_key(name).sign(data, how, digest)


def ec_by(curve: str) -> Sign:
    """Signs as ES… does: r and s side by side."""
    size, digest = {
        "P-256": (32, HASHES["256"]),
        "P-384": (48, HASHES["384"]),
        "P-521": (66, HASHES["512"]),
    }[curve]

    def sign(data: bytes) -> bytes:
        r, s = utils.decode_dss_signature(ec_key(curve).sign(data, ec.ECDSA(digest)))
        return r.to_bytes(size) + s.to_bytes(size)

    return sign


def jwk(key: Any, **more: object) -> dict[str, object]:
    """A public key as a JWK Set has it."""
    public: Any = key.public_key()
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = public.public_numbers()
        n, e = numbers.n.to_bytes(256), numbers.e.to_bytes(3)
        return {"kty": "RSA", "n": word(n), "e": word(e), **more}
    if isinstance(key, ec.EllipticCurvePrivateKey):
        size = (key.key_size + 7) // 8
        x, y = (getattr(public.public_numbers(), axis).to_bytes(size) for axis in "xy")
        return {"kty": "EC", "crv": f"P-{key.key_size}", "x": word(x), "y": word(y), **more}
    return {"kty": "OKP", "crv": "Ed25519", "x": word(public.public_bytes_raw()), **more}


def jwks(*keys: Mapping[str, object]) -> str:
    """A JWK Set."""
    return json.dumps({"keys": keys})


def public_pem(name: str) -> bytes:
    """An RSA key's public half, as everybody knows it."""
    return (
        rsa_key(name)
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def claims(**other: object) -> dict[str, object]:
    """The claims of a token that holds, but for `other`; None leaves one out."""
    now = int(time.time())
    good: dict[str, object] = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 300}
    good |= {"tenant_id": "acme", "user_id": "alice", "scope": "read write", **other}
    return {name: value for name, value in good.items() if value is not None}


def signed(header: object, payload: object, sign: Sign) -> str:
    """A token of these parts; bytes and text are taken as they are, anything else as JSON."""
    parts: list[str] = []
    for part in (header, payload):
        text = json.dumps(part) if not isinstance(part, str | bytes) else part
        parts.append(word(text if isinstance(text, bytes) else text.encode()))
    return ".".join([*parts, word(sign(".".join(parts).encode()))])


def token(secret: str = SECRET, /, **other: object) -> str:
    """A token under the secret, with these claims other than good ones."""
    return signed({"alg": "HS256", "typ": "JWT"}, claims(**other), hmac_by(secret.encode()))
