"""Cursors of lists: where the next page begins, and of which list it is one."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256

from amoro_core.errors import MalformedRequest

_DIGEST_BYTES = 8
_START_AGAIN = "Give `next` of the page before with the same filters and order, or start without a cursor."


def cursor_of(path: str, filters: Mapping[str, Sequence[str]], place: str) -> str:
    """The cursor of the place in the list of that path with those filters."""
    body = _digest(path, filters) + place.encode()
    return urlsafe_b64encode(sha256(body).digest()[:_DIGEST_BYTES] + body).decode().rstrip("=")


def place_of(path: str, filters: Mapping[str, Sequence[str]], cursor: str) -> str:
    """The place that the cursor stands for. Raises MalformedRequest for one of another list, and for a broken one."""
    try:
        raw = urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        check, digest, place = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES : 2 * _DIGEST_BYTES], raw[2 * _DIGEST_BYTES :]
        text = place.decode()
    except ValueError as error:
        raise MalformedRequest("after is no cursor", hint=_START_AGAIN, value=cursor) from error
    if check != sha256(digest + place).digest()[:_DIGEST_BYTES]:
        raise MalformedRequest("after is no cursor", hint=_START_AGAIN, value=cursor)
    if digest != _digest(path, filters):
        raise MalformedRequest("after is the cursor of another list", hint=_START_AGAIN, value=cursor)
    return text


def _digest(path: str, filters: Mapping[str, Sequence[str]]) -> bytes:
    known = sorted((name, list(values)) for name, values in filters.items() if name not in ("after", "limit"))
    return sha256(json.dumps([path, known]).encode()).digest()[:_DIGEST_BYTES]
