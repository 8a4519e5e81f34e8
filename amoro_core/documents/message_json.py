"""Messages of the admin service as plain data for programs.

Keys are the field names of the proto. Moments end in `_at` instead of `_ms` and are ISO 8601 in UTC; those of what
never happened, and ids of what does not exist, are null; other numbers are exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from amoro_core.documents.formatting import iso_time

if TYPE_CHECKING:
    from google.protobuf.message import Message


_EMPTY_IS_NULL = {
    *("process_id", "optimizer_id", "plan_id", "snapshot_id", "base_snapshot_id", "parent_snapshot_id"),
    *("type", "next"),
}
_DURATIONS = {"cpu_ms", "duration_ms"}
_SCORE = "health_score"  # −1: not known


def encode(message: "Message") -> dict[str, Any]:
    """The message as a dictionary in the order of its fields."""
    return dict(_field(message, field) for field in message.DESCRIPTOR.fields)


def encode_all(messages: "Sequence[Message]") -> list[dict[str, Any]]:
    """Each message as `encode` gives it."""
    return [encode(message) for message in messages]


@dataclass(frozen=True, slots=True)
class FieldShape:
    """How a field of a message appears: under which name, as a time or not, and whether it may be null."""

    name: str
    is_time: bool
    is_nullable: bool


def describe_field(field: Any) -> FieldShape:
    """The shape that `encode` gives the field."""
    name = field.name
    if field.is_repeated:
        return FieldShape(name, False, False)
    if field.message_type is not None:
        return FieldShape(name, False, True)
    if name.endswith("_ms") and name not in _DURATIONS:
        return FieldShape(_time_name(name), True, True)
    return FieldShape(name, False, name in _EMPTY_IS_NULL or name == _SCORE)


def _field(message: "Message", field: Any) -> tuple[str, Any]:
    shape, value = describe_field(field), getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return shape.name, dict(sorted(value.items()))
    if field.is_repeated:
        return shape.name, encode_all(value) if kind else list(value)
    if kind is not None:
        return shape.name, encode(value) if message.HasField(field.name) else None
    if shape.is_time:
        return shape.name, iso_time(value)
    if shape.is_nullable and (value < 0 if field.name == _SCORE else not value):
        return shape.name, None
    return shape.name, value


def _time_name(name: str) -> str:
    stem = name.removesuffix("_ms")
    return stem if stem.endswith(("_at", "_since")) else f"{stem}_at"
