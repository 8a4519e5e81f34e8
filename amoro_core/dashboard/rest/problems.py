"""Errors as problem+json (RFC 9457), with our code, the hint, and the value that was wrong."""

import json
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from amoro_core.errors import AmoroError, UnknownToken
from amoro_core.events import get_logger
from amoro_core.model.secrets import without_secrets
from amoro_core.model.texts import briefly

log = get_logger("amoro.http")

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = "5"
#: The HTTP status of errors by the exit status of a command that they end. 7 is an outcome, not a failure.
STATUSES: Mapping[int, int] = {1: 500, 2: 400, 3: 404, 4: 403, 5: 409, 6: 422, 7: 200, 124: 504}


class Answered(Exception):
    """A request is answered in another way than by its operation."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def status_of(error: AmoroError) -> int:
    """The HTTP status of the error."""
    return 401 if isinstance(error, UnknownToken) else STATUSES[error.exit_status]


def problem_of(error: BaseException) -> Response:
    """The answer for the error; for one that is not ours, that it is internal, and the log has more."""
    if not isinstance(error, AmoroError):
        log.exception("request.failed", exc_info=error)
        error = AmoroError(
            without_secrets(f"internal error: {type(error).__name__}: {error}"), hint="The coordinator's log has more."
        )
    return problem(status_of(error), error)


def problem(status: int, error: AmoroError, headers: Mapping[str, str] | None = None) -> Response:
    """The answer with that status, and the error's code, message, hint, and value if it has one."""
    value = getattr(error, "value", None)
    title = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    body = {
        "type": f"urn:amoro:error:{error.code}",
        "title": title,
        "status": status,
        "detail": error.message,
        "code": error.code,
        "hint": error.hint or error.remedy,
        **({"value": _shown(value)} if value is not None else {}),
    }
    own = {401: {"WWW-Authenticate": "Bearer"}, 409: {"Retry-After": RETRY_AFTER_S}}.get(status, {})
    content = json.dumps(body, ensure_ascii=True, separators=(",", ":"))
    return Response(content, status, {**own, **(headers or {})}, MEDIA_TYPE)


def _shown(value: object) -> Any:
    return value if isinstance(value, bool | int | float) else briefly(value if isinstance(value, str) else repr(value))
