"""Receipts: what was erased and what cannot be reached, signed with a key of the deployment.

The signature is Ed25519 (RFC 8032), so anyone with the deployment's public key can verify it. The
signing key is derived from the secret that seals cursors.
"""

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from strandline.erasure.data_inventory import UNREACHED
from strandline.erasure.store import ErasedEvent, Erasure

if TYPE_CHECKING:
    from datetime import datetime

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MAX_LISTED_EVENTS = 10_000
"""A receipt with more events than this lists none of them. It has their digest, and the feed of
erasures lists them."""


def build_receipt(
    tenant: str,
    erasure: Erasure,
    events: Sequence[ErasedEvent],
    completed_at: "datetime",
    backup_days: int | None,
) -> dict[str, Any]:
    """Build the receipt of an erasure: ids and counts, no contents. `backup_days` is how long the
    deployment's backups are kept, or None if that is unknown."""
    backups_end = backup_days and completed_at + timedelta(days=backup_days)
    ids = sorted(str(event.event_id) for event in events)
    return {
        "receipt": 1,
        "tenant_id": tenant,
        "erasure_id": str(erasure.erasure_id),
        "kind": erasure.kind,
        "target": erasure.target,
        "asked_at": erasure.asked_at.isoformat(),
        "asked_by": erasure.asked_by,
        "unreadable_at": erasure.hidden_at.isoformat(),
        "vacuumed_at": erasure.vacuumed_at and erasure.vacuumed_at.isoformat(),
        "complete_at": completed_at.isoformat(),
        "backups_until": backups_end and backups_end.isoformat(),
        "counts": dict(sorted(erasure.counts.items())),
        "event_count": len(ids),
        "event_ids": ids if len(ids) <= MAX_LISTED_EVENTS else [],
        "event_ids_sha256": hashlib.sha256("\n".join(ids).encode()).hexdigest(),
        "not_reached": list(UNREACHED),
    }


def sign_receipt(secret: str, receipt: Mapping[str, Any]) -> str:
    """The receipt's signature, in hex."""
    return _derive_private_key(secret).sign(_encode_canonically(receipt)).hex()


def derive_public_key(secret: str) -> str:
    """The public key that verifies the deployment's signatures, in hex. It is not secret."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = _derive_private_key(secret).public_key()
    return key.public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def verify_receipt(key: str, receipt: Mapping[str, Any], signature: str) -> bool:
    """Whether the deployment with this public key signed exactly this receipt. A receipt has one
    signature: in lower case, as it was given."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if signature != signature.lower():
        return False
    try:
        verifier = Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
        verifier.verify(bytes.fromhex(signature), _encode_canonically(receipt))
    except (InvalidSignature, ValueError):
        return False
    return True


def _derive_private_key(secret: str) -> "Ed25519PrivateKey":
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    seed = hmac.digest(secret.encode(), b"strandline receipts 1", "sha256")
    return Ed25519PrivateKey.from_private_bytes(seed)


def _encode_canonically(receipt: Mapping[str, Any]) -> bytes:
    """The bytes that are signed: JSON with sorted names and without spaces, in UTF-8."""
    return json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
