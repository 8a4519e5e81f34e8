"""Random files of Iceberg's Java writer, Spark's own and others are copied: no reader finds other rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession, functions

from amoro_core.model.tables import OptimizingType
from tests.engine.parquet_rows import local_path
from tests.rewrite.checking import assert_holding_metrics
from tests.rewrite.random_copies import (
    CODECS,
    FIELDS,
    KEY,
    KINDS,
    choose_writer,
    fixed_encodings,
    make_rows,
    writes_as_iceberg,
)
from tests.tiers import seeds

from .matching import scan_of
from .optimizing import Services
from .session import set_for_now
from .tables import Rows

JAVA, SPARK = "java", "spark"
#: Spark has no times of day, and no way to tell ids of what is in lists and maps to its own writer.
_COLUMNS = [field for field in FIELDS if field.name != "clock"]
_NOT_BY_SPARK = {"u", "fixed", "l", "texts", "m", "r"}

#: Java's runtime comes without brotli.
_CODECS = [codec for codec in CODECS if codec != "brotli"]

#: Values of a column from `h`, a hash of the row's id.
_VALUES = {
    "s": "concat('text ', h % 50)",
    "f": "if(h % 9 = 0, double('NaN'), h / 8)",
    "i": "int(h % 1000)",
    "yes": "h % 3 = 0",
    "g": "float(if(h % 11 = 0, double('-Infinity'), (h % 100) / 4))",
    "raw": "CAST(concat('b', h % 70) AS BINARY)",
    "day": "date_add(DATE '2000-01-01', int(h % 9000))",
    "moment": "timestamp_micros(h * 1000003)",
    "local": "CAST(timestamp_micros(h * 999983) AS TIMESTAMP_NTZ)",
    "d": "CAST((h % 100000) / 4 AS DECIMAL(9, 2))",
    "long": "CAST(h / 16 AS DECIMAL(18, 4))",
    "big": "CAST(-h / 32 AS DECIMAL(38, 6))",
    "u": "regexp_replace(md5(string(h)), '(.{8})(.{4})(.{4})(.{4})(.{12})', '$1-$2-$3-$4-$5')",
    "fixed": "CAST(lpad(string(h % 90), 5, '0') AS BINARY)",
    "l": "array(h, NULL, id)",
    "texts": "if(h % 4 = 0, array(), array(concat('t', h % 9), NULL))",
    "m": "map(concat('k', h % 3), nullif(h / 2, 1))",
    "r": "named_struct('a', nullif(int(h % 99), 7), 'b', nullif(string(h % 12), '5'))",
}


class CopyStory:
    """A table of random columns, to which random files come, and which is optimized now and then."""

    def __init__(self, services: Services, seed: int) -> None:
        self._services, self._catalog, self._spark = services, services.catalog, services.spark
        self._chance, self._next, self.totals = random.Random(seed), 0, Counter[str]()
        self.table = services.table
        chosen = self._chance.sample(_COLUMNS, self._chance.randint(3, 8))
        if self._chance.random() < 0.4:
            chosen = [field for field in chosen if field.name not in _NOT_BY_SPARK] or chosen
        key = "self-optimizing.rewrite.use-parquet-row-group-merge.min-avg-row-group-size-bytes"
        # Java reads only the commonest encodings column by column.
        properties = {"format-version": "2", key: "0", "read.parquet.vectorization.enabled": "false"}
        made = self._catalog.pyiceberg.create_table("db.t", Schema(KEY, *chosen), properties=properties)
        self._schema = made.schema()

    def grow(self, files: int) -> None:
        """So many files more, two of five of Iceberg's Java writer."""
        kinds = [kind for kind in KINDS if writes_as_iceberg(kind, self._schema)]
        if _NOT_BY_SPARK.isdisjoint(field.name for field in self._schema.fields):
            kinds += [SPARK] * 3
        for _ in range(files):
            kind = JAVA if self._chance.random() < 0.4 else self._chance.choice(kinds)
            self._write(kind, self._chance.choice((1, 60, 300, 700)))
            self.totals[f"files of {kind.split()[0]}"] += 1
            self.totals["files"] += 1

    def optimize(self) -> None:
        """Optimize it; Spark, DuckDB and pyarrow find the same rows as before, all of them and by conditions."""
        before, paths = self._rows(), self._paths()
        copied = self._services.world.files_copied
        self._services.rewrite(self._chance.choice((OptimizingType.MINOR, OptimizingType.FULL)))
        after = self._rows()
        assert {reader: after[reader] for reader in before} == before  # DuckDB may read files that it could not
        self._require_found(before["spark"])
        now = self._paths()
        old, new = [one for one in paths if one not in now], [one for one in now if one not in paths]
        for one in scan_of(self._catalog, self.table).files:
            if local_path(one.data.path) in new:  # Java adds files of others with bounds that NaN may be beyond
                assert_holding_metrics(one.data, self._schema)
        copied = self._services.world.files_copied - copied
        self.totals["files rewritten"] += len(old)
        self.totals["files copied whole"] += copied
        if copied == len(old):
            self.totals["groups copied whole"] += 1
            told = _told(new)
            assert told == _told(old)
            self.totals += Counter({f"{name} kept": count for name, count in told.items()})

    def _write(self, kind: str, count: int) -> None:
        first, self._next = self._next, self._next + count
        if kind == JAVA:
            with self._written_by(_java_properties(self._chance, self._schema)):
                self._selected(first, count).writeTo(self.table).append()
            return
        place = self._catalog.root / "warehouse" / "other" / str(first)
        if kind == SPARK:
            by_id = self._chance.random() < 0.8
            _by_spark(self._chance, self._selected(first, count), self._schema, str(place), with_ids=by_id)
        else:
            place.mkdir(parents=True)
            rows = make_rows(self._chance, self._schema, first, count)
            choose_writer(self._chance, kind, self._schema, _CODECS)(rows, place / "one.parquet")
        self._services.call("add_files", f"source_table => '`parquet`.`{place}`'")

    def _selected(self, first: int, count: int) -> DataFrame:
        """Rows of all columns, which may be null as far as Spark knows: else it writes them as required."""
        names = [field.name for field in self._schema.fields[1:]]
        chosen = [f"IF(h % {self._chance.choice((2, 10, 10, 90))} = 0, NULL, {_VALUES[one]}) AS {one}" for one in names]
        salt = self._chance.randrange(1000)
        return self._spark.sql(
            f"""SELECT nullif(id, -1) AS id, {", ".join(chosen)} FROM
            (SELECT id, pmod(xxhash64(id, {salt}), 1000003) AS h FROM range({first}, {first + count}, 1, 1))"""
        )

    @contextmanager
    def _written_by(self, properties: dict[str, str]) -> Iterator[None]:
        """With these properties of the table; not when it is optimized, which would ask for bloom filters in all."""
        with self._catalog.load(self.table).transaction() as change:
            change.set_properties(properties)
        yield
        with self._catalog.load(self.table).transaction() as change:
            change.remove_properties(*properties)

    def _paths(self) -> list[str]:
        return sorted(map(local_path, self._services.paths()))

    def _rows(self) -> dict[str, Rows]:
        """The rows as each reader has them."""
        paths, names = self._paths(), [field.name for field in self._schema.fields]
        found = {"spark": self._services.rows()}
        found["pyarrow"] = Counter(
            (str(row),) for path in paths for row in pq.read_table(path, columns=names).to_pylist()
        )
        if "BYTE_STREAM_SPLIT" not in fixed_encodings(paths):  # of these DuckDB reads numbers only
            rows = duckdb.sql(f"select {', '.join(names)} from read_parquet({paths!r})").fetchall()
            found["duckdb"] = Counter((str(row),) for row in rows)
        return found

    def _require_found(self, rows: Rows) -> None:
        """Conditions on the key and on a text find what they should, through bounds, page indexes and filters."""
        at = self._chance.randrange(self._next)
        conditions = [(f"id = {at}", 1), (f"id BETWEEN {at} AND {at + 99}", min(100, self._next - at))]
        conditions.append((f"id > {self._next}", 0))
        names = [field.name for field in self._schema.fields]
        if "s" in names:
            text = f"text {self._chance.randrange(55)}"
            column = names.index("s")
            conditions.append((f"s = '{text}'", sum(n for row, n in rows.items() if row[column] == text)))
        for name in {"d", "long", "big"}.intersection(names):
            column = names.index(name)
            known = sorted({row[column] for row in rows} - {None})
            for value in (known[0], self._chance.choice(known)) if known else ():
                wanted = sum(n for row, n in rows.items() if row[column] is not None and row[column] <= value)
                conditions.append((f"{name} <= {value:f}", wanted))
        sources, paths = [self.table], self._paths()
        if "BYTE_STREAM_SPLIT" not in fixed_encodings(paths):  # of these DuckDB reads numbers only
            sources.append(f"read_parquet({paths!r})")
        for condition, count in conditions:
            for source in sources:
                query = f"SELECT count(*) FROM {source} WHERE {condition}"
                is_table = source == self.table
                (found,) = self._spark.sql(query).collect()[0] if is_table else duckdb.sql(query).fetchall()[0]
                assert found == count, (query, found, count)


