"""What an embedder is, and which one this deployment uses; importing this loads no model."""

from collections.abc import Sequence
from typing import Protocol

from strandline.config import Settings
from strandline.errors import EmbeddingRefused, Misconfigured

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


def make_embedder(settings: Settings) -> Embedder:
    """Build the embedder that the settings name; nothing is loaded or called before first use.

    Raises Misconfigured when the local model is asked to be another than it is.
    """
    if settings.embedding_provider == "openai":
        # Here and not above: openai costs more to import than all else a function needs.
        from strandline.models.compatible import OpenAICompatibleEmbedder

        return OpenAICompatibleEmbedder(
            base_url=settings.embedding_base_url,
            model=settings.embedding_model,
            api_key=settings.embedding_api_key,
            dimensions=settings.embedding_dimensions,
        )
    _require_the_shipped_model(settings)
    from strandline.models.local import LocalEmbedder

    return LocalEmbedder(threads=settings.embedding_threads)


def require_encodable(texts: Sequence[str]) -> None:
    """Raise EmbeddingRefused if a text has no UTF-8 form, which every model reads."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            # Without its cause: that error carries the text.
            raise EmbeddingRefused("A text holds half of a surrogate pair.") from None


def _require_the_shipped_model(settings: Settings) -> None:
    """A vector column of another length, or a model's name without its provider, is a slip."""
    asked = settings.embedding_model, settings.embedding_dimensions
    if asked != (LOCAL_MODEL, LOCAL_DIMENSIONS):
        raise Misconfigured(
            f"The local embedding model is {LOCAL_MODEL} with {LOCAL_DIMENSIONS} dimensions, not "
            f"{asked[0]} with {asked[1]}. Leave STRANDLINE_EMBEDDING_MODEL and "
            "STRANDLINE_EMBEDDING_DIMENSIONS unset, or set STRANDLINE_EMBEDDING_PROVIDER=openai."
        )
