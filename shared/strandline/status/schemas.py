"""Response types for the health of the service."""

from datetime import datetime
from typing import Literal

from strandline.schemas import ResponseModel


class Liveness(ResponseModel):
    """Confirms that the process responds."""

    status: Literal["ok"] = "ok"


class LanguageModelState(ResponseModel):
    """The configured language model. The health check does not call it."""

    provider: str | None
    """The model, as in `openai:gpt-4o-mini`. Null: none is configured, and the heuristic model does
    its tasks."""
    failure: str | None
    """What went wrong when the model was last called for the tenant; null: nothing, or it was never
    called, or the credential is not valid."""
    failed_at: datetime | None
    resting_until: datetime | None
    """Until when the model is not called for the tenant, and the heuristic model does its tasks;
    null: it is called."""


class MemoryState(ResponseModel):
    """What the tenant's memory holds, and what is made next."""

    events: int
    scopes: int
    topics: int
    """Chains in mid-term memory."""
    facts: int
    """Facts of the knowledge graph that hold."""
    chains_due_at: datetime | None
    """When the next events are folded into chains; null: all are, or their topics are still
    open."""


class BackgroundState(ResponseModel):
    """Failures of the tenant's background work, and incomplete erasures. GET /api/v1/admin/jobs
    returns the reasons of the failures."""

    scopes_stuck: int
    """Scopes whose work was postponed five times in a row. Their events are stored and can be
    recalled, but the newest ones are not in chains yet. The work is retried automatically."""
    jobs_failed: int
    """Failed jobs of the last 30 days that were not retried."""
    turns_late: int
    """Answers to queries and chats that have been pending for more than ten minutes."""
    erasures_waiting: int
    """Incomplete erasures: the data is unreadable already, but there is no receipt yet."""
    oldest_erasure_seconds: int
    """The age of the oldest incomplete erasure in seconds; 0 if there is none."""
    rows_unreadable: int
    """Nodes and edges of the graph with a time outside of the years 1 to 9999. Answers show the
    nearest time that can be shown; an export fails and names the row."""


class CallerState(ResponseModel):
    """Whose credential it is, and what it may do."""

    tenant: str
    user: str | None
    """The participant that the credential is bound to: it reads and writes as that one alone; null
    if it is bound to nobody."""
    rights: list[str]
    """`read`, `write`, `admin`, `operator` and `erase`, as far as it has them; `admin` includes
    read and write."""
    key_id: str | None
    """The public id of its API key or certificate; null for a JWT."""
    may_read_everybody: bool
    """Whether it may read all of its tenant, with `?everybody=true`."""
    agents_share: bool
    """Whether reads of the tenant leave agents out of those on whose behalf they ask."""


class Health(ResponseModel):
    """The status of the service and its dependencies."""

    status: Literal["ok", "degraded", "unavailable"]
    dependencies: dict[str, str]
    """`ok` or an error code, for each of database, blobs, queue and embedding."""
    language: LanguageModelState
    caller: CallerState | None = None
    """Null while the database is unavailable, and for a credential that is not valid."""
    background: BackgroundState | None
    """Null while the database is unavailable, and for a credential that is not valid."""
    memory: MemoryState | None
    """Null while the database is unavailable, and for a credential without the right `admin`."""
    warnings: list[str]
    """Warnings for the operator of this process, each with the action to take."""
