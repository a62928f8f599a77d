"""The HTTP routes of personas."""

from strandline.personas import routes_acts, routes_chat, routes_sonas

ROUTES = {**routes_sonas.ROUTES, **routes_acts.ROUTES, **routes_chat.ROUTES}
