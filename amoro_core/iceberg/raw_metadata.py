"""What a table's metadata says in its JSON that pyiceberg's model loses or fails on: refused by name.

Most metadata is not parsed a second time: only text that has the key of something lost is, and text that the model
could not be made of.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pyiceberg.types import NestedField, PrimitiveType

from amoro_core.errors import TableRefused
from amoro_core.files.defaults import unusable_default

#: Keys that the model drops, or of which it takes a part only.
_LOST = ('"encryption-keys"', '"key-id"', '"source-ids"')
_LOST_BYTES = tuple(key.encode() for key in _LOST)
_FORMATS = (1, 2, 3)
_TYPES = ("variant", "geometry", "geography")
_DEFAULTS = ("initial-default", "write-default")

_Json = Mapping[str, Any]


def refuse_lost(text: str | bytes) -> None:
    """Raise TableRefused ("encryption", "transform") for what the model would lose of the metadata without a word.

    `text` is a metadata file, or a REST catalog's answer that holds its content.
    """
    found = any(key in text for key in _LOST) if isinstance(text, str) else any(key in text for key in _LOST_BYTES)
    if found:
        _refuse(text, is_lost=True)


def refuse_unmodelled(text: str | bytes) -> None:
    """Raise TableRefused ("encryption", "transform", "type", "default") for what the model can't be made of.

    Does nothing for metadata in which no reason is found, or of which the format is not known.
    """
    _refuse(text, is_lost=False)


def _refuse(text: str | bytes, *, is_lost: bool) -> None:
    # Whatever else is wrong with the metadata is told by whoever makes the model of it.
    with suppress(ValueError, TypeError, KeyError, AttributeError, RecursionError):
        found = json.loads(text)
        metadata = found.get("metadata", found)
        if metadata["format-version"] in _FORMATS:
            _refuse_encryption(metadata)
            _refuse_several_columns(metadata)
            if not is_lost:
                _refuse_types(metadata)
                _refuse_defaults(metadata)


def _refuse_encryption(metadata: _Json) -> None:
    keyed = next((one["snapshot-id"] for one in metadata.get("snapshots") or () if one.get("key-id") is not None), None)
    if not metadata.get("encryption-keys") and keyed is None:
        return
    what = "the metadata has encryption-keys" if keyed is None else f"snapshot {keyed} has a key-id"
    raise TableRefused(
        f"the table is encrypted: {what}", reason="encryption", hint="Encrypted tables can't be optimized yet."
    )


def _refuse_several_columns(metadata: _Json) -> None:
    for spec in metadata.get("partition-specs") or ():
        for field in spec["fields"]:
            _refuse_sources(field, f"partition field {field['name']} of spec {spec['spec-id']}")
    for order in metadata.get("sort-orders") or ():
        for number, field in enumerate(order["fields"], start=1):
            _refuse_sources(field, f"field {number} of sort order {order['order-id']}")


def _refuse_sources(field: _Json, where: str) -> None:
    sources = field.get("source-ids") or ()
    if len(sources) > 1:
        raise TableRefused(
            f"{where} has the transform {field['transform']} of {len(sources)} columns,"
            f" {', '.join(map(str, sources))} by their ids, and only transforms of one column are handled",
            reason="transform",
        )


def _refuse_types(metadata: _Json) -> None:
    for where, column in _columns(metadata):
        kind = column["type"]
        if isinstance(kind, str) and kind.startswith(_TYPES):
            raise TableRefused(f"{where} has the type {kind}, which is not handled", reason="type")


def _refuse_defaults(metadata: _Json) -> None:
    for where, column in _columns(metadata):
        for key in _DEFAULTS:
            value = column.get(key)
            if value is None:
                continue
            problem = _problem(column["type"], value)
            if problem:
                raise TableRefused(f"{where} has the {key} {value!r}, {problem}", reason="default")


def _problem(kind: Any, value: Any) -> str | None:
    if not isinstance(kind, str):
        return f"and defaults of a {kind['type']} are not handled"
    known = NestedField(1, "column", kind).field_type
    why = unusable_default(known, value) if isinstance(known, PrimitiveType) else None
    return None if why is None else f"which can't be read as {kind}: {why}"


def _columns(metadata: _Json) -> Iterator[tuple[str, _Json]]:
    """Every field of every schema, the current one first, with words for it."""
    current = metadata["current-schema-id"]
    for schema in sorted(metadata["schemas"], key=lambda one: bool(one.get("schema-id") != current)):
        number = schema.get("schema-id")
        for name, field in _fields(schema, ""):
            yield f"column {name}" if number == current else f"column {name} of schema {number}", field


def _fields(struct: _Json, prefix: str) -> Iterator[tuple[str, _Json]]:
    for field in struct["fields"]:
        yield from _within(field, f"{prefix}{field['name']}")


def _within(field: _Json, name: str) -> Iterator[tuple[str, _Json]]:
    yield name, field
    kind = field["type"]
    if isinstance(kind, str):
        return
    match kind["type"]:
        case "struct":
            yield from _fields(kind, f"{name}.")
        case "list":
            yield from _within({"type": kind["element"]}, f"{name}.element")
        case "map":
            yield from _within({"type": kind["key"]}, f"{name}.key")
            yield from _within({"type": kind["value"]}, f"{name}.value")
