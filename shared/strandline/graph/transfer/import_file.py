"""Read an export file. The whole file is checked before any of it is stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from strandline.errors import Forbidden, Invalid
from strandline.graph.fields.schemas import parse_field_name
from strandline.graph.nodes.edge_type_rules import resolve_relation_type
from strandline.graph.nodes.identity import hash_normalised_name
from strandline.graph.nodes.node_types import NODE_TYPES, NodeType
from strandline.graph.transfer.hashed_lines import ParsedLine, make_line_error, read_verified_lines
from strandline.graph.transfer.parsed_file import (
    FileEdge,
    FileNode,
    FileObservation,
    FileStatement,
    GraphFile,
)
from strandline.graph.transfer.schemas_file import (
    EdgeLine,
    EndLine,
    FieldLine,
    FileLine,
    HeaderLine,
    NodeLine,
    RevisionFields,
    ScopeLine,
    StatementLine,
)
from strandline.participants import normalize_participant, normalize_participant_set
from strandline.schemas import validate

_TYPES_WITH: Mapping[str, Sequence[NodeType]] = {
    "category": [name for name, spec in NODE_TYPES.items() if spec.category_field],
    "event_date": [name for name, spec in NODE_TYPES.items() if "event_date" in spec.fields],
}
"""Which nodes have a field whose values are not free."""


def read_graph_file(data: bytes, may_write: Callable[[Sequence[str]], bool]) -> GraphFile:
    """Read the graph in a file. `may_write` returns whether the caller may write into the scope of
    these participants. Raises Invalid or Forbidden, which name the line."""
    reader = GraphFileReader(may_write)
    last = 0
    for line in read_verified_lines(data):
        reader.add_line(line)
        last = line.number
    return reader.check_and_finish(last)


class GraphFileReader:
    """Reads a file line by line. A line may refer to the lines before it."""

    def __init__(self, may_write: Callable[[Sequence[str]], bool]) -> None:
        self._may_write = may_write
        self.file = GraphFile()
        self._header: HeaderLine | None = None
        self._has_ended = False
        self._keys: set[tuple[object, ...]] = set()
        self._adders: Mapping[str, Callable[[ParsedLine], None]] = {
            "header": self._add_header,
            "scope": self._add_scope,
            "node": self._add_node,
            "edge": self._add_edge,
            "statement": self._add_statement,
            "field": self._add_field,
            "end": self._add_end,
        }

    def add_line(self, line: ParsedLine) -> None:
        """Read the next line."""
        kind = line.members.get("kind")
        add_kind = self._adders.get(kind) if isinstance(kind, str) else None
        if add_kind is None:
            raise make_line_error(line.number, "has an unknown `kind`")
        if (self._header is None) != (kind == "header"):
            raise make_line_error(line.number, "the first line, and no other, is the header")
        if self._has_ended:
            raise make_line_error(line.number, "comes after the `end` line")
        add_kind(line)

    def check_and_finish(self, last: int) -> GraphFile:
        """The complete file, after its last line."""
        if not self._has_ended or self._header is None:
            raise make_line_error(last + 1, "is missing: the file has no `end` line")
        counts = self.file.counts.model_dump()
        if counts != self._header.counts:
            raise make_line_error(1, "its `counts` do not match the lines that follow")
        for target in (*self.file.nodes, *self.file.edges):
            if not target.is_observed:
                raise make_line_error(target.line, "no statement of the file is about it")
        self._check_fact_ordinals()
        return self.file

    def _add_header(self, line: ParsedLine) -> None:
        self._header = _parse_line(HeaderLine, line)

    def _add_scope(self, line: ParsedLine) -> None:
        scope = _parse_line(ScopeLine, line)
        self._require_next_number(line, scope.scope, self.file.scopes)
        try:
            members = normalize_participant_set(scope.participants)
        except Invalid as error:
            raise make_line_error(line.number, error.message) from None
        if members != scope.participants:
            raise make_line_error(
                line.number, "`participants` are not sorted, or not in canonical form"
            )
        if not self._may_write(members):
            raise Forbidden(
                f"line {line.number}: this credential is bound to a user who is not among these"
                " participants; it can write only into scopes of its own user",
                line=line.number,
            )
        self._require_not_repeated(line, "scope", *members)
        self.file.scopes.append(members)

    def _add_node(self, line: ParsedLine) -> None:
        node = _parse_line(NodeLine, line)
        self._require_next_number(line, node.node, self.file.nodes)
        name_hash = hash_normalised_name(node.name)
        self._require_not_repeated(
            line, "node", self._get_current_scope_index(line), node.type, name_hash, node.ordinal
        )
        if node.ordinal and not NODE_TYPES[node.type].is_invalidable:
            raise make_line_error(line.number, "only facts can have the same name")
        self.file.nodes.append(
            FileNode(
                line.number,
                self._get_current_scope_index(line),
                node.type,
                node.name,
                name_hash,
                node.ordinal,
            )
        )

    def _add_edge(self, line: ParsedLine) -> None:
        edge = _parse_line(EdgeLine, line)
        self._require_next_number(line, edge.edge, self.file.edges)
        start = self._find_row_index(line, self.file.nodes, edge.from_node, "from_node")
        end = self._find_row_index(line, self.file.nodes, edge.to_node, "to_node")
        if start == end:
            raise make_line_error(line.number, "leads from a node to itself")
        types = self.file.nodes[start].type, self.file.nodes[end].type
        try:
            resolve_relation_type(edge.type, *types, has_label=bool(edge.label), field="type")
        except Invalid as error:
            raise make_line_error(line.number, error.message) from None
        self._require_not_repeated(line, "edge", start, end, edge.type, edge.label)
        self.file.edges.append(
            FileEdge(
                line.number, self._get_current_scope_index(line), edge.type, edge.label, start, end
            )
        )

    def _add_statement(self, line: ParsedLine) -> None:
        statement = _parse_line(StatementLine, line)
        members = self.file.scopes[self._get_current_scope_index(line)]
        speaker = statement.speaker
        is_agent = speaker is not None and speaker.startswith("agent:")
        if speaker is not None and (
            speaker not in members or is_agent != (statement.role == "agent")
        ):
            raise make_line_error(
                line.number, "`speaker` is not a participant, or does not have this `role`"
            )
        if not statement.says and statement.revision is None:
            raise make_line_error(line.number, "says nothing")
        says = list(self._read_observations(line, statement))
        if statement.revision:
            self._check_revision(line, statement.revision)
        self.file.statements.append(
            FileStatement(
                line=line.number,
                scope=self._get_current_scope_index(line),
                source_id=statement.id,
                role=statement.role,
                speaker=speaker and normalize_participant(speaker),
                trust=statement.trust,
                said_at=statement.said_at,
                content=statement.content,
                says=says,
                revision=statement.revision,
            )
        )

    def _read_observations(
        self, line: ParsedLine, statement: StatementLine
    ) -> Iterator[FileObservation]:
        targets: set[tuple[bool, int]] = set()
        for observation in statement.says:
            patch = observation.patch.model_dump(mode="json", exclude_unset=True)
            is_edge = observation.node is None
            rows = self.file.edges if observation.node is None else self.file.nodes
            target = self._find_row_index(
                line, rows, observation.node or observation.edge or 0, "says"
            )
            if (is_edge, target) in targets:
                raise make_line_error(line.number, "has two observations of one node or edge")
            targets.add((is_edge, target))
            row = rows[target]
            row.is_observed = True
            if isinstance(row, FileNode):
                self._check_node_patch(line, row, patch)
                row.has_ended = row.has_ended or "valid_to" in patch
            yield FileObservation(
                is_edge,
                target,
                patch,
                observation.confidence,
                observation.heat,
                observation.valid_from,
            )

    def _check_node_patch(self, line: ParsedLine, node: FileNode, patch: Mapping[str, Any]) -> None:
        spec = NODE_TYPES[node.type]
        if "valid_to" in patch and (not spec.is_invalidable or patch["valid_to"] is None):
            raise make_line_error(
                line.number, "only facts can end, and a fact that ended cannot hold again"
            )
        if "identity" in patch and spec.is_invalidable:
            raise make_line_error(line.number, "facts cannot be merged")
        for name, types in _TYPES_WITH.items():
            if patch.get(name) is not None and node.type not in types:
                raise make_line_error(
                    line.number, f"`{name}` is no field of {node.type}: only of {', '.join(types)}"
                )
        category = patch.get("category")
        if spec.categories and category is not None and category not in spec.categories:
            raise make_line_error(
                line.number,
                f"`category` of {node.type} must be one of {', '.join(sorted(spec.categories))}",
            )

    def _check_revision(self, line: ParsedLine, revision: RevisionFields) -> None:
        for number in (revision.node, revision.ref_node):
            if number is not None:
                topic = self._find_row_index(line, self.file.nodes, number, "revision")
                if self.file.nodes[topic].type != "topic":
                    raise make_line_error(line.number, "only topics have fields")
        self._check_field_name(line, revision.field)

    def _add_field(self, line: ParsedLine) -> None:
        row = _parse_line(FieldLine, line)
        topic = self._find_row_index(line, self.file.nodes, row.node, "node")
        if self.file.nodes[topic].type != "topic":
            raise make_line_error(line.number, "only topics have fields")
        self._check_field_name(line, row.field)
        self._require_not_repeated(line, "field", topic, row.field)
        self.file.fields[topic, row.field] = row

    def _add_end(self, line: ParsedLine) -> None:
        if _parse_line(EndLine, line).lines != line.number:
            raise make_line_error(line.number, "`lines` is not the number of lines in the file")
        self._has_ended = True

    def _check_field_name(self, line: ParsedLine, name: str) -> None:
        try:
            is_canonical = parse_field_name(name) == name
        except Invalid:
            is_canonical = False
        if not is_canonical:
            raise make_line_error(line.number, "`field` is not a field name in canonical form")

    def _check_fact_ordinals(self) -> None:
        """Check that the ordinals of facts with one name have no gaps, and that all but the last
        fact have ended. Two facts that hold would be the same node."""
        facts = {
            (node.scope, node.name_hash, node.ordinal): node
            for node in self.file.nodes
            if NODE_TYPES[node.type].is_invalidable
        }
        for (scope, name_hash, ordinal), node in facts.items():
            before = facts.get((scope, name_hash, ordinal - 1))
            if ordinal and (before is None or not before.has_ended):
                raise make_line_error(
                    node.line, "the fact of this name before it is missing, or has not ended"
                )

    def _get_current_scope_index(self, line: ParsedLine) -> int:
        if not self.file.scopes:
            raise make_line_error(line.number, "comes before the line of its scope")
        return len(self.file.scopes) - 1

    def _find_row_index(
        self, line: ParsedLine, rows: Sequence[FileNode | FileEdge], number: int, member: str
    ) -> int:
        """The index of a node or an edge of the current scope."""
        if not 1 <= number <= len(rows) or rows[number - 1].scope != self._get_current_scope_index(
            line
        ):
            raise make_line_error(
                line.number, f"`{member}` names a node or an edge that is not in this scope"
            )
        return number - 1

    def _require_next_number(self, line: ParsedLine, number: int, rows: Sequence[object]) -> None:
        if number != len(rows) + 1:
            raise make_line_error(line.number, "does not have the next number of its kind")

    def _require_not_repeated(self, line: ParsedLine, *key: object) -> None:
        if key in self._keys:
            raise make_line_error(line.number, "repeats an earlier line")
        self._keys.add(key)


def _parse_line[Line: FileLine](model: type[Line], line: ParsedLine) -> Line:
    try:
        return validate(model, line.members)
    except Invalid as error:
        raise make_line_error(line.number, error.message) from None
