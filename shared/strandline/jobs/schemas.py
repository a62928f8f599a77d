"""Jobs as admins see them: types of requests and answers."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from strandline.schemas import ListQuery, ResponseModel

type JobState = Literal["queued", "running", "done", "failed"]
type JobKind = Literal["archiver", "sweeper", "enrich", "continues", "embed", "fold"]


class JobsQuery(ListQuery):
    """Query string of the list of jobs."""

    state: JobState | None = None
    """Only jobs in this state."""
    kind: JobKind | None = None
    """Only jobs of this kind."""


class JobOut(ResponseModel):
    """Background work in the tenant: what it is, how far it came, and what to do if it failed."""

    job_id: UUID
    kind: JobKind
    """`archiver`, `sweeper`; `enrich` is a chain whose model failed and that has what works without
    one; `continues` is a scope in which nobody could tell where topics end; `embed` is a scope with
    events that the embedding model refuses; `fold` is a scope whose work was put off five times in
    a row."""
    state: JobState
    """`queued` until it is taken up, `running`, `done`, or `failed`, which can be tried again, but
    for `continues`."""
    reason: str
    """Why it failed, as a code; else empty."""
    advice: str
    """What to do about it; else empty."""
    attempts: int
    totals: dict[str, int]
    """What it did, in numbers."""
    scope_id: UUID | None
    """The scope that it is about; null: all of the tenant."""
    ref: str | None
    """What it is about in that scope: of `enrich` the chain's id, else its own."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class JobsPage(ResponseModel):
    """The tenant's jobs, newest first."""

    jobs: list[JobOut]
    next_cursor: str | None
