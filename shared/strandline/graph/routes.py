"""The HTTP routes of the knowledge graph."""

from strandline.graph.changes import routes as changes_routes
from strandline.graph.communities import routes as communities_routes
from strandline.graph.conflicts import routes as conflicts_routes
from strandline.graph.fields import routes as fields_routes
from strandline.graph.lists import routes as lists_routes
from strandline.graph.search import routes as search_routes
from strandline.graph.status import routes as status_routes
from strandline.graph.transfer import routes as transfer_routes

ROUTES = {
    **changes_routes.ROUTES,
    **lists_routes.ROUTES,
    **search_routes.ROUTES,
    **conflicts_routes.ROUTES,
    **fields_routes.ROUTES,
    **communities_routes.ROUTES,
    **status_routes.ROUTES,
    **transfer_routes.ROUTES,
}
