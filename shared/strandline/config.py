"""What the environment says, read once: every setting has its place, default and meaning here."""

import functools
import os
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from strandline.errors import Misconfigured

PREFIX = "STRANDLINE_"


class Settings(BaseModel):
    """One process's settings. `STRANDLINE_<FIELD NAME>` in the environment sets a field."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    database_url: str
    """Where the application role connects: a libpq URL or key=value string."""
    bucket: str
    """The S3 bucket that holds payloads under `<tenant>/<cid>`."""
    key_secret: str = Field(min_length=32)
    """The deployment's secret under which API keys carry their MAC. It is what switches API keys
    on; without any way to authenticate the service does not start."""
    queue_url: str = ""
    """The SQS queue for hints to the worker; empty sends none, the sweep finds the work."""
    embedding_provider: Literal["local", "openai"] = "local"
    """`local` is the model that ships, `openai` any endpoint that speaks its protocol."""
    embedding_base_url: str | None = None
    """The endpoint of an `openai` provider; its own default when absent."""
    embedding_model: str = "minilm-l6-v2-int8"
    """The model's name as its provider knows it."""
    embedding_api_key: str | None = None
    """The credential of an `openai` provider."""
    embedding_dimensions: int = Field(default=384, ge=1, le=4000)
    """Length of a vector; must match the model."""
    embedding_threads: int = Field(default=0, ge=0)
    """Threads of the local model; 0 leaves the choice to onnxruntime."""
    query_vector_seconds: float = Field(default=1.0, gt=0)
    """How long recall waits for its query vector before it answers by full text alone."""
    presign_seconds: int = Field(default=300, ge=1, le=3600)
    """How long a presigned URL for a payload holds, in seconds."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "Settings":
        """Read the settings. Raises Misconfigured naming every missing or unusable variable."""
        given = {
            n: env[PREFIX + n.upper()] for n in cls.model_fields if env.get(PREFIX + n.upper())
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            wrong = [f"{PREFIX}{str(e['loc'][0]).upper()}: {e['msg']}" for e in error.errors()]
        raise Misconfigured(
            f"Strandline does not start. {'; '.join(wrong)}. There is no default secret, and no "
            "mode without authentication; `make run` makes all settings for one machine.",
            variables=wrong,
        )


@functools.cache
def settings() -> Settings:
    """This process's settings, read on first use and never at import."""
    return Settings.from_env(os.environ)
