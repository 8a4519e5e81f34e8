"""Catalogs of many tables that are metadata only: one is made by pyiceberg, the others are its copies byte for byte."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.engine import writer
from tests.engine.builders import SCHEMA
from tests.engine.commits import Change, commit

MIB = 1024 * 1024
_TEMPLATE = "t000000"


def name_of(number: int) -> str:
    """The table's name: all are of one length, so that paths in Avro files can be exchanged as they are."""
    return f"t{number:06}"


def make_lake(directory: Path, tables: int) -> SqlCatalog:
    """A catalog with so many tables in the namespace `db`, of one data file each that does not exist."""
    catalog = writer.make_catalog(directory)
    table = writer.make_table(catalog, f"db.{_TEMPLATE}", SCHEMA)
    append_unwritten(table, 1, 200 * MIB)
    root = Path(table.location().removeprefix("file://"))
    for path in root.glob("metadata/*.avro"):
        _store_uncompressed(path)
    _correct_lengths(root)
    template = {path.relative_to(root): path.read_bytes() for path in root.glob("metadata/*")}
    head = Path(table.metadata_location.removeprefix("file://")).relative_to(root)
    rows = list(_copies(root, template, head, str(table.metadata.table_uuid), tables))
    with sqlite3.connect(directory / "catalog.db") as db:
        db.executemany(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location) "
            "VALUES ('cat', 'db', ?, ?)",
            rows,
        )
    db.close()
    return catalog


def append_unwritten(table: Table, count: int, size_bytes: int) -> None:
    """Commit so many new data files of that size, which nobody has written."""
    commit(table, lambda head: Change(added=tuple(_unwritten(head, size_bytes) for _ in range(count))))


def _unwritten(table: Table, size_bytes: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{table.location()}/data/{uuid.uuid4()}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1000,
        file_size_in_bytes=size_bytes,
    )
    file.spec_id = table.metadata.default_spec_id
    return file


def _copies(
    root: Path, template: dict[Path, bytes], head: Path, table_uuid: str, tables: int
) -> Iterator[tuple[str, str]]:
    for number in range(1, tables):
        name = name_of(number)
        place = root.parent / name
        (place / "metadata").mkdir(parents=True)
        for path, content in template.items():
            made = content.replace(_TEMPLATE.encode(), name.encode())
            if path.suffix == ".json":
                made = made.replace(table_uuid.encode(), str(uuid.uuid4()).encode())
            (place / path).write_bytes(made)
        yield name, (place / head).as_uri()


def _store_uncompressed(path: Path, change: dict[str, int] | None = None) -> None:
    with path.open("rb") as file:
        reader: Any = fastavro.reader(file)
        schema, records = reader.writer_schema, list(reader)
        metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    for record in records:
        record.update(change or {})
    with path.open("wb") as file:
        fastavro.writer(file, schema, records, codec="null", metadata=metadata)


def _correct_lengths(root: Path) -> None:
    """The manifest list of the one snapshot names the one manifest's length."""
    (listed,) = root.glob("metadata/snap-*.avro")
    (manifest,) = (path for path in root.glob("metadata/*.avro") if re.search(r"-m0\.avro$", path.name))
    _store_uncompressed(listed, {"manifest_length": manifest.stat().st_size})
