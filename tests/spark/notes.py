"""A table small enough to be kept in one's head: ids, each with its note."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from .catalogs import SharedCatalog
from .java_writer import java_upsert
from .rows import Rows
from .tables import MERGE_ON_READ


def make_notes(catalog: SharedCatalog, files: int = 3, rows_per_file: int = 10, properties: str = MERGE_ON_READ) -> str:
    """Make a table of (id, 'note id'), its ids ascending from 0 through the files, and return its full name."""
    table = catalog.full_name("db.notes")
    catalog.spark.sql(f"CREATE TABLE {table} (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({properties})")
    loaded = catalog.load(table)
    for start in range(0, files * rows_per_file, rows_per_file):
        ids = range(start, start + rows_per_file)
        loaded.append(pa.table({"id": list(ids), "note": [f"note {number}" for number in ids]}))
    return table


def notes(ids: Iterable[int], word: str = "note") -> Rows:
    """The rows of these ids."""
    return Rows((number, f"{word} {number}") for number in ids)


def notes_without(count: int, *gone: int) -> Rows:
    """The rows of the ids below the count, but for those that are gone."""
    return notes(number for number in range(count) if number not in gone)


def upsert_notes(catalog: SharedCatalog, table: str, ids: Iterable[int], word: str) -> None:
    """Write the rows of these ids and delete by equality what was there, by Java and in one snapshot."""
    rows = [{"id": number, "note": f"{word} {number}"} for number in ids]
    java_upsert(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."), ["id"], rows, rows)


def delete_notes(catalog: SharedCatalog, table: str, *ids: int) -> None:
    """Delete these ids by equality, by Java; the snapshot has no new rows."""
    rows = [{"id": number} for number in ids]
    java_upsert(catalog.spark, catalog.name, table.removeprefix(f"{catalog.name}."), ["id"], rows, [])
