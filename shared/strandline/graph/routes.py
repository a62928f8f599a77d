"""The HTTP routes of the knowledge graph."""

from strandline.graph import routes_conflicts, routes_nodes, routes_search

ROUTES = {**routes_nodes.ROUTES, **routes_search.ROUTES, **routes_conflicts.ROUTES}
