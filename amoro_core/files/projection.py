"""Projection of a file's columns onto a table's schema, by field id at each level."""

from collections.abc import Sequence
from dataclasses import field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import ListType, MapType, NestedField, StructType

from amoro_core.errors import TableRefused, UnreadableFile
from amoro_core.files.conversions import converted, without_validity
from amoro_core.files.defaults import default_array
from amoro_core.files.partitions import Constants
from amoro_core.files.schema import FIELD_ID, arrow_schema
from amoro_core.records import record

_NO_CONSTANTS: Constants = {}


@record
class FileField:
    """A field of a file with its Iceberg id; children as Arrow orders them (list: element, map: key and value)."""

    field_id: int | None
    children: tuple["FileField", ...] = ()

    def child(self, field_id: int) -> int | None:
        """The index of the child with that id."""
        return _index_of(self.children, field_id)


class _Fields:
    """The fields of batches, which mostly have the schema of the one before."""

    def __init__(self, mapping: NameMapping | None) -> None:
        self._mapping = mapping
        self._last: tuple[pa.Schema, FileField] | None = None

    def of(self, columns: pa.Schema) -> FileField:
        """The columns as children of one field."""
        last = self._last
        if last is None or not last[0].equals(columns, check_metadata=True):
            last = self._last = columns, FileField(None, _identified(columns, self._mapping))
        return last[1]


@record
class Projection:
    """The projection of batches of files with one schema onto a table's schema."""

    schema: Schema
    columns: tuple[str, ...]  # the files' columns to read
    mapping: NameMapping | None  # None: the files have field ids
    constants: Constants = field(default_factory=dict)
    arrow: pa.Schema = field(init=False)
    _fields: _Fields = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow", arrow_schema(self.schema))
        object.__setattr__(self, "_fields", _Fields(self.mapping))

    def kind_of(self, field_id: int) -> pa.DataType | None:
        """The type in which a column of the top level is wanted; None where the schema has no such column."""
        return next(
            (kind.type for one, kind in zip(self.schema.fields, self.arrow, strict=True) if one.field_id == field_id),
            None,
        )

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the batch in the schema's columns and types.

        Raises UnreadableFile when a value cannot be read as the schema's type, or a required one is missing.
        """
        identified = self._fields.of(batch.schema)
        arrays = []
        for wanted, target in zip(self.schema.fields, self.arrow, strict=True):
            index = identified.child(wanted.field_id)
            if index is None:
                arrays.append(_missing(wanted, target, batch.num_rows, self.constants))
            else:
                found = identified.children[index]
                arrays.append(_projected(batch.column(index), found, wanted, target, self.constants, None))
        if not arrays:
            return batch.select([])
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def bind(
    schema: Schema, file_schema: pa.Schema, mapping: NameMapping | None, constants: Constants, path: str
) -> Projection:
    """The projection of the file at `path`, with `file_schema`, onto `schema`.

    A file with any field id is read by ids; one without ids, by the mapping.
    Raises TableRefused(reason="field-ids") when the file has no ids and the table no mapping, or when two of its
    columns have the same id of the schema.
    """
    used = None if _has_ids(file_schema) else mapping
    if used is None and not _has_ids(file_schema):
        raise TableRefused(
            f"{path} has no field ids, and the table has no name mapping to read it by",
            reason="field-ids",
            hint="set schema.name-mapping.default on the table",
        )
    _refuse_twice(_identified(file_schema, used), schema, path)
    wanted = {column.field_id for column in schema.fields}
    names = zip(file_schema.names, _identified(file_schema, used), strict=True)
    columns = tuple(name for name, found in names if found.field_id in wanted)
    return Projection(schema, columns, used, constants)


def _refuse_twice(fields: Sequence[FileField], schema: Schema, path: str) -> None:
    """Refuse two columns with the same id: some readers take the first, others the last."""
    seen: set[int] = set()
    waiting = list(fields)
    while waiting:
        one = waiting.pop()
        waiting += one.children
        if one.field_id is None:
            continue
        if one.field_id in seen and one.field_id in schema.field_ids:
            raise TableRefused(
                f"{path} has two columns with the field id {one.field_id} ({schema.find_column_name(one.field_id)})",
                reason="field-ids",
                hint="Rewrite the file with the engine that wrote it.",
            )
        seen.add(one.field_id)


def held_ids(projection: Projection, file_schema: pa.Schema) -> frozenset[int]:
    """The ids of all fields, nested ones included, that a file with this schema holds."""
    ids: set[int] = set()
    open_fields = list(_identified(file_schema, projection.mapping))
    while open_fields:
        one = open_fields.pop()
        if one.field_id is not None:
            ids.add(one.field_id)
        open_fields.extend(one.children)
    return frozenset(ids)


def held_columns(projection: Projection, file_schema: pa.Schema) -> tuple[tuple[str, int | None], ...]:
    """Name and id of each top-level column of a file with this schema."""
    found = _identified(file_schema, projection.mapping)
    return tuple(zip(file_schema.names, (one.field_id for one in found), strict=True))


def leaf_ids(file_schema: pa.Schema) -> tuple[tuple[int | None, bool], ...]:
    """The field id of each leaf column in the file's order, and whether it is repeated (in a list or map)."""
    return tuple(leaf for column in file_schema for leaf in _leaves(column, False))


def _leaves(column: pa.Field, repeated: bool) -> list[tuple[int | None, bool]]:
    inner = _children(column.type)
    if not inner:
        return [(_own_id(column), repeated)]
    below = repeated or not pa.types.is_struct(column.type)
    return [leaf for child in inner for leaf in _leaves(child, below)]


