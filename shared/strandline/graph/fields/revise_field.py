"""Store a revision of a topic's field, as a statement in the log with its rows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.errors import Invalid, NotFound, StateConflict
from strandline.graph.changes.sentences import write_field_sentence
from strandline.graph.changes.statement_writes import (
    make_source_of_statement,
    require_writable_scope,
)
from strandline.graph.fields import store_write
from strandline.graph.fields.read_fields import to_revision_fields, try_parse_topic_id
from strandline.graph.fields.schemas import RevisionRequest, StoredRevision, parse_field_name
from strandline.graph.fields.store_read import RevisionRow
from strandline.graph.fields.store_write import NewestFieldRevision, NewRevision
from strandline.graph.nodes import store_read_nodes
from strandline.graph.nodes.identity import normalise_name
from strandline.graph.nodes.observations import (
    UPKEEP,
    EdgeObservation,
    NodeObservation,
    ObservationSource,
    combines_confidences_by_halving_by_default,
)
from strandline.graph.nodes.schemas import MAX_NODE_BYTES
from strandline.graph.nodes.store_observations import lock_scope_graphs, write_observations
from strandline.graph.nodes.store_read_nodes import ScopeNode
from strandline.http.writer import WriterResources
from strandline.log.append_state import AppendResult
from strandline.log.statement_events import (
    GraphStatement,
    build_statement_events,
    charge_and_store_statements,
    resolve_statement_role,
)


@dataclass(frozen=True)
class _ResolvedRevision:
    """The contents of a request."""

    topic: ScopeNode
    field: str
    ref: ScopeNode | None
    """The topic that the field refers to from now on."""
    body: RevisionRequest

    @property
    def is_ref_given(self) -> bool:
        return "ref_topic_id" in self.body.model_fields_set


def revise_field(
    writer: WriterResources, topic_id: str, field: str, body: RevisionRequest, key: str | None
) -> tuple[StoredRevision, bool]:
    """Store a revision of a field with its statement. Returns the revision, and whether it was
    stored before under the same key.

    Raises NotFound for a topic that not all participants can see; StateConflict for a topic of
    other participants; Invalid, which names a field; and the errors of an append.
    """
    revision = _resolve_topics(writer, topic_id, parse_field_name(field), body)
    batch = build_statement_events(writer.principal, [_make_statement_event(revision, key)])
    access = writer.connect()
    rows: list[RevisionRow] = []

    def write_rows(results: Sequence[AppendResult]) -> None:
        rows.append(
            _write_revision_rows(access, revision, make_source_of_statement(batch, 0, results[0]))
        )

    (result,) = charge_and_store_statements(
        writer.quotas, writer.work_queue, access, batch, write_rows, writer.deadline
    )
    answer = StoredRevision.model_validate(
        {
            **to_revision_fields(rows[-1]),
            "scope_id": revision.topic.scope_id,
            "field": revision.field,
        }
    )
    return answer, result.is_replay


def _resolve_topics(
    writer: WriterResources, topic_id: str, field: str, body: RevisionRequest
) -> _ResolvedRevision:
    """Resolve the topics that a request names, within the view that all its participants share."""
    scope = require_writable_scope(writer, body.participants)
    node_id, ref_id = try_parse_topic_id(topic_id), try_parse_topic_id(body.ref_topic_id or "")
    if node_id is None:
        raise NotFound("there is no such topic in view")
    nodes = store_read_nodes.map_visible_nodes_by_id(
        scope.readers, [one for one in (node_id, ref_id) if one]
    )
    topic = nodes.get(node_id)
    if topic is None or topic.type != "topic":
        raise NotFound("there is no such topic in view")
    if topic.scope_id != scope.scope_id:
        raise StateConflict(
            f"participants: the topic belongs to other participants, in scope {topic.scope_id};"
            f" name exactly those (GET /api/v1/scopes/{topic.scope_id}), or state a topic of its"
            " name among these",
            field="participants",
        )
    return _ResolvedRevision(
        topic, field, _require_ref_topic(body, topic, ref_id and nodes.get(ref_id)), body
    )


def _require_ref_topic(
    body: RevisionRequest, topic: ScopeNode, ref: ScopeNode | None
) -> ScopeNode | None:
    if body.ref_topic_id is None:
        return None
    if ref is None or ref.type != "topic":
        raise Invalid(
            "ref_topic_id: is not the id of a topic that all participants can see",
            field="ref_topic_id",
        )
    if normalise_name(ref.name) == normalise_name(topic.name):
        raise Invalid("ref_topic_id: leads to the topic itself", field="ref_topic_id")
    return ref


def _make_statement_event(revision: _ResolvedRevision, key: str | None) -> GraphStatement:
    body, topic = revision.body, revision.topic.name
    return GraphStatement(
        participants=body.participants,
        role=resolve_statement_role(body.speaker, body.role),
        content=write_field_sentence(
            topic, revision.field, body.value, body.why_changed, body.impact_expected
        ),
        operation={"revise": _describe_revision_for_event_log(revision)},
        speaker=body.speaker,
        key=key,
    )


def _describe_revision_for_event_log(revision: _ResolvedRevision) -> Mapping[str, Any]:
    """The revision for the statement's operation: topics of the scope by their names."""
    names = {"valid_from", "why_changed", "impact_expected", "field_type"}
    operation = {
        "topic": revision.topic.name,
        "field": revision.field,
        "value": revision.body.value,
        **revision.body.model_dump(mode="json", include=names, exclude_none=True),
        **({"ref_topic": revision.ref and revision.ref.name} if revision.is_ref_given else {}),
    }
    size = len(json.dumps(operation, ensure_ascii=False).encode())
    if size > MAX_NODE_BYTES:
        raise Invalid(
            f"value: the revision is {size} bytes as JSON, at most {MAX_NODE_BYTES}; append the"
            " value as an event, and state its id here",
            field="value",
        )
    return operation


