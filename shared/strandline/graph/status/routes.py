"""The route of the graph's state in view: its contents, its size, and the progress of background
work."""

from collections.abc import Sequence
from datetime import UTC, datetime

from strandline.db.database import TenantDb
from strandline.graph.status import store_counts
from strandline.graph.status.schemas import (
    EdgeCounts,
    GraphByteSizes,
    GraphHealth,
    GraphStatus,
    GraphUse,
    NodeCounts,
)
from strandline.graph.status.store_counts import BackgroundProgress, NodeTypeTotals
from strandline.http.request import Request
from strandline.http.routes_and_responses import Response, Route, json_response
from strandline.schemas import ParticipantsQuery


def read_graph_status(access: TenantDb, now: datetime) -> GraphStatus:
    """The state of the graph in view, as one database snapshot shows it."""
    with access.snapshot_transaction():
        nodes = store_counts.count_nodes(access)
        edges = store_counts.count_edges(access)
        foundations = store_counts.count_sources(access)
        progress = store_counts.read_background_progress(access, now)
    return GraphStatus(
        scopes=foundations.scopes,
        nodes={row.type: NodeCounts.model_validate(row, from_attributes=True) for row in nodes},
        edges={row.type: EdgeCounts.model_validate(row, from_attributes=True) for row in edges},
        observations=foundations.observations,
        fields=foundations.fields,
        revisions=foundations.revisions,
        communities=progress.communities,
        bytes=GraphByteSizes(
            nodes=sum(row.bytes for row in nodes),
            vectors=sum(row.vector_bytes for row in nodes),
            edges=sum(row.bytes for row in edges),
            observations=foundations.observation_bytes,
            revisions=foundations.revision_bytes,
        ),
        health=_describe_health(nodes, progress),
        use=GraphUse(
            statements=foundations.statements,
            chains=foundations.chains,
            observed_at=foundations.observed_at,
            answers=progress.answers,
            answered_at=progress.answered_at,
        ),
    )


def _describe_health(nodes: Sequence[NodeTypeTotals], progress: BackgroundProgress) -> GraphHealth:
    return GraphHealth(
        promoted_at=progress.promoted_at,
        chains_due=progress.chains_due,
        promotions_failed=progress.promotions_failed,
        analysed_at=progress.analysed_at,
        scopes_to_analyse=progress.scopes_to_analyse,
        analyses_failed=progress.analyses_failed,
        nodes_without_vector=sum(row.unembedded for row in nodes),
        nodes_refused=sum(row.refused for row in nodes),
    )


def get_graph_status(request: Request) -> Response:
    """The state of the graph in view: its counts by type, its size, the progress of promotion and
    analysis, and its use."""
    query = request.parse_query(ParticipantsQuery)
    access = request.connect_reader(query)
    return json_response(read_graph_status(access, datetime.now(UTC)))


ROUTES = {
    "GET /api/v1/graph/status": Route(
        get_graph_status, "read", {200: GraphStatus}, query=ParticipantsQuery
    ),
}
