"""Write chain versions: of a new chain, of a merge, or with new content for the same events. The
scope's `folded_seq` must have been moved before, in the same transaction."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from strandline.chains import heat, refold, store
from strandline.chains.decisions import ChainContent, RunContentAndVector
from strandline.chains.fold_state import FoldState
from strandline.chains.segmentation import TopicRun
from strandline.chains.store import ChainEvent, ChainHead, ChainVersionToStore
from strandline.derived_ids import to_uuid8
from strandline.errors import NotFound
from strandline.jobs import store_failures
from strandline.jobs.worker_resources import ConcurrentUpdate


class EnrichedRun(NamedTuple):
    """A closed run, and the content of the chain that it becomes."""

    run: TopicRun
    enrichment: RunContentAndVector


class ChainVersionContent(NamedTuple):
    """The new content of a chain, with its version number."""

    chain_id: UUID
    version: int
    enrichment: RunContentAndVector


def write_run_as_chain_version(state: FoldState, enriched_run: EnrichedRun) -> None:
    """Write a run as a new chain, or as a new version of the chain that it is merged into."""
    run, enrichment = enriched_run
    content, counts = enrichment.content, state.worker.tally.counters
    target = store.read_chain_head(state.access, content.joins) if content.joins else None
    base = (
        _make_head_of_new_chain(state, run, content)
        if target is None
        else _make_head_after_merge(target, run)
    )
    version = _make_version_to_store(state, content, base, run.events[0].session_id)
    version, enrichment = _restore_recall_and_archive_state(state, version, enrichment)
    links = [ChainEvent(turn.event_id, turn.seq) for turn in run.events]
    earlier_ids = store.list_event_ids(state.access, version.chain_id) if target else []
    _hash_and_store_version(
        state, version, links, [*earlier_ids, *(link.event_id for link in links)], enrichment
    )
    metric = "ChainsFormed" if target is None else "ChainsMerged"
    counts["ChainsRejected" if content.rejected is not None else metric] += 1


def write_revision(state: FoldState, revision: ChainVersionContent) -> None:
    """Write a chain's next version, with the same events. Raises NotFound for a chain that no
    longer exists, and ConcurrentUpdate if its next version is not the decided one."""
    chain_id, enrichment = revision.chain_id, revision.enrichment
    head = store.read_chain_head(state.access, chain_id)
    if head is None:
        raise NotFound
    if head.version + 1 != revision.version:
        raise ConcurrentUpdate
    next_head = replace(head, version=revision.version, closed_by="retry")
    version = _make_version_to_store(
        state, enrichment.content, next_head, head.session_id, accessed_at=head.accessed_at
    )
    if head.status == "archived":
        version = replace(version, status="archived", archived_at=version.formed_at)
        enrichment = enrichment._replace(vector=None)
    version, enrichment = _restore_recall_and_archive_state(state, version, enrichment)
    _hash_and_store_version(
        state, version, [], store.list_event_ids(state.access, chain_id), enrichment
    )


def make_chain_id(tenant: str, scope_id: UUID, first_event_id: UUID) -> UUID:
    """The id of the chain that begins with an event: a UUIDv8 (RFC 9562) over SHA-256, so that a
    replay gives the same id."""
    digest = hashlib.sha256(
        json.dumps([tenant, str(scope_id), str(first_event_id)]).encode()
    ).digest()
    return to_uuid8(digest)


def _make_head_of_new_chain(state: FoldState, run: TopicRun, content: ChainContent) -> ChainHead:
    """The head of a new chain of this run, without content."""
    first, last, times = run.events[0], run.events[-1], [turn.said_at for turn in run.events]
    scope_id = state.scope.scope_id
    return ChainHead(
        chain_id=make_chain_id(state.access.caller.tenant, scope_id, first.event_id),
        scope_id=scope_id,
        session_id=first.session_id,
        version=1,
        status="active",
        strength=1.0,
        accessed_at=content.at,
        closed_by=run.closed_by,
        merged=False,
        first_seq=first.seq,
        last_seq=last.seq,
        event_count=len(run.events),
        started_at=min(times),
        last_event_at=max(times),
        topic=None,
        summary="",
        entities=[],
        importance=0.0,
        density=0.0,
        coherence=None,
    )


def _make_head_after_merge(head: ChainHead, run: TopicRun) -> ChainHead:
    """A chain's head after a later run is merged in."""
    times = [turn.said_at for turn in run.events]
    return replace(
        head,
        version=head.version + 1,
        closed_by=run.closed_by,
        merged=True,
        first_seq=min(head.first_seq, run.events[0].seq),
        last_seq=max(head.last_seq, run.events[-1].seq),
        event_count=head.event_count + len(run.events),
        started_at=min(head.started_at, *times),
        last_event_at=max(head.last_event_at, *times),
    )


