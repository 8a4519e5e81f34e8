"""The lineage of rows in files: what a table's files hold beside its columns, and what a row's lineage is.

A row's id is the stored one, else the file's first row id and the row's position; a row was updated last by the stored
sequence number, else by the file's data sequence number (Iceberg's specification, row lineage). Both hold row by row: a
file may store some and lack others.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.model.files import DataFile
from amoro_core.model.lineage import FORMAT_WITH_LINEAGE, LINEAGE_IDS, LINEAGE_NAMES

Positions = npt.NDArray[np.int64]


def written_schema(schema: Schema, format_version: int) -> Schema:
    """The columns of the data files that are written for a table: its own, with lineage from format 3 on.

    Readers know the two by their field ids. A column of the table that has the name of one is told apart by its id, and
    the other is written under a longer name.
    """
    if format_version < FORMAT_WITH_LINEAGE:
        return schema
    taken = {field.name for field in schema.fields}
    fields = []
    for field_id, name in zip(LINEAGE_IDS, LINEAGE_NAMES, strict=True):
        while name in taken:
            name += "_"
        fields.append(NestedField(field_id, name, LongType(), required=False))
    return Schema(*schema.fields, *fields, schema_id=schema.schema_id)


def has_lineage(schema: Schema) -> bool:
    """Whether the schema is one of files that hold lineage."""
    return tuple(field.field_id for field in schema.fields[-len(LINEAGE_IDS) :]) == LINEAGE_IDS


def lineage_of(schema: Schema) -> Schema:
    """The two columns of a schema that has them."""
    return Schema(*schema.fields[-len(LINEAGE_IDS) :])


def with_lineage(batch: pa.RecordBatch, positions: Positions, file: DataFile) -> pa.RecordBatch:
    """The file's rows, whose last columns are lineage as it is stored or null, with the lineage that they have.

    `positions` are those of the rows in the file, deleted ones counted. A row without an id keeps none where its file
    has no first row id: the next commit gives it one.
    """
    *columns, ids, numbers = batch.columns
    if file.first_row_id is not None and ids.null_count:
        ids = _completed(ids, pa.array(positions + file.first_row_id))
    if numbers.null_count:
        numbers = _completed(numbers, pa.array(np.full(len(numbers), file.sequence_number, np.int64)))
    return pa.RecordBatch.from_arrays([*columns, ids, numbers], schema=batch.schema)


def _completed(stored: pa.Array, made: pa.Array) -> pa.Array:
    return made if stored.null_count == len(stored) else pc.coalesce(stored, made)
