"""`Idempotency-Key`: a POST that is repeated with its key is answered as before, and does nothing."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response

from amoro_core.dashboard.asking import principal_of
from amoro_core.dashboard.offered import offered
from amoro_core.dashboard.rest.problems import Answered, problem, problem_of
from amoro_core.dashboard.rest.requests import Asked, content_of
from amoro_core.errors import Conflict, MalformedRequest
from amoro_core.model.repeats import KeptAnswer

HEADER = "Idempotency-Key"
_KEY = re.compile(r"[!-~]{1,255}")


async def once(request: Request, said: Asked, act: Callable[[], Awaitable[Response]]) -> Response:
    """The answer of `act`, or, for a key that is known, the answer that was given before.

    What was refused (4xx) did nothing, and its key may be used again. Raises MalformedRequest, Conflict, and Answered
    with 422 for a key that came with another request.
    """
    key = request.headers.get(HEADER)
    if key is None:
        return await act()
    if not _KEY.fullmatch(key):
        raise MalformedRequest(f"{HEADER} must be 1 to 255 visible characters", value=key)
    parts, loop = offered(request), asyncio.get_running_loop()
    key_hash = _hash((await principal_of(request)).title.encode(), key.encode())
    query = request.scope["query_string"]
    request_hash = _hash(said.route.method.encode(), said.path.encode(), query, await content_of(request))
    try:
        known = await loop.run_in_executor(parts.pool, partial(parts.repeats.begin, key_hash, request_hash))
    except MalformedRequest as error:
        raise Answered(problem(422, error)) from error
    if known is not None:
        return _again(known)
    try:
        response = await act()
    except Answered as answered:
        response = answered.response
    except Exception as error:
        response = problem_of(error)
    if 400 <= response.status_code < 500:
        await loop.run_in_executor(parts.pool, partial(parts.repeats.forget, key_hash))
        return response
    content = b"" if said.route.is_secret else bytes(response.body)
    location = response.headers.get("location", "")
    kept = KeptAnswer(response.status_code, response.media_type or "", location, content)
    await loop.run_in_executor(parts.pool, partial(parts.repeats.finish, key_hash, kept))
    return response


def _again(known: KeptAnswer) -> Response:
    if not known.content:
        raise Conflict(
            "this was done already, and its answer held a secret, which is kept nowhere",
            hint="Undo it, then ask with another key.",
        )
    headers = {"Location": known.location} if known.location else {}
    return Response(known.content, known.status, headers, known.media_type)


def _hash(*parts: bytes) -> str:
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).hexdigest()
