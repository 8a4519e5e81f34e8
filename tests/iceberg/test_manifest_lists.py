"""Reading a manifest list by what is known of the one before gives what reading it alone gives."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from pyiceberg.table import Table

from amoro_core.errors import UnreadableFile
from amoro_core.iceberg.manifest_lists import ManifestLists
from amoro_core.iceberg.manifests import read_list
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_catalog, make_table
from tests.iceberg.listed import decoded_records


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    catalog = make_catalog(tmp_path)
    made = make_table(catalog, "db.t", SCHEMA, properties={"commit.manifest-merge.enabled": "false"})
    for number in range(5):
        append(made, [row(number)])
    yield made.refresh()
    catalog.close()


def list_of(table: Table) -> str:
    head = table.refresh().current_snapshot()
    assert head is not None
    return head.manifest_list


def told(table: Table, lists: ManifestLists | None = None) -> list[str]:
    """All that the list says; objects of pyiceberg are equal if they have the same path."""
    return [repr(one) for one in read_list(table.io, list_of(table), lists)]


def rewritten(
    path: Path, change: dict[str, object] | None = None, without: str = "", first: str = "", times: int = 1
) -> None:
    """Write the list anew, uncompressed and so often: its second record changed, a field left out, or one put first."""
    with path.open("rb") as file:
        reader = fastavro.reader(file)
        schema, records, metadata = reader.writer_schema, list(reader), reader.metadata
    records[1].update(change or {})
    fields = sorted(schema["fields"], key=lambda field: field["name"] != first)
    fields = [field for field in fields if field["name"] != without]
    kept = {key: value for key, value in metadata.items() if not key.startswith("avro.")}
    with path.open("wb") as file:
        fastavro.writer(file, {**schema, "fields": fields}, records * times, metadata=kept)


def test_only_what_is_new_is_decoded(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = ManifestLists()
    before = read_list(table.io, list_of(table), lists)
    append(table, [row(9)])
    decoded = decoded_records(monkeypatch)
    after = read_list(table.io, list_of(table), lists)
    assert len(decoded) == 1
    assert [one for one in after if not any(one is other for other in before)] == decoded
    assert list(map(repr, after)) == told(table)
    assert len(after) == 6
    assert lists.size_bytes == 6 * 2_000


@pytest.mark.parametrize("change", [{"added_rows_count": 7}, {"manifest_length": 1}, {"sequence_number": 99}])
def test_what_is_said_otherwise_of_a_manifest_counts(table: Table, change: dict[str, object]) -> None:
    lists = ManifestLists()
    path = Path(local_path(list_of(table)))
    rewritten(path)
    before = told(table, lists)
    rewritten(path, change)
    after = told(table, lists)
    assert after == told(table)
    assert [one == other for one, other in zip(before, after, strict=True)] == [True, False, True, True, True]


def test_records_of_another_schema_are_decoded_by_it(table: Table) -> None:
    lists = ManifestLists()
    path = Path(local_path(list_of(table)))
    rewritten(path)
    told(table, lists)
    rewritten(path, without="partitions")
    assert told(table, lists) == told(table)


def test_a_list_whose_records_begin_with_a_large_number_is_read_and_little_is_kept_of_it(table: Table) -> None:
    lists = ManifestLists()
    rewritten(Path(local_path(list_of(table))), first="added_snapshot_id", times=20)
    assert told(table, lists) == told(table, lists) == told(table)
    assert max(map(len, lists._known[1])) <= 1_024


def test_broken_lists_are_read_as_they_are_alone(table: Table) -> None:
    chance, path = random.Random(3), Path(local_path(list_of(table)))
    rewritten(path)
    whole, seen = path.read_bytes(), {True: 0, False: 0}
    for _ in range(600):
        lists = ManifestLists()
        path.write_bytes(whole)
        read_list(table.io, list_of(table), lists)
        at = chance.randrange(len(whole))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << chance.randrange(8)]) + whole[at + 1 :])
        found, alone = said(table, lists), said(table, None)
        assert found == alone
        seen[isinstance(alone, str)] += 1
    assert min(seen.values()) > 50


def said(table: Table, lists: ManifestLists | None) -> list[str] | str:
    try:
        return told(table, lists)
    except UnreadableFile as error:
        return error.message
