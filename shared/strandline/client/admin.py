"""The verbs of admins and operators: `client.admin.…`. Those of tenants, keys, certificates and the
audit trail need the right `operator`; the others the right `admin`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

from strandline.client import answers
from strandline.client.memory import Fields
from strandline.client.request_building import KEEP, KeepUnchanged, VerbGroup
from strandline.client.transport import AsyncCaller, SyncCaller
from strandline.client.verb_declarations import operation, pages

Right: TypeAlias = Literal["read", "write", "admin", "operator", "erase"]
Time: TypeAlias = datetime | float | str

_TENANTS = "/api/v1/admin/tenants"
_TENANT = f"{_TENANTS}/{{tenant}}"
_KEY = f"{_TENANT}/keys/{{key_id}}"
_CERTIFICATES = f"{_TENANT}/certificates"
_JOB = "/api/v1/admin/jobs/{job}"
_SNAPSHOT = "/api/v1/admin/snapshots/{version}"
_PAGE_SIZE = {"page_size": "limit"}


class OperatorVerbs(VerbGroup):
    """Verbs of operators."""

    @operation(f"POST {_TENANTS}", once=True)
    def create_tenant(
        self,
        tenant_id: str,
        *,
        requests_per_minute: int | KeepUnchanged | None = KEEP,
        appends_per_minute: int | KeepUnchanged | None = KEEP,
        stored_bytes: int | KeepUnchanged | None = KEEP,
        model_usd_per_month: float | KeepUnchanged | None = KEEP,
        agents_share: bool | KeepUnchanged | None = KEEP,
        time_zone: str | KeepUnchanged | None = KEEP,
        embedding_switch: Literal["auto", "held"] | KeepUnchanged | None = KEEP,
        tuning: Fields | KeepUnchanged | None = KEEP,
    ) -> answers.TenantDetails:
        """Create a tenant."""
        ...

    @pages(f"GET {_TENANTS}", "TenantPage.tenants", names=_PAGE_SIZE)
    def tenants(
        self, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.TenantOut:
        """All tenants, by name."""
        ...

    @operation(f"GET {_TENANT}")
    def tenant(self, tenant: str) -> answers.TenantDetails:
        """A tenant with its limits, thresholds and usage."""
        ...

    @operation(f"PATCH {_TENANT}")
    def update_tenant(
        self,
        tenant: str,
        *,
        requests_per_minute: int | KeepUnchanged | None = KEEP,
        appends_per_minute: int | KeepUnchanged | None = KEEP,
        stored_bytes: int | KeepUnchanged | None = KEEP,
        model_usd_per_month: float | KeepUnchanged | None = KEEP,
        agents_share: bool | KeepUnchanged | None = KEEP,
        time_zone: str | KeepUnchanged | None = KEEP,
        embedding_switch: Literal["auto", "held"] | KeepUnchanged | None = KEEP,
        tuning: Fields | KeepUnchanged | None = KEEP,
    ) -> answers.TenantDetails:
        """Change a tenant. None is the deployment's default; what is left out stays."""
        ...

    @operation(f"POST {_TENANT}/keys", once=True)
    def create_key(
        self,
        tenant: str,
        *,
        user: str | None = None,
        rights: Sequence[Right] | None = None,
        label: str | None = None,
        expires_at: Time | None = None,
    ) -> answers.NewKeyOut:
        """Make an API key; its token is shown only in this answer."""
        ...

    @pages(f"GET {_TENANT}/keys", "KeyPage.keys", names=_PAGE_SIZE)
    def keys(
        self, tenant: str, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.KeyOut:
        """A tenant's keys, newest first."""
        ...

    @operation(f"GET {_KEY}")
    def key(self, tenant: str, key_id: str) -> answers.KeyOut:
        """A key, without its secret."""
        ...

    @operation(f"POST {_KEY}/rotate", once=True)
    def rotate_key(
        self,
        tenant: str,
        key_id: str,
        *,
        overlap_seconds: int | None = None,
        expires_at: Time | None = None,
    ) -> answers.RotatedKeys:
        """Make a key's successor; the key itself expires after the overlap."""
        ...

    @operation(f"DELETE {_KEY}")
    def revoke_key(self, tenant: str, key_id: str) -> answers.KeyOut:
        """Revoke a key; it is refused within 60 seconds."""
        ...

    @pages(f"GET {_TENANT}/audit", "AuditPage.entries", names=_PAGE_SIZE)
    def audit(
        self, tenant: str, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.AuditEntry:
        """A tenant's audit trail, newest first."""
        ...

    @operation(f"POST {_CERTIFICATES}", once=True)
    def add_certificate(
        self,
        tenant: str,
        *,
        subject: str,
        issuer: str | None = None,
        user: str | None = None,
        rights: Sequence[Right] | None = None,
        label: str | None = None,
        expires_at: Time | None = None,
    ) -> answers.CertificateOut:
        """Register a subject, whose certificates then authenticate."""
        ...

    @pages(f"GET {_CERTIFICATES}", "CertificatePage.certificates", names=_PAGE_SIZE)
    def certificates(
        self, tenant: str, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.CertificateOut:
        """A tenant's subjects, newest first."""
        ...

    @operation(f"GET {_CERTIFICATES}/{{certificate_id}}")
    def certificate(self, tenant: str, certificate_id: UUID | str) -> answers.CertificateOut:
        """A subject, and the principal that its certificates authenticate."""
        ...

    @operation(f"DELETE {_CERTIFICATES}/{{certificate_id}}")
    def revoke_certificate(self, tenant: str, certificate_id: UUID | str) -> answers.CertificateOut:
        """Revoke a subject; it is refused within 60 seconds."""
        ...


class TenantAdminVerbs(VerbGroup):
    """Verbs of a tenant's admins."""

    @pages("GET /api/v1/admin/jobs", "JobsPage.jobs", names=_PAGE_SIZE)
    def jobs(
        self,
        *,
        state: Literal["queued", "running", "done", "failed"] | None = None,
        kind: str | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.JobOut:
        """Background jobs and failures, newest first."""
        ...

    @operation(f"GET {_JOB}")
    def job(self, job: UUID | str) -> answers.JobOut:
        """A job by its id."""
        ...

    @operation(f"POST {_JOB}", once=True)
    def start_job(self, job: str) -> answers.JobOut:
        """Start a job by its name, as `builder`."""
        ...

    @operation(f"POST {_JOB}/retry", once=True)
    def retry_job(self, job: UUID | str) -> answers.JobOut:
        """Try a failed job again."""
        ...

    @operation("POST /api/v1/admin/analytics/trigger", once=True)
    def find_communities(self) -> answers.JobOut:
        """Find communities of the graph now."""
        ...

    @pages("GET /api/v1/admin/communities", "CommunitiesPage.communities", names=_PAGE_SIZE)
    def communities(
        self,
        *,
        node_id: str | None = None,
        page_size: int | None = None,
        cursor: str | None = None,
    ) -> answers.CommunityOut:
        """Communities of the tenant's whole graph, the largest first."""
        ...

    @operation("GET /api/v1/admin/communities/{community_id}")
    def community(
        self, community_id: UUID | str, *, limit: int | None = None, cursor: str | None = None
    ) -> answers.CommunityDetail:
        """A community of the tenant's whole graph."""
        ...

    @operation("GET /api/v1/admin/topics")
    def topic_index(self) -> answers.TopicIndexState:
        """The work that the next build of the topic index will do."""
        ...

    @pages("GET /api/v1/admin/snapshots", "SnapshotsPage.snapshots", names=_PAGE_SIZE)
    def snapshots(
        self, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.SnapshotOut:
        """Published snapshots of the topic index, newest first."""
        ...

    @operation(f"GET {_SNAPSHOT}")
    def snapshot(self, version: int) -> answers.SnapshotDetail:
        """One snapshot, with its size."""
        ...

    @operation(f"GET {_SNAPSHOT}/difference", names={"from_version": "from"})
    def compare_snapshots(
        self,
        version: int,
        *,
        from_version: int,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> answers.DifferencePage:
        """What differs between two snapshots."""
        ...

    @operation(f"POST {_SNAPSHOT}/activate", once=True)
    def activate_snapshot(self, version: int) -> answers.SnapshotOut:
        """Make an older snapshot the active one again."""
        ...

    @pages("GET /api/v1/model-calls", "ModelCallPage.calls", names=_PAGE_SIZE)
    def model_calls(
        self, *, page_size: int | None = None, cursor: str | None = None
    ) -> answers.ModelCallOut:
        """Iterate over all requests to language models, newest first, without those to embedding
        models."""
        ...

    @operation("GET /metrics")
    def metrics(self) -> str:
        """The tenant's counters in the format of Prometheus."""
        ...


class Admin(OperatorVerbs, TenantAdminVerbs, SyncCaller):
    """Administration with a synchronous client."""


class AsyncAdmin(OperatorVerbs, TenantAdminVerbs, AsyncCaller):
    """Administration with an asynchronous client."""
