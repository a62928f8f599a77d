"""What the environment says, read once: every setting has its place, default and meaning here."""

import functools
import os
import re
from collections.abc import Mapping
from typing import Literal

from pydantic import (
    Field,
    Json,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from strandline.config_auth import AuthSettings
from strandline.errors import Misconfigured
from strandline.tuning import DEFAULTS, Tuning

PREFIX = "STRANDLINE_"
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?")


class ServiceSettings(AuthSettings):
    """One process's settings. `STRANDLINE_<FIELD NAME>` in the environment sets a field; those of
    authentication stand in `config_auth`."""

    database_url: str
    """Where the application role connects: a libpq URL or key=value string."""
    database_auth: Literal["password", "iam"] = "password"
    """`iam` takes a fresh token of IAM database authentication for each connection's password,
    made of the function's own credentials."""
    bucket: str
    """The S3 bucket that holds payloads under `<tenant>/<cid>`."""
    work_queue_url: str = ""
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
    llm_provider: Literal["none", "openai", "azure", "bedrock"] = "none"
    """`none` leaves language tasks to the deterministic twin; `openai` is any endpoint that speaks
    its protocol, `azure` Azure OpenAI, `bedrock` Amazon Bedrock with the function's own role."""
    llm_base_url: str | None = None
    """The endpoint: OpenAI's own when absent. Of `azure` the resource's address, required."""
    llm_model: str = ""
    """The model's name as its provider knows it; of `azure` the deployment's."""
    llm_api_key: str | None = None
    """The credential; of `bedrock` none."""
    llm_api_version: str = ""
    """Of `azure`, required: the api-version, as in 2024-10-21."""
    llm_seconds: float = Field(default=10.0, gt=0, le=120)
    """How long one answer may take."""
    llm_summary_seconds: float = Field(default=20.0, gt=0, le=120)
    """How long a summary may take."""
    llm_calls_per_minute: int = Field(default=50, ge=0, le=100_000)
    """Requests to the provider for one user or key, in the background for one scope."""
    llm_breaker_failures: int = Field(default=5, ge=1, le=1000)
    """After so many failures in a row the provider is left alone,"""
    llm_breaker_seconds: float = Field(default=60.0, gt=0, le=3600)
    """for so long; then one request tries it."""
    llm_usd_per_million_in: float = Field(default=0.0, ge=0, le=10_000)
    """The price of a million tokens shown to the model. 0: costs are not counted."""
    llm_usd_per_million_out: float = Field(default=0.0, ge=0, le=10_000)
    """The price of a million tokens that it writes."""
    llm_usd_per_month: float | None = Field(default=None, ge=0, le=10**9)
    """What models may cost a tenant in a calendar month (UTC), unless an operator set it another
    budget. Absent: no limit; 0 allows nothing."""
    llm_characters: int = Field(default=24_000, ge=1000, le=1_000_000)
    """The most characters of memory that one request shows to the model,"""
    llm_event_characters: int = Field(default=2000, ge=100, le=100_000)
    """and of one event."""
    llm_max_tokens: int = Field(default=2000, ge=100, le=100_000)
    """The most tokens that an answer may have; what a model thinks before it counts too."""
    query_vector_seconds: float = Field(default=1.0, gt=0)
    """How long recall waits for its query vector before it answers by full text alone."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser, apart by spaces; `*` are all, absent none."""
    presign_seconds: int = Field(default=300, ge=1, le=3600)
    """How long a presigned URL for a payload holds, in seconds."""
    upload_max_bytes: int = Field(default=256 * 1024**2, ge=1, le=5 * 1024**3)
    """The largest upload, in bytes; S3 takes 5 GiB in one PUT and one copy."""
    upload_seconds: int = Field(default=900, ge=1, le=43_200)
    """How long a presigned URL for an upload holds, in seconds."""
    upload_grace_seconds: int = Field(default=86_400, le=2_592_000)
    """How long an upload may wait to be cited, in seconds; then it is removed. At least twice
    `upload_seconds`, so that no URL outlives what it is for."""
    blob_grace_seconds: int = Field(default=86_400, ge=3600, le=2_592_000)
    """How old a payload that no event cites must be before it is removed, in seconds. An append
    puts its payload first and has half a minute to cite it."""
    job_queue_url: str = ""
    """The SQS queue of wishes for runs of jobs; without it none is started by a request, and jobs
    wait for the daily sweep."""
    sweep_seconds: int = Field(default=300, ge=1, le=86_400)
    """The least time between two sweeps that come because something is due, in seconds."""
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

    tuning: Json[Tuning] = DEFAULTS
    """Thresholds of memory's formation that differ from their defaults, as a JSON object by name
    (docs/heat.md has the table). What an operator sets for a tenant goes before them."""

    @field_validator("llm_base_url", "embedding_base_url")
    @classmethod
    def _check_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("must be an https:// or http:// address")
        return value

    @field_validator("tuning")
    @classmethod
    def _check_contradictions(cls, value: Tuning) -> Tuning:
        if messages := [contradiction.message for contradiction in value.find_contradictions()]:
            raise ValueError("; ".join(messages))
        return value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_words(cls, value: object) -> object:
        return value.split() if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin} is no origin as https://app.example, or *")
        return value

    @field_validator("upload_grace_seconds")
    @classmethod
    def _check_grace(cls, value: int, info: ValidationInfo) -> int:
        if value < 2 * info.data.get("upload_seconds", 0):
            raise ValueError(f"must be at least twice {PREFIX}UPLOAD_SECONDS")
        return value

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "ServiceSettings":
        """Read the settings. Raises Misconfigured naming every missing or unusable variable."""
        values = {
            n: env[PREFIX + n.upper()] for n in cls.model_fields if env.get(PREFIX + n.upper())
        }
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = [f"{_variable(e['loc'])}: {e['msg']}" for e in error.errors()]
        raise Misconfigured(
            f"Strandline does not start. {'; '.join(problems)}. There is no default secret, and no "
            "mode without authentication; `make run` makes all settings for one machine.",
            variables=problems,
        )


def _variable(location: tuple[int | str, ...]) -> str:
    """What is wrong: a variable, or a name within its JSON."""
    variable, *within = (str(part) for part in location)
    return ".".join((PREFIX + variable.upper(), *within))


@functools.cache
def get_settings() -> ServiceSettings:
    """This process's settings, read on first use and never at import."""
    return ServiceSettings.from_env(os.environ)
