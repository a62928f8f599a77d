"""Chains as tests need them: written as the fold writes them, over events that are there."""

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from strandline.chains import store as chains_store
from strandline.chains.heat import HeatInputs, compute_cold_at, compute_promote_until
from strandline.db.database import Caller
from strandline.embeddings.embedder import Embedder
from strandline.embeddings.vector_formats import pack_vector
from strandline.tuning import DEFAULTS
from tests.support import Gateway, ScratchDatabase


def add_chain(
    gateway: Gateway,
    base: ScratchDatabase,
    event_ids: Sequence[str],
    topic: str | None = "the buoy",
    *,
    embedder: Embedder | None = None,
    chain_id: str | None = None,
    formed_at: datetime | None = None,
    importance: float = 0.5,
    **more: Any,
) -> str:
    """A chain over these events, or the next version of one that takes them in; gives its id. Its
    vector is its summary's, where there is an embedder; `more` are fields of `chains.Version`."""
    chain_id_ = uuid.UUID(chain_id) if chain_id else uuid.uuid4()
    ids = [uuid.UUID(event_id) for event_id in event_ids]
    events = base.rows(
        "select event_id, seq, coalesce(occurred_at, recorded_at), tenant_id, scope_id,"
        " participants, session_id from events where event_id = any (%s) order by seq",
        ids,
    )
    tenant, scope_id, who, session = events[0][3:]
    earlier = base.rows("select count(*) from chain_versions where chain_id = %s", chain_id_)[0][0]
    now = formed_at or datetime.now(UTC)
    state = HeatInputs(importance, 0.5, 1.0, now)
    summary = f"They talked about {topic}."
    fields: dict[str, Any] = {
        "version": earlier + 1,
        "scope_id": scope_id,
        "participants": who,
        "session_id": session,
        "lane": session,
        "created_at_seq": events[-1][1],
        "closed_by": "break",
        "merged": earlier > 0,
        "first_seq": events[0][1],
        "last_seq": events[-1][1],
        "event_count": len(events),
        "started_at": events[0][2] - timedelta(minutes=1),
        "last_event_at": events[-1][2],
        "topic": topic,
        "summary": summary,
        "entities": [{"name": topic, "kind": "other"}],
        "importance": importance,
        "density": 0.5,
        "coherence": 0.9,
        "quality": 0.6,
        "rejected": "too thin" if more.get("status") == "rejected" else None,
        "settings": {},
        "models": {"summarise": _MODEL},
        "content_hash": hashlib.sha256(f"{chain_id_} {earlier}".encode()).digest(),
        "status": "active",
        "formed_at": now,
        "strength": 1.0,
        "accessed_at": now,
        "boosted_at": None,
        "archived_at": None,
        "cold_at": compute_cold_at(state, DEFAULTS),
        "promote_until": compute_promote_until(state, DEFAULTS),
    }
    vector = None if embedder is None else pack_vector(embedder.embed([summary], timeout=60.0)[0])
    space = "" if embedder is None else embedder.space
    links = [chains_store.ChainEvent(event[0], event[1]) for event in events]
    access = gateway.database.connect_as(Caller.background(tenant))
    with access.transaction():
        version = chains_store.ChainVersionToStore(chain_id_, **(fields | more))
        chains_store.insert_chain_version(access, version, links, space, vector)
    return str(chain_id_)


_MODEL: Mapping[str, str | None] = {
    "model": "heuristic/4",
    "prompt": "summarise/1",
    "fell_back": None,
}


def warm(base: ScratchDatabase) -> None:
    """All chains are listed and warm, since an hour."""
    base.rows("update chain_versions set rejected = null")
    base.rows(
        "update chains set status = 'active', archived_at = null,"
        " accessed_at = now() - interval '1 hour', promote_until = now() + interval '1 day'"
    )
