"""Chooses this deployment's embedding model; importing this module loads none."""

from collections.abc import Mapping

from strandline.config import PREFIX, ServiceSettings
from strandline.embeddings.bedrock_models import require_bedrock_model
from strandline.embeddings.embedder import (
    ENGLISH_DIMENSIONS,
    ENGLISH_MODEL,
    LOCAL_DIMENSIONS,
    LOCAL_MODEL,
    Embedder,
)
from strandline.errors import Misconfigured

_LOCAL_MODELS: Mapping[str | None, int] = {
    None: LOCAL_DIMENSIONS,
    LOCAL_MODEL: LOCAL_DIMENSIONS,
    ENGLISH_MODEL: ENGLISH_DIMENSIONS,
}
_OPENAI_ONLY = (
    "embedding_base_url",
    "embedding_api_key",
    "embedding_text_prefix",
    "embedding_question_prefix",
)


def make_embedder(settings: ServiceSettings) -> Embedder:
    """Build the embedder that the settings name; nothing is loaded or called before its first use.
    Raises Misconfigured when the settings contradict each other or lack something."""
    require_valid_embedding_settings(settings)
    model, dimensions = settings.embedding_model, settings.embedding_dimensions
    # Each imported here: openai and the models cost more to import than all else that a function
    # needs.
    if settings.embedding_provider == "openai" and model and dimensions:
        from strandline.embeddings.openai_compatible import OpenAICompatibleEmbedder

        return OpenAICompatibleEmbedder(
            base_url=settings.embedding_base_url,
            model=model,
            api_key=settings.embedding_api_key,
            dimensions=dimensions,
            prefixes={
                "text": settings.embedding_text_prefix,
                "question": settings.embedding_question_prefix,
            },
        )
    if settings.embedding_provider == "bedrock" and model and dimensions:
        from strandline.embeddings.bedrock import BedrockEmbedder

        return BedrockEmbedder(model, dimensions, settings.embedding_region)
    if model == ENGLISH_MODEL:
        from strandline.embeddings.minilm import EnglishEmbedder

        return EnglishEmbedder(threads=settings.embedding_threads)
    from strandline.embeddings.local import LocalEmbedder

    return LocalEmbedder(threads=settings.embedding_threads)


def require_valid_embedding_settings(settings: ServiceSettings) -> None:
    """Raise Misconfigured when a local model is none of those that ship, or its dimension another,
    or when another provider's has no model or dimension, or what only another provider uses: all
    are mistakes."""
    model, dimensions = settings.embedding_model, settings.embedding_dimensions
    if settings.embedding_region and settings.embedding_provider != "bedrock":
        raise Misconfigured(
            "STRANDLINE_EMBEDDING_REGION is for the provider bedrock: unset it, or set "
            "STRANDLINE_EMBEDDING_PROVIDER=bedrock."
        )
    if settings.embedding_provider != "local":
        if model is None or dimensions is None:
            raise Misconfigured(
                f"STRANDLINE_EMBEDDING_PROVIDER={settings.embedding_provider} needs "
                "STRANDLINE_EMBEDDING_MODEL and STRANDLINE_EMBEDDING_DIMENSIONS: the provider's "
                "name for the model, and the length of its vectors."
            )
        if settings.embedding_provider == "bedrock":
            _require_valid_bedrock(settings, model, dimensions)
    elif model not in _LOCAL_MODELS or dimensions not in (None, _LOCAL_MODELS[model]):
        raise Misconfigured(
            f"The local embedding model is {LOCAL_MODEL} with {LOCAL_DIMENSIONS} dimensions or, "
            f"for English alone, {ENGLISH_MODEL} with {ENGLISH_DIMENSIONS}, not {model} with "
            f"{dimensions}. Leave STRANDLINE_EMBEDDING_MODEL and STRANDLINE_EMBEDDING_DIMENSIONS "
            "unset, or set STRANDLINE_EMBEDDING_PROVIDER=openai."
        )


def _require_valid_bedrock(settings: ServiceSettings, model: str, dimensions: int) -> None:
    for name in _OPENAI_ONLY:
        if getattr(settings, name):
            raise Misconfigured(
                f"{PREFIX}{name.upper()} is for the provider openai: Bedrock is called with the "
                "function's own role, and its models have their own forms for text and question. "
                f"Unset it, or set {PREFIX}EMBEDDING_PROVIDER=openai."
            )
    require_bedrock_model(model, dimensions)
