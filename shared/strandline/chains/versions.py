"""Writing chains: a run becomes one, joins one, or one is said anew."""

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from strandline.chains import heat, store
from strandline.chains.enrichment import Enriched, Formed, Settings
from strandline.chains.segmentation import Run
from strandline.chains.store import Head, Link, Version
from strandline.chains.store_decisions import Decision
from strandline.chains.store_lanes import Mark
from strandline.db.database import Access
from strandline.errors import NotFound
from strandline.jobs import store as jobs_store
from strandline.jobs.context import Overtaken, Worker
from strandline.tuning import Tuning


class Scope(Protocol):
    """A scope whose mark was just moved, in the transaction under way."""

    worker: Worker
    access: Access
    mark: Mark
    tuning: Tuning
    settings: Settings | None
    at: int


class Again(NamedTuple):
    """What a chain says anew, as its version of this number."""

    chain_id: UUID
    version: int
    enriched: Enriched


def write_run(scope: Scope, run: Run, enriched: Enriched) -> None:
    """The run as a chain of its own, or as a part of the one it joins."""
    formed, counts = enriched.formed, scope.worker.tally.counts
    joined = store.head(scope.access, formed.joins) if formed.joins else None
    base = _first(scope, run, formed) if joined is None else _next(joined, run)
    version = _version(scope, formed, base, run.turns[0].session_id)
    version, enriched = _as_used(scope, version, enriched)
    links = [Link(turn.event_id, turn.seq) for turn in run.turns]
    earlier = store.linked(scope.access, version.chain_id) if joined else []
    _write(scope, version, links, [*earlier, *(link.event_id for link in links)], enriched)
    kept = "ChainsFormed" if joined is None else "ChainsMerged"
    counts["ChainsRejected" if formed.rejected is not None else kept] += 1


def write_again(scope: Scope, said: Again) -> None:
    """A chain's next version, of the same events. Raises NotFound for a chain that is gone, and
    Overtaken where the next is another than was decided."""
    chain_id, enriched = said.chain_id, said.enriched
    head = store.head(scope.access, chain_id)
    if head is None:
        raise NotFound
    if head.version + 1 != said.version:
        raise Overtaken
    again = replace(head, version=said.version, closed_by="retry")
    version = _version(scope, enriched.formed, again, head.session_id, accessed_at=head.accessed_at)
    if head.status == "archived":
        version = replace(version, status="archived", archived_at=version.formed_at)
        enriched = enriched._replace(vector=None)
    version, enriched = _as_used(scope, version, enriched)
    _write(scope, version, [], store.linked(scope.access, chain_id), enriched)


def note_unsure(scope: Scope, decided: Sequence[Decision]) -> None:
    """Where the twin said in a model's place whether topics go on, that is one visible failure of
    the scope."""
    said = [one.body.get("fell_back") for one in decided if one.kind == "continues"]
    reason = next((why for why in reversed(said) if why), None)
    if reason is not None:
        jobs_store.note_failure(
            scope.access,
            kind=jobs_store.CONTINUES,
            scope_id=scope.mark.scope_id,
            participants=scope.mark.participants,
            reason=reason,
            advice="The twin said whether topics go on. That is decided and is not asked again; see"
            " to the model, for what is said from now on.",
            ref=scope.mark.scope_id,
        )


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


def _as_used(scope: Scope, made: Version, enriched: Enriched) -> tuple[Version, Enriched]:
    """In a replay: as strong as use had made the chain, and archived again where its last version
    was. Before it is folded as far as it was, it is listed as what it was then."""
    used = None
    if scope.at <= scope.mark.settled_seq:
        used = store.use_before(scope.access, made.chain_id)
    if used is None:
        return made, enriched
    if made.version == 1:
        touched = max(made.accessed_at, used.accessed_at)
        state = heat.State(made.importance, made.density, used.strength, touched)
        made = replace(
            made,
            strength=used.strength,
            accessed_at=touched,
            boosted_at=used.boosted_at,
            cold_at=heat.cold_at(state, scope.tuning),
            promote_until=heat.promote_until(state, scope.tuning),
        )
    if made.version == used.version and used.archived_at is not None:
        made = replace(made, status="archived", archived_at=used.archived_at)
        enriched = enriched._replace(vector=None)
    return made, enriched


def _version(
    scope: Scope, formed: Formed, base: Head, lane: str, accessed_at: datetime | None = None
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
        lane=lane,
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
        # What earlier releases did not know is left out where it is as it was with them.
        settings=scope.settings.model_dump(mode="json", exclude_defaults=True),
        models=formed.models,
        content_hash=b"",
        status="active" if formed.rejected is None else "rejected",
        formed_at=formed.at,
        strength=base.strength,
        accessed_at=touched,
        boosted_at=None,
        archived_at=None,
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
    store.add(scope.access, made, links, scope.worker.embedder.space, enriched.vector)
    listed_without_vector = enriched.vector is None and made.status == "active"
    reason = enriched.formed.fell_back or ("no_vector" if listed_without_vector else None)
    if reason is not None and enriched.fresh:
        jobs_store.note_failure(
            scope.access,
            kind="enrich",
            scope_id=made.scope_id,
            participants=made.participants,
            reason=reason,
            advice="The chain holds what needs no model. Retry this job when the model is back.",
            ref=made.chain_id,
        )


_NOT_SHOWN = frozenset(
    # Clocks of ours, what use makes of a chain, and how it is found.
    (
        *("content_hash", "status", "formed_at", "lane", "strength", "accessed_at"),
        *("boosted_at", "archived_at", "cold_at", "promote_until"),
    )
)


def _hash(version: Version, event_ids: Sequence[UUID]) -> bytes:
    """SHA-256 over all that a reader is shown of a version, and its events' ids by seq."""
    shown: dict[str, Any] = {n: v for n, v in vars(version).items() if n not in _NOT_SHOWN}
    shown["events"] = event_ids
    return hashlib.sha256(json.dumps(shown, sort_keys=True, default=str).encode()).digest()
