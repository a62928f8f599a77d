"""Turn a plan into an answer, and repeat an earlier answer.

The selection of an answer is stored as ids and numbers. Nodes and events are immutable, so the same
plan gives the same bytes for as long as all of them exist.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast
from uuid import UUID

from pydantic import ValidationError
from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.context.event_source_conversion import to_event_line_source
from strandline.context.lines import ChainLineSource
from strandline.context.schemas import Citation
from strandline.db.database import TenantDb
from strandline.db.pipeline import RowQuery
from strandline.errors import Gone, Invalid
from strandline.log.store import Event
from strandline.observability import logger
from strandline.recall.store import make_visible_events_query
from strandline.sealing import UnsealError
from strandline.topics import store_references_query, store_repeatable_answers
from strandline.topics.answer_json import build_json_tree
from strandline.topics.answer_lines import AnswerLines, AnswerTexts
from strandline.topics.answer_plan import (
    LAYOUT_VERSION,
    AnswerManifest,
    ManifestEvent,
    ManifestNode,
)
from strandline.topics.outline_text import RenderedOutline
from strandline.topics.schemas_references import (
    AnswerSnapshotOut,
    ReferencesLeftOut,
    ReferencesOut,
    ReferencesRequest,
    WalkMethodOut,
)
from strandline.topics.store_references_query import NodeTextAndCounts, PublishedSnapshot
from strandline.topics.store_repeatable_answers import StoredAnswer

KEPT_DAYS = 30
"""The number of days for which an answer can be repeated."""


@dataclass(frozen=True)
class AnswerContents:
    """The texts of an answer."""

    nodes: Mapping[UUID, NodeTextAndCounts]
    """By node id."""
    events: Mapping[UUID, Event]
    participants: Mapping[UUID, Sequence[str]]
    """The participants of each scope, by scope id."""

    def to_answer_texts(
        self,
        nodes: Sequence[ManifestNode],
        events: Sequence[ManifestEvent],
        *,
        keeps_summaries: bool,
    ) -> AnswerTexts:
        """The texts of these nodes and events, for rendering lines."""
        return AnswerTexts(
            {
                node.slot: _to_chain_line_source(node.slot, self.nodes[node.node_id])
                for node in nodes
            },
            {e.event_id: to_event_line_source(self.events[e.event_id]) for e in events},
            self.participants,
            keeps_summaries,
        )


def _to_chain_line_source(slot: UUID, node: NodeTextAndCounts) -> ChainLineSource:
    return ChainLineSource(
        chain_id=slot,
        started_at=node.started_at,
        last_event_at=node.last_event_at,
        topic=node.topic,
        summary=node.summary or "",
        trust=node.trust,
        participants=node.participants,
        event_ids=(),
    )


def read_answer_contents(
    access: TenantDb,
    nodes: Sequence[UUID],
    events: Sequence[UUID],
    participants: Mapping[UUID, Sequence[str]],
) -> AnswerContents:
    """Read the texts of those of these nodes and events that are visible and still exist."""
    if not (nodes or events):
        return AnswerContents({}, {}, participants)
    node_rows, event_rows = access.fetch_pair(
        store_references_query.make_visible_nodes_query(nodes), make_visible_events_query(events)
    )
    return AnswerContents(
        {row.node_id: row for row in node_rows},
        {row.event_id: row for row in event_rows},
        participants,
    )


def render_answer(
    plan: AnswerManifest,
    contents: AnswerContents,
    snapshot: PublishedSnapshot | None,
    request: ReferencesRequest,
    token: str,
    outline: RenderedOutline | None = None,
) -> ReferencesOut:
    """Render the answer of a plan. All of its texts must exist. `outline` is the plan's outline, if
    it is rendered already."""
    is_text = request.format == "text"
    texts = contents.to_answer_texts(plan.nodes, plan.events, keeps_summaries=not is_text)
    outline = outline or RenderedOutline(plan, AnswerLines(texts, request.budget))
    return ReferencesOut(
        tree=None if is_text else build_json_tree(outline, contents.nodes, contents.events, texts),
        text=outline.text if is_text else None,
        tokens=outline.token_count,
        citations=[
            Citation(n=n, event_id=i, source_event_key=_get_source_event_key(contents.events, i))
            for i, n in outline.numbers.items()
        ],
        known=plan.known,
        snapshot=snapshot and _to_snapshot_out(snapshot, plan.answered_at),
        space=plan.space,
        walk=WalkMethodOut.model_validate(plan.walk.model_dump()),
        cut=ReferencesLeftOut.model_validate(plan.cut.model_dump()),
        degraded=list(plan.degraded),
        not_yet_embedded=plan.not_yet_embedded,
        read_token=token,
    )


def _get_source_event_key(events: Mapping[UUID, Event], event_id: UUID) -> str | None:
    event = events.get(event_id)
    return event.source_event_key if event else None


def _to_snapshot_out(snapshot: PublishedSnapshot, answered_at: datetime) -> AnswerSnapshotOut:
    return AnswerSnapshotOut(
        snapshot_id=snapshot.snapshot_id,
        version=snapshot.version,
        published_at=snapshot.published_at,
        age_seconds=max(0.0, (answered_at - snapshot.published_at).total_seconds()),
        configuration=snapshot.configuration,
    )


# repeat ------------------------------------------------------------------------------------------


def hash_question(access: TenantDb, request: ReferencesRequest) -> bytes:
    """Hash what identifies a question: the request without its token, and the viewer."""
    fields = request.model_dump(mode="json", exclude={"read_token", "participants"})
    document = [fields, list(access.caller.viewer), access.caller.writer]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).digest()


@dataclass(frozen=True)
class TokenAndStoredAnswerParts:
    """Which parts of an answer's record were stored. A failure of one part affects only that
    part."""

    token: str
    is_repeatable: bool
    is_use_recorded: bool


def store_answer_and_use(
    access: TenantDb,
    plan: AnswerManifest,
    request: ReferencesRequest,
    mark: str,
    used_events: Sequence[UUID],
) -> TokenAndStoredAnswerParts:
    """Store the selection of an answer, so that it can be repeated, and the use of its events,
    which keeps their chains warm. Both are stored in one statement; if that fails, each is stored
    alone."""
    answer_id = uuid7()
    fields = {
        "v": 1,
        "answer": str(answer_id),
        "mark": mark,
        "now": plan.answered_at.isoformat(),
        "version": plan.version,
        "space": plan.space,
    }
    token = access.sealer.seal("token", access.caller.tenant, fields)
    answer = StoredAnswer(
        answer_id,
        plan.version or 0,
        hash_question(access, request),
        plan.model_dump(mode="json"),
        plan.answered_at,
    )

    def make_answer_query() -> RowQuery[Any]:
        return store_repeatable_answers.make_answer_insert_query(access, answer)

    def make_use_query() -> RowQuery[Any]:
        return store_recalls.make_recalled_events_insert(
            access, uuid7(), used_events, plan.answered_at
        )

    if not used_events:
        return TokenAndStoredAnswerParts(
            token, _try_insert(access, make_answer_query), is_use_recorded=True
        )
    try:
        access.fetch_pair(make_answer_query(), make_use_query())
    except Exception as error:  # the answer is selected already
        logger.warning("answer and its use not stored", extra={"error": type(error).__name__})
        return TokenAndStoredAnswerParts(
            token, _try_insert(access, make_answer_query), _try_insert(access, make_use_query)
        )
    return TokenAndStoredAnswerParts(token, is_repeatable=True, is_use_recorded=True)


def _try_insert(access: TenantDb, make_query: Callable[[], RowQuery[Any]]) -> bool:
    """Run a statement. Returns whether it succeeded."""
    try:
        query = make_query()
        access.fetch(query.row_type, query.statement, query.params)
    except Exception as error:
        logger.warning("answer or its use not stored", extra={"error": type(error).__name__})
        return False
    return True


def repeat_answer(access: TenantDb, request: ReferencesRequest, now: datetime) -> ReferencesOut:
    """Repeat the answer of a token, byte for byte.

    Raises Invalid for a malformed token or the token of another question. Raises Gone for an answer
    that was given to another viewer, is older than 30 days, or rests on a snapshot or an event that
    no longer exists.
    """
    token = request.read_token
    assert token is not None
    answer = store_repeatable_answers.find_answer_of_viewer(
        access, _unseal_answer_id(access, token)
    )
    if answer is None or answer.answered_at + timedelta(days=KEPT_DAYS) <= now:
        raise Gone
    if answer.question_hash != hash_question(access, request):
        raise Invalid(
            "read_token: belongs to another question; send it with all that the question was asked "
            "with, or ask without it",
            field="read_token",
        )
    plan = _parse_stored_manifest(answer.selection)
    snapshot = (
        store_repeatable_answers.get_snapshot_of_version(access, answer.version)
        if answer.version
        else None
    )
    participants = store_repeatable_answers.read_scope_participants(
        access, [s.scope_id for s in plan.scopes]
    )
    contents = read_answer_contents(access, plan.node_ids, plan.event_ids, participants)
    if (
        (answer.version and snapshot is None)
        or not contents.nodes.keys() >= set(plan.node_ids)
        or any(node.is_erased for node in contents.nodes.values())
        or not contents.events.keys() >= set(plan.event_ids)
        or len(participants) < len(plan.scopes)
    ):
        raise Gone
    return render_answer(plan, contents, snapshot, request, token)


def _unseal_answer_id(access: TenantDb, token: str) -> UUID:
    try:
        document = cast("object", access.sealer.unseal("token", access.caller.tenant, token))
        fields = cast("dict[str, Any]", document)
        return UUID(fields["answer"])
    except (UnsealError, KeyError, TypeError, ValueError, AttributeError):
        raise Invalid(
            "read_token: is not a token of an answer to this route; send it unchanged, or ask "
            "without it",
            field="read_token",
        ) from None


def _parse_stored_manifest(selection: Mapping[str, Any]) -> AnswerManifest:
    """Parse a stored plan. Raises Gone for a plan of another layout version."""
    if selection.get("layout") != LAYOUT_VERSION:
        raise Gone
    try:
        return AnswerManifest.model_validate(selection)
    except ValidationError:
        raise Gone from None
