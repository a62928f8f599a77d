"""Writing chains: a run becomes one, joins one, or one is said anew."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from strandline import heat
from strandline.db import Access
from strandline.errors import NotFound
from strandline.segmentation import Run
from strandline.services.enrich import Enriched, Formed, Settings
from strandline.services.worker import Worker
from strandline.store import chains, jobs
from strandline.store.chains import Head, Link, Version
from strandline.store.lanes import Mark
from strandline.tuning import Tuning


class Scope(Protocol):
    """A scope whose mark was just moved, in the transaction under way."""

    worker: Worker
    access: Access
    mark: Mark
    tuning: Tuning
    settings: Settings | None
    at: int


def write_run(scope: Scope, run: Run, enriched: Enriched) -> None:
    """The run as a chain of its own, or as a part of the one it joins."""
    formed, counts = enriched.formed, scope.worker.tally.counts
    joined = chains.head(scope.access, formed.joins) if formed.joins else None
    version = _version(
        scope, formed, _first(scope, run, formed) if joined is None else _next(joined, run)
    )
    links = [Link(turn.event_id, turn.seq) for turn in run.turns]
    earlier = chains.linked(scope.access, version.chain_id) if joined else []
    _write(scope, version, links, [*earlier, *(link.event_id for link in links)], enriched)
    kept = "ChainsFormed" if joined is None else "ChainsMerged"
    counts["ChainsRejected" if formed.rejected is not None else kept] += 1


def write_again(scope: Scope, chain_id: UUID, enriched: Enriched) -> None:
    """A chain's next version, of the same events. Raises NotFound for a chain that is gone."""
    head = chains.head(scope.access, chain_id)
    if head is None:
        raise NotFound
    again = replace(head, version=head.version + 1, closed_by="retry")
    version = _version(scope, enriched.formed, again, accessed_at=head.accessed_at)
    if head.status == "archived":
        version = replace(version, status="archived")
        enriched = enriched._replace(vector=None)
    _write(scope, version, [], chains.linked(scope.access, chain_id), enriched)


def chain_id_of(tenant: str, scope_id: UUID, first: UUID) -> UUID:
    """The id of the chain that begins with an event: a UUIDv8 (RFC 9562) over SHA-256, so that a
    replay gives the same."""
    digest = hashlib.sha256(json.dumps([tenant, str(scope_id), str(first)]).encode()).digest()
    number = int.from_bytes(digest[:16]) & ~(0xF << 76) & ~(0x3 << 62)
    return uuid.UUID(int=number | (8 << 76) | (2 << 62))


def _first(scope: Scope, run: Run, formed: Formed) -> Head:
    """A run as the first version of a chain, all but what it says."""
    first, last, times = run.turns[0], run.turns[-1], [turn.said_at for turn in run.turns]
    scope_id = scope.mark.scope_id
    return Head(
        chain_id=chain_id_of(scope.access.asker.tenant, scope_id, first.event_id),
        scope_id=scope_id,
        session_id=first.session_id,
        version=1,
        status="active",
        strength=1.0,
        accessed_at=formed.at,
        closed_by=run.closed_by,
        merged=False,
        first_seq=first.seq,
        last_seq=last.seq,
        event_count=len(run.turns),
        started_at=min(times),
        last_event_at=max(times),
        topic="",
        summary="",
        entities=[],
        importance=0.0,
        density=0.0,
        coherence=None,
    )


def _next(head: Head, run: Run) -> Head:
    """A chain with a later run in it."""
    times = [turn.said_at for turn in run.turns]
    return replace(
        head,
        version=head.version + 1,
        closed_by=run.closed_by,
        merged=True,
        first_seq=min(head.first_seq, run.turns[0].seq),
        last_seq=max(head.last_seq, run.turns[-1].seq),
        event_count=head.event_count + len(run.turns),
        started_at=min(head.started_at, *times),
        last_event_at=max(head.last_event_at, *times),
    )


def _version(
    scope: Scope, formed: Formed, base: Head, accessed_at: datetime | None = None
) -> Version:
    """The version that says what was decided. Its heat starts when it was formed, by our clock, or
    stays as it was."""
    touched = accessed_at or max(base.accessed_at, formed.at)
    state = heat.State(formed.importance, formed.density, base.strength, touched)
    assert scope.settings is not None, "what was folded was folded by some"
    return Version(
        chain_id=base.chain_id,
        version=base.version,
        scope_id=base.scope_id,
        participants=scope.mark.participants,
        session_id=base.session_id,
        made_at_seq=scope.at,
        closed_by=base.closed_by,
        merged=base.merged,
        first_seq=base.first_seq,
        last_seq=base.last_seq,
        event_count=base.event_count,
        started_at=base.started_at,
        last_event_at=base.last_event_at,
        topic=formed.topic,
        summary=formed.summary,
        entities=formed.entities,
        importance=formed.importance,
        density=formed.density,
        coherence=formed.coherence,
        quality=formed.quality,
        rejected=formed.rejected,
        settings=scope.settings.model_dump(mode="json"),
        models=formed.models,
        content_hash=b"",
        status="active" if formed.rejected is None else "rejected",
        formed_at=formed.at,
        accessed_at=touched,
        cold_at=heat.cold_at(state, scope.tuning),
        promote_until=heat.promote_until(state, scope.tuning),
    )


def _write(
    scope: Scope,
    version: Version,
    links: Sequence[Link],
    event_ids: Sequence[UUID],
    enriched: Enriched,
) -> None:
    made = replace(version, content_hash=_hash(version, event_ids))
    chains.add(scope.access, made, links, scope.worker.embedder.space, enriched.vector)
    listed_without_vector = enriched.vector is None and made.status == "active"
    reason = enriched.formed.fell_back or ("no_vector" if listed_without_vector else None)
    if reason is not None and enriched.fresh:
        jobs.note_failure(
            scope.access,
            kind="enrich",
            scope_id=made.scope_id,
            participants=made.participants,
            reason=reason,
            advice="The chain holds what needs no model. Retry this job when the model is back.",
            ref=made.chain_id,
        )


_NOT_SHOWN = frozenset(
    # Clocks of ours, and what use makes of a chain.
    ("content_hash", "status", "formed_at", "accessed_at", "cold_at", "promote_until")
)


def _hash(version: Version, event_ids: Sequence[UUID]) -> bytes:
    """SHA-256 over all that a reader is shown of a version, and its events' ids by seq."""
    shown: dict[str, Any] = {n: v for n, v in vars(version).items() if n not in _NOT_SHOWN}
    shown["events"] = event_ids
    return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).digest()
