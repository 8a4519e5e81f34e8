"""A data manifest without some of its files: the entries of the others are carried over as they are stored.

Only an entry's own numbers are written anew, those that it inherited included. What was written is read again and
compared, file by file, before it is used. For what can't be spliced there is None: it is decoded and encoded.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from io import BytesIO

import numpy as np
import pyarrow as pa
from pyiceberg.avro.codecs.deflate import DeflateCodec
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.typedef import Record

from amoro_core.iceberg.manifest.avro_schema import ROW_IDS_SINCE, first_row_id_of, names_each_type_once, set_row_id
from amoro_core.iceberg.manifest.columns import Listed, read_columns
from amoro_core.iceberg.manifest.entries import PartitionTypes
from amoro_core.iceberg.manifest.entry_scanner import VALUE, Raw, RawEntries, Span, layout_of, number_of, opened
from amoro_core.iceberg.manifest.reading import (
    Manifest,
    ManifestHeader,
    entry_schema,
    header_of,
    with_inherited_numbers,
)
from amoro_core.iceberg.manifest.safe_avro import BoundedDecoder
from amoro_core.iceberg.manifest.writing import ENTRIES_IN_A_BLOCK, manifest_metadata, partition_summaries
from amoro_core.logger import get_logger
from amoro_core.scan.columns import ColumnPart, Place, pack_numbers

log = get_logger("amoro.commit")

_EXISTING, _ADDED, _DELETED = (bytes([status << 1]) for status in range(3))
#: Tells which of the entries with the paths asked for are removed. Raises for one that is not as expected.
Removed = Callable[[Manifest], list[ManifestEntry]]


@dataclass(frozen=True, slots=True)
class Spliced:
    """A manifest to be written."""

    content: bytes
    listed: ManifestFile  # its entry for the manifest list, without path
    gone: tuple[ManifestEntry, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A manifest of the head, and the commit that removes files of it."""

    file: ManifestFile
    data: bytes
    types: PartitionTypes
    format_version: int
    snapshot_id: int


def splice(source: Source, paths: frozenset[str], removed: Removed) -> Spliced | None:
    """The manifest without the files of these paths that `removed` confirms; with none of them `content` is empty.

    None where it can't be spliced: it must be decoded. Raises what `removed` raises.
    """
    before = read_columns(source.data, Listed.of(source.file, source.types))
    if before is None or source.file.content != ManifestContent.DATA:
        return None
    try:
        found = _Splicing(source, paths)
    except Exception:  # whatever a decoder raises
        return None
    gone = removed(found.asked())
    if not gone:
        return Spliced(b"", source.file, ())
    going = found.places_of(gone)
    done = found.without(going)
    if not _is_same(before, done, source, going):
        log.warning("commit.not_spliced", manifest=source.file.manifest_path, why="it would have other files")
        return None
    return replace(done, gone=tuple(gone))


@dataclass(slots=True)
class _Entry:
    """A live entry with its own numbers as they are stored, and the bytes of its file."""

    path: str
    snapshot_id: bytes
    number: bytes
    file_number: bytes
    file: bytes
    partition: bytes
    rows: int
    whole: bytes
    row_id: int | None


