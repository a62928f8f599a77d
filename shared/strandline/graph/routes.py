"""The HTTP routes of the knowledge graph."""

from strandline.graph import routes_changes, routes_lists, routes_nodes

ROUTES = {**routes_nodes.ROUTES, **routes_changes.ROUTES, **routes_lists.ROUTES}
