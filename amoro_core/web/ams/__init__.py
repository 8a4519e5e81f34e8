"""Twelve paths of Amoro's own HTTP API, read only, for scripts and programs that were written for Amoro."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from amoro_core.web.ams.answering import PREFIX, Ams
from amoro_core.web.middleware import PrefixRoute


def routes() -> Sequence[BaseRoute]:
    """The route of everything below /api/ams/v1."""
    return (PrefixRoute(PREFIX, Ams()),)
