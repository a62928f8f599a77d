"""Request and response types of the admin routes of the topic index."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import Field

from strandline.schemas import Count, PagingQuery, ResponseModel


class ScopeWithFailedTree(ResponseModel):
    """A scope whose tree could not be grown. Its published tree is unchanged."""

    scope_id: UUID
    reason: str
    """The reason, as a code."""


class SnapshotConfiguration(ResponseModel):
    """The embedding space and the models that a snapshot's trees and summaries were made with."""

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
    """Whether queries read this snapshot."""
    published_at: datetime
    age_seconds: int
    base_version: int
    """The version that this snapshot was built from; 0: none."""
    repeats_version: int | None
    """If this snapshot was published by an activation: the version whose trees it repeats."""
    job_id: UUID | None
    """The id of the build that published it."""
    scope_count: int
    leaf_count: int
    """The number of leaves (chains) in all trees."""
    node_count: int
    event_count: int
    scopes_changed: int
    """The number of trees that differ from those of `base_version`."""
    scopes_failed: list[ScopeWithFailedTree]
    configuration: SnapshotConfiguration
    erased_at: datetime | None
    """When an event in this snapshot was erased; such a snapshot cannot be made active again. Null
    if none was."""


class SnapshotsPage(ResponseModel):
    """The tenant's snapshots, newest first."""

    snapshots: list[SnapshotOut]
    next_cursor: str | None


class SnapshotDetail(SnapshotOut):
    """One snapshot, with its size."""

    stored_bytes: int
    """The size of the contents of its nodes in bytes. Contents that are shared with other snapshots
    count in each of them."""


class SnapshotDifferenceQuery(PagingQuery):
    """Query parameters of a comparison of two snapshots."""

    from_version: Count = Field(alias="from", ge=1, lt=10**18)
    """The version to compare with."""


class SlotDifferenceOut(ResponseModel):
    """A slot of a tree that differs."""

    scope_id: UUID
    slot_id: UUID
    """The slot's id; for a leaf, the id of its chain."""
    change: Literal["added", "gone", "changed"]
    leaf: bool
    node_before: UUID | None
    node_after: UUID | None
    parent_before: UUID | None
    parent_after: UUID | None


class DifferencePage(ResponseModel):
    """The differences between two snapshots."""

    from_version: int
    to_version: int
    same_configuration: bool
    """Whether both snapshots were made with the same models. If not, most nodes differ for that
    reason alone."""
    scopes: int
    """The number of scopes with a difference."""
    added: int
    gone: int
    changed: int
    changes: list[SlotDifferenceOut]
    """One page of the differences, ordered by slot."""
    next_cursor: str | None


class WaitingScopeOut(ResponseModel):
    """A scope whose tree does not have all chain versions yet."""

    scope_id: UUID
    waiting: int
    """The number of chain versions that are missing from its published tree."""
    waiting_since: datetime
    position: int
    """The position of the last chain version in its published tree."""


class NextBuildForecast(ResponseModel):
    """What a build would do if it ran now."""

    shards: int
    scopes: int
    versions: int
    """The number of chain versions that it would insert, as far as their events are embedded."""


class TopicIndexState(ResponseModel):
    """The state of a tenant's topic index: what waits for the next build, and when it is due."""

    active_version: int
    """The version of the active snapshot; 0: none was published yet."""
    active_age_seconds: int | None
    waiting_scopes: int
    waiting_versions: int
    waiting_since: datetime | None
    due_at: datetime | None
    """When a build is due; null: no scope is waiting."""
    running_job_id: UUID | None
    """The id of the running build."""
    next_build: NextBuildForecast
    scopes: list[WaitingScopeOut]
    """The scopes that have waited longest, at most 100."""
    failed_scopes: list[ScopeWithFailedTree]
    """The scopes that failed in the newest build, at most 100. The next build tries them again."""