def _restore_recall_and_archive_state(
    state: FoldState, version: ChainVersionToStore, enrichment: RunContentAndVector
) -> tuple[ChainVersionToStore, RunContentAndVector]:
    """In a replay, restore the effect of recalls and archiving on a chain: its strength, and its
    archived status once its last version is refolded. Until then, the chain is listed with the
    status of the version at hand."""
    use = None
    if state.current_seq <= state.scope.max_folded_seq:
        use = refold.read_dropped_chain_state(state.access, version.chain_id)
    if use is None:
        return version, enrichment
    if version.version == 1:
        last_access = max(version.accessed_at, use.accessed_at)
        heat_state = heat.HeatInputs(version.importance, version.density, use.strength, last_access)
        version = replace(
            version,
            strength=use.strength,
            accessed_at=last_access,
            boosted_at=use.boosted_at,
            cold_at=heat.compute_cold_at(heat_state, state.tuning),
            promote_until=heat.compute_promote_until(heat_state, state.tuning),
        )
    if version.version == use.version and use.archived_at is not None:
        version = replace(version, status="archived", archived_at=use.archived_at)
        enrichment = enrichment._replace(vector=None)
    return version, enrichment


def _make_version_to_store(
    state: FoldState,
    content: ChainContent,
    base: ChainHead,
    lane: str,
    accessed_at: datetime | None = None,
) -> ChainVersionToStore:
    """Build the version that holds this content. Its heat starts at the content's `at`, by the
    server's clock, or at `accessed_at` if given."""
    last_access = accessed_at or max(base.accessed_at, content.at)
    heat_state = heat.HeatInputs(content.importance, content.density, base.strength, last_access)
    assert state.settings is not None, "a fold has decided its settings"
    return ChainVersionToStore(
        chain_id=base.chain_id,
        version=base.version,
        scope_id=base.scope_id,
        participants=state.scope.participants,
        session_id=base.session_id,
        lane=lane,
        created_at_seq=state.current_seq,
        closed_by=base.closed_by,
        merged=base.merged,
        first_seq=base.first_seq,
        last_seq=base.last_seq,
        event_count=base.event_count,
        started_at=base.started_at,
        last_event_at=base.last_event_at,
        topic=content.topic,
        summary=content.summary,
        entities=content.entities,
        importance=content.importance,
        density=content.density,
        coherence=content.coherence,
        quality=content.quality,
        rejected=content.rejected,
        # A setting that earlier releases did not have is left out while it has its default value.
        settings=state.settings.model_dump(mode="json", exclude_defaults=True),
        models=content.models,
        content_hash=b"",
        status="active" if content.rejected is None else "rejected",
        formed_at=content.at,
        strength=base.strength,
        accessed_at=last_access,
        boosted_at=None,
        archived_at=None,
        cold_at=heat.compute_cold_at(heat_state, state.tuning),
        promote_until=heat.compute_promote_until(heat_state, state.tuning),
    )


def _hash_and_store_version(
    state: FoldState,
    version: ChainVersionToStore,
    links: Sequence[ChainEvent],
    event_ids: Sequence[UUID],
    enrichment: RunContentAndVector,
) -> None:
    hashed_version = replace(version, content_hash=_hash_version_content(version, event_ids))
    store.insert_chain_version(
        state.access, hashed_version, links, state.worker.embedder.space, enrichment.vector
    )
    listed_without_vector = enrichment.vector is None and hashed_version.status == "active"
    reason = enrichment.content.fallback_reason or ("no_vector" if listed_without_vector else None)
    if reason is not None and enrichment.is_new:
        store_failures.record_retryable_failure(
            state.access,
            kind="enrich",
            scope_id=hashed_version.scope_id,
            participants=hashed_version.participants,
            reason=reason,
            advice="The chain has the content that needs no model. Retry this job when the model is"
            " available.",
            ref=hashed_version.chain_id,
        )


_UNHASHED_FIELDS = frozenset(
    # Excluded from the hash: the server's clocks, the effect of recalls, and the fields used only
    # for search.
    (
        *("content_hash", "status", "formed_at", "lane", "strength", "accessed_at"),
        *("boosted_at", "archived_at", "cold_at", "promote_until"),
    )
)


def _hash_version_content(version: ChainVersionToStore, event_ids: Sequence[UUID]) -> bytes:
    """SHA-256 over all visible fields of a version, and the ids of its events by seq."""
    fields: dict[str, Any] = {
        name: value for name, value in vars(version).items() if name not in _UNHASHED_FIELDS
    }
    fields["events"] = event_ids
    return hashlib.sha256(json.dumps(fields, sort_keys=True, default=str).encode()).digest()
