"""Sealed words: opaque, authentic, deterministic."""

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers import aead

from strandline.sealing import Sealer, UnsealError

SECRET = "a deployment secret that only tests know"
DOCUMENT = ["1413:1420:1413,1415", "2026-05-01T00:00:00+00:00", 7]


def test_sealing_round_trips() -> None:
    word = Sealer(SECRET).seal("cursor", "acme", DOCUMENT)
    assert Sealer(SECRET).unseal("cursor", "acme", word) == DOCUMENT


def test_sealing_is_same_in_every_process() -> None:
    assert Sealer(SECRET).seal("mark", "acme", DOCUMENT) == Sealer(SECRET).seal(
        "mark", "acme", DOCUMENT
    )


@pytest.mark.parametrize(
    ("secret", "purpose", "tenant"),
    [
        (SECRET + "!", "cursor", "acme"),
        (None, "cursor", "acme"),
        (SECRET, "mark", "acme"),
        (SECRET, "cursor", "beta"),
    ],
)
def test_sealing_is_bound_to_secret_purpose_and_tenant(
    secret: str | None, purpose: str, tenant: str
) -> None:
    word = Sealer(SECRET).seal("cursor", "acme", DOCUMENT)
    with pytest.raises(UnsealError):
        Sealer(secret).unseal(purpose, tenant, word)  # pyright: ignore[reportArgumentType]


def test_sealing_refuses_changed_word() -> None:
    sealer = Sealer(SECRET)
    word = sealer.seal("cursor", "acme", DOCUMENT)
    for n in range(0, len(word) - 1, 7):
        bent = word[:n] + ("A" if word[n] != "A" else "B") + word[n + 1 :]
        with pytest.raises(UnsealError):
            sealer.unseal("cursor", "acme", bent)
    for bent in ("", "x", "é", word[:-4], word + "AAAA", word[:20]):
        with pytest.raises(UnsealError):
            sealer.unseal("cursor", "acme", bent)


def test_sealing_length_hides_transactions_in_progress() -> None:
    sealer = Sealer(SECRET)
    quiet = sealer.seal("mark", "acme", ["1413:1413:", "0" * 16])
    busy = sealer.seal("mark", "acme", ["1413:1420:1413,1414,1415,1416,1418,1419", "0" * 16])
    assert len(quiet) == len(busy)


def test_sealing_uses_public_cipher_of_library() -> None:
    """The module that it is imported from names the same class, without the other ciphers."""
    cipher = Sealer(SECRET)._load_cipher()  # pyright: ignore[reportPrivateUsage]
    assert type(cipher) is aead.AESSIV


def test_sealing_imports_cipher_lazily() -> None:
    receipt = (
        "import sys, functions.query.handler, strandline.sealing;"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", receipt], check=True)
