"""Format 3: deletion vectors that are Java's byte for byte, types and defaults, ids and last updates of rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from amoro_core.files.deletes.vectors import packed, positions_in
from amoro_core.iceberg.commit import committing
from amoro_core.iceberg.maintenance import rewrite_manifests
from amoro_core.iceberg.maintenance.rewrite_manifests import ManifestSource
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.model.files import TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.tables import OptimizingType
from tests.iceberg.rewriting import loaded, optimized, rewritten, scanned
from tests.tiers import seeds

from .java import Lineage, at_metadata, evolved, java_upsert, java_with, load_java_table, read_by_java
from .matching import scan_of
from .optimizing import Services
from .session import JARS, SharedCatalog, require
from .tables import MODES, create, delete, set_property, with_some_ids, without

MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL
#: Spark has a writer for each partition open.
SETS_OF_A_TABLE = 50
ONE_DELETE_FILE = ", 'write.delete.granularity' = 'partition'"
SEGMENTS = ", 'self-optimizing.fragment-ratio' = '1000000000'"  # so that minor converts


def random_set(chance: random.Random, rows: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Positions of up to that many rows: single ones, a share, runs, almost all, at the edges of containers."""
    pick = np.random.default_rng(chance.getrandbits(32))
    match chance.randrange(6):
        case 0:
            found = pick.integers(0, rows, chance.randint(1, 20))
        case 1:
            found = np.flatnonzero(pick.random(rows) < chance.choice([0.001, 0.05, 0.5, 0.95]))
        case 2:
            starts = pick.integers(0, rows, chance.randint(1, 8))
            found = np.concatenate([np.arange(at, min(rows, at + chance.choice([2, 300, 70_000]))) for at in starts])
        case 3:
            found = np.arange(rows - 1)
        case 4:
            found = np.array([at for at in (0, 65_535, 65_536, 131_071, 131_072, rows - 1) if at < rows])
        case _:
            found = np.arange(0, rows, chance.choice([2, 3, 16]))
    return np.unique(found) if len(found) else np.array([0])


def test_vectors_of_java_are_ours_byte_for_byte(catalog: SharedCatalog, tmp_path: Path) -> None:
    (seed,) = seeds(1, 1)
    compare_vectors(catalog, tmp_path, random.Random(seed), 8, "sets")


def compare_vectors(catalog: SharedCatalog, tmp_path: Path, chance: random.Random, count: int, name: str) -> None:
    """Let Spark delete random sets of positions from so many files, and compare its vectors with ours."""
    spark, table = catalog.spark, f"{catalog.name}.db.{name}"
    spark.sql(
        f"CREATE TABLE {table} (place INT, pos INT) USING iceberg PARTITIONED BY (place)"
        f" TBLPROPERTIES ('format-version' = '3', {MODES}, 'write.distribution-mode' = 'none')"
    )
    sizes = [chance.choice([5, 100, 1000, 66_000]) for _ in range(count)]
    frame = spark.createDataFrame(list(enumerate(sizes)), "place INT, rows INT")
    frame.repartition(4, "place").createOrReplaceTempView("sizes")
    # One file for each place, its rows in their order.
    spark.sql(f"INSERT INTO {table} SELECT place, explode(sequence(0, rows - 1)) FROM sizes")
    sets = [random_set(chance, rows) for rows in sizes]
    places = np.repeat(np.arange(count, dtype=np.int32), [len(found) for found in sets])
    gone = pa.table({"place": places, "pos": np.concatenate(sets).astype(np.int32)})
    pq.write_table(gone, tmp_path / f"{name}.parquet")
    spark.read.parquet(str(tmp_path / f"{name}.parquet")).createOrReplaceTempView("gone")
    spark.sql(f"MERGE INTO {table} t USING gone g ON t.place = g.place AND t.pos = g.pos WHEN MATCHED THEN DELETE")

    scan = scan_of(catalog, table)
    for file in scan.files:
        (place,) = (int.from_bytes(value or b"", "little") for value in file.data.partition)
        (vector,) = file.deletes
        assert file.data.record_count == sizes[place]
        start = vector.identity.offset
        blob = Path(normalise(vector.path)).read_bytes()[start : start + vector.identity.size]
        positions = positions_in(blob, vector.record_count, file.data.record_count, vector.path)
        assert positions == PositionSet.of(sets[place])
        assert packed(PositionSet.of(sets[place])) == blob
    assert len(scan.files) == count
    live = sum(sizes) - sum(map(len, sets))
    assert spark.sql(f"SELECT count(*) FROM {table}").collect()[0][0] == live
    assert len({delete.path for file in scan.files for delete in file.deletes}) < count


