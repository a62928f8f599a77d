"""Export the graph in view to a file, from which an import rebuilds the same graph."""

import hashlib
import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Any
from uuid import UUID

from strandline.db.database import TenantDb
from strandline.db.nearest_moments import list_nearest_moment_fields
from strandline.errors import NotFound, StrandlineError, TooLarge
from strandline.graph.nodes.identity import format_node_id
from strandline.graph.nodes.store_joined import ScopeEdge
from strandline.graph.transfer import store_export
from strandline.graph.transfer.hashed_lines import (
    FORMAT,
    FORMAT_VERSION,
    HashedLineWriter,
    encode_members_unbraced,
)
from strandline.graph.transfer.schemas import TransferCounts
from strandline.graph.transfer.statement_lines import (
    ExportStatement,
    encode_statement_members,
    group_observations_by_source,
)
from strandline.graph.transfer.store_export import ExportNode, ExportScope

MAX_FILE_BYTES = 64 * 1024 * 1024
"""The maximum size of an export, and of the file that an import reads."""
MAX_ROWS = 200_000
"""The most nodes, edges, observations and revisions in an export: what fits into a request's
time."""
_NODE_PAGE = 500
_LINE_BYTES = 150
"""The maximum size of a line's own members: its number, its kind and its hash."""


@dataclass(frozen=True)
class ExportFile:
    """A complete file."""

    data: bytes
    sha256: str
    lines: int
    counts: TransferCounts


def export_graph(
    access: TenantDb, scope_id: UUID | None, now: datetime, *, with_vectors: bool
) -> ExportFile:
    """Write the file of the graph in view, or of one scope, from one database snapshot. Raises
    NotFound for a scope that is not in view, and TooLarge with the sizes."""
    with access.snapshot_transaction():
        if scope_id is not None and not store_export.is_scope_in_view(access, scope_id):
            raise NotFound("there is no such scope in view")
        scopes = sorted(
            store_export.list_scopes_with_graph(access, scope_id),
            key=lambda scope: scope.participants,
        )
        _require_exportable_size(scopes)
        exporter = _GraphExporter(access, with_vectors=with_vectors)
        for scope in scopes:
            exporter.add_scope(scope)
    return exporter.build_file(now)


def _require_exportable_size(scopes: Sequence[ExportScope]) -> None:
    rows = sum(scope.rows for scope in scopes)
    if rows > MAX_ROWS:
        raise TooLarge(
            f"participants: the graph in view has {rows} nodes, edges, observations and revisions"
            f" in {len(scopes)} scopes, and an export takes {MAX_ROWS}. Name more participants, or"
            " export scope by scope: `scope_id`, from GET /api/v1/scopes",
            field="participants",
            limit=MAX_ROWS,
            rows=rows,
        )


@dataclass
class _FileNumbersById:
    """The numbers of nodes and edges within the file, by id."""

    nodes: dict[UUID, int] = field(default_factory=dict[UUID, int])
    edges: dict[UUID, int] = field(default_factory=dict[UUID, int])


