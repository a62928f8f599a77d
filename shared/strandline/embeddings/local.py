"""The embedder that ships: an English and a multilingual model as one space."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    LOCAL_DIMENSIONS,
    LOCAL_MODEL,
    Purpose,
    require_utf8_encodable,
)
from strandline.embeddings.minilm import EnglishEmbedder
from strandline.embeddings.multilingual_encoder import DIMENSIONS, MultilingualEncoder
from strandline.languages import detect_language

# A question waits for both models: side by side they take two thirds of the time of one by one.
_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="multilingual")
_ENGLISH = slice(0, ENGLISH_DIMENSIONS)
_MULTILINGUAL = slice(ENGLISH_DIMENSIONS, ENGLISH_DIMENSIONS + DIMENSIONS)


class LocalEmbedder:
    """Embeds in this process: no key, no network. Safe for threads.

    A vector has the numbers of the English model, those of the multilingual one, and one more. In
    English both count half, so that the cosine of two texts is the mean of what the models say. The
    English model knows nothing of other languages, so a text that is not in English has zeros
    there, and its last number makes up for them. A question has no last number: texts of all
    languages are then as near to it as the multilingual model says.
    """

    space = f"{LOCAL_MODEL}/{LOCAL_DIMENSIONS}"
    dimensions = LOCAL_DIMENSIONS

    def __init__(self, *, threads: int = 0) -> None:
        """`threads` of onnxruntime, 0 for its own choice."""
        # numpy reads it when it is imported. Threads for matrices this small cost more than they
        # gain: a question took 4.2 ms with two, 1.2 with one.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        self.english = EnglishEmbedder(threads=threads)
        """The English model by itself."""
        self._multilingual = MultilingualEncoder()

    def load(self) -> None:
        """Load the models now instead of at the first `embed`. Raises EmbeddingUnavailable when a
        file or library is missing or is not the pinned one."""
        self.english.load()
        self._multilingual.load()

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Return one unit vector per text, in order. Reads the first 256 tokens of each text for
        the English numbers, and the first 512 for the multilingual ones. `timeout` is ignored:
        nothing here waits, and a running model cannot be interrupted.

        Raises EmbeddingUnavailable when a model cannot be loaded, and EmbeddingRefused for a text
        that is not Unicode.
        """
        import numpy as np

        require_utf8_encodable(texts)
        if not texts:
            return []
        is_english = np.array([detect_language(text) == "en" for text in texts])
        vectors = np.zeros((len(texts), LOCAL_DIMENSIONS), np.float32)
        if is_english.any():
            multilingual = _POOL.submit(self._multilingual.encode, texts)
            english = [text for text, is_one in zip(texts, is_english, strict=True) if is_one]
            vectors[is_english, _ENGLISH] = self.english.embed(english, timeout=timeout)
            vectors[:, _MULTILINGUAL] = multilingual.result()
        else:
            vectors[:, _MULTILINGUAL] = self._multilingual.encode(texts)
        if purpose == "text":
            vectors[~is_english, -1] = 1.0
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).tolist()