def vectors_of(scan: TableScan) -> list[int]:
    """The counts of the vectors of all data files; no position delete file applies to any."""
    deletes = [one for file in scan.files for one in file.deletes if not one.equality_ids]
    assert all(one.is_vector for one in deletes)
    return sorted(one.record_count for one in deletes)


def totals_of(services: Services) -> tuple[int, int]:
    """Deletes of the head as the metadata table counts them: entries, and positions in them."""
    (found,) = services.sql(f"SELECT count(*), coalesce(sum(record_count), 0) FROM {services.table}.delete_files")
    return tuple(found)


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Any]]:
    """Gateways to a JVM of each of two other versions."""
    jars = {version: list((JARS / "other-versions").glob(f"*-{version}.jar")) for version in ("1.10.1", "1.12.0")}
    require([f"Iceberg {version} in build/jars/other-versions" for version, found in jars.items() if not found])
    with ExitStack() as stack:
        yield {version: stack.enter_context(java_with(jar)) for version, (jar,) in jars.items()}


def require_by_others(services: Services, others: dict[str, Any], rows: Lineage) -> None:
    """Fail unless each version of Java's library finds these rows, with their ids, in the head."""
    location = services.catalog.load(services.table).metadata_location
    for version, gateway in others.items():
        assert version in gateway.jvm.org.apache.iceberg.IcebergBuild.fullVersion()
        assert read_by_java(at_metadata(gateway, location)) == rows, version


def test_all_deletes_of_an_upgraded_table_become_vectors_that_java_reads_and_spark_replaces(
    services: Services, others: dict[str, Any]
) -> None:
    spark, table = services.spark, services.table
    create(spark, table, *range(0, 120, 20), version=2, by="", more=f"{SEGMENTS}{ONE_DELETE_FILE}")
    delete(spark, table, 3, 4, 25, 47)
    set_property(spark, table, "format-version", "3")
    delete(spark, table, 5, 61, 62)  # the first file's vector takes the older positions along
    java_upsert(spark, table, ["id"], [{"id": 81}, {"id": 6}], [])
    rows, lineage = services.rows(), read_by_java(load_java_table(spark, table))
    assert len(rows) == 120 - 9

    receipt = services.rewrite(MINOR)
    services.require(rows)
    require_by_others(services, others, lineage)
    scan = scan_of(services.catalog, table)
    assert (vectors_of(scan), scan.dangling) == ([1, 1, 1, 2, 4], ())
    assert services.has_nothing_to_do(MINOR)
    made = services.snapshots()[-1].summary
    assert totals_of(services) == (5, 9)
    assert (made["total-delete-files"], made["total-position-deletes"], made["added-dvs"]) == ("5", "9", "5")
    assert (receipt.data_files_before, receipt.delete_files_after) == (0, 5)

    delete(spark, table, 7, 26, 101)  # Spark replaces two of our vectors
    services.sql(f"UPDATE {table} SET value = 'later' WHERE id = 60")
    again, lineage = services.rows(), read_by_java(load_java_table(spark, table))
    assert set(rows) - set(again) == {row for row in rows if row[0] in (7, 26, 60, 101)}
    services.require(again)
    services.rewrite(FULL)
    services.require(again)
    require_by_others(services, others, lineage)
    assert totals_of(services) == (0, 0)


def test_other_versions_read_what_a_rewrite_of_some_ids_leaves(services: Services, others: dict[str, Any]) -> None:
    with_some_ids(services.spark, services.table)
    before = read_by_java(load_java_table(services.spark, services.table))
    assert services.rewrite(FULL).data_files_after > 0
    require_by_others(services, others, before)


