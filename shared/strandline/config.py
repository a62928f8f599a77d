"""The settings, read once from the environment: each one's name, default and meaning."""

import difflib
import functools
import os
import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, Json, ValidationError, ValidationInfo, field_validator

from strandline.config_quotas import QuotaSettings
from strandline.errors import Misconfigured
from strandline.tuning import DEFAULTS, Tuning

PREFIX = "STRANDLINE_"
type McpToolset = Literal["memory", "graph", "personas", "admin"]
_OTHER_NAMES = frozenset(
    {
        *("URL", "API_KEY", "DATA_DIR", "PORT", "PG_PORT"),
        *("USER", "AGENT", "PROJECT", "HOOK_TOOLS", "HOOK_FOLDER", "HOOK_CONNECT"),
        *("TLS", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA"),
        *("SECRETS", "STATE_MACHINE", "SCHEDULE_GROUP", "SCHEDULER_ROLE", "FIRST_KEY_SECRET"),
        *("OWNER_DATABASE_URL", "ADMINISTRATOR_DATABASE_URL", "ADMINISTRATOR_SECRET"),
    }
)
"""What else is read from the environment, after the prefix: by the client and its hooks, by
`make run`, by the scheduler and by a release."""
_WAY_OUT = (
    " There is no default secret, and no mode without authentication; `make run` creates all "
    "settings for one machine."
)
"""What to do about a setting that is missing."""
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?")


class ServiceSettings(QuotaSettings):
    """One process's settings. `STRANDLINE_<FIELD NAME>` in the environment sets a field. The
    settings of authentication are in `config_auth`, those of quotas in `config_quotas`."""

    database_url: str
    """The database that the application role connects to: a libpq URL or key=value string."""
    database_auth: Literal["password", "iam"] = "password"
    """With `iam`, each connection's password is a fresh token of IAM database authentication, made
    with the function's own credentials."""
    bucket: str
    """The S3 bucket that holds payloads under `<tenant>/<cid>`."""
    work_queue_url: str = ""
    """The SQS queue whose messages name the scopes that have work for the worker. If empty, no
    message is sent and the sweep finds the work."""
    embedding_provider: Literal["local", "openai", "bedrock"] = "local"
    """`local` is the model that ships, `openai` any endpoint that speaks its protocol, and
    `bedrock` is Amazon Bedrock with the function's own role."""
    embedding_base_url: str | None = None
    """The endpoint of an `openai` provider; OpenAI's own if absent."""
    embedding_model: str | None = None
    """The provider's name for the model. With `local` by default an English model beside a
    multilingual one; `minilm-l6-v2-int8` is the English one alone."""
    embedding_api_key: str | None = None
    """The API key of an `openai` provider; `bedrock` needs none."""
    embedding_region: str | None = Field(default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$")
    """The Region of `bedrock`, where it is not the function's own."""
    embedding_dimensions: int | None = Field(default=None, ge=1, le=4000)
    """The length of a vector; must match the model. That of a local model is known."""
    embedding_text_prefix: str = Field(default="", max_length=200)
    """What an `openai` provider's model wants before a text that is to be found, such as
    `passage: `."""
    embedding_question_prefix: str = Field(default="", max_length=200)
    """The same before a question, such as `query: `."""
    embedding_threads: int = Field(default=0, ge=0)
    """Threads of the local model; 0 leaves the choice to onnxruntime."""
    embedding_switch: Literal["auto", "held"] = "auto"
    """With another embedding model each tenant goes on reading the vectors that it has, until the
    new ones are complete. `auto`: it then reads those. `held`: when an operator says so."""
    embedding_usd_per_million: float = Field(default=0.0, ge=0, le=10_000)
    """What the embedding model costs for a million tokens, in USD: only to say what filling a new
    space costs."""
    previous_embedding_provider: Literal["local", "openai", "bedrock"] | None = None
    """The embedding model that was configured before, with its other settings: questions of tenants
    that still read its vectors go to it. A model that ships needs no such setting."""
    previous_embedding_base_url: str | None = None
    previous_embedding_model: str | None = None
    previous_embedding_api_key: str | None = None
    previous_embedding_region: str | None = Field(
        default=None, pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]$"
    )
    previous_embedding_dimensions: int | None = Field(default=None, ge=1, le=4000)
    previous_embedding_text_prefix: str = Field(default="", max_length=200)
    previous_embedding_question_prefix: str = Field(default="", max_length=200)
    llm_provider: Literal["none", "openai", "azure", "bedrock"] = "none"
    """`none` leaves language tasks to the heuristic model. `openai` is any endpoint that speaks its
    protocol, `azure` is Azure OpenAI, and `bedrock` is Amazon Bedrock with the function's own
    role."""
    llm_base_url: str | None = None
    """The endpoint: OpenAI's own if absent. For `azure` the resource's address, required."""
    llm_model: str = ""
    """The provider's name for the model; for `azure` the deployment's name."""
    llm_api_key: str | None = None
    """The API key; `bedrock` needs none."""
    llm_api_version: str = ""
    """For `azure`, required: the api-version, such as 2024-10-21."""
    llm_seconds: float = Field(default=10.0, gt=0, le=120)
    """The time limit of one answer, in seconds."""
    llm_summary_seconds: float = Field(default=20.0, gt=0, le=120)
    """The time limit of a summary, in seconds."""
    llm_calls_per_minute: int = Field(default=50, ge=0, le=100_000)
    """Requests to the provider per minute for one user or key; in the background, for one scope."""
    llm_breaker_failures: int = Field(default=5, ge=1, le=1000)
    """After this many failures in a row no requests are sent to the provider,"""
    llm_breaker_seconds: float = Field(default=60.0, gt=0, le=3600)
    """for this many seconds; then a single request tests it."""
    llm_usd_per_million_in: float = Field(default=0.0, ge=0, le=10_000)
    """The price of a million input tokens in USD. 0: costs are not counted."""
    llm_usd_per_million_out: float = Field(default=0.0, ge=0, le=10_000)
    """The price of a million output tokens in USD."""
    llm_usd_per_month: float | None = Field(default=None, ge=0, le=10**9)
    """What models may cost a tenant in a calendar month (UTC), in USD, unless an operator set
    another budget for it. Absent: no limit; 0 allows nothing."""
    llm_characters: int = Field(default=24_000, ge=1000, le=1_000_000)
    """The most characters of memory in one request to the model,"""
    llm_event_characters: int = Field(default=2000, ge=100, le=100_000)
    """and the most of one event."""
    llm_max_tokens: int = Field(default=2000, ge=100, le=100_000)
    """The most tokens of an answer, including those that a model spends on reasoning."""
    query_vector_seconds: float = Field(default=1.0, gt=0)
    """How long recall waits for its query's vector, in seconds, before it searches by full text
    alone."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser, separated by spaces. `*` allows all; absent
    allows none."""
    mcp_toolsets: tuple[McpToolset, ...] = ("memory", "graph", "personas", "admin")
    """The toolsets that an MCP connection may switch on, separated by commas. What a tool may do is
    the credential's rights."""
    presign_seconds: int = Field(default=300, ge=1, le=3600)
    """How long a presigned URL for a payload is valid, in seconds."""
    backup_days: int | None = Field(default=None, ge=0)
    """The retention of the database's backups, in days. An erasure's receipt states until when
    backups still contain the erased data. Absent: not known."""
    upload_max_bytes: int = Field(default=256 * 1024**2, ge=1, le=5 * 1024**3)
    """The largest upload, in bytes; S3 accepts 5 GiB in one PUT and in one copy."""
    upload_seconds: int = Field(default=900, ge=1, le=43_200)
    """How long a presigned URL for an upload is valid, in seconds. On AWS it ends earlier where the
    function's credentials do, after some hours."""
    upload_grace_seconds: int = Field(default=86_400, le=2_592_000)
    """How long an upload may wait to be cited, in seconds; then it is removed. At least twice
    `upload_seconds`, so that no URL outlives its upload."""
    blob_grace_seconds: int = Field(default=86_400, ge=3600, le=2_592_000)
    """How old a payload that no event cites must be before it is removed, in seconds. An append
    stores its payload first and has half a minute to cite it."""
    snapshot_days: int = Field(default=30, ge=1, le=3650)
    """How long a snapshot of the topic index is kept once another is active, in days. An answer's
    token is valid no longer."""
    job_queue_url: str = ""
    """The SQS queue of run requests. Without it no request can start a job, and jobs wait for the
    daily sweep."""
    sweep_seconds: int = Field(default=300, ge=1, le=86_400)
    """The least time between two sweeps that are requested because something is due, in seconds."""

    tuning: Json[Tuning] = DEFAULTS
    """Thresholds of memory formation that differ from their defaults, as a JSON object by name
    (docs/heat.md has the table). A tenant's own thresholds override them."""

    @field_validator("llm_base_url", "embedding_base_url", "previous_embedding_base_url")
    @classmethod
    def _check_database_url(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("https://", "http://")):
            raise ValueError("must be an https:// or http:// address")
        return value

    @field_validator("tuning")
    @classmethod
    def _check_tuning(cls, value: Tuning) -> Tuning:
        if messages := [contradiction.message for contradiction in value.find_contradictions()]:
            raise ValueError("; ".join(messages))
        return value

    @field_validator("mcp_toolsets", mode="before")
    @classmethod
    def _split_commas_of_toolsets(cls, value: object) -> object:
        return [word.strip() for word in value.split(",")] if isinstance(value, str) else value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _split_origins_at_spaces(cls, value: object) -> object:
        return value.split() if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _check_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if origin != "*" and not _ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin} is not an origin such as https://app.example, nor *")
        return value

    @field_validator("upload_grace_seconds")
    @classmethod
    def _check_upload_grace(cls, value: int, info: ValidationInfo) -> int:
        if value < 2 * info.data.get("upload_seconds", 0):
            raise ValueError(f"must be at least twice {PREFIX}UPLOAD_SECONDS")
        return value

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> "ServiceSettings":
        """Read the settings. Raises Misconfigured naming every missing or invalid variable."""
        values = {
            n: env[PREFIX + n.upper()] for n in cls.model_fields if env.get(PREFIX + n.upper())
        }
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            problems = [f"{_name_invalid_variable(e['loc'])}: {e['msg']}" for e in error.errors()]
            has_missing = any(e["loc"][0] not in values for e in error.errors())
        raise Misconfigured(
            f"Strandline does not start. {'; '.join(problems)}.{_WAY_OUT if has_missing else ''}",
            variables=problems,
        )


def _name_invalid_variable(location: tuple[int | str, ...]) -> str:
    """The name of the invalid variable, or of a member of its JSON."""
    variable, *within = (str(part) for part in location)
    return ".".join((PREFIX + variable.upper(), *within))


def find_unknown_settings(environment: Mapping[str, str]) -> list[str]:
    """A warning for each variable that looks like a setting and is none, with the nearest name."""
    known = {name.upper() for name in (*ServiceSettings.model_fields, *_OTHER_NAMES)}
    names = {name.removeprefix(PREFIX) for name in environment if name.startswith(PREFIX)}
    warnings: list[str] = []
    for name in sorted(names - known):
        near = difflib.get_close_matches(name, known, 1)
        hint = f" Is it {PREFIX}{near[0]}?" if near else ""
        warnings.append(f"{PREFIX}{name[:100]} is no setting and has no effect.{hint}")
    return warnings


@functools.cache
def get_settings() -> ServiceSettings:
    """This process's settings, read on first use and never at import."""
    return ServiceSettings.from_env(os.environ)
