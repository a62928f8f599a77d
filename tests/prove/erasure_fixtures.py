"""Fixtures of the proofs of erasure, which import them."""

from datetime import timedelta

import pytest

from strandline.erasure import (
    eraser,
)
from tests.strandline.embeddings.fake_embedders import WordEmbedder


@pytest.fixture(scope="module")
def embedder() -> WordEmbedder:
    return WordEmbedder("words/64", 64)


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request runs beside the last runs of the job."""
    for wait in ("_REQUEST_WAIT", "_VACUUM_SPACING"):
        monkeypatch.setattr(eraser, wait, timedelta(0))
