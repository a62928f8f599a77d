"""Opaque tokens that callers keep and send back: encrypted, and the same each time.

A database snapshot counts the transactions of the whole database, so anyone who could read it would
learn how busy other tenants are. AES-SIV (RFC 5297) is deterministic and authenticated: a token
that was not sealed here for this tenant and purpose is detected.
"""

import base64
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

type Purpose = Literal["cursor", "mark", "token", "acts"]
_BLOCK_BYTES = 256
"""Bytes. A document is padded to a multiple of this, so that the token's length reveals nothing
either: a snapshot grows with the number of running transactions."""


class UnsealError(Exception):
    """Not sealed by this deployment for this tenant and purpose, or altered on its way."""


class Sealer:
    """Seals documents under a secret of the deployment. Without one it generates its own, which no
    other process can unseal: for a process that reads only its own cursors."""

    def __init__(self, secret: str | None) -> None:
        key_material = secret.encode() if secret else secrets.token_bytes(64)
        # A derived key, so that other uses of the secret reveal nothing about this one.
        self._key = hmac.digest(key_material, b"strandline sealing 1", "sha512")
        self._cipher: AESSIV | None = None

    def seal(self, purpose: Purpose, tenant: str, document: object) -> str:
        """Seal a JSON document into an opaque token."""
        plain = json.dumps(document).encode()
        blocks = plain.ljust(-(-len(plain) // _BLOCK_BYTES) * _BLOCK_BYTES)
        ciphertext = self._load_cipher().encrypt(blocks, [purpose.encode(), tenant.encode()])
        return base64.urlsafe_b64encode(ciphertext).decode().rstrip("=")

    def unseal(self, purpose: Purpose, tenant: str, token: str) -> Any:
        """The document of a token. Raises UnsealError."""
        from cryptography.exceptions import InvalidTag

        try:
            base64_text = token + "=" * (-len(token) % 4)
            ciphertext = base64.b64decode(base64_text, altchars=b"-_", validate=True)
            return json.loads(
                self._load_cipher().decrypt(ciphertext, [purpose.encode(), tenant.encode()])
            )
        except (ValueError, InvalidTag):  # of base64 or JSON, or of a text shorter than a tag
            raise UnsealError from None

    def hash_key(self, *parts: str) -> str:
        """An HMAC-SHA256 of a caller's own key, in hex. It reveals nothing about the key to anyone
        without the deployment's secret. No part may contain NUL."""
        return hmac.digest(self._derive_mac_key, "\0".join(parts).encode(), "sha256").hex()

    @property
    def compute_hmac_pads(self) -> tuple[bytes, bytes]:
        """The inner and the outer half of the key of `hash_key` (RFC 2104), for the database, which
        has SHA-256 and no HMAC."""
        block = self._derive_mac_key.ljust(64, b"\0")
        return bytes(byte ^ 0x36 for byte in block), bytes(byte ^ 0x5C for byte in block)

    @property
    def _derive_mac_key(self) -> bytes:
        return hmac.digest(self._key, b"strandline erased keys 1", "sha256")

    def _load_cipher(self) -> "AESSIV":
        """Create the cipher on first use, so that a process that never pages does not import it. It
        is imported from the private module that the public one takes it from: the public one
        imports every other cipher as well, 6 to 13 ms more of a cold start's CPU. A test checks
        that the two are the same."""
        if self._cipher is None:
            from cryptography.hazmat.bindings._rust import (  # pyright: ignore[reportPrivateUsage]
                openssl,
            )

            self._cipher = openssl.aead.AESSIV(self._key)
        return self._cipher