class _GraphExporter:
    """Writes the file scope by scope. The header has the counts of all lines, so it is written
    last."""

    def __init__(self, access: TenantDb, *, with_vectors: bool) -> None:
        self._access, self._with_vectors = access, with_vectors
        self._lines: list[tuple[str, bytes]] = []
        self._size = 0
        self._counts = dict.fromkeys(TransferCounts.model_fields, 0)

    def add_scope(self, scope: ExportScope) -> None:
        """Add all lines of a scope."""
        self._add_line("scopes", "scope", {"participants": scope.participants})
        numbers = _FileNumbersById()
        node_ids = self._add_nodes(scope.scope_id, numbers)
        self._add_edges(node_ids, numbers)
        self._add_statements(scope, numbers)
        fields = store_export.list_fields(self._access, scope.scope_id)
        for row in sorted(fields, key=lambda row: (numbers.nodes[row.node_id], row.field)):
            members = {
                "node": numbers.nodes[row.node_id],
                "field": row.field,
                "field_type": row.field_type,
                "salience": row.salience,
            }
            self._add_line("fields", "field", members, is_numbered=False)

    def build_file(self, now: datetime) -> ExportFile:
        """The complete file."""
        writer = HashedLineWriter()
        header = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "exported_at": now.astimezone(UTC).isoformat(),
            "counts": self._counts,
        }
        writer.write_next_line("header", encode_members_unbraced(header))
        for kind, members in self._lines:
            writer.write_next_line(kind, members)
        writer.write_next_line("end", encode_members_unbraced({"lines": writer.line_count + 1}))
        data = writer.data
        counts = TransferCounts.model_validate(self._counts)
        return ExportFile(data, hashlib.sha256(data).hexdigest(), writer.line_count, counts)

    def _add_nodes(self, scope_id: UUID, numbers: _FileNumbersById) -> list[UUID]:
        """Add the nodes of a scope. Ordinals are numbered again, so that an erased fact leaves no
        gap."""
        previous, ordinal = None, 0
        rows = store_export.iter_nodes(self._access, scope_id, with_vectors=self._with_vectors)
        for row in rows:
            _require_writable_times(row, f"the node {format_node_id(row.type, row.node_id)}")
            name = row.type, row.name_hash
            ordinal = ordinal + 1 if name == previous else 0
            previous = name
            number = self._add_line("nodes", "node", _encode_node_members(row, ordinal))
            numbers.nodes[row.node_id] = number
        return list(numbers.nodes)

    def _add_edges(self, node_ids: Sequence[UUID], numbers: _FileNumbersById) -> None:
        for start in range(0, len(node_ids), _NODE_PAGE):
            rows = store_export.list_edges_from(self._access, node_ids[start : start + _NODE_PAGE])
            for row in sorted(rows, key=lambda row: _edge_sort_key(row, numbers)):
                _require_writable_times(row, f"the edge {row.edge_id}")
                numbers.edges[row.edge_id] = self._add_line(
                    "edges", "edge", _encode_edge_members(row, numbers)
                )

    def _add_statements(self, scope: ExportScope, numbers: _FileNumbersById) -> None:
        for statement in _iter_statements(self._access, scope.scope_id):
            for row in (*statement.observations, statement.revision):
                _require_writable_times(row, f"the statement {statement.key[1]}")
            members = encode_statement_members(
                statement, scope.participants, numbers.nodes, numbers.edges
            )
            self._add_line("statements", "statement", members, is_numbered=False)
            self._counts["observations"] += len(statement.observations)
            self._counts["revisions"] += statement.revision is not None

    def _add_line(
        self, counter: str, kind: str, members: Mapping[str, Any], *, is_numbered: bool = True
    ) -> int:
        """Add a line. Returns its number among the lines of its kind."""
        self._counts[counter] += 1
        number = self._counts[counter]
        line = encode_members_unbraced({kind: number, **members} if is_numbered else members)
        self._lines.append((kind, line))
        self._size += len(line) + _LINE_BYTES
        if self._size > MAX_FILE_BYTES:
            raise TooLarge(
                f"participants: the file has more than {MAX_FILE_BYTES} bytes. Leave out `vectors`,"
                " name more participants, or export scope by scope: `scope_id`",
                field="participants",
                limit=MAX_FILE_BYTES,
            )
        return number


def _iter_statements(access: TenantDb, scope_id: UUID) -> Iterator[ExportStatement]:
    """The statements of a scope, in order. A revision is combined with the other observations of
    its statement."""
    observations = group_observations_by_source(store_export.iter_observations(access, scope_id))
    revisions = (
        ExportStatement.from_revision(row) for row in store_export.iter_revisions(access, scope_id)
    )
    statements = heapq.merge(observations, revisions, key=lambda statement: statement.key)
    for _, group in groupby(statements, key=lambda statement: statement.key):
        first, *rest = group
        for other in rest:
            first.extend(other)
        yield first


def _require_writable_times(row: object, name: str) -> None:
    """Raise StrandlineError, which names the row, if a time of it cannot be written as it is: an
    export is exact, or there is none."""
    for field_name in list_nearest_moment_fields(row):
        raise StrandlineError(
            f"`{field_name}` of {name} lies outside of the years 1 to 9999 in UTC, and cannot be"
            " exported. Erase the event that states it, or correct the row, then export again.",
            row=name,
            field=field_name,
        )


def _encode_computed_state(row: ExportNode | ScopeEdge) -> dict[str, Any]:
    return {
        "properties": row.properties,
        "confidence": row.confidence,
        "weight": row.weight,
        "heat": row.heat,
        "trust": row.trust,
        "valid_from": _format_time(row.valid_from),
        "valid_to": row.valid_to and _format_time(row.valid_to),
    }


def _encode_node_members(row: ExportNode, ordinal: int) -> dict[str, Any]:
    state = {
        **_encode_computed_state(row),
        "archived": row.archived,
        "salience": row.salience,
        "merged_into": None if row.identity == row.name_hash else row.identity.hex(),
    }
    vector = {"space": row.space, "values": json.loads(row.vector)} if row.vector else None
    return {
        "id": format_node_id(row.type, row.node_id),
        "type": row.type,
        "name": row.name,
        "ordinal": ordinal,
        "state": state,
        **({"vector": vector} if vector else {}),
    }


def _edge_sort_key(row: ScopeEdge, numbers: _FileNumbersById) -> tuple[int, str, str, int]:
    return numbers.nodes[row.from_id], row.type, row.label, numbers.nodes[row.to_id]


def _encode_edge_members(row: ScopeEdge, numbers: _FileNumbersById) -> dict[str, Any]:
    return {
        "id": str(row.edge_id),
        "type": row.type,
        "label": row.label,
        "from_node": numbers.nodes[row.from_id],
        "to_node": numbers.nodes[row.to_id],
        "state": _encode_computed_state(row),
    }


def _format_time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat()
