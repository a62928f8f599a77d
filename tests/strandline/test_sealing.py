"""Sealed words: opaque, authentic, deterministic."""

import subprocess
import sys

import pytest
from cryptography.hazmat.primitives.ciphers import aead

from strandline.sealing import Sealer, UnsealError

SECRET = "a deployment secret that only tests know"
DOCUMENT = ["1413:1420:1413,1415", "2026-05-01T00:00:00+00:00", 7]


def test_what_is_sealed_comes_back() -> None:
    word = Sealer(SECRET).seal("cursor", "acme", DOCUMENT)
    assert Sealer(SECRET).unseal("cursor", "acme", word) == DOCUMENT


def test_the_same_is_sealed_the_same_by_every_process() -> None:
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
def test_elsewhere_it_is_not_unsealed(secret: str | None, purpose: str, tenant: str) -> None:
    word = Sealer(SECRET).seal("cursor", "acme", DOCUMENT)
    with pytest.raises(UnsealError):
        Sealer(secret).unseal(purpose, tenant, word)  # pyright: ignore[reportArgumentType]


def test_a_bent_word_is_not_unsealed() -> None:
    sealer = Sealer(SECRET)
    word = sealer.seal("cursor", "acme", DOCUMENT)
    for n in range(0, len(word) - 1, 7):
        bent = word[:n] + ("A" if word[n] != "A" else "B") + word[n + 1 :]
        with pytest.raises(UnsealError):
            sealer.unseal("cursor", "acme", bent)
    for bent in ("", "x", "é", word[:-4], word + "AAAA", word[:20]):
        with pytest.raises(UnsealError):
            sealer.unseal("cursor", "acme", bent)


def test_its_length_tells_nothing_of_what_is_under_way() -> None:
    sealer = Sealer(SECRET)
    quiet = sealer.seal("mark", "acme", ["1413:1413:", "0" * 16])
    busy = sealer.seal("mark", "acme", ["1413:1420:1413,1414,1415,1416,1418,1419", "0" * 16])
    assert len(quiet) == len(busy)


def test_it_is_the_library_s_public_cipher() -> None:
    """The module that it is imported from names the same class, without the other ciphers."""
    cipher = Sealer(SECRET)._load_cipher()  # pyright: ignore[reportPrivateUsage]
    assert type(cipher) is aead.AESSIV


def test_whoever_seals_nothing_imports_no_cipher() -> None:
    receipt = (
        "import sys, functions.query.handler, strandline.sealing;"
        "sys.exit('cryptography' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", receipt], check=True)
