"""Chooses this deployment's embedding model; importing this module loads none."""

from strandline.config import ServiceSettings
from strandline.embeddings.embedder import LOCAL_DIMENSIONS, LOCAL_MODEL, Embedder
from strandline.errors import Misconfigured


def make_embedder(settings: ServiceSettings) -> Embedder:
    """Build the embedder that the settings name; nothing is loaded or called before its first use.
    Raises Misconfigured when the settings give the local model another name or dimension."""
    if settings.embedding_provider == "openai":
        # Imported here: openai costs more to import than everything else that a function needs.
        from strandline.embeddings.openai_compatible import OpenAICompatibleEmbedder

        return OpenAICompatibleEmbedder(
            base_url=settings.embedding_base_url,
            model=settings.embedding_model,
            api_key=settings.embedding_api_key,
            dimensions=settings.embedding_dimensions,
        )
    require_valid_embedder(settings)
    from strandline.embeddings.minilm import LocalEmbedder

    return LocalEmbedder(threads=settings.embedding_threads)


def require_valid_embedder(settings: ServiceSettings) -> None:
    """Raise Misconfigured when the dimension is not that of the model that ships, or when a model
    is named without its provider: both are mistakes."""
    model_and_dimensions = settings.embedding_model, settings.embedding_dimensions
    if settings.embedding_provider == "local" and model_and_dimensions != (
        LOCAL_MODEL,
        LOCAL_DIMENSIONS,
    ):
        raise Misconfigured(
            f"The local embedding model is {LOCAL_MODEL} with {LOCAL_DIMENSIONS} dimensions, not "
            f"{model_and_dimensions[0]} with {model_and_dimensions[1]}. Leave "
            "STRANDLINE_EMBEDDING_MODEL and "
            "STRANDLINE_EMBEDDING_DIMENSIONS unset, or set STRANDLINE_EMBEDDING_PROVIDER=openai."
        )
