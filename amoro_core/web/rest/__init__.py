"""The REST API: a table of routes over the operations of the AdminService."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from amoro_core.web.middleware import PrefixRoute
from amoro_core.web.rest.handler import Rest
from amoro_core.web.rest.requests import PREFIX


def routes() -> Sequence[BaseRoute]:
    """The route of everything below /api/v1."""
    return (PrefixRoute(PREFIX, Rest()),)
