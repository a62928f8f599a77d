"""What the environment says, read once: every setting has its place, default and meaning here."""

import functools
import os
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

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
    upload_max_bytes: int = Field(default=256 * 1024**2, ge=1, le=5 * 1024**3)
    """The largest upload, in bytes; S3 takes 5 GiB in one PUT and one copy."""
    upload_seconds: int = Field(default=900, ge=1, le=43_200)
    """How long a presigned URL for an upload holds, in seconds."""
    upload_grace_seconds: int = Field(default=86_400, le=2_592_000)
    """How long an upload may wait to be cited, in seconds; then it is removed. At least twice
    `upload_seconds`, so that no URL outlives what it is for."""
    tenant_requests_per_minute: int = Field(default=6000, ge=0, le=10**9)
    """Requests a tenant may make, unless an operator set it another limit; 0 allows nothing. 6,000
    are 100 a second: at 100 ms each ten Lambda instances, of the 1,000 an account begins with."""
    tenant_appends_per_minute: int = Field(default=60_000, ge=0, le=10**9)
    """Events a tenant may append, as above. 60,000 are ten to each request it may make."""
    tenant_stored_bytes: int = Field(default=100 * 2**30, ge=0, le=2**62)
    """Bytes of events and payloads a tenant may store, as above; 100 GiB."""
    tenant_burst_seconds: float = Field(default=10.0, ge=0, le=3600)
    """How many seconds' worth of a rate a tenant may use at once. Any minute sees a minute's worth
    and this; one unit at least."""

    @field_validator("upload_grace_seconds")
    @classmethod
    def _outlives_urls(cls, value: int, info: ValidationInfo) -> int:
        if value < 2 * info.data.get("upload_seconds", 0):
            raise ValueError(f"must be at least twice {PREFIX}UPLOAD_SECONDS")
        return value

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