def test_java_reads_vectors_without_positions(services: Services) -> None:
    """One position delete file names the first and the last of five files, of which one at a time is converted: those
    without a deleted row get an empty vector while the old file stays.
    """
    spark, table, empty = services.spark, services.table, 0
    create(spark, table, *range(0, 100, 20), version=2, by="", more=f"{SEGMENTS}{ONE_DELETE_FILE}")
    delete(spark, table, 3, 83)
    for key, value in (("format-version", "3"), ("self-optimizing.max-file-count", "2")):
        set_property(spark, table, key, value)
    rows = services.rows()
    for _ in range(8):
        table_id = services.world.table(table).table_id
        process_id = services.world.planning.begin(table_id, trigger="request", requested=MINOR).process_id
        if process_id is None:
            break
        services.world.run_all(process_id)
        services.finish(process_id)
        services.require(rows)
        scan = scan_of(services.catalog, table)
        empty += [one.record_count for file in scan.files for one in file.deletes if one.is_vector].count(0)
    assert empty > 0
    assert (vectors_of(scan_of(services.catalog, table)), totals_of(services)) == ([1, 1], (2, 2))


def test_defaults_of_every_type_are_those_of_java(services: Services) -> None:
    spark, table = services.spark, services.table
    services.sql(f"CREATE TABLE {table} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '3')")
    for number in range(3):
        services.sql(f"INSERT INTO {table} VALUES ({number})")
    defaults = {
        "boolean": True,
        "int": -(2**31),
        "long": 2**53 + 1,
        "float": 0.1,
        "double": -1e-300,
        "date": "1582-10-04",
        "time": "23:59:59.999999",
        "timestamp": "0001-01-01T00:00:00.000001",
        "timestamptz": "2026-01-02T03:04:05.000006+02:00",
        "string": "é\U0001f600'\\",
        "uuid": "f79c3e09-677c-4bbd-a479-3f349cb785e7",
        "fixed[3]": bytearray(b"\0\xfe\xff"),
        "binary": bytearray(b"\0\xfe\xff\x01"),
        "decimal(38,3)": "-12345678901234567890123456789012345.678",
    }
    evolved(spark, table, *((None, f"c{at}", kind, value) for at, (kind, value) in enumerate(defaults.items())))
    before = read_by_java(load_java_table(spark, table))
    assert len(before) == 3
    services.rewrite(FULL)
    assert read_by_java(load_java_table(spark, table)) == before


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_the_lineage_of_many_copied_rows_is_read(services: Services, vectorized: str) -> None:
    table, rows, copied = services.table, 50_000, []
    services.sql(
        f"CREATE TABLE {table} (id BIGINT) USING iceberg"
        f" TBLPROPERTIES ('format-version' = '3', 'read.parquet.vectorization.enabled' = '{vectorized}')"
    )
    for first in (0, rows, 2 * rows):
        services.sql(
            f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ nullif(id, -1) FROM range({first}, {first + rows})"
        )
        if first:
            copied.append({one.name: one.value for one in services.rewrite(MINOR).more}["files_copied"])
    assert copied == [0, 1]  # the output of the first stores the lineage
    told = services.sql(
        f"SELECT count(*), count_if(_row_id = if(id < 2 * {rows}, id, id + 2 * {rows})),"  # the first rewrite took ids
        f" count_if(_last_updated_sequence_number = if(id < 2 * {rows}, 1 + id DIV {rows}, 4)) FROM {table}"
    )
    assert told == [(3 * rows,) * 3]
    between = services.sql(f"SELECT id FROM {table} WHERE _row_id BETWEEN {rows - 2} AND {rows + 1} ORDER BY id")
    assert [row[0] for row in between] == [rows - 2, rows - 1, rows, rows + 1]


# Ids of rows


def eight_files(services: Services, more: str = "") -> Table:
    """A table by part, in which Spark wrote eight files in four commits and one file anew without a deleted row."""
    services.sql(
        f"CREATE TABLE {services.table} (id BIGINT, part STRING) USING iceberg PARTITIONED BY (part) TBLPROPERTIES"
        f" ('format-version' = '3', 'write.delete.mode' = 'copy-on-write', 'write.update.mode' = 'copy-on-write'{more})"
    )
    for first in (0, 10, 20, 30):
        rows = f"SELECT id, if(id % 3 = 0, 'a', 'b') FROM range({first}, {first + 10})"
        services.sql(f"INSERT INTO {services.table} {rows}")
    services.sql(f"DELETE FROM {services.table} WHERE id = 12")
    return services.catalog.load(services.table)


