"""On whose behalf a request writes, and what it writes with."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from strandline.auth.principals import Principal
from strandline.aws.blobs import BlobStore
from strandline.aws.work_queue import WorkQueue
from strandline.db.database import NOBODY, Caller, Database, TenantDb
from strandline.resources import Resources
from strandline.tenants.quotas import QuotaManager


def make_caller(principal: Principal) -> Caller:
    """The caller of a write: a bound credential sees its user's scopes, an unbound one may name
    any."""
    viewer = (principal.user,) if principal.user else ()
    return Caller(principal.tenant, viewer, principal.user or NOBODY)


@dataclass(frozen=True)
class WriterResources:
    """Who writes, with what, and until when."""

    principal: Principal
    database: Database
    blobs: BlobStore
    work_queue: WorkQueue
    quotas: QuotaManager
    deadline: float | None = None
    """When the write must be done, in time.monotonic() seconds; None: no matter when."""

    @classmethod
    def from_resources(
        cls, resources: Resources, principal: Principal, deadline: float | None = None
    ) -> Self:
        """A writer with what this process works with."""
        return cls(
            principal,
            resources.database,
            resources.blobs,
            resources.work_queue,
            resources.quotas,
            deadline,
        )

    def connect(self) -> TenantDb:
        """The database on behalf of the writer alone."""
        return self.database.connect_as(make_caller(self.principal), self.deadline)

    def connect_for_all(self, participants: Sequence[str]) -> TenantDb:
        """The database with the view that all these participants share, which are normalised: what
        a write among them may name."""
        caller = Caller(self.principal.tenant, tuple(participants), NOBODY)
        return self.database.connect_as(caller, self.deadline)