class _Splicing:
    """The live entries of one manifest. Raises ValueError for what is to be decoded."""

    def __init__(self, source: Source, paths: frozenset[str]) -> None:
        header, blocks = opened(source.data)
        layout = self._layout = layout_of(header.meta["avro.schema"])
        if header.meta.get("format-version") != str(source.format_version) or not names_each_type_once(layout.avro):
            raise ValueError("the schema of the entries can't be kept")
        self._source, self._paths = source, paths
        self._header: ManifestHeader = header_of(header.meta, entry_schema(header.meta["avro.schema"]), source.file)
        self._avro = header.meta["avro.schema"]
        self._upcoming = first_row_id_of(source.file)
        if (self._upcoming is None) == (source.format_version >= ROW_IDS_SINCE):
            raise ValueError("the manifest is of another format than its table")
        if source.file.added_snapshot_id is None:
            raise ValueError("it is not known which snapshot added the manifest")
        self._asked: dict[int, ManifestEntry] = {}
        entries = RawEntries(layout)
        live = ((span, values, block) for records, block in blocks for span, values in entries.of(records, block))
        self._entries = [self._entry(*one) for one in live if one[1][layout.at["status"]] != _DELETED]

    def _entry(self, span: Span, values: Raw, block: bytes) -> _Entry:
        at, file = self._layout.at, self._source.file
        status, records = values[at["status"]], values[at["record_count"]]
        path, partition = values[at["file_path"]], values[at["partition"]]
        if status is None or records is None or path is None or partition is None:
            raise ValueError("an entry lacks what every entry has")
        inherits = status == _ADDED or file.sequence_number == 0
        snapshot_id = values[at["snapshot_id"]] or pack_numbers((file.added_snapshot_id or 0,))
        numbers = [values[at[name]] for name in ("sequence_number", "file_sequence_number")]
        if None in numbers and not inherits:
            raise ValueError("a number is missing")
        inherited = pack_numbers((file.sequence_number,))
        number, file_number = (inherited if one is None else one for one in numbers)
        row_id = values[at["first_row_id"]]
        data_file, rows, own_row_id = block[span.file_start : span.end], number_of(records), None
        if self._upcoming is not None:
            if row_id is None:
                own_row_id, self._upcoming = self._upcoming, self._upcoming + rows
                data_file = self._with_row_id(data_file, values, own_row_id)
            else:
                own_row_id = number_of(row_id)
        elif row_id is not None:
            raise ValueError("a file has a row id that its manifest denies")
        whole = block[span.start : span.end]
        return _Entry(
            str(path, "utf-8"), snapshot_id, number, file_number, data_file, partition, rows, whole, own_row_id
        )

    def _with_row_id(self, file: bytes, values: Raw, row_id: int) -> bytes:
        """The bytes of the file with that id instead of none; behind it all fields must be null, too."""
        at = self._layout.at["first_row_id"]
        behind = values[at + 1 : -1]
        if at < 0 or any(one is not None for one in behind):
            raise ValueError("the row id can't be set")
        place = len(file) - 1 - len(behind)
        return file[:place] + VALUE + pack_numbers((row_id,)) + file[place + 1 :]

    def asked(self) -> Manifest:
        """The manifest, of whose entries those with the paths asked for were decoded."""
        for at, one in enumerate(self._entries):
            if one.path in self._paths:
                entry: ManifestEntry = self._layout.entry.read(BoundedDecoder(one.whole))
                set_row_id(entry, one.row_id)
                self._asked[at] = with_inherited_numbers(entry, self._source.file)
        return Manifest(self._source.file, self._header, tuple(self._asked.values()))

    def places_of(self, entries: Iterable[ManifestEntry]) -> frozenset[int]:
        """The places of entries that were asked for among the live ones."""
        wanted = {id(entry) for entry in entries}
        return frozenset(at for at, entry in self._asked.items() if id(entry) in wanted)

    def without(self, going: frozenset[int]) -> Spliced:
        """The manifest without the files at these places, which become removed entries."""
        source, layout = self._source, self._layout
        removed = pack_numbers((source.snapshot_id,))
        stored, counts = [], dict.fromkeys(_COUNTS, 0)
        for at, one in enumerate(self._entries):
            what, status, snapshot_id = "existing", _EXISTING, one.snapshot_id
            if at in going:
                what, status, snapshot_id = "deleted", _DELETED, removed
            own = (status, snapshot_id, one.number, one.file_number)
            begun = b"".join((VALUE if optional else b"") + raw for optional, raw in zip(layout.own, own, strict=True))
            stored.append(begun + one.file)
            counts[f"{what}_files_count"] += 1
            counts[f"{what}_rows_count"] += one.rows
        content = _written(self._metadata(), stored)
        numbers = [number_of(one.number) for at, one in enumerate(self._entries) if at not in going]
        partitions = (self._partition(raw) for raw in dict.fromkeys(one.partition for one in self._entries))
        listed = ManifestFile.from_args(
            manifest_path="",
            manifest_length=len(content),
            partition_spec_id=self._header.spec_id,
            content=source.file.content,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=min(numbers, default=UNASSIGNED_SEQ),
            added_snapshot_id=source.snapshot_id,
            **counts,  # type: ignore[arg-type]
            partitions=partition_summaries(self._header.partition_type, partitions),
            key_metadata=None,
        )
        return Spliced(content, listed, ())

    def _metadata(self) -> Mapping[str, str]:
        source = self._source
        made = manifest_metadata(source.format_version, source.file.content, self._header)  # type: ignore[arg-type]
        return {**made, "avro.schema": self._avro}

    def _partition(self, raw: bytes) -> Record:
        found: Record = self._layout.partition.read(BoundedDecoder(raw))
        return found


_COUNTS = tuple(f"{status}_{what}_count" for status in ("added", "existing", "deleted") for what in ("files", "rows"))


def _written(metadata: Mapping[str, str], entries: list[bytes]) -> bytes:
    """An Avro file of the entries."""
    stream, sync = BytesIO(), os.urandom(16)
    encoder = BinaryEncoder(stream)
    construct_writer(META_SCHEMA).write(encoder, AvroFileHeader(MAGIC, dict(metadata), sync))
    for start in range(0, len(entries), ENTRIES_IN_A_BLOCK):
        some = entries[start : start + ENTRIES_IN_A_BLOCK]
        block, size = DeflateCodec.compress(b"".join(some))
        encoder.write_int(len(some))
        encoder.write_int(size)
        encoder.write(block)
        encoder.write(sync)
    return stream.getvalue()


def _is_same(before: ColumnPart, done: Spliced, source: Source, going: frozenset[int]) -> bool:
    """Whether what was written has the files of before but those at the places that go."""
    # Every entry has its own numbers now: one that lacks them would inherit these.
    asked = replace(
        Listed.of(done.listed, source.types),
        sequence_number=source.file.sequence_number,
        first_row_id=None if first_row_id_of(source.file) is None else 0,
    )
    after = read_columns(done.content, asked)
    if after is None:
        return False
    stays = np.ones(before.batch.num_rows, np.bool_)
    stays[list(going)] = False
    kept = before.batch.filter(pa.array(stays))
    return _places(before, kept) == _places(after, after.batch) and bool(
        kept.drop_columns(["place"]).equals(after.batch.drop_columns(["place"]))
    )


def _places(part: ColumnPart, batch: pa.RecordBatch) -> list[Place]:
    return [part.places[at] for at in batch.column("place").to_pylist()]
