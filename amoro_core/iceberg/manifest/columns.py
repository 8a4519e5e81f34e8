"""Reading the live files of a data manifest into columns, at a fraction of what its entries cost as objects.

Only what no check would refuse is read so. For everything else there is None: the manifest is then read entry by entry,
which tells what is wrong with it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.iceberg.manifest.avro_schema import first_row_id_of
from amoro_core.iceberg.manifest.entries import PartitionTypes, to_partition
from amoro_core.iceberg.manifest.entry_scanner import NULL, Layout, Raw, RawEntries, layout_of, number_of, opened
from amoro_core.iceberg.manifest.reading import read_bytes
from amoro_core.iceberg.manifest.safe_avro import BoundedDecoder, end_of_numbers, number_at
from amoro_core.iceberg.support.table_support import MOST
from amoro_core.model.files import FileFormat
from amoro_core.scan.columns import NONE, ColumnPart, OpenPart, format_code, pack_numbers

_EXISTING, _ADDED, _DELETED = (bytes([status << 1]) for status in range(3))
_FORMATS = {one.value.upper().encode(): format_code(one) for one in FileFormat if one is not FileFormat.PUFFIN}
_DATA = b"\x00"
_METRICS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


@dataclass(frozen=True, slots=True)
class Listed:
    """What a manifest list says about a data manifest, and the types of its partitions."""

    spec_id: int
    sequence_number: int
    live_files: int | None  # None: it does not say
    first_row_id: int | None
    types: PartitionTypes

    @classmethod
    def of(cls, listed: ManifestFile, types: PartitionTypes) -> "Listed":
        """The same of an entry of the list."""
        counts = (listed.added_files_count, listed.existing_files_count)
        live = None if None in counts else sum(one or 0 for one in counts)
        return cls(listed.partition_spec_id, listed.sequence_number, live, first_row_id_of(listed), types)


#: Reads data manifests, in their order; what is None must be read entry by entry.
ColumnReader = Callable[[FileIO, Sequence[tuple[ManifestFile, Listed]]], Iterable[ColumnPart | None]]


def read_here(io: FileIO, manifests: Sequence[tuple[ManifestFile, Listed]]) -> Iterator[ColumnPart | None]:
    """The live files of data manifests, read one by one in this process. Raises like `read_list`."""
    for manifest, listed in manifests:
        yield read_columns(read_bytes(io, manifest), listed)


def read_columns(data: bytes, listed: Listed) -> ColumnPart | None:
    """The live files of the data manifest with those bytes, as reading it entry by entry gives them.

    None for a manifest that must be read so: it is damaged, contradicts itself or its list, has files that are refused,
    or entries in another order of fields.
    """
    try:
        header, blocks = opened(data)
        layout = layout_of(header.meta["avro.schema"])
        _require_header(header.meta, layout, listed)
        entries, reading = RawEntries(layout), _Reading(layout, listed)
        for records, block in blocks:
            reading.add(list(entries.of(records, block)))
        return reading.ended()
    except Exception:  # whatever a decoder raises
        return None


class _Odd(ValueError):
    """The manifest is to be read entry by entry."""


def _require_header(meta: dict[str, str], layout: Layout, listed: Listed) -> None:
    said = (meta.get("content", "data"), meta.get("partition-spec-id", str(listed.spec_id)), layout.partition_fields)
    # Both are required of every manifest, and read by the other reader.
    if said != ("data", str(listed.spec_id), len(listed.types)) or not {"schema", "partition-spec"} <= meta.keys():
        raise _Odd


class _Reading:
    """The live files of one manifest, gathered."""

    def __init__(self, layout: Layout, listed: Listed) -> None:
        self._layout, self._listed = layout, listed
        self._part = OpenPart()
        self._places, self._numbers = _Memo(self._place), _Memo(number_of)
        self._offsets = _Memo(_offsets)
        self._upcoming = listed.first_row_id

    def add(self, entries: list[Raw]) -> None:
        """Add the live files of a block's entries."""
        at, part = self._layout.at, self._part
        status = at["status"]
        live = [values for values in entries if values[status] != _DELETED]
        if not live:
            return
        columns: list[tuple[Any, ...]] = list(zip(*live, strict=True))
        if {*columns[status]} - {_EXISTING, _ADDED} or {*columns[at["content"]]} != {_DATA}:
            raise _Odd
        if any(columns[at["key_metadata"]]):
            raise _Odd
        number = self._numbers.__getitem__
        records = list(map(number, columns[at["record_count"]]))
        part.paths += [str(raw, "utf-8") for raw in columns[at["file_path"]]]
        part.place += map(self._places.__getitem__, columns[at["partition"]])
        part.records += records
        part.sizes += map(number, columns[at["file_size_in_bytes"]])
        part.numbers += map(self._number, columns[at["sequence_number"]], columns[status])
        part.formats += map(_FORMATS.__getitem__, columns[at["file_format"]])
        orders = (_NONE if raw is None else raw for raw in columns[at["sort_order_id"]])
        offsets = map(self._offsets.__getitem__, columns[at["split_offsets"]])
        row_ids = self._row_ids(columns[at["first_row_id"]], records)
        part.layouts += map(b"".join, zip(orders, row_ids, offsets, strict=True))
        maps = ([raw or NULL for raw in columns[at[name]]] for name in _METRICS)
        part.metrics += map(b"".join, zip(*maps, strict=True))

    def ended(self) -> ColumnPart:
        """The columns. Raises for what is not to be read so."""
        listed, part = self._listed, self._part.ended()
        records, sizes, numbers = (part.batch.column(name).to_numpy() for name in ("records", "sizes", "numbers"))
        if listed.live_files not in (None, len(records)):
            raise _Odd
        if not (_within(numbers, listed.sequence_number + 1) and _within(records, MOST) and _within(sizes, MOST)):
            raise _Odd
        if np.any((records > 0) & (sizes == 0)):
            raise _Odd
        return part

    def _place(self, raw: bytes) -> int:
        decoder = BoundedDecoder(raw)
        record = self._layout.partition.read(decoder)
        if not decoder.is_at_end:
            raise _Odd
        codes, partition = self._part.codes, to_partition(record, self._listed.types)
        return codes.setdefault((self._listed.spec_id, partition), len(codes))

    def _number(self, raw: bytes | None, status: bytes) -> int:
        """The file's sequence number, inherited by new files, and by all in a table that was of format 1."""
        if raw is not None:
            found: int = self._numbers[raw]
            return found
        if status != _ADDED and self._listed.sequence_number != 0:
            raise _Odd
        return self._listed.sequence_number

    def _row_ids(self, raws: Iterable[bytes | None], records: Iterable[int]) -> Iterator[bytes]:
        """The files' first row ids, inherited as `inherit_row_ids` does."""
        for raw, rows in zip(raws, records, strict=True):
            if self._upcoming is None:
                yield _NONE
            elif raw is not None:
                yield raw
            else:
                yield pack_numbers((self._upcoming,))
                self._upcoming += rows


class _Memo(dict[Any, Any]):
    """What a function says of each key, asked once."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        super().__init__()
        self._ask = ask

    def __missing__(self, key: Any) -> Any:
        found = self[key] = self._ask(key)
        return found


_NONE = pack_numbers((NONE,))


def _within(numbers: npt.NDArray[np.int64], end: int) -> bool:
    return bool(np.all((numbers >= 0) & (numbers < end)))


def _offsets(raw: bytes | None) -> bytes:
    """The numbers of a list that is stored in one block."""
    if raw is None or raw == NULL:
        return b""
    count, at = number_at(raw, 0)
    if count < 0 or end_of_numbers(raw, at, count) != len(raw) - 1:
        raise _Odd
    return raw[at:-1]
