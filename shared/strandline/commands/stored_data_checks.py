"""Checks of what a service has stored, through the API: log, blocks, payloads, edges, chains,
communities."""

from __future__ import annotations

import base64
import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from strandline.client import answers
from strandline.client.clients import Strandline
from strandline.client.errors import NotFoundError, TooLargeError
from strandline.commands.invocation import ReaderArguments

_MAX_FAULTS, _READERS = 3, 8
_LARGE = "too large"


@dataclass
class CheckFindings:
    """What a check has read, and the faults that it found."""

    looked_at: str
    faults: list[str] = field(default_factory=list[str])

    @property
    def summarize(self) -> str:
        """One sentence."""
        if not self.faults:
            return self.looked_at
        more = len(self.faults) - _MAX_FAULTS
        text = "; ".join(self.faults[:_MAX_FAULTS])
        return f"{text}; and {more} more" if more > 0 else text


@dataclass
class StoredData:
    """What the caller sees, read once for all checks."""

    client: Strandline
    readers: ReaderArguments
    sample: int
    """How many blocks and payloads are read at most."""
    scopes: list[answers.ScopeOut] = field(default_factory=list["answers.ScopeOut"])
    events: dict[UUID, answers.EventOut] = field(default_factory=dict["UUID", "answers.EventOut"])

    def read_scopes_and_events(self, advance: Callable[[int], None]) -> None:
        """Read all scopes with their events. `advance` is called with 1 for each event."""
        self.scopes = [*self.client.scopes(**self.readers)]
        for scope in self.scopes:
            for event in self.client.events(scope.scope_id, page_size=500, **self.readers):
                self.events[event.event_id] = event
                advance(1)

    def read_erased_seqs(self, scope_id: UUID) -> tuple[set[int], bool]:
        """The numbers of a scope's erased events, and whether more are being erased."""
        seqs = set[int]()
        after = 0
        while True:
            page = self.client.erasures(scope_id, after=after, limit=1000, **self.readers)
            seqs.update(event.seq for event in page.erasures)
            if not page.erasures:
                return seqs, page.erasing
            after = page.next_after

    def iterate_newest_sample(self) -> Iterator[answers.EventOut]:
        """As many events as are sampled, newest first."""
        events = sorted(self.events.values(), key=lambda e: (e.recorded_at, e.seq), reverse=True)
        yield from events[: self.sample]


@dataclass(frozen=True)
class StoredDataCheck:
    """One check."""

    name: str
    run: Callable[[StoredData], CheckFindings]


def check_gapless_log(store: StoredData) -> CheckFindings:
    """Every scope's events are numbered from 1 without gaps, but for erased ones."""
    findings = CheckFindings(f"{len(store.events):,} events in {len(store.scopes):,} scopes")
    erased_count, hidden_count = 0, 0
    seqs: dict[UUID, list[int]] = {scope.scope_id: [] for scope in store.scopes}
    for event in store.events.values():
        seqs[event.scope_id].append(event.seq)
    for scope in store.scopes:
        # read after the list of scopes: there may be more by now
        missing = set(range(1, scope.last_seq + 1)) - set(seqs[scope.scope_id])
        if missing:
            erased_seqs, is_erasing = store.read_erased_seqs(scope.scope_id)
            erased_count += len(missing & erased_seqs)
            missing -= erased_seqs
            if is_erasing:
                hidden_count += len(missing)
                continue
        if missing:
            findings.faults.append(
                f"scope {scope.scope_id} lacks {len(missing)} events, the first is number "
                f"{min(missing)}"
            )
    if erased_count:
        findings.looked_at += f"; {erased_count:,} more are erased"
    if hidden_count:
        findings.looked_at += f"; {hidden_count:,} more are missing, while some are being erased"
    return findings


def check_block_hashes(store: StoredData) -> CheckFindings:
    """Every event's block hashes to its CID."""
    cids = [event.cid for event in store.iterate_newest_sample() if event.cid is not None]
    return CheckFindings(
        f"{len(cids):,} blocks hash to their CIDs", _find_hash_faults(store, cids)[0]
    )


def check_payload_hashes(store: StoredData) -> CheckFindings:
    """Every payload hashes to its CID."""
    cids = {event.blob.cid for event in store.events.values() if event.blob is not None}
    sample = sorted(cids)[: store.sample]
    faults, large = _find_hash_faults(store, sample)
    left_out = f"; {large} of more than 4 MiB were not read" if large else ""
    return CheckFindings(f"{len(sample) - large:,} payloads hash to their CIDs{left_out}", faults)


