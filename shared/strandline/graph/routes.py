"""The HTTP routes of the knowledge graph."""

from strandline.graph import (
    routes_changes,
    routes_communities,
    routes_conflicts,
    routes_fields,
    routes_lists,
    routes_nodes,
    routes_search,
    routes_status,
    routes_transfer,
)

ROUTES = {
    **routes_nodes.ROUTES,
    **routes_changes.ROUTES,
    **routes_lists.ROUTES,
    **routes_search.ROUTES,
    **routes_conflicts.ROUTES,
    **routes_fields.ROUTES,
    **routes_communities.ROUTES,
    **routes_status.ROUTES,
    **routes_transfer.ROUTES,
}