def _java_properties(chance: random.Random, schema: Schema) -> dict[str, str]:
    properties = {
        "write.parquet.compression-codec": chance.choice(("snappy", "gzip", "zstd", "uncompressed", "lz4_raw")),
        "write.parquet.page-version": chance.choice(("v1", "v2")),
        "write.parquet.row-group-size-bytes": chance.choice(("2000", "134217728")),
        "write.parquet.row-group-check-min-record-count": "20",
        "write.parquet.row-group-check-max-record-count": "100",
        "write.parquet.page-row-limit": chance.choice(("20", "20000")),
        "write.parquet.dict-size-bytes": chance.choice(("64", "2097152")),
        "write.metadata.metrics.default": chance.choice(("none", "counts", "truncate(16)", "truncate(4)", "full")),
        "parquet.page.write-checksum.enabled": chance.choice(("true", "false")),
    }
    for field in schema.fields:
        if field.field_type.is_primitive and str(field.field_type) != "boolean" and chance.random() < 0.3:
            properties[f"write.parquet.bloom-filter-enabled.column.{field.name}"] = "true"
        if chance.random() < 0.1:
            properties[f"write.parquet.stats-enabled.column.{field.name}"] = "false"
    return properties


def _by_spark(chance: random.Random, rows: DataFrame, schema: Schema, place: str, *, with_ids: bool) -> None:
    """By Spark's own writer of Parquet, which gives columns the ids that it is told."""
    ids = {field.name: {"parquet.field.id": field.field_id} if with_ids else {} for field in schema.fields}
    options: dict[str, Any] = {
        "compression": chance.choice(("snappy", "gzip", "zstd", "none", "lz4_raw")),
        "parquet.writer.version": chance.choice(("v1", "v2")),
        "parquet.block.size": chance.choice((2000, 134217728)),
        "parquet.page.size.row.check.min": 20,
        "parquet.page.row.count.limit": chance.choice((20, 20000)),
        "parquet.enable.dictionary": chance.choice(("true", "false")),
        "parquet.bloom.filter.enabled": chance.choice(("true", "false")),
        "parquet.page.write-checksum.enabled": chance.choice(("true", "false")),
    }
    named = rows.select(*(functions.col(name).alias(name, metadata=one) for name, one in ids.items()))
    named.write.options(**options).parquet(place)


