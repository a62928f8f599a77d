"""Request and response types of the jobs routes."""

from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

from pydantic import Field
from typing_extensions import TypeAliasType

from strandline.function_specs import JobName
from strandline.schemas import PagingQuery, ResponseModel

JobState = TypeAliasType("JobState", Literal["queued", "running", "done", "failed"])
JobKind = TypeAliasType(
    "JobKind",
    Literal[JobName, "enrich", "continues", "embed", "fold", "grow", "promote", "analyze"],
)


def quote_job_names(conjunction: Literal["and", "or"]) -> str:
    """The names of all jobs for the API's document, as in "`a`, `b` and `c`"."""
    *others, last = (f"`{name}`" for name in get_args(JobName.__value__))
    return f"{', '.join(others)} {conjunction} {last}"


_JOB_NAMES = quote_job_names("and")
_KIND = f"""\
{_JOB_NAMES} are jobs. The others are failures: `enrich` is a chain whose model
failed, so that it has only what works without one; `continues` is a scope in which the
configured model could not judge where topics end; `embed` is a scope with events that the
embedding model refuses; `fold` is a scope whose work failed five times in a row; `grow` is a
scope whose topic tree the last build could not grow; `promote` is a chain that could not be
written into the knowledge graph, or was without the configured model; `analyze` is a graph whose
communities could not be found, a scope's or the whole tenant's."""
_REF = f"""\
The id of what it is about: for `enrich` and `promote` the chain's, for the other failures the
scope's, or `tenant`; null for {_JOB_NAMES}."""


class JobsQuery(PagingQuery):
    """Query string of the list of jobs."""

    state: JobState | None = None
    """Only jobs in this state."""
    kind: JobKind | None = None
    """Only jobs of this kind."""


class JobOut(ResponseModel):
    """A background job in the tenant: its kind, its progress, and what to do if it failed."""

    job_id: UUID
    kind: JobKind = Field(description=_KIND)
    state: JobState
    """`queued` until a run begins it, then `running`, `done` or `failed`. A failed job can be
    retried, except `continues`."""
    reason: str
    """Why it failed, as a code; else empty."""
    advice: str
    """What to do about the failure; else empty."""
    attempts: int
    totals: dict[str, int]
    """Counts of what it did."""
    scope_id: UUID | None
    """The scope that it is about; null for the whole tenant."""
    ref: str | None = Field(description=_REF)
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobsPage(ResponseModel):
    """The tenant's jobs, newest first."""

    jobs: list[JobOut]
    next_cursor: str | None
