"""Statements in an export file: each line holds what one source said at one time, and an import
turns it into a statement."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Any, Self
from uuid import UUID

from strandline.graph.transfer.store_export import ExportObservation, ExportRevision
from strandline.log.statement_events import MAX_STATEMENT_CHARS

type SourceKey = tuple[datetime, UUID, str]
"""The time of an observation, its source, and its trust."""


@dataclass
class ExportStatement:
    """A statement, or the observations of one version of a chain with the same time and trust. A
    chain's observations are split this way because a statement has one time and one trust."""

    key: SourceKey
    observations: list[ExportObservation]
    revision: ExportRevision | None = None

    @classmethod
    def from_revision(cls, revision: ExportRevision) -> Self:
        """The statement of a revision. The topic may no longer have an observation from it."""
        return cls((revision.recorded_at, revision.source_id, revision.trust), [], revision)

    def extend(self, other: "ExportStatement") -> None:
        """Add what else the same source said."""
        self.observations += other.observations
        self.revision = self.revision or other.revision


def group_observations_by_source(
    observations: Iterable[ExportObservation],
) -> Iterator[ExportStatement]:
    """Group observations by source, time and trust. They must be in this order."""
    for key, rows in groupby(
        observations, key=lambda row: (row.observed_at, row.source_id, row.trust)
    ):
        yield ExportStatement(key, list(rows))


def encode_statement_members(
    source_statement: ExportStatement,
    participants: Sequence[str],
    nodes: Mapping[UUID, int],
    edges: Mapping[UUID, int],
) -> dict[str, Any]:
    """The members of the statement's line. `nodes` and `edges` map ids to the numbers within the
    file."""
    observed_at, source_id, trust = source_statement.key
    source_statement.observations.sort(
        key=lambda row: (nodes.get(row.target_id, 0), edges.get(row.target_id, 0))
    )
    event_ids = [event_id for row in source_statement.observations for event_id in row.event_ids]
    statement = source_statement.revision or source_statement.observations[0]
    is_statement = isinstance(statement, ExportRevision) or statement.is_statement
    fields = (
        _get_event_fields(statement)
        if is_statement
        else _convert_chain_to_statement(source_statement, participants)
    )
    return {
        "id": str(source_id),
        "events": sorted({str(event_id) for event_id in event_ids} or {str(source_id)}),
        **fields,
        "trust": trust,
        "said_at": _format_time((statement.said_at if is_statement else None) or observed_at),
        "says": [_encode_observation(row, nodes, edges) for row in source_statement.observations],
        **(
            {"revision": _encode_revision(source_statement.revision, nodes)}
            if source_statement.revision
            else {}
        ),
    }


def _get_event_fields(row: ExportObservation | ExportRevision) -> dict[str, Any]:
    return {"role": row.role, "speaker": row.speaker, "content": row.content}


def _convert_chain_to_statement(
    source_statement: ExportStatement, participants: Sequence[str]
) -> dict[str, Any]:
    """Describe a chain's observations as a statement: its text, and its speaker if one participant
    said all of it."""
    trust = source_statement.key[2]
    role = trust if trust in ("user", "system") else "agent"
    kind = "agent:" if role == "agent" else "user:"
    speakers = {name for row in source_statement.observations for name in row.speakers}
    possible = [name for name in participants if name.startswith(kind)]
    fitting = sorted(speakers & set(possible)) if role != "system" else []
    # An append without a speaker assumes the only participant that fits.
    only = possible if len(possible) == 1 and role != "system" else fitting
    return {
        "role": role,
        "speaker": only[0] if len(only) == 1 else None,
        "content": join_names_as_content(
            row.name for row in source_statement.observations if row.name
        ),
    }


def join_names_as_content(names: Iterable[str]) -> str:
    """The content of a chain's observations as a statement: the names of the nodes."""
    text = "; ".join(dict.fromkeys(names)) or "Relations."
    return text if len(text) <= MAX_STATEMENT_CHARS else f"{text[: MAX_STATEMENT_CHARS - 1]}…"


def _encode_observation(
    row: ExportObservation, nodes: Mapping[UUID, int], edges: Mapping[UUID, int]
) -> dict[str, Any]:
    number = nodes.get(row.target_id)
    target = {"edge": edges[row.target_id]} if number is None else {"node": number}
    return {
        **target,
        "patch": row.patch,
        "confidence": row.confidence,
        "heat": row.heat,
        "valid_from": _format_time(row.valid_from),
    }


def _encode_revision(row: ExportRevision, nodes: Mapping[UUID, int]) -> dict[str, Any]:
    return {
        "node": nodes[row.node_id],
        "field": row.field,
        "value": row.value,
        "valid_from": _format_time(row.valid_from),
        "why_changed": row.why_changed,
        "impact_expected": row.impact_expected,
        "ref_node": nodes[row.ref_id] if row.ref_id else None,
    }


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
