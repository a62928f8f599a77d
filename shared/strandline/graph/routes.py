"""The HTTP routes of the knowledge graph."""

from strandline.graph import routes_communities, routes_nodes

ROUTES = {**routes_nodes.ROUTES, **routes_communities.ROUTES}
