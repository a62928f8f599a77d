"""The state of the graph in view: what it has, how large it is, and how far background work is."""

from datetime import datetime

from strandline.db.database import TenantDb
from strandline.graph import store_status
from strandline.graph.schemas_status import (
    EdgeCounts,
    GraphHealth,
    GraphSizes,
    GraphStatus,
    GraphUse,
    NodeCounts,
)


def read_status(access: TenantDb, now: datetime) -> GraphStatus:
    """The state of the graph in view, as one database snapshot shows it."""
    with access.snapshot_transaction():
        nodes = store_status.count_nodes(access)
        edges = store_status.count_edges(access)
        said = store_status.count_foundations(access)
        progress = store_status.read_progress(access, now)
    return GraphStatus(
        scopes=said.scopes,
        nodes={
            row.type: NodeCounts(
                total=row.total,
                current=row.current,
                ended=row.ended,
                archived=row.archived,
                merged=row.merged,
            )
            for row in nodes
        },
        edges={
            row.type: EdgeCounts(total=row.total, current=row.current, ended=row.ended)
            for row in edges
        },
        observations=said.observations,
        fields=said.fields,
        revisions=said.revisions,
        communities=progress.communities,
        bytes=GraphSizes(
            nodes=sum(row.bytes for row in nodes),
            vectors=sum(row.vector_bytes for row in nodes),
            edges=sum(row.bytes for row in edges),
            observations=said.observation_bytes,
            revisions=said.revision_bytes,
        ),
        health=GraphHealth(
            promoted_at=progress.promoted_at,
            chains_due=progress.chains_due,
            promotions_failed=progress.promotions_failed,
            analysed_at=progress.analysed_at,
            scopes_to_analyse=progress.scopes_to_analyse,
            analyses_failed=progress.analyses_failed,
            nodes_without_vector=sum(row.unembedded for row in nodes),
            nodes_refused=sum(row.refused for row in nodes),
        ),
        use=GraphUse(
            statements=said.statements,
            chains=said.chains,
            observed_at=said.observed_at,
            answers=progress.answers,
            answered_at=progress.answered_at,
        ),
    )
