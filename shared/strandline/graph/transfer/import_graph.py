"""Import an export file: its statements are stored in the log, and the graph is derived from
them."""

import hashlib
import json
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from psycopg import errors

from strandline.auth.principals import Principal
from strandline.db.database import TenantDb
from strandline.errors import Forbidden, Invalid, PayloadMissing, StateConflict, TooLarge
from strandline.graph.changes.statement_writes import make_source_of_statement
from strandline.graph.transfer import store_import
from strandline.graph.transfer.export import MAX_FILE_BYTES
from strandline.graph.transfer.import_file import read_graph_file
from strandline.graph.transfer.import_rows import ImportedGraphWriter
from strandline.graph.transfer.known_statements import resolve_speaker
from strandline.graph.transfer.parsed_file import FileObservation, FileStatement, GraphFile
from strandline.graph.transfer.schemas import GraphImportResult, ImportRequest
from strandline.http.writer import WriterResources
from strandline.log import store_uploads
from strandline.log.append_state import AppendBatch, AppendResult
from strandline.log.cid import sha256_of_payload_cid
from strandline.log.statement_events import (
    GraphStatement,
    build_statement_events,
    charge_and_store_statements,
)
from strandline.log.trust_ranks import trust_rank

CHANNEL = "graph-import"
"""The channel of the statements' keys."""
MAX_STATEMENTS, MAX_OBSERVATIONS = 10_000, 40_000
"""The limits of one import: what fits into a request's time."""
MAX_RECORD_BYTES = 120 * 1024
"""The maximum size of one statement as JSON, in the metadata of its event."""


def import_graph(writer: WriterResources, body: ImportRequest) -> GraphImportResult:
    """Store the statements of a file, all or none. Statements that the log already has stay
    unchanged.

    Raises Invalid and Forbidden, which name the line; TooLarge; StateConflict for a fact that would
    hold twice; and the errors of an append.
    """
    field = "content" if body.content is not None else "cid"
    access = writer.connect()
    try:
        graph = read_graph_file(
            _load_file_bytes(writer, access, body),
            lambda names: _may_write_for(writer.principal, names),
        )
        _require_importable_size(graph)
        return _store_new_statements(writer, access, graph)
    except (Invalid, Forbidden, TooLarge) as error:
        raise type(error)(
            f"{field}: {error.message}", **{"field": field, **error.details}
        ) from None


def _require_importable_size(graph: GraphFile) -> None:
    counts = graph.counts
    for name, count, limit in (
        ("statements", counts.statements, MAX_STATEMENTS),
        ("observations", counts.observations, MAX_OBSERVATIONS),
    ):
        if count > limit:
            raise TooLarge(
                f"the file has {count} {name}, and an import takes {limit}. Export scope by scope"
                " (`scope_id`), and import file by file",
                limit=limit,
            )


def _may_write_for(principal: Principal, participants: Sequence[str]) -> bool:
    return principal.user is None or principal.user in participants


def _load_file_bytes(writer: WriterResources, access: TenantDb, body: ImportRequest) -> bytes:
    """The bytes of the file."""
    if body.content is not None:
        return body.content.encode()
    cid = body.cid or ""
    digest = sha256_of_payload_cid(cid, "cid")
    payload: dict[str, object] = {"place": 0, "cid": cid, "participants": []}
    for row in store_uploads.look_up_cited_payloads(access, [payload]):
        if row.upload_id is None:
            continue
        if (row.size or 0) > MAX_FILE_BYTES:
            raise TooLarge(
                f"the file has {row.size} bytes, at most {MAX_FILE_BYTES}. Export scope by scope"
                " (`scope_id`) and without vectors, and import file by file",
                limit=MAX_FILE_BYTES,
            )
        try:
            data = writer.blobs.read_upload_prefix(
                access.caller.tenant, row.upload_id, MAX_FILE_BYTES
            )
        except PayloadMissing:
            continue
        if hashlib.sha256(data).digest() == digest:
            return data
    raise Invalid(
        "this credential has no pending upload with this CID: announce it at POST /api/v1/uploads,"
        " PUT the file there, and do not cite it in an event"
    )


