"""Messages of the AdminService as frozen dataclasses, field by field."""

import types
from collections.abc import Hashable, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

Result = TypeVar("Result")

_NONE = type(None)


def read(kind: type[Result], message: Message, **more: object) -> Result:
    """The dataclass filled from the message's fields of the same names, and from `more`.

    A time is read from the field in milliseconds (`created_at` from `created_ms`, `retry_at` from `retry_at_ms`). An
    optional field is None where the message has 0, "" or nothing.
    """
    known = {field.name for field in message.DESCRIPTOR.fields}
    values = dict(more)
    for name, hint in _hints(cast(Hashable, kind)).items():
        source = _source(name, known)
        if name not in more and source is not None:
            values[name] = _value(hint, message, source)
    return kind(**values)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _source(name: str, known: set[str]) -> str | None:
    return next((one for one in (name, f"{name}_ms", f"{name.removesuffix('_at')}_ms") if one in known), None)


def _value(hint: Any, message: Message, source: str) -> object:
    value = getattr(message, source)
    if get_origin(hint) in (Union, types.UnionType):
        (kind,) = (one for one in get_args(hint) if one is not _NONE)
        if isinstance(value, Message):
            return read(kind, value) if message.HasField(source) else None
        return _plain(kind, value) if value else None
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        return tuple(read(kind, one) if isinstance(one, Message) else one for one in value)
    if get_origin(hint) is not None:
        return dict(value)
    return read(hint, value) if isinstance(value, Message) else _plain(hint, value)


def _plain(kind: Any, value: Any) -> object:
    return datetime.fromtimestamp(value / 1000, UTC) if kind is datetime else value
