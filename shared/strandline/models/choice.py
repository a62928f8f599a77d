"""Which embedder this deployment uses; importing this loads no model."""

from strandline.config import Settings
from strandline.errors import Misconfigured
from strandline.models.embedding import LOCAL_DIMENSIONS, LOCAL_MODEL, Embedder


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


def _require_the_shipped_model(settings: Settings) -> None:
    """A vector column of another length, or a model's name without its provider, is a slip."""
    asked = settings.embedding_model, settings.embedding_dimensions
    if asked != (LOCAL_MODEL, LOCAL_DIMENSIONS):
        raise Misconfigured(
            f"The local embedding model is {LOCAL_MODEL} with {LOCAL_DIMENSIONS} dimensions, not "
            f"{asked[0]} with {asked[1]}. Leave STRANDLINE_EMBEDDING_MODEL and "
            "STRANDLINE_EMBEDDING_DIMENSIONS unset, or set STRANDLINE_EMBEDDING_PROVIDER=openai."
        )
