"""Which language model this deployment uses. Importing this module imports none."""

from strandline.config import PREFIX, ServiceSettings
from strandline.errors import Misconfigured
from strandline.llm.provider import ModelProvider

_REQUIRED_SETTINGS = {
    "openai": ("llm_model",),
    "azure": ("llm_model", "llm_base_url", "llm_api_key", "llm_api_version"),
    "bedrock": ("llm_model",),
}


def require_provider_settings(settings: ServiceSettings) -> None:
    """Check that the chosen language model has all the settings it needs. Raises Misconfigured,
    which names the missing ones."""
    provider = settings.llm_provider
    missing = [
        f"{PREFIX}{name.upper()}"
        for name in _REQUIRED_SETTINGS.get(provider, ())
        if not getattr(settings, name)
    ]
    if missing:
        raise Misconfigured(f"{PREFIX}LLM_PROVIDER={provider} needs {', '.join(missing)} as well.")


def make_provider(settings: ServiceSettings) -> ModelProvider | None:
    """Build the configured language model; None leaves all tasks to the heuristic model. No call is
    made before first use. Raises Misconfigured, which names the missing settings."""
    require_provider_settings(settings)
    provider = settings.llm_provider
    if provider == "none":
        return None
    if provider == "bedrock":
        from strandline.llm.bedrock import BedrockModel

        return BedrockModel(settings.llm_model)
    from strandline.llm.openai_chat import OpenAiChatModel

    return OpenAiChatModel(
        base_url=settings.llm_base_url,
        model=settings.llm_model,
        api_key=settings.llm_api_key,
        azure_version=settings.llm_api_version if provider == "azure" else None,
    )
