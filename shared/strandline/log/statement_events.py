"""Statements: events that hold what a caller stated directly, for the knowledge graph.

The graph is derived from them, so a statement is stored in the same transaction as the rows that
cite it. No statement is in a session or a lane: the fold passes it, and short-term memory and the
topic index leave it out. Recall finds it like any event.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from strandline.auth.principals import Principal
from strandline.aws.work_queue import WorkQueue
from strandline.db.database import TenantDb
from strandline.errors import Invalid
from strandline.log import charges, event_builder, event_draft, store, store_erasure_marks
from strandline.log.append_state import STORED_OUTCOMES, AppendBatch, AppendResult
from strandline.log.refusals import make_append_refusal_error
from strandline.log.schemas_append import AppendRequest, Receipt
from strandline.log.schemas_fields import EventType, Role
from strandline.log.trust_ranks import least_trusted
from strandline.schemas import check_storable, validate
from strandline.tenants.quotas import QuotaManager

MAX_STATEMENT_CHARS = 8000
"""Below the length at which content becomes a payload."""
_MAX_METADATA_BYTES = 128 * 1024
"""More than a caller may send: after an export and import, everything that a version of a chain
contributed to the graph is one statement."""


def resolve_statement_role(speaker: str | None, role: Role | None) -> Role:
    """The role of a statement's event: as given, else the speaker's; without both a user's."""
    if role is not None:
        return role
    return "user" if speaker is None or speaker.startswith("user:") else "agent"


@dataclass(frozen=True)
class GraphStatement:
    """What a caller stated, before it is stored as an event."""

    participants: Sequence[str]
    """Everybody who took part, as in any append."""
    role: Role
    content: str
    """One readable sentence, which recall finds."""
    operation: Mapping[str, Any]
    """The operation on the graph, stored as `metadata.graph`: what the graph is rebuilt from."""
    speaker: str | None = None
    occurred_at: datetime | None = None
    key: str | None = None
    """The source event key, or the request's `Idempotency-Key`."""
    channel: str = event_draft.HTTP_CHANNEL
    most_trust: str | None = None
    """The most trusted origin that the statement may have. Its origin is this one or that of the
    credential, whichever is less trusted; None: that of the credential."""


def _check_metadata(value: dict[str, Any]) -> dict[str, Any]:
    size = len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())
    if size > _MAX_METADATA_BYTES:
        raise ValueError(f"is {size} bytes as JSON, at most {_MAX_METADATA_BYTES}")
    return value


class _StatementAppendRequest(AppendRequest):
    """The append of a statement."""

    type: EventType = "statement"
    metadata: Annotated[dict[str, Any], BeforeValidator(_check_metadata)] = Field(
        default_factory=dict[str, Any]
    )


def build_statement_events(
    principal: Principal, statements: Sequence[GraphStatement]
) -> AppendBatch:
    """The events of statements, in order, to be stored by `append_statement_events`. Without I/O.
    Raises Invalid, which names the field as an append does, or Forbidden."""
    drafts = {n: _build_statement_draft(principal, item) for n, item in enumerate(statements)}
    events = {n: event_builder.build_event(draft, n, ()) for n, draft in drafts.items()}
    return AppendBatch(drafts, events)


def _build_statement_draft(
    principal: Principal, statement: GraphStatement
) -> event_draft.EventDraft:
    if not 1 <= len(statement.content) <= MAX_STATEMENT_CHARS:
        raise Invalid(
            f"content: a statement is one sentence, at most {MAX_STATEMENT_CHARS} characters",
            field="content",
        )
    body = {
        "participants": list(statement.participants),
        "role": statement.role,
        "content": statement.content,
        "metadata": {"graph": dict(statement.operation)},
        "speaker": statement.speaker,
        "occurred_at": statement.occurred_at,
        "channel": statement.channel,
        "source_event_key": statement.key,
    }
    draft = event_draft.build_draft(
        principal, validate(_StatementAppendRequest, check_storable(body)), None
    )
    if statement.most_trust is None:
        return draft
    return replace(draft, origin=least_trusted([draft.origin, statement.most_trust]))


def append_statement_events(access: TenantDb, batch: AppendBatch) -> AppendBatch:
    """Store the statements of `build_statement_events` in the caller's transaction, all or none.
    Returns the batch with a result for each: its receipt, and whether it is a replay, whose receipt
    is the first one. The quotas are not charged: `charge_and_store_statements` does that.

    Until the transaction ends, no other append and no fold commits in their scopes. Raises Conflict
    for a key that was used with another request; the transaction must then be rolled back.
    """
    outcomes = store.append_events(access, list(batch.events.values()), atomic=False)
    results: dict[int, AppendResult] = {}
    for item in outcomes:
        if item.outcome not in STORED_OUTCOMES:
            raise make_append_refusal_error(
                item.outcome, batch.drafts[item.n], batch.events[item.n], item.stored
            )
        receipt = Receipt.model_validate({**vars(item), "blob": None})
        results[item.n] = AppendResult(receipt, is_replay=item.outcome == "replayed")
    return replace(batch, results=results)


def charge_and_store_statements(
    quotas: QuotaManager,
    work_queue: WorkQueue,
    access: TenantDb,
    batch: AppendBatch,
    write_rows: Callable[[Sequence[AppendResult]], None],
    deadline: float | None = None,
) -> list[AppendResult]:
    """Charge the quotas, store the statements of `build_statement_events`, and call `write_rows`
    with their results, in order, in the same transaction; then notify the work queue. Replays cost
    nothing.

    `deadline` is in time.monotonic() seconds. Raises QuotaExceeded, Conflict, Unavailable (also
    while events of such a scope are being erased), or what `write_rows` raises; nothing is stored
    then. After OutcomeUnknown it may be.
    """

    def store_batch(batch: AppendBatch) -> AppendBatch:
        with access.transaction():
            outcome = append_statement_events(access, batch)
            store_erasure_marks.require_no_events_being_erased(
                access, {event.scope_id for event in batch.events.values()}
            )
            write_rows(_sort_results_by_item(outcome))
        return outcome

    outcome = charges.charge_quotas_and_store(quotas, access, batch, store_batch, deadline)
    results = _sort_results_by_item(outcome)
    new_scopes = {item.receipt.scope_id for item in results if item.receipt and item.is_new}
    work_queue.send(access.caller.tenant, sorted(new_scopes))
    return results


def _sort_results_by_item(batch: AppendBatch) -> list[AppendResult]:
    return [batch.results[n] for n in sorted(batch.results)]
