"""The interface of an embedder."""

import math
from collections.abc import Sequence
from typing import Literal, Protocol

from strandline.errors import EmbeddingRefused

ENGLISH_MODEL = "minilm-l6-v2-int8"
"""The English model that ships: all-MiniLM-L6-v2."""
ENGLISH_DIMENSIONS = 384
LOCAL_MODEL = "minilm-l6-v2-int8+use-multilingual-v3"
"""What ships: the English model beside a multilingual one, as one space."""
LOCAL_DIMENSIONS = 897

type Purpose = Literal["text", "question"]
"""What a vector is for: to be found, or to find others by."""


class Embedder(Protocol):
    """Turns texts into vectors of one embedding space. Safe for threads."""

    @property
    def space(self) -> str:
        """Provider, model and dimension. Only vectors of the same space can be compared."""
        ...

    @property
    def dimensions(self) -> int:
        """The length of every vector."""
        ...

    def embed(
        self, texts: Sequence[str], *, timeout: float, purpose: Purpose = "text"
    ) -> list[list[float]]:
        """Return one vector per text, in order, each of length 1 (L2). `timeout` bounds the whole
        call, in seconds; the local model ignores it, because it waits for nothing. An empty text
        has a vector like any other; an empty list gives an empty list.

        Raises EmbeddingUnavailable when a later try can help, and EmbeddingRefused when it cannot.
        One refused text refuses the whole call: embed texts singly to learn which it was.
        """
        ...


def require_utf8_encodable(texts: Sequence[str]) -> None:
    """Raise EmbeddingRefused if a text cannot be encoded as UTF-8, which every model reads."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            # Without the cause: that error quotes the text.
            raise EmbeddingRefused("A text contains a lone surrogate.") from None


def to_unit_length(vector: Sequence[float]) -> list[float]:
    """A provider's vector at length 1 (L2). Raises EmbeddingRefused for one without a direction."""
    length = math.hypot(*vector)
    if not 0 < length < math.inf:
        raise EmbeddingRefused("The embedding provider returned a zero vector.")
    return [value / length for value in vector]
