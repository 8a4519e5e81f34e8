"""Reading ORC data and delete files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
from pyarrow import orc

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess
from amoro_core.files.parquet import MAX_BATCH_ROWS
from amoro_core.files.schema import FIELD_ID

_ORC_ID = b"iceberg.id"


@dataclass(frozen=True, slots=True)
class OrcInput:
    """An open ORC file."""

    path: str
    file: orc.ORCFile
    schema: pa.Schema  # with the field ids where Parquet files have them

    @property
    def rows(self) -> int:
        return int(self.file.nrows)

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of these columns in the file's order, each with the position of its first row.

        Raises UnreadableFile, for moments that do not fit in nanoseconds too: Arrow reads them as such.
        """
        names = [name for name in self.schema.names if name in columns]
        kind = pa.schema([self.schema.field(name) for name in names])
        position = 0
        for index in range(self.file.nstripes):
            with _reading(self.path):
                stripe = self.file.read_stripe(index, columns=names or self.schema.names[:1])
                rows = stripe.num_rows
                arrays = [stripe.column(stripe.schema.get_field_index(name)) for name in names]
                batch = pa.RecordBatch.from_arrays(arrays, schema=kind) if names else stripe.select([])
            for start in range(0, rows, MAX_BATCH_ROWS):
                yield position + start, batch.slice(start, MAX_BATCH_ROWS)
            position += rows


@contextmanager
def open_orc(access: FileAccess, path: str) -> Iterator[OrcInput]:
    """The ORC file at `path`, open until the block ends. Raises DataFileMissing or UnreadableFile."""
    with access.open_input(path) as source:
        with _reading(path):
            file = orc.ORCFile(source)
            schema = pa.schema([_identified(field) for field in file.schema])
        yield OrcInput(path, file, schema)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} cannot be read as ORC: {error}") from error


def _identified(field: pa.Field) -> pa.Field:
    found = (field.metadata or {}).get(_ORC_ID)
    metadata = None if found is None else {FIELD_ID: found}
    return pa.field(field.name, _with_ids(field.type), nullable=field.nullable, metadata=metadata)


def _with_ids(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_identified(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(_identified(kind.key_field), _identified(kind.item_field))
    if pa.types.is_list(kind):
        return pa.list_(_identified(kind.value_field))
    return kind
