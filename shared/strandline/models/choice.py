"""Which models this deployment uses; importing this loads none."""

from strandline.config import PREFIX, Settings
from strandline.errors import Misconfigured
from strandline.models.embedding import LOCAL_DIMENSIONS, LOCAL_MODEL, Embedder
from strandline.models.provider import Provider

_NEEDED = {
    "openai": ("llm_model",),
    "azure": ("llm_model", "llm_base_url", "llm_api_key", "llm_api_version"),
    "bedrock": ("llm_model",),
}


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
    require_embedder(settings)
    from strandline.models.local import LocalEmbedder

    return LocalEmbedder(threads=settings.embedding_threads)


def require_embedder(settings: Settings) -> None:
    """Raise Misconfigured for a vector column of another length than the model that ships has, or a
    model's name without its provider: both are slips."""
    asked = settings.embedding_model, settings.embedding_dimensions
    if settings.embedding_provider == "local" and asked != (LOCAL_MODEL, LOCAL_DIMENSIONS):
        raise Misconfigured(
            f"The local embedding model is {LOCAL_MODEL} with {LOCAL_DIMENSIONS} dimensions, not "
            f"{asked[0]} with {asked[1]}. Leave STRANDLINE_EMBEDDING_MODEL and "
            "STRANDLINE_EMBEDDING_DIMENSIONS unset, or set STRANDLINE_EMBEDDING_PROVIDER=openai."
        )


def require_provider(settings: Settings) -> None:
    """Raise Misconfigured naming what the language model that the settings name needs as well."""
    kind = settings.llm_provider
    missing = [f"{PREFIX}{n.upper()}" for n in _NEEDED.get(kind, ()) if not getattr(settings, n)]
    if missing:
        raise Misconfigured(f"{PREFIX}LLM_PROVIDER={kind} needs {', '.join(missing)} as well.")


def make_provider(settings: Settings) -> Provider | None:
    """Build the language model that the settings name; None leaves its tasks to the twin. Nothing
    is called before first use. Raises Misconfigured naming what is missing."""
    require_provider(settings)
    kind = settings.llm_provider
    if kind == "none":
        return None
    if kind == "bedrock":
        from strandline.models.bedrock import BedrockModel

        return BedrockModel(settings.llm_model)
    from strandline.models.chat import ChatModel

    return ChatModel(
        base_url=settings.llm_base_url,
        model=settings.llm_model,
        api_key=settings.llm_api_key,
        azure_version=settings.llm_api_version if kind == "azure" else None,
    )