def _write_revision_rows(
    access: TenantDb, revision: _ResolvedRevision, source: ObservationSource
) -> RevisionRow:
    """Store a statement's topic, field and revision. Rows that exist already stay unchanged.
    Writers of a scope run one after the other."""
    lock_scope_graphs(access, [source.scope_id])
    existing = store_write.find_revision_of_statement(access, source.source_id)
    if existing:
        return existing
    topic, body = revision.topic, revision.body
    before = store_write.read_newest_field_revision(access, topic.node_id, revision.field)
    if before is None:  # its last source was replaced in the meantime
        raise NotFound("there is no such topic in view")
    if before.event_id:
        store_write.delete_topic_observation(access, topic.node_id, before.event_id)
    ref_id = _write_topic_observations(access, revision, source, before)
    return store_write.add_revision(
        access,
        NewRevision(
            node_id=topic.node_id,
            field=revision.field,
            scope_id=source.scope_id,
            participants=source.participants,
            field_type=body.field_type,
            value=body.value,
            valid_from=body.valid_from or source.valid_from,
            why_changed=body.why_changed or "",
            impact_expected=body.impact_expected or "",
            ref_id=ref_id,
            event_id=source.source_id,
            recorded_at=source.observed_at,
        ),
    )


def _write_topic_observations(
    access: TenantDb,
    revision: _ResolvedRevision,
    source: ObservationSource,
    before: NewestFieldRevision,
) -> UUID | None:
    """Store a statement's observations of the topic and of its relation to another topic. Returns
    the topic that the field refers to."""
    topic, ref, body = revision.topic, revision.ref, revision.body
    nodes = [NodeObservation(source, "topic", topic.name, node_id=topic.node_id)]
    edges: list[EdgeObservation] = []

    def relate(name: str, node_id: UUID | None, patch: Mapping[str, Any]) -> None:
        nodes.append(NodeObservation(source, "topic", name, node_id=node_id))
        edge = EdgeObservation(
            source,
            from_node=0,
            to_node=len(nodes) - 1,
            type="related",
            label=revision.field,
            patch=patch,
            valid_from=body.valid_from,
        )
        edges.append(edge)

    stays = not revision.is_ref_given or (
        ref is not None
        and before.ref_name is not None
        and normalise_name(ref.name) == normalise_name(before.ref_name)
    )
    if ref and not stays:
        own_id = ref.node_id if ref.scope_id == topic.scope_id else None
        relate(ref.name, own_id, {"valid_to": None, "reason": None})  # it may have ended before
    if before.ref_id and before.ref_name and not stays:
        until = body.valid_from or source.valid_from
        patch = {**UPKEEP, "valid_to": until.isoformat(), "reason": body.why_changed}
        relate(before.ref_name, before.ref_id, patch)
    halves = combines_confidences_by_halving_by_default()
    node_ids = write_observations(access, nodes, edges, combines_by_halving=halves).node_ids
    if stays:
        return before.ref_id
    return node_ids[1] if ref else None
