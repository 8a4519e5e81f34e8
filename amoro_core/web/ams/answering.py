"""Requests below /api/ams/v1, and their answers: HTTP 200 always, with what went wrong in `code`, as Amoro does."""

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amoro_core.errors import AmoroError, MalformedRequest, NotAllowed, NotFound
from amoro_core.logger import get_logger
from amoro_core.web.ams import shapes
from amoro_core.web.ams.credentials import identified
from amoro_core.web.ams.paths import PATHS, Asked
from amoro_core.web.app_context import offered
from amoro_core.web.login import TooManyTries
from amoro_core.web.rest.requests import status_of

log = get_logger("amoro.http")

PREFIX = "/api/ams/v1"
#: Answered to everybody, as in Amoro: programs look there before they have an account. Who serves HTTP leads.
_OPEN: Mapping[str, Any] = {
    "versionInfo": lambda: shapes.version_info(version("amoro")),
    "health/status": lambda: {"ams_ha_state": "LEADER"},
}
#: What does here what a changing path of Amoro does, by its method and how the path begins or ends.
_INSTEAD = (
    ("POST", "catalogs", "POST /api/v1/catalogs"),
    ("PUT", "catalogs/", "PATCH /api/v1/catalogs/NAME"),
    ("DELETE", "catalogs/", "DELETE /api/v1/catalogs/NAME"),
    ("POST", "optimize/resourceGroups", "POST /api/v1/groups"),
    ("PUT", "optimize/resourceGroups", "PATCH /api/v1/groups/NAME"),
    ("DELETE", "optimize/resourceGroups/", "DELETE /api/v1/groups/NAME"),
    ("POST", "optimize/optimizer", "POST /api/v1/groups/NAME/scale"),
    ("DELETE", "optimize/optimizers/", "POST /api/v1/optimizers/ID/release"),
    ("POST", "tables/", "POST /api/v1/processes/ID/cancel"),
)


class Ams:
    """Amoro's paths as an application below their prefix."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            body: Mapping[str, Any] = {"message": "success", "code": 200, "result": await _result(request)}
        except AmoroError as error:
            hint = error.hint or error.remedy
            body = _failed(status_of(error), f"{error.message} [{error.code}] {hint}".strip())
        except TooManyTries as error:
            body = _failed(429, str(error))
        except Exception as error:
            log.exception("request.failed", exc_info=error)
            body = _failed(500, f"internal error: {type(error).__name__}: the coordinator's log has more")
        content = json.dumps(body, ensure_ascii=True, separators=(",", ":"))
        await Response(content, media_type="application/json")(scope, receive, send)


def _failed(code: int, message: str) -> Mapping[str, Any]:
    return {"message": message, "code": code, "requestId": ""}


async def _result(request: Request) -> Any:
    path = _path(request)
    if request.method not in ("GET", "HEAD"):
        raise NotAllowed(f"{PREFIX} only reads; {request.method} {path} is not served", hint=_instead(request, path))
    if path in _OPEN:
        return _OPEN[path]()
    principal = await identified(request)
    segments = [unquote(segment) for segment in path.split("/")]
    for known, answer in PATHS.items():
        found = _match(known.split("/"), segments)
        if found is not None:
            return await answer(Asked(offered(request).operations, principal, found, request.query_params))
    raise NotFound(f"Amoro's path {path} is not served here", hint="Every path of ours is in /api/v1/openapi.json.")


def _path(request: Request) -> str:
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    try:
        path = raw.partition(b"?")[0].decode("ascii").removeprefix(PREFIX).strip("/")
        unquote(path, errors="strict")
    except ValueError as error:
        raise MalformedRequest("the address is not UTF-8, percent-encoded", value=repr(raw)) from error
    return path


def _match(known: list[str], segments: list[str]) -> dict[str, str] | None:
    if len(known) != len(segments):
        return None
    found: dict[str, str] = {}
    for name, segment in zip(known, segments, strict=True):
        if name.startswith("{") and segment:
            found[name[1:-1]] = segment
        elif name != segment:
            return None
    return found


def _instead(request: Request, path: str) -> str:
    for method, start, ours in _INSTEAD:
        if request.method == method and path.startswith(start):
            return f"Use {ours} with a token that may do this."
    return "What this coordinator changes is below /api/v1: see /api/v1/openapi.json."