def _store_new_statements(
    writer: WriterResources, access: TenantDb, graph: GraphFile
) -> GraphImportResult:
    rows = ImportedGraphWriter(access, graph)
    stored_ids = store_import.find_stored_sources(
        access, [statement.source_id for statement in graph.statements]
    )
    known_lines = rows.find_known_lines(writer.principal)
    new_lines = {
        one.line
        for one in graph.statements
        if one.source_id not in stored_ids and one.line not in known_lines
    }
    if not new_lines:
        return _make_import_answer(graph, [], 0, rows)
    statements = [one for one in graph.statements if one.line in new_lines]
    batch = build_statement_events(
        writer.principal, list(make_statement_events(writer.principal, graph, new_lines))
    )

    def write_rows(results: Sequence[AppendResult]) -> None:
        rows.write_observations(
            [
                (statements[n], make_source_of_statement(batch, n, result))
                for n, result in enumerate(results)
                if result.is_new
            ]
        )

    try:
        results = charge_and_store_statements(
            writer.quotas, writer.work_queue, access, batch, write_rows, writer.deadline
        )
    except errors.UniqueViolation:
        raise StateConflict(
            "a fact of the file would hold twice: in the scope it has ended and holds again as"
            " another node. Invalidate that node first:"
            " POST /api/v1/graph/nodes/{node_id}/invalidate"
        ) from None
    new = [n for n, result in enumerate(results) if result.is_new]
    return _make_import_answer(graph, new, _count_lowered_trust(batch, statements, new), rows)


def _make_import_answer(
    graph: GraphFile, new: Sequence[int], lowered_trust: int, rows: ImportedGraphWriter
) -> GraphImportResult:
    return GraphImportResult(
        new_statements=len(new),
        known_statements=len(graph.statements) - len(new),
        lowered_trust=lowered_trust,
        new_nodes=rows.new_nodes,
        new_edges=rows.new_edges,
        new_revisions=rows.new_revisions,
        counts=graph.counts,
    )


def _count_lowered_trust(
    batch: AppendBatch, statements: Sequence[FileStatement], new: Sequence[int]
) -> int:
    return sum(trust_rank(batch.drafts[n].origin) < trust_rank(statements[n].trust) for n in new)


def make_statement_events(
    principal: Principal, graph: GraphFile, lines: Container[int]
) -> Iterator[GraphStatement]:
    """Build the statements of these lines. Their keys are derived from their content, so that the
    same statement is stored once even if several files contain it; of copies in one file each has
    a number, whether or not those before it are built."""
    copies = Counter[str]()
    for statement in graph.statements:
        record = _make_statement_record(graph, statement)
        digest = _hash_statement(graph, statement, record)
        copies[digest] += 1
        if statement.line not in lines:
            continue
        size = len(json.dumps(record, ensure_ascii=False).encode())
        if size > MAX_RECORD_BYTES:
            raise Invalid(
                f"line {statement.line}: the statement is {size} bytes as JSON with the names of"
                f" its nodes, at most {MAX_RECORD_BYTES}",
                line=statement.line,
            )
        role, speaker = resolve_speaker(principal, statement)
        yield GraphStatement(
            participants=graph.scopes[statement.scope],
            role=role,
            content=statement.content,
            operation={"import": record},
            speaker=speaker,
            occurred_at=statement.said_at,
            key=f"{digest}#{copies[digest]}",
            channel=CHANNEL,
            most_trust=statement.trust,
        )


def _hash_statement(graph: GraphFile, statement: FileStatement, record: Mapping[str, Any]) -> str:
    parts = [
        graph.scopes[statement.scope],
        statement.role,
        statement.speaker,
        statement.trust,
        statement.said_at.isoformat(),
        statement.content,
        record,
    ]
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _make_statement_record(graph: GraphFile, statement: FileStatement) -> dict[str, Any]:
    """A statement's record for the log, without the numbers of the file. The graph is derived from
    it."""
    record: dict[str, Any] = {
        "says": [_make_observation_record(graph, observation) for observation in statement.says]
    }
    revision = statement.revision
    if revision is not None:
        members = revision.model_dump(mode="json", exclude={"node", "ref_node"})
        topic = revision.node - 1
        field = graph.fields.get((topic, revision.field))
        record["revision"] = {
            **members,
            "topic": _identify_node(graph, topic),
            "ref_topic": revision.ref_node and _identify_node(graph, revision.ref_node - 1),
            "field_type": field.field_type if field else "text",
        }
    return record


def _make_observation_record(graph: GraphFile, observation: FileObservation) -> dict[str, Any]:
    if observation.is_edge:
        edge = graph.edges[observation.target]
        target: dict[str, Any] = {
            "edge": edge.type,
            "label": edge.label,
            "from": _identify_node(graph, edge.from_node),
            "to": _identify_node(graph, edge.to_node),
        }
    else:
        target = {"node": _identify_node(graph, observation.target)}
    return {
        **target,
        "patch": observation.patch,
        "confidence": observation.confidence,
        "heat": observation.heat,
        "valid_from": observation.valid_from.isoformat(),
    }


def _identify_node(graph: GraphFile, index: int) -> list[Any]:
    node = graph.nodes[index]
    return [node.type, node.name, node.ordinal]
