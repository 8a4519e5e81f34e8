"""Files that pages use: style sheets, scripts and pictures of our own."""

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

DIRECTORY = Path(str(resources.files(__name__)))


def routes() -> Sequence[BaseRoute]:
    """The route of the files, below /static."""
    return (Mount("/static", _Lasting(directory=DIRECTORY), name="static"),)


@cache
def url(name: str) -> str:
    """The address of the file, which is another one once its content changes. Raises FileNotFoundError."""
    return f"/static/{name}?v={hashlib.sha256((DIRECTORY / name).read_bytes()).hexdigest()[:16]}"


class _Lasting(StaticFiles):
    """Files that browsers keep: `url` names their content. Python files are not served."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if path.endswith((".py", ".pyc")):
            return Response(status_code=404)
        answer = await super().get_response(path, scope)
        if answer.status_code == 200 and scope["query_string"].startswith(b"v="):
            answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"
        return answer
