"""Read the fields of topics, and record that they were read."""

import dataclasses
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from strandline.chains import store_recalls
from strandline.cursors import Cursors, Position
from strandline.db.database import TenantDb
from strandline.errors import NotFound
from strandline.graph.fields import store_read
from strandline.graph.fields.schemas import (
    FieldHistory,
    FieldQuery,
    FieldsQuery,
    FieldState,
    RevisionOut,
    TopicFields,
)
from strandline.graph.fields.store_read import (
    FieldPageQuery,
    FieldRow,
    RevisionPageQuery,
    RevisionRow,
    RevisionWithCounts,
    TopicAcrossScopes,
)
from strandline.graph.nodes.identity import format_node_id, parse_node_id
from strandline.log.read import take_models_fitting_response
from strandline.log.schemas_read import PAGE_BYTES
from strandline.log.store_erasure_marks import decode_cursor_unless_erased_since
from strandline.observability import logger


def list_fields(access: TenantDb, topic_id: str, query: FieldsQuery, now: datetime) -> TopicFields:
    """The fields of a topic, joined over the topics of its name in view. Raises NotFound."""
    node_id, topic = _require_topic(access, topic_id, query.as_of)
    page = FieldPageQuery(
        topic_id=node_id,
        at=query.as_of or now,
        as_of=query.as_of,
        after=query.after_field,
        limit=query.limit,
        with_values=query.detail == "current",
    )
    rows = store_read.list_fields(access, page, PAGE_BYTES)
    fields = take_models_fitting_response(map(_to_field_state, rows[: query.limit]))
    has_more = bool(rows) and rows[0].available > len(fields)
    return TopicFields(
        topic_id=format_node_id("topic", node_id),
        name=topic.name,
        archived=topic.archived,
        salience=round(topic.salience, 6),
        members=[format_node_id("topic", member) for member in topic.member_ids],
        fields=fields,
        next_after_field=fields[-1].field if has_more else None,
    )


def get_field(
    access: TenantDb, topic_id: str, field: str, query: FieldQuery, now: datetime
) -> FieldHistory:
    """A field of a topic with its revisions, newest first, as one database snapshot shows both: who
    writes on top of the newest revision has read its value. Raises NotFound, and Malformed for an
    invalid cursor."""
    with access.snapshot_transaction():
        return _get_field(access, topic_id, field, query, now)


def _get_field(
    access: TenantDb, topic_id: str, field: str, query: FieldQuery, now: datetime
) -> FieldHistory:
    node_id, _ = _require_topic(access, topic_id, query.as_of)
    page = FieldPageQuery(node_id, at=query.as_of or now, as_of=query.as_of, field=field)
    rows = store_read.list_fields(access, page, PAGE_BYTES)
    if not rows:
        raise NotFound("the topic has no such field in view")
    caller = access.caller
    cursors = Cursors(
        access.sealer, caller.tenant, "fields", caller.viewer, node_id, field, query.as_of
    )
    before = decode_cursor_unless_erased_since(access, cursors, query.cursor)
    revision_page = RevisionPageQuery(node_id, field, query.limit, query.as_of)
    if before is not None:
        revision_page = dataclasses.replace(
            revision_page, at=before.at, node_id=before.row_id, revision=before.seq
        )
    result = store_read.list_revisions(access, revision_page, PAGE_BYTES)
    history = take_models_fitting_response(map(_to_revision_out, result.rows[: query.limit]))
    return FieldHistory(
        **vars(_to_field_state(rows[0])),
        topic_id=format_node_id("topic", node_id),
        revisions=result.rows[0].total if result.rows else 0,
        history=history,
        next_cursor=_make_next_cursor(cursors, result.pg_snapshot, result.rows, len(history)),
    )


def record_fields_read(access: TenantDb, states: Sequence[FieldState], now: datetime) -> bool:
    """Record that an answer contained the values of these fields. This raises their salience once
    uses are folded. A failure here does not affect the answer, which is already built. Returns
    False if nothing was recorded."""
    event_ids = [state.current.event_id for state in states if state.current]
    try:
        if event_ids:
            store_recalls.record_recalled_events(access, uuid7(), event_ids, now)
    except Exception as error:  # without the record the salience only stays the same
        logger.warning("read not recorded", extra={"error": type(error).__name__})
        return False
    return True


def to_revision_fields(row: RevisionRow) -> dict[str, Any]:
    """The fields of a revision in an answer."""
    return {
        "topic_id": format_node_id("topic", row.node_id),
        "revision": row.revision,
        "value": row.value,
        "valid_from": row.valid_from,
        "why_changed": row.why_changed or None,
        "impact_expected": row.impact_expected or None,
        "ref_topic_id": row.ref_id and format_node_id("topic", row.ref_id),
        "event_id": row.event_id,
        "recorded_at": row.recorded_at,
    }


def try_parse_topic_id(text: str) -> UUID | None:
    """The id of the topic that a caller named; None if the text is not the id of a topic."""
    try:
        node_type, node_id = parse_node_id(text)
    except NotFound:
        return None
    return node_id if node_type == "topic" else None


def _require_topic(
    access: TenantDb, text: str, as_of: datetime | None
) -> tuple[UUID, TopicAcrossScopes]:
    node_id = try_parse_topic_id(text)
    topic = store_read.find_topic_across_scopes(access, node_id, as_of) if node_id else None
    if node_id is None or topic is None:
        raise NotFound("there is no such topic in view")
    return node_id, topic


def _to_field_state(row: FieldRow) -> FieldState:
    fields = {field.name: getattr(row, field.name) for field in dataclasses.fields(RevisionRow)}
    return FieldState(
        field=row.field,
        field_type=row.field_type,
        salience=row.salience,
        current=None if row.node_id is None else _to_revision_out(RevisionRow(**fields)),
    )


def _to_revision_out(row: RevisionRow) -> RevisionOut:
    return RevisionOut.model_validate(to_revision_fields(row))


def _make_next_cursor(
    cursors: Cursors, pg_snapshot: str, rows: Sequence[RevisionWithCounts], count: int
) -> str | None:
    """The cursor of the page after `count` of these rows, or None at the end of the list."""
    if not rows or rows[0].available <= count:
        return None
    last = rows[count - 1]
    return cursors.encode(Position(pg_snapshot, last.recorded_at, last.node_id, last.revision))
