"""Reading ORC data and delete files."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import orc

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess
from amoro_core.files.parquet import BATCH_BYTES, MAX_BATCH_ROWS
from amoro_core.files.schema import FIELD_ID
from amoro_core.model.texts import briefly
from amoro_core.records import record

_ORC_ID = b"iceberg.id"
#: The assumed ratio of decoded to stored size.
_DECODED = 8


@record
class OrcInput:
    """An open ORC file."""

    path: str
    file: orc.ORCFile
    fragment: ds.Fragment
    schema: pa.Schema  # with field ids in the way of Parquet files

    @property
    def rows(self) -> int:
        return int(self.file.nrows)

    def batches(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches of these columns in the file's order, each with the position of its first row.

        Raises UnreadableFile, also for timestamps that do not fit in nanoseconds: Arrow reads them as such.
        """
        names = [name for name in self.schema.names if name in columns]
        kind = pa.schema([self.schema.field(name) for name in names])
        position = 0
        with _reading(self.path):
            for batch in self._whole_stripes() if _has_dots(self.schema) else self._pieces(names):
                arrays = [batch.column(batch.schema.get_field_index(name)) for name in names]
                yield position, pa.RecordBatch.from_arrays(arrays, schema=kind) if names else batch.select([])
                position += batch.num_rows

    def _pieces(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Parts of stripes, which may be large: only the dataset reader decodes them in parts."""
        chosen = list(names) or self.schema.names[:1]
        yield from self.fragment.to_batches(
            columns=chosen, batch_size=self._batch_rows(), batch_readahead=0, use_threads=False
        )

    def _batch_rows(self) -> int:
        """Estimated from the stored size of a row: ORC does not record the decoded size."""
        row_bytes = _DECODED * int(self.file.content_length) // max(1, self.rows)
        return max(1, min(MAX_BATCH_ROWS, BATCH_BYTES // max(1, row_bytes)))

    def _whole_stripes(self) -> Iterator[pa.RecordBatch]:
        """All columns: Arrow takes a selected name with a dot for a path, and reads another column or nulls."""
        for index in range(self.file.nstripes):
            stripe = self.file.read_stripe(index)
            for start in range(0, stripe.num_rows, MAX_BATCH_ROWS):
                yield stripe.slice(start, MAX_BATCH_ROWS)


@contextmanager
def open_orc(access: FileAccess, path: str, content: bytes | None = None) -> Iterator[OrcInput]:
    """The ORC file at `path`, open until the block ends; `content` is its content if that was fetched already.

    Raises DataFileMissing or UnreadableFile.
    """
    with access.open_input(path) if content is None else pa.BufferReader(content) as source:
        with _reading(path):
            file = orc.ORCFile(source)
            schema = pa.schema([_identified(field) for field in file.schema])
            fragment = ds.OrcFileFormat().make_fragment(source)
        yield OrcInput(path, file, fragment, schema)


@contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise UnreadableFile(f"{path} cannot be read as ORC: {briefly(str(error))}") from error


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


def _has_dots(fields: pa.Schema | pa.StructType) -> bool:
    return any("." in field.name or _within(field.type) for field in fields)


def _within(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return _has_dots(kind)
    if pa.types.is_map(kind):
        return _within(kind.key_type) or _within(kind.item_type)
    return bool(pa.types.is_list(kind)) and _within(kind.value_type)