def _children(kind: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _is_list(kind):
        return [kind.value_field]
    return []


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _own_id(column: pa.Field) -> int | None:
    text = (column.metadata or {}).get(FIELD_ID)
    return int(text) if text is not None else None


def _has_ids(columns: pa.Schema) -> bool:
    return any(_own_id(column) is not None or _has_ids(_children(column.type)) for column in columns)


def _identified(columns: pa.Schema, mapping: NameMapping | None) -> tuple[FileField, ...]:
    if mapping is None:
        return tuple(_by_id(column) for column in columns)
    return _by_name(columns, mapping.root)


def _by_id(column: pa.Field) -> FileField:
    return FileField(_own_id(column), tuple(_by_id(child) for child in _children(column.type)))


def _by_name(columns: pa.Schema, mapped: Sequence[MappedField]) -> tuple[FileField, ...]:
    known = {name: entry for entry in mapped for name in entry.names}
    found = []
    for column in columns:
        entry = known.get(column.name)
        inner = _children(column.type)
        if not pa.types.is_struct(column.type):
            # writers name elements, keys and values differently; a mapping only knows these names
            names = ("element",) if len(inner) == 1 else ("key", "value")
            inner = [child.with_name(name) for child, name in zip(inner, names, strict=False)]
        below = _by_name(inner, entry.fields if entry is not None else ())
        found.append(FileField(entry.field_id if entry is not None else None, below))
    return tuple(found)


def _index_of(fields: Sequence[FileField], field_id: int) -> int | None:
    for index, one in enumerate(fields):
        if one.field_id == field_id:
            return index
    return None


def _missing(wanted: NestedField, target: pa.Field, rows: int, constants: Constants) -> pa.Array:
    """The partition's value, else the column's default, else nulls."""
    constant = constants.get(wanted.field_id)
    if constant is None:
        constant = default_array(wanted)
    if constant is not None:
        return constant.take(pa.array(np.zeros(rows, np.int64)))
    if wanted.required and rows:
        raise UnreadableFile(f"the required column {wanted.name} (id {wanted.field_id}) is missing")
    return _nulls(rows, target.type)


def _nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """Nulls whose required members are not null themselves: the Parquet writer checks each level separately."""
    if not pa.types.is_struct(kind):
        return pa.nulls(rows, kind)
    children = [
        _nulls(rows, inner.type) if inner.nullable else without_validity(_nulls(rows, inner.type)) for inner in kind
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(np.ones(rows, np.bool_)))


def _projected(
    array: pa.Array,
    found: FileField,
    wanted: NestedField,
    target: pa.Field,
    constants: Constants,
    outer_nulls: pa.Array | None,
) -> pa.Array:
    """The array as `wanted`. Where `outer_nulls` is true an enclosing struct is null, so the value may be null too."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    nulls = array.is_null() if array.null_count else None
    if wanted.required and nulls is not None:
        _require_none(nulls, outer_nulls, wanted)
    kind = wanted.field_type
    if isinstance(kind, StructType) and pa.types.is_struct(array.type):
        return _projected_struct(array, found, kind, wanted.required, target, constants, nulls, outer_nulls)
    if isinstance(kind, ListType) and _is_list(array.type):
        return _projected_list(array, found, kind, wanted.required, target)
    if isinstance(kind, MapType) and pa.types.is_map(array.type):
        return _projected_map(array, found, kind, wanted.required, target)
    return converted(array, wanted, target.type, drop_nulls=wanted.required and nulls is not None)


def _require_none(nulls: pa.Array, outer_nulls: pa.Array | None, wanted: NestedField) -> None:
    covered = outer_nulls is not None and not pc.any(pc.and_not(nulls, outer_nulls)).as_py()
    if not covered:
        raise UnreadableFile(f"the required column {wanted.name} (id {wanted.field_id}) has nulls")


def _projected_struct(
    array: pa.Array,
    found: FileField,
    kind: StructType,
    required: bool,
    target: pa.Field,
    constants: Constants,
    nulls: pa.Array | None,
    outer_nulls: pa.Array | None,
) -> pa.Array:
    hidden = nulls if outer_nulls is None else outer_nulls if nulls is None else pc.or_(nulls, outer_nulls)
    children = []
    for index, wanted in enumerate(kind.fields):
        inner = target.type.field(index)
        position = found.child(wanted.field_id)
        if position is None:
            children.append(_missing(wanted, inner, len(array), constants))
        else:
            below = array.field(position)
            children.append(_projected(below, found.children[position], wanted, inner, constants, hidden))
    mask = None if required else nulls
    return pa.StructArray.from_arrays(children, fields=list(target.type), mask=mask)


def _projected_list(array: pa.Array, found: FileField, kind: ListType, required: bool, target: pa.Field) -> pa.Array:
    if not pa.types.is_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    validity, offsets = array.buffers()[:2]
    element = target.type.value_field
    values = _element(array.values, found.children[0], kind.element_field, element)
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[values]
    )


def _projected_map(array: pa.Array, found: FileField, kind: MapType, required: bool, target: pa.Field) -> pa.Array:
    validity, offsets = array.buffers()[:2]
    key_field, item_field = target.type.key_field, target.type.item_field
    keys = _element(array.keys, found.children[0], kind.key_field, key_field)
    items = _element(array.items, found.children[1], kind.value_field, item_field)
    entries = pa.StructArray.from_arrays([keys, items], fields=[key_field, item_field])
    return pa.Array.from_buffers(
        target.type, len(array), [None if required else validity, offsets], offset=array.offset, children=[entries]
    )


def _element(values: pa.Array, found: FileField, wanted: NestedField, target: pa.Field) -> pa.Array:
    if found.field_id != wanted.field_id:
        raise UnreadableFile(f"the {wanted.name} of a list or map has id {found.field_id}, not {wanted.field_id}")
    return _projected(values, found, wanted, target, _NO_CONSTANTS, None)
