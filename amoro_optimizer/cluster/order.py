"""The order of rows that a layout says, over a table's columns."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import TableRefused
from amoro_core.files.schema import arrow_type, key_path, select_ids
from amoro_core.model.clustering import CURVE_VERSION, MAX_CURVE_COLUMNS, Layout, LayoutKey, Strategy
from amoro_core.records import record
from amoro_optimizer.cluster.transforms import transform_parts
from amoro_optimizer.cluster.values import Part, Parts


@record
class _Column:
    path: tuple[int, ...]
    is_optional: bool
    parts: Parts
    key: LayoutKey
    descending: tuple[bool, ...]  # of each part, for binary ones
    is_binary: bool  # one of the parts


class Order:
    """How rows of a schema are compared: column by column, each by one or several parts."""

    def __init__(self, schema: Schema, layout: Layout) -> None:
        """Raises TableRefused(reason="configuration") for columns, transforms or a curve that are not handled."""
        self.schema = schema
        self.layout = layout
        _refuse_unfit(layout)
        self._columns = [_column(schema, key) for key in layout.keys]
        #: For each column, of each of its parts, whether it orders from the greatest value on.
        self.descending = tuple(column.descending for column in self._columns)

    @property
    def is_curve(self) -> bool:
        """Whether the columns' ranks make a place on a curve."""
        return self.layout.strategy is not Strategy.LINEAR

    @property
    def compares_texts(self) -> bool:
        """Whether rows are compared by whole texts or other binary values of any length."""
        return not self.is_curve and any(column.is_binary for column in self._columns)

    def of_keys(self) -> "Order":
        """The same order of rows that have the columns of `key_schema` alone."""
        return Order(self.key_schema(), self.layout)

    def key_schema(self) -> Schema:
        """The schema with the columns of the layout alone."""
        return select_ids(self.schema, {key.field_id for key in self.layout.keys})

    def parts(self, batch: pa.RecordBatch) -> list[list[Part]]:
        """For each column of the layout what its rows are compared by, in ascending order; never null.

        Binary parts of descending columns are left as they are: `descending` tells.
        """
        return [_parts(column, batch) for column in self._columns]


def _refuse_unfit(layout: Layout) -> None:
    columns = len(layout.keys)
    if not columns:
        raise TableRefused("a layout without columns orders nothing", reason="configuration")
    if layout.strategy is Strategy.LINEAR:
        return
    if columns > MAX_CURVE_COLUMNS:
        raise TableRefused(
            f"a curve takes at most {MAX_CURVE_COLUMNS} columns, not {columns}",
            reason="configuration",
            hint="Name fewer columns, or set self-optimizing.cluster.strategy to linear.",
        )
    if layout.curve_version != CURVE_VERSION:
        raise TableRefused(
            f"curves of version {layout.curve_version} are not known, only those of version {CURVE_VERSION}",
            reason="configuration",
            hint="Run optimizers of the coordinator's version.",
        )


def _column(schema: Schema, key: LayoutKey) -> _Column:
    path = key_path(schema.fields, key.field_id)
    if path is None:
        raise TableRefused(
            f"rows can't be ordered by column id {key.field_id}, which is no primitive column outside lists and maps",
            reason="configuration",
        )
    fields, is_optional = schema.fields, False
    for index in path:
        field = fields[index]
        is_optional = is_optional or not field.required
        fields = getattr(field.field_type, "fields", ())
    parts = transform_parts(key.transform, field.field_type)
    kind = arrow_type(field.field_type)
    none = pa.array([], kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind)
    binary = [not isinstance(part, np.ndarray) for part in parts(none)]
    turned = [key.descending and one for one in binary]
    return _Column(path, is_optional, parts, key, (*([False] if is_optional else []), *turned), any(binary))


def _parts(column: _Column, batch: pa.RecordBatch) -> list[Part]:
    array = batch.column(column.path[0])
    for index in column.path[1:]:
        array = array.flatten()[index]
    parts = [~part if column.key.descending and isinstance(part, np.ndarray) else part for part in column.parts(array)]
    if not column.is_optional:
        return parts
    if not array.null_count:
        flags = np.full(len(array), not column.key.nulls_last, np.uint64)
        return [flags, *parts]
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    for part in parts:
        if isinstance(part, np.ndarray):
            part[nulls] = 0
    return [(nulls == column.key.nulls_last).astype(np.uint64), *parts]


def flat(parts: Sequence[Sequence[Part]]) -> list[Part]:
    """The parts of all columns, one after the other."""
    return [part for column in parts for part in column]
