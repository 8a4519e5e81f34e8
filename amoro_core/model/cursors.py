"""Cursors: opaque texts that say where in a list the next page begins."""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256

from amoro_core.errors import InvalidArgument

#: A value by which a list is ordered.
Key = str | int

_DIGEST_BYTES = 8
_START_AGAIN = "Give the cursor of the page before, with the same filters and order, or start without one."


def sealed(scope: Sequence[object], values: Sequence[Key]) -> str:
    """The cursor after an item with these values, in the list that `scope` names: which one, its order and filters."""
    place = json.dumps(list(values), ensure_ascii=False, separators=(",", ":")).encode()
    body = _digest(scope) + place
    return urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def opened(cursor: str, scope: Sequence[object], kinds: Sequence[type]) -> tuple[Key, ...]:
    """The values, of these kinds, that were sealed in the cursor of a list.

    Raises InvalidArgument for a broken cursor, and for one of another list.
    """
    try:
        raw = b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise _broken(cursor) from error
    check, body = raw[:_DIGEST_BYTES], raw[_DIGEST_BYTES:]
    if not body or check != _check(body):
        raise _broken(cursor)
    if body[:_DIGEST_BYTES] != _digest(scope):
        raise InvalidArgument("the cursor belongs to a list with other filters or another order", hint=_START_AGAIN)
    values = tuple(json.loads(body[_DIGEST_BYTES:]))
    if tuple(map(type, values)) != tuple(kinds):
        raise _broken(cursor)
    return values


def opened_pair(cursor: str, scope: Sequence[object]) -> tuple[int, str] | None:
    """The number and the text that were sealed in the cursor of a list; None for "". Raises InvalidArgument."""
    if not cursor:
        return None
    number, text = opened(cursor, scope, (int, str))
    return int(number), str(text)


def _digest(scope: Sequence[object]) -> bytes:
    return _check(json.dumps(list(scope), ensure_ascii=False, separators=(",", ":")).encode())


def _check(body: bytes) -> bytes:
    return sha256(body).digest()[:_DIGEST_BYTES]


def _broken(cursor: str) -> InvalidArgument:
    return InvalidArgument(f"{cursor[:100]!r} is no cursor", hint=_START_AGAIN)
