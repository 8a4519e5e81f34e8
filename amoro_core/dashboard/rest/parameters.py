"""Fields of requests as REST names and writes them: what is read of a path, a query or a body, and its schema.

Names are those of the proto; durations and times lose their `_ms` and are texts: 30s, and RFC 3339.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from amoro_core.errors import MalformedRequest
from amoro_core.model.quantities import parse_duration
from amoro_core.records import record

Schema = dict[str, Any]

#: Of whole numbers by field: the least, the most, and what holds where nothing is said.
_BOUNDED = {"limit": (1, 500, 50), "lines": (1, 10_000, 100)}
#: Requests name times by these, all other `_ms` are durations.
_TIMES = re.compile(r"(since|until|before|after|at)_ms$")
_DURATION = r"^(\d+(\.\d+)?(ms|s|min|m|h|d))+$"
_INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


@record
class Parameter:
    """A field of a request under its name in REST."""

    name: str
    field: FieldDescriptor

    @property
    def schema(self) -> Schema:
        """The JSON Schema of a value in a body or a query."""
        if is_map(self.field):
            return {"type": "object", "additionalProperties": {"type": "string"}}
        single = _single_schema(self.field)
        return {"type": "array", "items": single} if self.field.is_repeated else single

    def put_default(self, message: Message) -> None:
        """Set the field to what holds where a query does not name it."""
        if self.field.name in _BOUNDED:
            setattr(message, self.field.name, _BOUNDED[self.field.name][2])

    def put(self, message: Message, value: Any) -> None:
        """Set the field to a value of a body. Raises MalformedRequest."""
        if is_map(self.field):
            getattr(message, self.field.name).update(self._texts(value))
        elif self.field.is_repeated:
            if not isinstance(value, list):
                raise MalformedRequest(f"{self.name} must be a list", value=value)
            self._put_all(message, value)
        elif self.field.message_type is not None:
            fill(getattr(message, self.field.name), value, parameters(self.field.message_type), self.name)
            getattr(message, self.field.name).SetInParent()
        else:
            setattr(message, self.field.name, self._scalar(value))

    def put_texts(self, message: Message, texts: list[str]) -> None:
        """Set the field to what a path or a query says. Raises MalformedRequest."""
        if not self.field.is_repeated:
            if len(texts) > 1:
                raise MalformedRequest(f"{self.name} is given {len(texts)} times", value=texts[1])
            setattr(message, self.field.name, self._scalar(_read(self.field, texts[0], self.name)))
        else:
            self._put_all(message, [_read(self.field, text, self.name) for text in texts])

    def _put_all(self, message: Message, values: list[Any]) -> None:
        target = getattr(message, self.field.name)
        kind = self.field.message_type
        for value in values:
            if kind is None:
                target.append(self._scalar(value))
            else:
                fill(target.add(), value, parameters(kind), self.name)

    def _texts(self, value: Any) -> dict[str, str]:
        if not isinstance(value, dict) or not all(isinstance(one, str) for one in value.values()):
            raise MalformedRequest(f"{self.name} must be an object whose values are texts", value=value)
        return {_encodable(key, self.name): _encodable(text, self.name) for key, text in value.items()}

    def _scalar(self, value: Any) -> Any:
        if self.field.name.endswith("_ms"):
            return _milliseconds(self, value)
        kind = self.field.cpp_type
        if kind == FieldDescriptor.CPPTYPE_STRING:
            if not isinstance(value, str):
                raise MalformedRequest(f"{self.name} must be a text", value=value)
            return _encodable(value, self.name)
        if kind == FieldDescriptor.CPPTYPE_BOOL:
            if not isinstance(value, bool):
                raise MalformedRequest(f"{self.name} must be true or false", value=value)
            return value
        if kind in _INTEGERS:
            least, most = bounds(self.field)
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # 1.0 is an integer for JSON Schema
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise MalformedRequest(f"{self.name} must be a whole number from {least} to {most}", value=value)
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise MalformedRequest(f"{self.name} must be a number", value=value)
        return float(value)


def parameters(descriptor: Descriptor, without: Collection[str] = ()) -> dict[str, Parameter]:
    """The parameters of a message by their names in REST."""
    found = (Parameter(field.name.removesuffix("_ms"), field) for field in descriptor.fields)
    return {one.name: one for one in found if one.field.name not in without}


def fill(message: Message, value: Any, known: Mapping[str, Parameter], where: str) -> None:
    """Set the fields of the message to those of a JSON object. Raises MalformedRequest, also for unknown keys."""
    if not isinstance(value, dict):
        raise MalformedRequest(f"{where} must be an object", value=value)
    require_known(value, known, where)
    for name, item in value.items():
        known[name].put(message, item)


def require_known(names: Iterable[str], known: Collection[str], where: str) -> None:
    """Raise MalformedRequest for the first name that is not known; it tells the nearest one."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            said = ", ".join(sorted(known))
            hint = f"Did you mean {close[0]}?" if close else f"Known: {said}." if said else "It takes none."
            raise MalformedRequest(f"{where} has the unknown key {name!r}", hint=hint, value=name)


def is_map(field: FieldDescriptor) -> bool:
    """Whether the field is a map, whose values are texts."""
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def bounds(field: FieldDescriptor) -> tuple[int, int]:
    """The least and the most that a field of whole numbers takes."""
    least, most, _ = _BOUNDED.get(field.name, (*_INTEGERS[field.cpp_type], 0))
    return least, most


def object_schema(known: Mapping[str, Parameter], required: Sequence[str] = ()) -> Schema:
    """The JSON Schema of a body with these parameters."""
    properties = {name: one.schema for name, one in known.items()}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _single_schema(field: FieldDescriptor) -> Schema:
    if field.message_type is not None:
        return object_schema(parameters(field.message_type))
    if field.name.endswith("_ms"):
        if _TIMES.search(field.name):
            return {"type": "string", "format": "date-time"}
        return {"type": "string", "pattern": _DURATION, "examples": ["30s"]}
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return {"type": "string"}
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"type": "boolean"}
    if kind in _INTEGERS:
        least, most = bounds(field)
        default = {"default": _BOUNDED[field.name][2]} if field.name in _BOUNDED else {}
        return {"type": "integer", "minimum": least, "maximum": most, **default}
    return {"type": "number"}


def _read(field: FieldDescriptor, text: str, name: str) -> Any:
    """The value that a text of a path or query stands for."""
    kind = field.cpp_type
    if field.name.endswith("_ms") or kind == FieldDescriptor.CPPTYPE_STRING:
        return text
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return {"true": True, "false": False}.get(text, text)
    if kind in _INTEGERS:
        return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else text
    try:
        return float(text)
    except ValueError as error:
        raise MalformedRequest(f"{name} must be a number", value=text) from error


def _milliseconds(parameter: Parameter, value: Any) -> int:
    said = f"{parameter.name} must be "
    if not isinstance(value, str):
        raise MalformedRequest(f"{said}a text", value=value)
    if not _TIMES.search(parameter.field.name):
        try:
            return round(parse_duration(value).total_seconds() * 1000)
        except ValueError as error:
            raise MalformedRequest(f"{said}a duration above zero and at most 365d, such as 30s", value=value) from error
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(value)
        return round(moment.astimezone(UTC).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        raise MalformedRequest(f"{said}a time such as 2026-11-22T08:00:00Z", value=value) from error


def _encodable(text: str, name: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise MalformedRequest(f"{name} holds half of a surrogate pair", value=ascii(text)) from error
    return text
