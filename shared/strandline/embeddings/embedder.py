"""What an embedder is."""

from collections.abc import Sequence
from typing import Protocol

from strandline.errors import EmbeddingRefused

LOCAL_MODEL = "minilm-l6-v2-int8"
"""The model that ships: all-MiniLM-L6-v2."""
LOCAL_DIMENSIONS = 384


class Embedder(Protocol):
    """Turns texts into points of one embedding space. Safe to call from several threads."""

    @property
    def space(self) -> str:
        """Provider, model and dimension. Only vectors of the same space can be compared."""
        ...

    @property
    def dimensions(self) -> int:
        """Length of every vector."""
        ...

    def embed(self, texts: Sequence[str], *, timeout: float) -> list[list[float]]:
        """Give one vector per text, in order, each of length 1 (L2); no texts give no vectors.

        `timeout` bounds the whole call, in seconds; the local model, which waits for nobody,
        ignores it. An empty text has a vector like any other.

        Raises EmbeddingUnavailable when trying again later can help, and EmbeddingRefused when
        it cannot. One refused text refuses the call: embed singly to learn which it was.
        """
        ...


def require_encodable(texts: Sequence[str]) -> None:
    """Raise EmbeddingRefused if a text has no UTF-8 form, which every model reads."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            # Without its cause: that error carries the text.
            raise EmbeddingRefused("A text holds half of a surrogate pair.") from None