def _told(paths: Sequence[str]) -> Counter[str]:
    """How many column chunks of the files have what readers use beside statistics."""
    found: Counter[str] = Counter()
    for path in paths:
        footer = pq.read_metadata(path)
        for group in (footer.row_group(at) for at in range(footer.num_row_groups)):
            for chunk in (group.column(at) for at in range(group.num_columns) if group.num_rows):
                found["page indexes"] += chunk.has_column_index and chunk.has_offset_index
                found["bloom filters"] += chunk.bloom_filter_offset is not None
    return found


@pytest.fixture
def _moments(spark: SparkSession) -> Iterator[None]:
    """Spark's own writer writes moments in microseconds, not as int96, which nobody copies."""
    with set_for_now(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        yield


@pytest.mark.usefixtures("_moments")
@pytest.mark.parametrize("seed", seeds(1, 1))
def test_random_files_of_java_and_others_keep_their_rows_when_they_are_copied(services: Services, seed: int) -> None:
    story = CopyStory(services, seed)
    for _ in range(2):
        story.grow(8)
        story.optimize()
    totals = story.totals
    assert totals["files"] == 16
    assert totals["files of java"] >= 4
    # The second time, the first output is among them. More than half are not decoded, whatever the seed.
    assert totals["files copied whole"] > totals["files rewritten"] / 2