def _find_hash_faults(store: StoredData, cids: Sequence[str]) -> tuple[list[str], int]:
    """The faults of the bytes under these CIDs, and how many of them are too large to be read."""
    with ThreadPoolExecutor(_READERS) as pool:
        results = list(pool.map(_find_hash_fault, itertools.repeat(store), cids))
    return [text for text in results if text and text != _LARGE], results.count(_LARGE)


def _find_hash_fault(store: StoredData, cid: str) -> str:
    """The fault of the bytes under a CID; empty if they hash to it."""
    try:
        data = store.client.block(cid, **store.readers, format="raw")
    except NotFoundError:
        return f"{cid} is not there"
    except TooLargeError:
        return _LARGE
    return "" if hashlib.sha256(data).digest() == sha256_of_cid(cid) else f"{cid} has other bytes"


def sha256_of_cid(cid: str) -> bytes:
    """The SHA-256 in a CID of version 1 in base32."""
    text = cid[1:].upper()
    return base64.b32decode(text + "=" * (-len(text) % 8))[-32:]


def check_edge_targets(store: StoredData) -> CheckFindings:
    """Every edge leads to an earlier event."""
    count = 0
    findings = CheckFindings("")
    for event in store.events.values():
        for edge in event.edges:
            count += 1
            target = store.events.get(edge.event_id)
            if target is not None and target.recorded_at > event.recorded_at:
                findings.faults.append(f"{event.event_id} cites the later {edge.event_id}")
            elif target is not None and target.cid != edge.cid:
                findings.faults.append(f"{event.event_id} cites {edge.event_id} by another CID")
    findings.looked_at = f"{count:,} edges lead to earlier events"
    return findings


def check_chain_events(store: StoredData) -> CheckFindings:
    """Every chain rests on events of its scope, and no event is in two chains."""
    findings = CheckFindings("")
    chain_of: dict[UUID, UUID] = {}
    chains: set[UUID] = set()
    for session in store.client.sessions(**store.readers):
        bound = store.client.session(session.session_id, scope_id=session.scope_id)
        for chain in bound.chains(include="all", page_size=200):
            if chain.chain_id in chains:
                continue  # of two sessions in one scope
            chains.add(chain.chain_id)
            for event_id in chain.event_ids:
                other = chain_of.setdefault(event_id, chain.chain_id)
                if other != chain.chain_id:
                    findings.faults.append(
                        f"{event_id} is in the chains {other} and {chain.chain_id}"
                    )
                event = store.events.get(event_id)
                if event is None or event.scope_id != chain.scope_id:
                    findings.faults.append(
                        f"chain {chain.chain_id} rests on {event_id}, which its scope lacks"
                    )
    findings.looked_at = f"{len(chains):,} chains rest on {len(chain_of):,} events, each in one"
    return findings


def check_community_sizes(store: StoredData) -> CheckFindings:
    """Communities of the knowledge graph have the nodes and bridges that they say."""
    findings = CheckFindings("")
    count = 0
    for community in store.client.graph.communities(**store.readers):
        count += 1
        detail = store.client.graph.community(community.community_id, **store.readers, limit=500)
        scores = [node.bridge_score for node in detail.nodes]
        if len(detail.nodes) > detail.size:
            findings.faults.append(
                f"{community.name}: {len(detail.nodes)} nodes, not {detail.size}"
            )
        if any(not 0 <= score <= 1 for score in scores):
            findings.faults.append(f"{community.name}: a bridge score outside 0 to 1")
        if [node.rank for node in detail.nodes] != sorted(node.rank for node in detail.nodes):
            findings.faults.append(f"{community.name}: its nodes are not in order of rank")
    findings.looked_at = f"{count:,} communities"
    return findings


CHECKS: Sequence[StoredDataCheck] = (
    StoredDataCheck("log", check_gapless_log),
    StoredDataCheck("blocks", check_block_hashes),
    StoredDataCheck("payloads", check_payload_hashes),
    StoredDataCheck("edges", check_edge_targets),
    StoredDataCheck("chains", check_chain_events),
    StoredDataCheck("communities", check_community_sizes),
)
