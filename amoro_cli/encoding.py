"""Messages of the admin service as the plain data that programs get.

Keys are the proto's. Times end in `_at` instead of `_ms` and are ISO 8601 in UTC; what never happened and ids
that there are none of are null; other numbers are exact.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from amoro_cli.quantities import iso_time

if TYPE_CHECKING:
    from google.protobuf.message import Message

_EMPTY_IS_NULL = {"process_id", "optimizer_id", "type", "snapshot_id", "base_snapshot_id", "parent_snapshot_id"}
_DURATIONS = {"duration_ms"}


def encode(message: "Message") -> dict[str, Any]:
    """The message as a dictionary in the order of its fields."""
    return dict(_field(message, field) for field in message.DESCRIPTOR.fields)


def encode_all(messages: "Sequence[Message]") -> list[dict[str, Any]]:
    return [encode(message) for message in messages]


def _field(message: "Message", field: Any) -> tuple[str, Any]:
    name, value = field.name, getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return name, dict(sorted(value.items()))
    if field.is_repeated:
        return name, encode_all(value) if kind else list(value)
    if kind is not None:
        return name, encode(value) if message.HasField(name) else None
    if name.endswith("_ms") and name not in _DURATIONS:
        return _time_name(name), iso_time(value)
    if name in _EMPTY_IS_NULL and not value:
        return name, None
    if name == "health_score" and value < 0:
        return name, None
    return name, value


def _time_name(name: str) -> str:
    stem = name.removesuffix("_ms")
    return stem if stem.endswith(("_at", "_since")) else f"{stem}_at"
