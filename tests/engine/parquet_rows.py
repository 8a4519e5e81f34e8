"""Rows of one file, Parquet first, as plain Python dictionaries under a given schema, columns found by field id."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

FIELD_ID = b"PARQUET:field_id"
NAME_MAPPING = "schema.name-mapping.default"
T = TypeVar("T")

#: The number of files that stay in memory, and the largest size of one.
MOST, LARGEST_BYTES = 4096, 64 << 10


def once(read: Callable[[str], T]) -> Callable[[str], T]:
    """The function, which reads a small local file again only when it has changed or another one is there.

    Nobody may change what it returns. Raises FileNotFoundError for a file that is gone, whatever was read of it before.
    """

    @lru_cache(MOST)
    def read_once(path: str, _: tuple[int, ...]) -> T:
        return read(path)

    def read_unless_known(path: str) -> T:
        place = local_path(path)
        if "://" in place:
            return read(path)
        stat = os.stat(place)
        if stat.st_size > LARGEST_BYTES:
            return read(path)
        return read_once(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))

    return read_unless_known


def local_path(location: str) -> str:
    """The path of a local file's URI, with one slash or three; a plain path is itself."""
    return re.sub(r"^file:(//)?(?=/)", "", location)


@dataclass(frozen=True, slots=True)
class Node:
    """One field of a file's own schema, at any level."""

    field_id: int | None
    name: str
    children: tuple[Node, ...]

    def child(self, field_id: int) -> Node | None:
        """The direct child with the id."""
        return next((node for node in self.children if node.field_id == field_id), None)


@dataclass(frozen=True, slots=True)
class Rows:
    """The decoded content of one file; `constants` are the identity-partition values by source field id."""

    root: Node
    columns: Mapping[str, Sequence[Any]]
    count: int
    constants: Mapping[int, Any]

    def records(self, kind: StructType) -> list[dict[str, Any]]:
        """The rows in file order, keyed by the names of the given struct."""
        columns = {field.name: self.values(field) for field in kind.fields}
        return [{name: values[position] for name, values in columns.items()} for position in range(self.count)]

    def values(self, field: NestedField) -> list[Any]:
        """One top-level column; where the file lacks it, the partition's value, else the column's default or nulls."""
        node = self.root.child(field.field_id)
        if node is None:
            return [self.constants.get(field.field_id, field.initial_default)] * self.count
        return [_projected(value, node, field.field_type) for value in self.columns[node.name]]

    def leaves(self, path: Sequence[NestedField]) -> list[Any]:
        """The values of one field that lies inside structs, null wherever a level above is null."""
        if len(path) == 1:
            return self.values(path[0])
        return [_below(record, path[1:]) for record in self.values(path[0])]


def read_parquet(path: str, name_mapping: str | None, constants: Mapping[int, Any]) -> Rows:
    """Read the whole file; raises ValueError where it has neither field ids nor a name mapping."""
    return rows_of_columns(path, *_content(path), name_mapping, constants)


@once
def _content(path: str) -> tuple[tuple[Node, ...], Mapping[str, Sequence[Any]], int]:
    """The file's schema, its columns by name, and its number of rows."""
    with open_input(path) as source:
        table = with_whole_nanoseconds(pq.ParquetFile(source, coerce_int96_timestamp_unit="us").read())
    nodes = tuple(_node(field) for field in table.schema)
    columns = {node.name: table.column(position).to_pylist() for position, node in enumerate(nodes)}
    return nodes, columns, table.num_rows


def with_whole_nanoseconds(table: pa.Table) -> pa.Table:
    """The table with nanoseconds as whole numbers: Python's own times have none."""
    for position, field in enumerate(table.schema):
        plain = field.with_type(_plain(field.type))
        if plain.type != field.type:  # Arrow can't cast every struct to itself
            table = table.set_column(position, plain, table.column(position).cast(plain.type))
    return table


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        key, item = (field.with_type(_plain(field.type)) for field in (kind.key_field, kind.item_field))
        return pa.map_(key, item)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    return kind


def rows_of_columns(
    path: str,
    nodes: tuple[Node, ...],
    columns: Mapping[str, Sequence[Any]],
    count: int,
    name_mapping: str | None,
    constants: Mapping[int, Any],
) -> Rows:
    """The columns under their own field ids, else those of the name mapping; raises ValueError without either."""
    if not any(_has_ids(node) for node in nodes):
        if name_mapping is None:
            raise ValueError(f"{path} has no field ids and the table has no name mapping")
        nodes = _mapped(nodes, json.loads(name_mapping))
    return Rows(Node(None, "", nodes), columns, count, constants)


def open_input(location: str) -> pa.NativeFile:
    """The file at the location, in a local directory or in an object store that the environment describes."""
    path = local_path(location)
    if "://" not in path:
        return pa.OSFile(path)
    store, key = FileSystem.from_uri(location)
    return store.open_input_file(key)


def _node(field: pa.Field, name: str | None = None) -> Node:
    field_id = (field.metadata or {}).get(FIELD_ID)
    return Node(int(field_id) if field_id is not None else None, name or field.name, _children(field.type))


def _children(kind: pa.DataType) -> tuple[Node, ...]:
    if pa.types.is_map(kind):
        return (_node(kind.key_field, "key"), _node(kind.item_field, "value"))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return (_node(kind.value_field, "element"),)
    if pa.types.is_struct(kind):
        return tuple(_node(kind.field(position)) for position in range(kind.num_fields))
    return ()


def _has_ids(node: Node) -> bool:
    return node.field_id is not None or any(_has_ids(child) for child in node.children)


def _mapped(nodes: Iterable[Node], mapping: list[dict[str, Any]]) -> tuple[Node, ...]:
    by_name = {name: entry for entry in mapping for name in entry["names"]}
    done = []
    for node in nodes:
        entry = by_name.get(node.name, {})
        done.append(Node(entry.get("field-id"), node.name, _mapped(node.children, entry.get("fields", []))))
    return tuple(done)


def _projected(value: Any, node: Node, kind: IcebergType) -> Any:
    """The file's value reduced to the wanted type: fields by id, missing ones by default."""
    if value is None:
        return None
    match kind:
        case StructType():
            return {field.name: _member(value, node.child(field.field_id), field) for field in kind.fields}
        case ListType():
            return [_projected(item, node.children[0], kind.element_type) for item in value]
        case MapType():
            key, item = node.children
            pairs = _pairs(value)
            return [(_projected(k, key, kind.key_type), _projected(v, item, kind.value_type)) for k, v in pairs]
        case _:
            return value


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """The pairs of a map, which Avro has as a dictionary or as records."""
    if isinstance(value, Mapping):
        return value.items()
    return [(one["key"], one["value"]) if isinstance(one, Mapping) else one for one in value]


def _member(value: Mapping[str, Any], node: Node | None, field: NestedField) -> Any:
    return field.initial_default if node is None else _projected(value[node.name], node, field.field_type)


def _below(record: Any, path: Sequence[NestedField]) -> Any:
    for field in path:
        if record is None:
            return None
        record = record[field.name]
    return record
