"""Which language model this deployment uses; importing this loads none."""

from strandline.config import PREFIX, Settings
from strandline.errors import Misconfigured
from strandline.llm.provider import Provider

_NEEDED = {
    "openai": ("llm_model",),
    "azure": ("llm_model", "llm_base_url", "llm_api_key", "llm_api_version"),
    "bedrock": ("llm_model",),
}


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
        from strandline.llm.bedrock import BedrockModel

        return BedrockModel(settings.llm_model)
    from strandline.llm.openai_chat import ChatModel

    return ChatModel(
        base_url=settings.llm_base_url,
        model=settings.llm_model,
        api_key=settings.llm_api_key,
        azure_version=settings.llm_api_version if kind == "azure" else None,
    )
