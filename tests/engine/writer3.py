"""What the other engine does in format 3 alone. Tables of format 3 are made and written by `writer` like others."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pyarrow.parquet as pq
import sqlalchemy
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import IcebergBaseModel, Record
from pyroaring import BitMap64

from tests.engine import oracle
from tests.engine.commits import MAIN, Change, commit
from tests.engine.files import stored_partition
from tests.engine.oracle import LiveFile

# pyiceberg writes the metadata of formats 1 and 2 only.
TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json


Predicate = Callable[[Mapping[str, Any]], bool]


def _files(head: Table) -> tuple[dict[str, LiveFile], dict[str, LiveFile]]:
    """Main's data files, and their vectors, by the path of the data file."""
    files = oracle.files_in(head.metadata)
    data = {one.path: one for one in files if one.content == oracle.DATA}
    return data, {one.referenced: one for one in files if one.is_vector and one.referenced in data}


def _change(head: Table, sets: Mapping[str, Iterable[int]]) -> Change | None:
    """New vectors of the data files in the place of their old ones, in one Puffin file, as Java does."""
    data, old = _files(head)
    if gone := set(sets) - set(data):
        raise ValueError(f"not live: {sorted(gone)}")
    made = vectors(head, {data[path]: positions for path, positions in sets.items() if positions})
    removed = frozenset((old[path].path, old[path].offset) for path in sets if path in old)
    return Change(tuple(made), removed_vectors=removed) if sets else None


def delete_rows(table: Table, predicate: Predicate) -> Snapshot | None:
    """Delete the live rows for which the predicate holds by vectors.

    A data file's new vector holds what its old one and position delete files deleted, and the old one goes.
    """

    def build(head: Table) -> Change | None:
        hit: dict[str, set[int]] = {}
        for one in oracle.rows_in(head.metadata):
            if predicate(one.record):
                hit.setdefault(one.path, set()).add(one.position)
        data, old = _files(head)
        in_files = oracle.positions_in_files(head.metadata, oracle.files_in(head.metadata))
        for path, positions in hit.items():
            if path in old:
                positions.update(oracle.vector_positions(old[path]))
            else:
                positions.update(at for number, at in in_files[path] if number >= data[path].data_sequence)
        return _change(head, hit)

    return commit(table, build, MAIN)


def delete_positions(table: Table, marked: Mapping[str, Iterable[int]]) -> Snapshot | None:
    """Delete rows by their positions in data files of main, which must be live. Rows that were deleted stay so."""

    def build(head: Table) -> Change | None:
        old = _files(head)[1]
        known = {path: oracle.vector_positions(old[path]) if path in old else () for path in marked}
        return _change(head, {path: {*positions, *known[path]} for path, positions in marked.items()})

    return commit(table, build, MAIN)


def renew_vectors(table: Table, without: Predicate | None = None) -> Snapshot | None:
    """Replace all live vectors of main by new ones. Rows for which `without` holds are live again afterwards."""

    def build(head: Table) -> Change | None:
        old = _files(head)[1]
        sets = {path: oracle.vector_positions(one) for path, one in old.items()}
        if without is not None:
            sets = {path: [at for at in some if not without(raw_row(path, at))] for path, some in sets.items()}
        return _change(head, sets)

    return commit(table, build, MAIN)


def deleted_by_vector(table: Table) -> list[dict[str, Any]]:
    """The rows that vectors of main hide, as they stand in their live data files."""
    return [raw_row(path, at) for path, one in _files(table)[1].items() for at in oracle.vector_positions(one)]


def raw_row(path: str, position: int) -> dict[str, Any]:
    """The row of a data file, whether it is deleted or not."""
    found: dict[str, Any] = pq.read_table(path.removeprefix("file://")).slice(position, 1).to_pylist()[0]
    return found


def vectors(table: Table, sets: Mapping[LiveFile, Iterable[int]]) -> list[DataFile]:
    """The entries of a new Puffin file with a deletion vector for each data file."""
    content, described, entries = b"PFA1", [], []
    path = f"{table.location()}/data/{uuid.uuid4()}.puffin"
    for data, positions in sets.items():
        bitmap = BitMap64(positions)
        bitmap.run_optimize()
        body = b"\xd1\xd3\x39\x64" + bitmap.serialize()
        blob = struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))
        told = {"referenced-data-file": data.path, "cardinality": str(len(bitmap))}
        kind = {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1}
        described.append({**kind, "offset": len(content), "length": len(blob), "properties": told})
        entries.append((data, len(bitmap), len(content), len(blob)))
        content += blob
    footer = json.dumps({"blobs": described, "properties": {}}).encode()
    content += b"PFA1" + footer + struct.pack("<I", len(footer)) + bytes(4) + b"PFA1"
    with table.io.new_output(path).create() as stream:
        stream.write(content)
    done = []
    for data, count, offset, size in entries:
        file = DataFile.from_args(
            _table_format_version=3,
            content=DataFileContent.POSITION_DELETES,
            file_path=path,
            file_format=FileFormat.PUFFIN,
            partition=Record(*stored_partition(table.metadata, data.spec_id, data.partition)),
            record_count=count,
            file_size_in_bytes=len(content),
            referenced_data_file=data.path,
            content_offset=offset,
            content_size_in_bytes=size,
        )
        file.spec_id = data.spec_id
        done.append(file)
    return done


def upgrade(table: Table) -> Table:
    """The table of a SQL catalog in format 3, as its own engine upgrades it: no file has row ids before a commit."""
    table.refresh()
    before = table.metadata_location
    said = json.loads(Path(urlparse(before).path).read_text())
    if said["format-version"] == 1:
        said = {key: value for key, value in said.items() if key not in ("schema", "partition-spec")}
        said["last-sequence-number"] = 0
    said |= {"format-version": 3, "next-row-id": 0}
    said["metadata-log"] = [
        *said.get("metadata-log", []),
        {"metadata-file": before, "timestamp-ms": said["last-updated-ms"]},
    ]
    number = int(before.rpartition("/")[2].split("-")[0]) + 1
    after = f"{before.rpartition('/')[0]}/{number:05}-{said['table-uuid']}.metadata.json"
    Path(urlparse(after).path).write_text(json.dumps(said))
    with table.catalog.engine.begin() as connection:
        changed = connection.execute(
            sqlalchemy.text("UPDATE iceberg_tables SET metadata_location = :after WHERE metadata_location = :before"),
            {"after": after, "before": before},
        )
        if changed.rowcount != 1:
            raise ValueError(f"the table {table.name()} is not of this catalog")
    return table.refresh()