def java_ids(services: Services, branch: str = "main") -> dict[int, int | None]:
    """The id that Iceberg's Java reader gives to each row, by the row's own number; no two have the same one."""
    found = services.sql(f"SELECT id, _row_id FROM {services.table} VERSION AS OF '{branch}'")
    ids = {one.id: one._row_id for one in found}
    assert len(ids) == len(found) == len(set(ids.values()) - {None})
    return ids


def first_ids(services: Services) -> dict[str, int | None]:
    """The first row id of each live data file: Java and we find the same."""
    ours = {one.data.path: one.data.first_row_id for one in scanned(services.catalog.load(services.table)).files}
    theirs = services.sql(f"SELECT * FROM {services.table}.data_files")
    assert ours == {one.file_path: one.first_row_id for one in theirs}
    return ours


def test_we_read_the_ids_of_spark_and_it_reads_ours_and_its_branch_beside_our_commits_shares_none(
    services: Services,
) -> None:
    name, table = services.table, eight_files(services)
    before, before_ids = java_ids(services), first_ids(services)
    replaced = sorted(before_ids)[:3]
    services.sql(f"ALTER TABLE {name} CREATE BRANCH side")
    services.sql(f"INSERT INTO {name}.branch_side SELECT id, 'a' FROM range(300, 305)")

    optimized(table, rewritten(table, only=replaced))

    after_ids, after = first_ids(services), java_ids(services)
    kept = before_ids.keys() - set(replaced)
    assert {path: after_ids[path] for path in kept} == {path: before_ids[path] for path in kept}
    assert after.keys() == before.keys()
    services.sql(f"INSERT INTO {name}.branch_side SELECT id, 'a' FROM range(310, 315)")
    services.sql(f"INSERT INTO {name} SELECT id, 'a' FROM range(100, 110)")
    services.sql(f"UPDATE {name} SET part = 'c' WHERE id = 7")
    services.sql(f"DELETE FROM {name} WHERE id = 30")
    last = java_ids(services)
    assert last.keys() == after.keys() - {30} | set(range(100, 110))
    assert without(last, range(100, 110)) == without(after, [30])

    optimized(loaded(table), rewritten(loaded(table), only=sorted(first_ids(services))[:2]))
    main, side = java_ids(services), java_ids(services, "side")
    own = [given for key, given in side.items() if key >= 300]
    assert len(own) == 10
    assert set(own).isdisjoint(main.values())


def test_merged_and_clustered_manifests_keep_the_ids_that_java_gives(services: Services) -> None:
    name = services.table
    table = eight_files(services, ", 'commit.manifest.min-count-to-merge' = '2'")
    before, replaced = java_ids(services), min(first_ids(services))
    of_it = {one.id for one in services.sql(f"SELECT id FROM {name} WHERE _file = '{replaced}'")}

    optimized(table, rewritten(table, only=[replaced]))

    head = loaded(table).current_snapshot()
    assert head is not None
    assert [one.existing_files_count for one in read_list(table.io, head.manifest_list) if one.added_files_count] != [0]
    assert without(java_ids(services), of_it) == without(before, of_it)

    set_property(services.spark, name, "commit.manifest.min-count-to-merge", "100")
    for number in (200, 201):
        services.sql(f"INSERT INTO {name} VALUES ({number}, 'a')")
    before = java_ids(services)

    def source() -> ManifestSource:
        return ManifestSource(loaded(table), read_manifest, [table.location()])

    done = rewrite_manifests.stage(source(), source, None, {})
    committing.send(table.catalog, loaded(table), done.commit.payload)
    assert java_ids(services) == before
    services.call("rewrite_manifests")
    assert java_ids(services) == before
    first_ids(services)


def test_rows_keep_their_ids_when_they_are_rewritten_and_when_that_is_undone(services: Services) -> None:
    """Java takes the id that an added entry says."""
    eight_files(services)
    before, process_id = java_ids(services), services.begin(FULL)
    services.finish(process_id)
    assert java_ids(services) == before
    services.sql(f"INSERT INTO {services.table} VALUES (500, 'a')")
    services.undo(process_id)
    assert without(java_ids(services), [500]) == before
    first_ids(services)
    services.sql(f"INSERT INTO {services.table} VALUES (501, 'a')")
    assert java_ids(services).keys() == before.keys() | {500, 501}
