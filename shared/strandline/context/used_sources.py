"""The events and chains of a context's text that are recorded as used."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.context.layout import LaidOutText
from strandline.context.session_context import ChainSearchResult
from strandline.db.database import TenantDb
from strandline.observability import logger
from strandline.sessions.store_chains import MatchedChain

_MAX_USED_EVENTS = 10
"""The number of the best events of a text that are recorded as used."""


@dataclass(frozen=True)
class UsedSources:
    """The events and chains that answered a question, to be recorded as used."""

    chains: Sequence[MatchedChain] = ()
    event_ids: Sequence[UUID] = ()
    source_ids: Sequence[UUID] = ()
    """Events behind the topics and the known facts. They are shown, but not necessarily cited."""

    @property
    def count(self) -> int:
        """The number of events and chains."""
        return len(self.chains) + len(self.event_ids)


def select_used_sources(
    matches: ChainSearchResult, layout: LaidOutText, best: Sequence[UUID]
) -> UsedSources:
    """The shown chains, and the best of the shown events that contain words of the question or have
    a vector to compare it with."""
    assert matches.search is not None
    candidates = matches.search.candidates
    cited_ids, chain_ids = set(layout.citations), set(layout.chain_ids)
    return UsedSources(
        [chain for chain in matches.chains if chain.chain_id in chain_ids],
        [
            event_id
            for event_id in best[:_MAX_USED_EVENTS]
            if event_id in cited_ids
            and (candidates[event_id].word_bits or candidates[event_id].cosine is not None)
        ],
        layout.source_ids,
    )


def record_used_sources(access: TenantDb, use: UsedSources, now: datetime) -> bool:
    """Record that a text showed these events and chains, which keeps the chains warm: each counts
    once. A failure here does not affect the text, which is already built. Returns False if nothing
    was recorded."""
    recall_id = uuid7()
    used_chains = [(row.chain_id, row.scope_id, row.participants) for row in use.chains]
    try:
        if used_chains:
            store_recalls.record_recalled_chains(access, recall_id, used_chains, now)
        if use.event_ids:
            store_recalls.record_recalled_events(access, recall_id, use.event_ids, now)
    except Exception as error:  # without the record the chain only cools sooner
        logger.warning("recall not recorded", extra={"error": type(error).__name__})
        return False
    return True
