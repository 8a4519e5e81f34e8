"""Reading single rows of a group's files by their positions."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.io import FileAccess, reading_file
from amoro_core.files.lineage import has_lineage, with_lineage
from amoro_core.files.opening import RowSource, open_rows
from amoro_core.files.parquet import ParquetInput
from amoro_core.files.partitions import identity_constants
from amoro_core.files.projection import Projection, bind
from amoro_core.files.schema import parse_name_mapping, parse_rows_schema, parse_spec
from amoro_core.model.files import DataFile
from amoro_core.model.rewrite import RewriteInput
from amoro_core.records import record

Positions = npt.NDArray[np.int64]


class RowsTooLarge(ValueError):
    """Rows take more memory than they may."""


class RowReader:
    """Reads rows of the inputs and outputs of one group."""

    def __init__(self, access: FileAccess, work: RewriteInput) -> None:
        self.schema = parse_rows_schema(work.table.schema_json)
        self.mapping = parse_name_mapping(work.table.name_mapping_json)
        self._access = access
        partition = work.rewritten[0].data.partition  # all files share one
        self._constants = identity_constants(parse_spec(work.table.spec_json), partition, self.schema)

    def rows_at(self, file: DataFile, positions: Positions, schema: Schema, most_bytes: int) -> pa.RecordBatch:
        """The rows at these positions, ascending, in the columns of the schema; with lineage where it has that.

        Raises RowsTooLarge beyond `most_bytes`, UnreadableFile, DataFileMissing, TableRefused("field-ids").
        """
        parts: list[pa.RecordBatch] = []
        size = 0
        with self.opened(file, schema) as opened:
            for first, batch in opened.batches(positions):
                start, end = np.searchsorted(positions, [first, first + batch.num_rows])
                chosen = positions[start:end]
                rows = opened.projected(batch.take(pa.array(chosen - first)))
                parts.append(with_lineage(rows, chosen, file) if has_lineage(schema) else rows)
                size += int(rows.nbytes)
                if size > most_bytes:
                    raise RowsTooLarge(f"{len(positions)} rows of {file.path} take more than {most_bytes} bytes")
        found = pa.concat_batches(parts)
        if found.num_rows != len(positions):
            raise UnreadableFile(f"{file.path} has {found.num_rows} of the {len(positions)} rows that are looked for")
        return found

    @contextmanager
    def opened(self, file: DataFile, schema: Schema) -> Iterator["OpenedRows"]:
        """The file, open until the block ends, to be read in the columns of the schema."""
        with open_rows(self._access, file, None) as source:
            if source.rows != file.record_count:
                raise UnreadableFile(f"{file.path} has {source.rows} rows, but the manifest says {file.record_count}")
            yield OpenedRows(source, bind(schema, source.schema, self.mapping, self._constants, file.path))


@record
class OpenedRows:
    """An open file with the columns in which its rows are wanted."""

    source: RowSource
    projection: Projection

    def batches(self, positions: Positions | None = None) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Batches as they are stored, each with the position of its first row.

        Those that hold any of the positions, which are ascending; None: all.
        """
        columns = self.projection.columns or self.source.schema.names[:1]  # of no column there are no rows
        if positions is None:
            yield from self.source.batches(columns)
            return
        for first, batch in self.source.batches(columns, self._groups_of(positions)):
            start, end = np.searchsorted(positions, [first, first + batch.num_rows])
            if start < end:
                yield first, batch

    def projected(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a stored batch in the columns that are wanted."""
        with reading_file(self.source.path):
            return self.projection.apply(batch)

    def _groups_of(self, positions: Positions) -> Sequence[int] | None:
        if not isinstance(self.source, ParquetInput):
            return None
        metadata = self.source.file.metadata
        ends = list(accumulate(metadata.row_group(at).num_rows for at in range(metadata.num_row_groups)))
        found: list[int] = np.unique(np.searchsorted(ends, positions, side="right")).tolist()
        return found
