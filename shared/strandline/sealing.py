"""Words for callers to keep and send back that tell them nothing: sealed, and the same each time.

A snapshot counts the transactions of the whole database, so that whoever read it would know how
busy other tenants are. AES-SIV (RFC 5297): deterministic, and authentic, so that what was not
sealed here for this tenant and purpose is noticed.
"""

import base64
import hmac
import json
import secrets
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

type Purpose = Literal["cursor", "mark", "token"]
_BLOCK_BYTES = 256
"""Bytes. What is sealed is filled up to a multiple, so that its length tells nothing either: a
snapshot is longer the more transactions are under way."""


class UnsealError(Exception):
    """Not sealed by this deployment for this tenant and purpose, or bent on its way."""


class Sealer:
    """Seals under a secret of the deployment. Without one it makes its own, which nobody else can
    unseal: for a process that reads its own cursors alone."""

    def __init__(self, secret: str | None) -> None:
        key_material = secret.encode() if secret else secrets.token_bytes(64)
        # A key of its own: whatever else the secret is for learns nothing about this.
        self._key = hmac.digest(key_material, b"strandline sealing 1", "sha512")
        self._cipher: AESSIV | None = None

    def seal(self, purpose: Purpose, tenant: str, document: object) -> str:
        """A JSON document as an opaque word."""
        plain = json.dumps(document).encode()
        padded = plain.ljust(-(-len(plain) // _BLOCK_BYTES) * _BLOCK_BYTES)
        ciphertext = self._load_cipher().encrypt(padded, [purpose.encode(), tenant.encode()])
        return base64.urlsafe_b64encode(ciphertext).decode().rstrip("=")

    def unseal(self, purpose: Purpose, tenant: str, token: str) -> Any:
        """The document of a word. Raises Unsealable."""
        from cryptography.exceptions import InvalidTag

        try:
            padded = token + "=" * (-len(token) % 4)
            ciphertext = base64.b64decode(padded, altchars=b"-_", validate=True)
            return json.loads(
                self._load_cipher().decrypt(ciphertext, [purpose.encode(), tenant.encode()])
            )
        except (ValueError, InvalidTag):  # of base64, and of what is shorter than a tag
            raise UnsealError from None

    def _load_cipher(self) -> "AESSIV":
        """Imported with the first word, not with this module: a process that never pages pays
        nothing. From where the public module has it: that one imports every other cipher as well,
        6 to 13 ms more of a cold start's CPU; a test holds the two to be one."""
        if self._cipher is None:
            from cryptography.hazmat.bindings._rust import (  # pyright: ignore[reportPrivateUsage]
                openssl,
            )

            self._cipher = openssl.aead.AESSIV(self._key)
        return self._cipher
