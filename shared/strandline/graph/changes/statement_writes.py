"""Store statements in a scope's log, with their observations of the graph, in one transaction."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from pydantic import BaseModel

from strandline.db.database import TenantDb
from strandline.errors import Forbidden, Invalid
from strandline.graph.nodes.observations import (
    EdgeObservation,
    GraphWriteResult,
    NodeObservation,
    ObservationSource,
    combines_confidences_by_halving_by_default,
)
from strandline.graph.nodes.schemas import MAX_NODE_BYTES
from strandline.graph.nodes.store_observations import write_observations
from strandline.http.writer import WriterResources
from strandline.log.append_state import AppendBatch, AppendResult
from strandline.log.schemas_append import Receipt
from strandline.log.statement_events import (
    GraphStatement,
    build_statement_events,
    charge_and_store_statements,
)
from strandline.participants import derive_scope_id, normalize_participant_set


@dataclass(frozen=True)
class ScopeToWrite:
    """The scope that a request writes into."""

    participants: Sequence[str]
    scope_id: UUID
    readers: TenantDb
    """The database with the view that all participants share: what a request may name."""


def require_writable_scope(writer: WriterResources, participants: Sequence[str]) -> ScopeToWrite:
    """The scope of exactly these participants, if the writer may write into it. Raises Invalid or
    Forbidden, which name `participants`."""
    principal = writer.principal
    members = normalize_participant_set(participants)
    if principal.user and principal.user not in members:
        raise Forbidden(
            "participants: must include this credential's own user", field="participants"
        )
    return ScopeToWrite(
        members, derive_scope_id(principal.tenant, members), writer.connect_for_all(members)
    )


def check_operation_size(operation: Mapping[str, Any], field: str) -> None:
    """Raise Invalid, which names `field`, for an operation too large for its statement."""
    size = len(json.dumps(operation, ensure_ascii=False).encode())
    if size > MAX_NODE_BYTES:
        raise Invalid(
            f"{field}: is {size} bytes as JSON with the names of its nodes, at most"
            f" {MAX_NODE_BYTES}; shorten its texts",
            field=field,
        )


def make_source_of_statement(batch: AppendBatch, n: int, result: AppendResult) -> ObservationSource:
    """A stored statement as the source of its observations."""
    receipt, draft = result.receipt, batch.drafts[n]
    assert receipt is not None, "refused statements are raised"
    return ObservationSource(
        source_id=receipt.event_id,
        version=None,
        scope_id=receipt.scope_id,
        participants=draft.participants,
        event_ids=[receipt.event_id],
        trust=draft.origin,
        observed_at=receipt.recorded_at,
        valid_from=receipt.recorded_at,
    )


class GraphObservations(NamedTuple):
    """The observations that statements make."""

    nodes: Sequence[NodeObservation]
    edges: Sequence[EdgeObservation] = ()


type MakeObservations = Callable[[TenantDb, Sequence[ObservationSource], bool], GraphObservations]
"""Returns the observations of stored statements. Its arguments are the database in the statements'
transaction, in which no other write of the scope runs; the statements' sources, in order; and
whether they are replays, for which the state must not be checked again."""


@dataclass(frozen=True)
class StoredStatements:
    """Statements, and the rows that were written with them."""

    receipts: Sequence[Receipt]
    sources: Sequence[ObservationSource]
    graph: GraphWriteResult
    is_replay: bool
    """Whether all of it was stored before, under the same key."""


@dataclass(frozen=True)
class GraphChange[Answer: BaseModel]:
    """What a request changed in the graph."""

    answer: Answer
    graph: GraphWriteResult
    is_replay: bool
    """Whether all of it was stored before, under the same key."""
    corrections: int = 0
    """How many relations became RELATES_TO."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """What it wrote, by the names of `observability.METRICS`."""
        return {
            "NodesWritten": self.graph.new_nodes,
            "EdgesWritten": self.graph.new_edges,
            "EdgesCorrected": self.corrections,
        }


def store_statements_with_observations(
    writer: WriterResources,
    statements: Sequence[GraphStatement],
    make_observations: MakeObservations,
) -> StoredStatements:
    """Store statements of one scope, and the observations that `make_observations` returns for
    them. Raises the errors of an append and of `make_observations`; then nothing is stored."""
    batch = build_statement_events(writer.principal, statements)
    access = writer.connect()
    sources: list[ObservationSource] = []
    graphs: list[GraphWriteResult] = []

    def write_rows(results: Sequence[AppendResult]) -> None:
        sources[:] = [
            make_source_of_statement(batch, n, result) for n, result in enumerate(results)
        ]
        is_replay = all(result.is_replay for result in results)
        nodes, edges = make_observations(access, sources, is_replay)
        graphs.append(
            write_observations(
                access,
                nodes,
                edges,
                combines_by_halving=combines_confidences_by_halving_by_default(),
            )
        )

    results = charge_and_store_statements(
        writer.quotas, writer.work_queue, access, batch, write_rows, writer.deadline
    )
    return StoredStatements(
        receipts=[result.receipt for result in results if result.receipt],
        sources=sources,
        graph=graphs[-1],
        is_replay=all(result.is_replay for result in results),
    )
