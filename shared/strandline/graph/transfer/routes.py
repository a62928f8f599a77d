"""HTTP routes that export the graph to a file, and import one."""

from datetime import UTC, datetime, timedelta

from uuid_utils.compat import uuid7

from strandline.config import get_settings
from strandline.errors import Conflict, Forbidden, NotFound
from strandline.graph.transfer.export import export_graph
from strandline.graph.transfer.import_graph import import_graph
from strandline.graph.transfer.schemas import (
    ExportRequest,
    GraphExportFile,
    GraphImportResult,
    ImportRequest,
)
from strandline.http.request import Request
from strandline.http.routes_and_responses import (
    Response,
    Route,
    json_response,
    replayable_response,
)
from strandline.http.schemas_idempotency import REPLAYED_HEADER
from strandline.schemas import ParticipantsQuery

TRANSFER_REQUESTS = 10
"""How many units of the quota `requests` an export or an import costs."""


def post_export(request: Request) -> Response:
    """Export the graph in view as JSON Lines. 201 with a presigned URL of the file: the scopes in
    view with their nodes, edges and fields, and all observations. Every line ends with a hash, so
    that an incomplete file is detected. The file shows the graph at one moment."""
    query = request.parse_query(ParticipantsQuery)
    body = request.parse_body(ExportRequest)
    access = request.connect_reader(query, body.participants)
    request.spend_quota("requests", TRANSFER_REQUESTS - 1)
    now, tenant = datetime.now(UTC), request.principal.tenant
    file = export_graph(access, body.scope_id, now, with_vectors=body.vectors)
    blobs, seconds, export_id = request.resources.blobs, get_settings().presign_seconds, uuid7()
    blobs.put_export(tenant, export_id, file.data)
    request.metrics |= {
        "GraphNodesRead": file.counts.nodes,
        "GraphEdgesRead": file.counts.edges,
        "ExportedBytes": len(file.data),
    }
    answer = GraphExportFile(
        export_id=export_id,
        url=blobs.presign_export(tenant, export_id, seconds),
        expires_at=datetime.now(UTC) + timedelta(seconds=seconds),
        bytes=len(file.data),
        sha256=file.sha256,
        lines=file.lines,
        counts=file.counts,
    )
    return json_response(answer, 201)


def post_import(request: Request) -> Response:
    """Import an export file, all or none. 201 and what was stored. Each statement of the file
    becomes a statement in the log of the same participants, with no more trust than this credential
    has. Statements that the log already has stay unchanged, so importing a file twice changes
    nothing. A file that was cut or altered is a 422 that names the line."""
    body = request.parse_body(ImportRequest)
    request.spend_quota("requests", TRANSFER_REQUESTS - 1)
    answer = import_graph(request.writer, body)
    request.metrics |= {
        "NodesWritten": answer.new_nodes,
        "EdgesWritten": answer.new_edges,
        "StatementsImported": answer.new_statements,
    }
    is_replay = answer.new_statements == 0 and answer.known_statements > 0
    return replayable_response(answer, 201, is_replay=is_replay)


ROUTES = {
    "POST /api/v1/graph/exports": Route(
        post_export,
        "read",
        {201: GraphExportFile},
        query=ParticipantsQuery,
        body=ExportRequest,
        errors=(NotFound,),
    ),
    "POST /api/v1/graph/imports": Route(
        post_import,
        "write",
        {201: GraphImportResult},
        body=ImportRequest,
        errors=(Forbidden, Conflict),
        response_headers={REPLAYED_HEADER: "`true` when all of it was stored before."},
    ),
}
