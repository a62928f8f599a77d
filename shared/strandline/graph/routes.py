"""The HTTP routes of the knowledge graph."""

from strandline.graph import routes_fields, routes_nodes

ROUTES = {**routes_nodes.ROUTES, **routes_fields.ROUTES}
