"""Files of the demo's table: rows by partition, equality deletes by key, position deletes."""

import uuid
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType

from amoro_core.demo.flights import FLIGHT_ID, Ids, months_of
from amoro_core.files.deletes import write_position_deletes
from amoro_core.files.io import open_access
from amoro_core.files.options import writer_options
from amoro_core.files.schema import arrow_schema, select_ids
from amoro_core.files.writing import ParquetOutput, WrittenFile
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, Partition

#: A commit gives its files their sequence number.
_UNNUMBERED = 0


class TableFiles:
    """Writes and reads files of one table; new files are not part of the table before a commit."""

    def __init__(self, table: Table) -> None:
        metadata = table.metadata
        self._data = f"{metadata.location}/data"
        self._spec_id = metadata.default_spec_id
        self._schema = metadata.schema()
        self._keys = select_ids(self._schema, [FLIGHT_ID])
        self._options = writer_options(metadata.properties)
        places = [metadata.location]
        self._access = open_access({}, metadata.location, read_locations=places, write_locations=places)

    def write_rows(self, rows: pa.Table) -> list[DataFile]:
        """One new data file for each month of the rows."""
        files = []
        for month, chosen in _by_month(months_of(rows)):
            written = self._write(self._schema, rows.take(pa.array(chosen)))
            files.append(
                DataFile(
                    path=written.path,
                    file_format=FileFormat.PARQUET,
                    spec_id=self._spec_id,
                    partition=_partition(month),
                    record_count=written.record_count,
                    size_bytes=written.size_bytes,
                    sequence_number=_UNNUMBERED,
                    metrics=written.metrics,
                    split_offsets=written.split_offsets,
                )
            )
        return files

    def write_equality_deletes(self, ids: Ids, months: Ids) -> list[DeleteFile]:
        """One new equality delete file for each of the months, with the ids of the flights in it."""
        files = []
        for month, chosen in _by_month(months):
            written = self._write(self._keys, pa.table({"flight_id": ids[chosen]}))
            files.append(
                DeleteFile(
                    path=written.path,
                    kind=DeleteKind.EQUALITY,
                    file_format=FileFormat.PARQUET,
                    spec_id=self._spec_id,
                    partition=_partition(month),
                    record_count=written.record_count,
                    size_bytes=written.size_bytes,
                    sequence_number=_UNNUMBERED,
                    equality_ids=(FLIGHT_ID,),
                    metrics=written.metrics,
                    split_offsets=written.split_offsets,
                )
            )
        return files

    def write_position_deletes(self, data: DataFile, positions: npt.NDArray[np.int64]) -> DeleteFile:
        """A new delete file for rows of one data file."""
        return write_position_deletes(self._access, self._new_path(), data, positions, _UNNUMBERED, self._options)

    def read_versions(self, data: DataFile) -> tuple[Ids, Ids]:
        """Ids and revisions of all rows of a data file in order, including deleted ones."""
        with self._access.open_input(data.path) as stream:
            rows = pq.read_table(stream, columns=["flight_id", "revision"])
        return rows["flight_id"].to_numpy(), rows["revision"].to_numpy().astype(np.int64)

    def _write(self, schema: Schema, rows: pa.Table) -> WrittenFile:
        output = ParquetOutput(self._access, self._new_path(), schema, self._options)
        for batch in rows.cast(arrow_schema(schema)).combine_chunks().to_batches():
            output.write(batch)
        return output.close()

    def _new_path(self) -> str:
        return f"{self._data}/{uuid.uuid4()}.parquet"


def month_of(file: DataFile) -> int:
    """The month of all rows of the file, counted since 1970-01."""
    (value,) = file.partition
    return int.from_bytes(value or b"", "little", signed=True)


def _by_month(months: Ids) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Each month with the indexes at which it occurs."""
    for month in np.unique(months):
        yield int(month), np.flatnonzero(months == month)


def _partition(month: int) -> Partition:
    return (to_bytes(IntegerType(), month),)
