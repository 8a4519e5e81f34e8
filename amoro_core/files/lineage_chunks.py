"""The lineage of copied row groups: where a file stores it for every row it is copied, else it is made anew."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from amoro_core.files.copy_source import Agreement, CopySource, NotCopied
from amoro_core.files.encoding import column_encodings
from amoro_core.files.lineage import with_lineage
from amoro_core.files.options import WriterOptions
from amoro_core.files.parquet_format import Struct
from amoro_core.files.progressions import MadeChunk, Progression, progression_chunk
from amoro_core.model.files import DataFile
from amoro_core.model.lineage import LINEAGE_IDS
from amoro_core.records import record

#: What the lineage of a row takes in memory while it is made.
_ROW_BYTES = 64


@record
class GroupLineage:
    """Where the lineage of a row group's rows comes from."""

    file: DataFile
    first: int  # the position in the file of the row group's first row
    rows: int
    stored: Callable[[], pa.Table]  # reads both columns of these rows: what the file stores, else null


@record
class Columns:
    """The leaf columns of a file by their numbers: the table's, and the lineage that it stores."""

    own: tuple[int, ...]
    agreement: Agreement  # of the table's columns
    lineage: tuple[int, ...] = ()  # in the order of the ids; a file may store one of the two
    lineage_agreement: Agreement = ()

    @classmethod
    def of(cls, source: CopySource, *, with_lineage: bool) -> "Columns":
        """Those of the file; without lineage all are the table's.

        Raises NotCopied where it has one of the two twice, or before a column of the table: row groups name the columns
        that they are sorted by with their numbers.
        """
        if not with_lineage:
            return cls(tuple(range(len(source.leaves))), source.agreement)
        own: list[int] = []
        kept: list[object] = []
        found: dict[int, tuple[int, object]] = {}
        leaf = -1
        for element, said in zip(source.footer.schema[1:], source.agreement, strict=True):
            leaf += not element.num_children
            if element.field_id in LINEAGE_IDS and not element.num_children:
                if element.field_id in found:
                    raise NotCopied(f"two of its columns have the field id {element.field_id}")
                found[element.field_id] = (leaf, said)
                continue
            if found:
                raise NotCopied("the lineage that it stores is not behind its columns")
            kept.append(said)
            if not element.num_children:
                own.append(leaf)
        ordered = [found[field_id] for field_id in LINEAGE_IDS if field_id in found]
        return cls(tuple(own), tuple(kept), tuple(one for one, _ in ordered), tuple(said for _, said in ordered))

    def tell_every_row(self, group: Struct, written: "Columns") -> bool:
        """Whether the row group stores lineage as it is written, and by its statistics for every row."""
        if self.lineage_agreement != written.lineage_agreement:
            return False
        told = [group.columns[leaf].meta_data.statistics for leaf in self.lineage]
        return all(one is not None and one.null_count == 0 for one in told)


def made_lineage(given: GroupLineage, names: Sequence[bytes], page_rows: int) -> tuple[MadeChunk, MadeChunk] | None:
    """Both columns of a row group whose file stores neither, to be written one after the other; None without ids."""
    if given.file.first_row_id is None:
        return None
    ids = Progression(given.file.first_row_id + given.first, 1)
    one = progression_chunk(ids, given.rows, (names[0],), page_rows, 0)
    updates = Progression(given.file.sequence_number, 0)
    return one, progression_chunk(updates, given.rows, (names[1],), page_rows, len(one.content))


def encoded_lineage(
    given: GroupLineage, columns: Columns, kind: pa.Schema, options: WriterOptions, memory_bytes: int
) -> bytes:
    """A Parquet file of one row group, which has both columns of a row group's rows alone, in the schema `kind`.

    Raises NotCopied beyond the memory, and what reading the stored ones raises.
    """
    if given.rows * _ROW_BYTES > memory_bytes:
        raise NotCopied("the lineage of its rows exceeds the memory")
    if columns.lineage:
        (stored,) = given.stored().combine_chunks().to_batches()
    else:
        stored = pa.RecordBatch.from_arrays([pa.nulls(given.rows, pa.int64())] * len(kind), schema=kind)
    rows = pa.Table.from_batches([with_lineage(stored, np.arange(given.rows) + given.first, given.file)])
    encodings = column_encodings(kind)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        kind,
        compression=options.codec,
        compression_level=options.level,
        max_rows_per_page=options.page_rows,
        use_dictionary=[name for name in kind.names if name not in encodings],
        column_encoding=encodings,
        store_schema=False,
        write_page_index=True,
        write_page_checksum=True,
    ) as writer:
        writer.write_table(rows, row_group_size=given.rows)
    return bytes(sink.getvalue().to_pybytes())
