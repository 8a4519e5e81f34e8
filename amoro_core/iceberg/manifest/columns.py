"""Reading the live files of a data manifest into columns, at a fraction of what its entries cost as objects.

Only what no check would refuse is read so. For everything else there is None: the manifest is then read entry by entry,
which tells what is wrong with it.
"""

import hashlib
import json
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.iceberg.manifest.avro_schema import first_row_id_of
from amoro_core.iceberg.manifest.entries import PartitionTypes, to_partition
from amoro_core.iceberg.manifest.entry_scanner import NULL, Layout, Raw, RawEntries, layout_of, number_of, opened
from amoro_core.iceberg.manifest.reading import read_bytes
from amoro_core.iceberg.manifest.safe_avro import BoundedDecoder, end_of_numbers, number_at
from amoro_core.iceberg.support.table_support import MOST
from amoro_core.logger import get_logger
from amoro_core.model.files import FileFormat
from amoro_core.scan.column_store import packed_part, unpacked_part
from amoro_core.scan.columns import NONE, SCHEMA, ColumnPart, OpenPart, format_code, pack_numbers

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


log = get_logger("amoro.cache")

#: The version of what a file holds, a part of its name; so are the columns.
_LAYOUT = 3
_COLUMNS = str(SCHEMA)
_SUFFIX = ".arrow"
_DIGEST_BYTES = hashlib.sha256().digest_size
#: The part of the limit that is left after eviction, and the age of an unfinished file that nobody writes any more.
_LEFT, _ABANDONED_S = 0.9, 3600.0
#: Manifests with fewer live files are decoded as fast as their file here is opened.
LEAST_FILES = 50


class ColumnCache:
    """A directory with a file for each data manifest that was decoded, the least recently used removed first.

    For several threads of one process. No problem of the directory or of a file is an error: the cache then has less.
    """

    def __init__(self, directory: Path, most_bytes: int, least_files: int = LEAST_FILES) -> None:
        """`most_bytes` limits the size of all files together, `least_files` which manifests are worth a file."""
        self._directory = directory
        self._most_bytes, self._least_files = most_bytes, least_files
        self._lock = threading.Lock()
        self._used: int | None = None  # bytes, once the directory was read
        self._has_warned = False

    def find(
        self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, unusable: list[str]
    ) -> ColumnPart | None:
        """The live files of the manifest as `listed` describes it; None where they are not in the cache.

        A file that is there and can't be used is added to `unusable`, with the reason.
        """
        if _live_files(listed, self._least_files) < self._least_files:
            return None
        key = _key(table_uuid, listed, types)
        path = self._path(key)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            if os.path.lexists(path):
                unusable.append(f"{path}: {error.strerror}")
            else:
                self._warn(error)
            return None
        found = _unpacked(key, content)
        if found is None or found.batch.num_rows != _live_files(listed, found.batch.num_rows):
            unusable.append(f"{path}: it is damaged, or of another version, and was removed")
            with suppress(OSError):
                path.unlink()
            return None
        with suppress(OSError):
            os.utime(path)
        return found

    def keep(self, table_uuid: str, listed: ManifestFile, types: PartitionTypes, part: ColumnPart) -> None:
        """Write the live files of a manifest that was decoded and found to be consistent."""
        if part.batch.num_rows < self._least_files:
            return
        key = _key(table_uuid, listed, types)
        content = _packed(key, part)
        if len(content) > self._most_bytes * _LEFT:
            return
        try:
            self._make_room(len(content))
            self._write(self._path(key), content)
        except IsADirectoryError:
            return  # told when the file was looked for
        except OSError as error:
            self._warn(error)

    def _path(self, key: str) -> Path:
        return self._directory / f"{key}{_SUFFIX}"

    def _write(self, path: Path, content: bytes) -> None:
        """The file appears whole or not at all."""
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
        try:
            with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as target:
                target.write(content)
            unfinished.replace(path)
        except OSError:
            with suppress(OSError):
                unfinished.unlink()
            raise

    def _make_room(self, size: int) -> None:
        """Count further bytes, and remove the least recently used files where all together exceed the limit."""
        with self._lock:
            if self._used is None:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._used = sum(bytes_ for _, bytes_, _ in self._files())
            self._used += size
            if self._used <= self._most_bytes:
                return
            files = sorted(self._files())
            self._used = size + sum(bytes_ for _, bytes_, _ in files)
            for _, bytes_, path in files:
                if self._used <= self._most_bytes * _LEFT:
                    break
                with suppress(FileNotFoundError):
                    path.unlink()
                self._used -= bytes_

    def _files(self) -> list[tuple[int, int, Path]]:
        """The time of the last use, the size and the path of each file of any version; abandoned ones are removed."""
        found = []
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # removed meanwhile
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode):
                    continue
                if path.name.startswith("."):
                    if status.st_mtime < time.time() - _ABANDONED_S:
                        path.unlink()
                elif path.suffix == _SUFFIX:
                    found.append((status.st_mtime_ns, status.st_size, path))
        return found

    def _warn(self, error: OSError) -> None:
        """Once: the same problem of the directory would be told for each manifest."""
        if not self._has_warned:
            self._has_warned = True
            log.warning("cache.unusable", directory=str(self._directory), why=str(error))


def _key(table_uuid: str, listed: ManifestFile, types: PartitionTypes) -> str:
    """A name for all that decides what is read from the manifest, inherited and promoted values included."""
    described = (
        _LAYOUT,
        _COLUMNS,
        table_uuid,
        listed.manifest_path,
        listed.manifest_length,
        listed.partition_spec_id,
        listed.sequence_number,
        listed.added_snapshot_id,
        listed.added_files_count,
        listed.existing_files_count,
        first_row_id_of(listed),
        [str(one) for one in types],
    )
    return hashlib.sha256(json.dumps(described).encode()).hexdigest()


def _live_files(listed: ManifestFile, otherwise: int) -> int:
    """The number of live files according to the manifest list; `otherwise` where it does not say."""
    counts = (listed.added_files_count, listed.existing_files_count)
    return otherwise if None in counts else sum(one or 0 for one in counts)


def _packed(key: str, part: ColumnPart) -> bytes:
    """A digest of the key and of what follows: the part."""
    payload = packed_part(part, "lz4")
    return _digest(key, payload) + payload


def _unpacked(key: str, content: bytes) -> ColumnPart | None:
    """What was packed under that key; None for anything else."""
    payload = content[_DIGEST_BYTES:]
    if content[:_DIGEST_BYTES] != _digest(key, payload):
        return None
    try:
        return unpacked_part(payload)
    except (pa.ArrowException, OSError, StopIteration, ValueError, KeyError):
        return None  # of a version of Arrow that this one does not read


def _digest(key: str, payload: bytes) -> bytes:
    digest = hashlib.sha256(key.encode())
    digest.update(payload)
    return digest.digest()
