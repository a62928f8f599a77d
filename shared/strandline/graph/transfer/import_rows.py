"""The rows of an import: the nodes, edges and fields that its new statements describe."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from strandline.auth.principals import Principal
from strandline.db.database import TenantDb
from strandline.graph.nodes.identity import derive_edge_id, derive_node_id
from strandline.graph.nodes.observations import (
    ObservationSource,
    combines_confidences_by_halving_by_default,
)
from strandline.graph.nodes.store_observations import lock_scope_graphs, recompute_nodes_and_edges
from strandline.graph.transfer import store_import
from strandline.graph.transfer.hashed_lines import make_line_error
from strandline.graph.transfer.known_statements import KnownStatementFinder
from strandline.graph.transfer.parsed_file import FileStatement, GraphFile
from strandline.graph.transfer.schemas_file import RevisionFields
from strandline.participants import derive_scope_id

type Row = dict[str, Any]
type StoredStatement = tuple[FileStatement, ObservationSource]


class ImportedGraphWriter:
    """Writes the observations of a file's statements, in the transaction that stored the
    statements."""

    def __init__(self, access: TenantDb, graph: GraphFile) -> None:
        self._access, self._graph = access, graph
        tenant = access.caller.tenant
        scope_ids = [derive_scope_id(tenant, members) for members in graph.scopes]
        self._node_ids = [
            derive_node_id(tenant, scope_ids[n.scope], n.type, n.name_hash, n.ordinal)
            for n in graph.nodes
        ]
        self._edge_ids = [
            derive_edge_id(
                tenant,
                scope_ids[edge.scope],
                self._node_ids[edge.from_node],
                self._node_ids[edge.to_node],
                edge.type,
                edge.label,
            )
            for edge in graph.edges
        ]
        self.new_nodes = self.new_edges = self.new_revisions = 0

    def find_known_lines(self, principal: Principal) -> frozenset[int]:
        """The lines of the statements that the graph already has as a whole from the same moment:
        they were exported here, or imported before."""
        return KnownStatementFinder(
            principal, self._access, self._graph, self._node_ids, self._edge_ids
        ).find_lines()

    def write_observations(self, statements: Sequence[StoredStatement]) -> None:
        """Write all observations of these statements. Raises Invalid, which names a line, for a
        node that does not exist and that none of them states."""
        if not statements:
            return
        access = self._access
        lock_scope_graphs(access, {source.scope_id for _, source in statements})
        first_sources = self._find_first_sources(statements)
        node_rows = [
            self._make_node_row(index, source)
            for (is_edge, index), source in first_sources.items()
            if not is_edge
        ]
        edge_rows = [
            self._make_edge_row(index, source)
            for (is_edge, index), source in first_sources.items()
            if is_edge
        ]
        self.new_nodes = store_import.add_nodes(access, node_rows)
        self.new_edges = store_import.add_edges(access, edge_rows)
        self._delete_field_observations(statements)
        store_import.add_observations(access, list(self.iter_observation_rows(statements)))
        ids = [self._get_target_id(target) for target in first_sources]
        self._require_nodes_have_observations(first_sources)
        store_import.suspend_facts_until_computed(access, ids)
        recompute_nodes_and_edges(
            access, ids, combines_by_halving=combines_confidences_by_halving_by_default()
        )
        self._insert_revisions_of_statements(statements)

    def _find_first_sources(
        self, statements: Sequence[StoredStatement]
    ) -> Mapping[tuple[bool, int], ObservationSource]:
        """The targets of the statements, each with its first source. A target is (whether it is an
        edge, its index). The ends of an edge and the topics of a revision are targets too."""
        sources: dict[tuple[bool, int], ObservationSource] = {}
        for statement, source in statements:
            for observation in statement.says:
                sources.setdefault((observation.is_edge, observation.target), source)
                if observation.is_edge:
                    edge = self._graph.edges[observation.target]
                    sources.setdefault((False, edge.from_node), source)
                    sources.setdefault((False, edge.to_node), source)
            revision = statement.revision
            for number in (revision.node, revision.ref_node) if revision else ():
                if number is not None:
                    sources.setdefault((False, number - 1), source)
        return sources

    def _get_target_id(self, target: tuple[bool, int]) -> UUID:
        is_edge, index = target
        return self._edge_ids[index] if is_edge else self._node_ids[index]

    def _require_nodes_have_observations(self, targets: Iterable[tuple[bool, int]]) -> None:
        """Raise Invalid for a node without observations: only statements that were stored before
        state it, and it was deleted since."""
        ids = {self._node_ids[index]: index for is_edge, index in targets if not is_edge}
        for node_id in store_import.list_nodes_without_observations(self._access, list(ids)):
            raise make_line_error(
                self._graph.nodes[ids[node_id]].line,
                "the statement of this node was imported before and was deleted: import a file"
                " with its whole scope",
            )

    def _make_node_row(self, index: int, source: ObservationSource) -> Row:
        node = self._graph.nodes[index]
        return {
            **_make_source_columns(source),
            "node_id": str(self._node_ids[index]),
            "type": node.type,
            "name": node.name,
            "name_hash": node.name_hash.hex(),
            "ordinal": node.ordinal,
        }

    def _make_edge_row(self, index: int, source: ObservationSource) -> Row:
        edge = self._graph.edges[index]
        return {
            **_make_source_columns(source),
            "edge_id": str(self._edge_ids[index]),
            "from_id": str(self._node_ids[edge.from_node]),
            "to_id": str(self._node_ids[edge.to_node]),
            "type": edge.type,
            "label": edge.label,
        }

    def iter_observation_rows(self, statements: Sequence[StoredStatement]) -> Iterable[Row]:
        """The observation rows of these statements."""
        for statement, source in statements:
            for observation in statement.says:
                yield {
                    **_make_source_columns(source),
                    "target_id": str(
                        self._get_target_id((observation.is_edge, observation.target))
                    ),
                    "patch": observation.patch,
                    "confidence": observation.confidence,
                    "heat": observation.heat,
                    "valid_from": observation.valid_from.isoformat(),
                }

    def _delete_field_observations(self, statements: Sequence[StoredStatement]) -> None:
        """Delete each field's previous observation: a topic has one observation of each field, from
        its newest revision."""
        fields = [
            {"node_id": str(self._node_ids[revision.node - 1]), "field": revision.field}
            for statement, _ in statements
            if (revision := statement.revision)
        ]
        if fields:
            store_import.delete_newest_revision_observations(self._access, fields)

    def _insert_revisions_of_statements(self, statements: Sequence[StoredStatement]) -> None:
        revisions = [(s.revision, source) for s, source in statements if s.revision]
        if not revisions:
            return
        field_rows: dict[tuple[int, str], Row] = {}
        rows: list[Row] = []
        for place, (revision, source) in enumerate(revisions):
            row = {**_make_source_columns(source), **self._make_revision_row(revision, place)}
            field = self._graph.fields.get((revision.node - 1, revision.field))
            field_rows.setdefault(
                (revision.node, revision.field),
                {
                    **row,
                    "field_type": field.field_type if field else "text",
                    "salience": field.salience if field else 1.0,
                },
            )
            rows.append(row)
        store_import.add_revisions(self._access, list(field_rows.values()), rows)
        self.new_revisions = len(rows)

    def _make_revision_row(self, revision: RevisionFields, place: int) -> Row:
        ref = revision.ref_node
        return {
            "place": place,
            "node_id": str(self._node_ids[revision.node - 1]),
            "field": revision.field,
            "value": revision.value,
            "valid_from": revision.valid_from.isoformat(),
            "why_changed": revision.why_changed,
            "impact_expected": revision.impact_expected,
            "ref_id": str(self._node_ids[ref - 1]) if ref else None,
        }


def _make_source_columns(source: ObservationSource) -> Row:
    return {
        "scope_id": str(source.scope_id),
        "participants": list(source.participants),
        "source_id": str(source.source_id),
        "trust": source.trust,
        "observed_at": source.observed_at.isoformat(),
    }
