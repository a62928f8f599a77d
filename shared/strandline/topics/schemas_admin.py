"""Request and response types of the routes that show the topic index to admins."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from strandline.schemas import Count, ListQuery, ResponseModel


class FailedScope(ResponseModel):
    """A scope that could not be grown: it kept what it had."""

    scope_id: UUID
    reason: str
    """Why, as a code."""


class SnapshotConfiguration(ResponseModel):
    """What the trees and summaries of a snapshot come from."""

    space: str
    """The embedding space."""
    model: str
    """The model that writes the summaries of inner nodes."""
    prompt: str


class SnapshotOut(ResponseModel):
    """A published version of all topic trees of the tenant."""

    version: int
    snapshot_id: UUID
    active: bool
    """Whether queries read it."""
    published_at: datetime
    age_seconds: int
    base_version: int
    """The version that it was made from; 0: none."""
    repeats_version: int | None
    """The version that was made active again by it."""
    job_id: UUID | None
    """The build that published it."""
    scope_count: int
    leaf_count: int
    """Chains, over all trees."""
    node_count: int
    event_count: int
    scopes_changed: int
    """How many trees differ from those of `base_version`."""
    scopes_failed: list[FailedScope]
    configuration: SnapshotConfiguration
    erased_at: datetime | None
    """Since when it holds an event that is erased: it cannot be made active again."""


class SnapshotsPage(ResponseModel):
    """The tenant's snapshots, newest first."""

    snapshots: list[SnapshotOut]
    next_cursor: str | None


class SnapshotDetail(SnapshotOut):
    """One snapshot, with its size."""

    stored_bytes: int
    """Of the contents of its nodes; what it shares with other snapshots counts in each."""


class DifferenceQuery(ListQuery):
    """Query string of a difference."""

    from_version: Count = Field(alias="from", ge=1, lt=10**18)
    """The version that this one is compared with."""


class NodeChange(ResponseModel):
    """A place in a tree that differs."""

    scope_id: UUID
    slot_id: UUID
    """The place: of a leaf its chain's id."""
    change: Literal["added", "gone", "changed"]
    leaf: bool
    node_before: UUID | None
    node_after: UUID | None
    parent_before: UUID | None
    parent_after: UUID | None


class DifferencePage(ResponseModel):
    """What differs between two snapshots."""

    from_version: int
    to_version: int
    same_configuration: bool
    """Whether both come from the same models; else most nodes differ for that reason alone."""
    scopes: int
    """In how many scopes something differs."""
    added: int
    gone: int
    changed: int
    changes: list[NodeChange]
    """A page of them, by place."""
    next_cursor: str | None


class WaitingScopeOut(ResponseModel):
    """A scope whose tree lacks chain versions."""

    scope_id: UUID
    waiting: int
    """How many chain versions its published tree lacks."""
    waiting_since: datetime
    position: int
    """How many it has taken in."""


class NextBuild(ResponseModel):
    """What a build would do now."""

    shards: int
    scopes: int
    versions: int
    """How many chain versions it would take in, as far as their events are embedded."""


class TopicIndexState(ResponseModel):
    """The state of the builder's trigger in the tenant."""

    active_version: int
    """0: nothing was published yet."""
    active_age_seconds: int | None
    waiting_scopes: int
    waiting_versions: int
    waiting_since: datetime | None
    due_at: datetime | None
    """When a build is due; null: nothing waits."""
    running_job_id: UUID | None
    """The build that is under way."""
    next_build: NextBuild
    scopes: list[WaitingScopeOut]
    """The scopes that wait longest, at most 100."""
    failed_scopes: list[FailedScope]
    """The scopes that failed in the newest build, at most 100; they wait for the next one."""
