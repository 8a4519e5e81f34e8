"""Files that queries meet after clustering, beside Iceberg's own rewriting of the same rows into as many files.

Run it with `python -m tests.bench.skipping [--rows 1000000] [--files 256] [--points 100] [--only heavy]`. Both tables
are planned by Iceberg's Java (`planFiles`); a figure is the mean share of the table's files that a point on the column
meets, or a box of 5 % × 5 % of the values of the first two. Points are values of rows; the value of a quarter of the
rows is told apart.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException

from amoro_core.model.clustering import ClusterOptions
from tests.spark.catalogs import SharedCatalog, shared_catalog
from tests.spark.java import JavaTable, load_java_table
from tests.spark.optimizing import Services, cluster_table, services_on
from tests.spark.session import missing_parts, start_session

PREFIX = "0123456789" * 4
#: Of the column `heavy` every fourth row has it.
HEAVY = 500_000_000
APPENDS = 4


def whole(most: int) -> Callable[[np.random.Generator, int], pa.Array]:
    return lambda chance, rows: pa.array(chance.integers(0, most, rows))


def text(chance: np.random.Generator, rows: int) -> pa.Array:
    return pa.array([f"{PREFIX}{one:09d}" for one in chance.integers(0, 10**9, rows).tolist()])


def money(chance: np.random.Generator, rows: int) -> pa.Array:
    values = (Decimal(one).scaleb(-2) for one in chance.integers(0, 10**11, rows).tolist())
    return pa.array(values, pa.decimal128(20, 2))


def heavy(chance: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(np.where(np.arange(rows) % 4 == 0, HEAVY, chance.integers(0, 10**9, rows)))


#: What each column is made of.
COLUMNS: Mapping[str, Callable[[np.random.Generator, int], pa.Array]] = {
    "big": whole(10**9),
    "small": whole(2 * 10**6),
    "least": whole(10**5),
    "text": text,
    "money": money,
    "heavy": heavy,
}


#: The columns that a table is ordered by, on a curve where there is more than one.
CASES = {
    "linear": ("big",),
    "two": ("big", "small"),
    "three": ("big", "small", "least"),
    "text": ("text", "small"),
    "money": ("money", "small"),
    "heavy": ("heavy", "small"),
}


def main() -> None:
    """Measure and print the figures."""
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=256)
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--only", action="append", choices=list(CASES))
    given = parser.parse_args()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    with tempfile.TemporaryDirectory(prefix="amoro-bench-spark-") as scratch:
        directory = Path(scratch)
        spark = start_session(directory)
        for name in given.only or CASES:
            with (
                shared_catalog(spark, directory / name, f"bench_{name}") as catalog,
                services_on(catalog, directory / f"home-{name}") as services,
            ):
                measure(name, services, given)
        spark.stop()


def measure(name: str, services: Services, given: argparse.Namespace) -> None:
    """Print the figures of both ways."""
    columns, catalog, chance = CASES[name], services.catalog, np.random.default_rng(11)
    rows = pa.table({column: COLUMNS[column](chance, given.rows) for column in columns})
    ours = _make_table(catalog, f"{name}_ours", rows, given.files)
    theirs = _make_table(catalog, f"{name}_theirs", rows, given.files)
    strategy = "hilbert" if len(columns) > 1 else "linear"
    cluster_table(services, catalog.full_name(ours), ClusterOptions(columns=columns, strategy=strategy))
    _print(name, strategy, columns, load_java_table(catalog.spark, catalog.name, ours), rows, given.points)
    named = ", ".join(columns)
    for order in (f"zorder({named})", named)[len(columns) == 1 :]:  # where there is no z-order of such a column: sorted
        try:
            _rewrite(catalog, theirs, order, given.files)
        except PySparkException as error:
            print(f"{name:7} Iceberg's {order}: {str(error).splitlines()[0]}", flush=True)
            continue
        _print(
            name,
            f"Iceberg's {order}",
            columns,
            load_java_table(catalog.spark, catalog.name, theirs),
            rows,
            given.points,
        )
        break


def _make_table(catalog: SharedCatalog, name: str, rows: pa.Table, files: int) -> str:
    """A table of the rows in their order; its target is what makes so many files of them."""
    table = catalog.pyiceberg.create_table(f"db.{name}", rows.schema)
    with table.transaction() as change:
        change.set_properties({f"write.metadata.metrics.column.{column}": "full" for column in rows.column_names})
    for at in range(APPENDS):
        low, high = (rows.num_rows * edge // APPENDS for edge in (at, at + 1))
        table.append(rows.slice(low, high - low))
    target = str(_size(table.refresh()) // files)
    with table.transaction() as change:
        change.set_properties({"self-optimizing.target-size": target, "write.target-file-size-bytes": target})
    return f"db.{name}"


def _size(table: Any) -> int:
    return int(table.current_snapshot().summary["total-files-size"])


def _rewrite(catalog: SharedCatalog, name: str, order: str, files: int) -> None:
    target = _size(catalog.load(name)) // files
    catalog.spark.sql(
        f"CALL {catalog.name}.system.rewrite_data_files(table => '{name}', strategy => 'sort',"
        f" sort_order => '{order}', options => map('rewrite-all', 'true', 'target-file-size-bytes', '{target}'))"
    ).collect()


def _print(name: str, way: str, columns: tuple[str, ...], java: JavaTable, rows: pa.Table, points: int) -> None:
    chance = np.random.default_rng(13)
    files = _met(java, java.iceberg.expressions.Expressions.alwaysTrue())
    told, means = [], []
    for column in columns:
        values = [rows[column][int(at)].as_py() for at in chance.integers(0, rows.num_rows, 2 * points)]
        values = [one for one in values if column != "heavy" or one != HEAVY][:points]
        means.append(fmean(_met(java, _equal(java, column, one)) for one in values) / files)
        told.append(f"{column} {means[-1]:.4f}")
        if column == "heavy":
            told.append(f"its heavy value {_met(java, _equal(java, column, HEAVY)) / files:.4f}")
    if len(columns) > 1:
        ends = [np.sort(rows[column].to_numpy(zero_copy_only=False)) for column in columns[:2]]
        boxes = fmean(_met(java, _box(java, columns, ends, chance)) for _ in range(points)) / files
        told += [f"mean {fmean(means):.4f}", f"boxes {boxes:.4f}"]
    ideal = files ** (-1 / len(columns))
    print(f"{name:7} {way}: {files} files, points {', '.join(told)} (ideal {ideal:.4f})", flush=True)


def _met(java: JavaTable, condition: Any) -> int:
    planned = java.table.newScan().filter(condition).planFiles()
    lists: Any = java.gateway.jvm.org.apache.iceberg.relocated.com.google.common.collect.Lists
    found = {str(task.file().location()) for task in lists.newArrayList(planned)}
    planned.close()
    return len(found)


def _equal(java: JavaTable, column: str, value: Any) -> Any:
    return java.iceberg.expressions.Expressions.equal(column, _literal(java, value))


def _box(java: JavaTable, columns: tuple[str, ...], ends: list[Any], chance: np.random.Generator) -> Any:
    """A twentieth of the rows' values of each of the first two columns."""
    made: Any = java.iceberg.expressions.Expressions
    found = made.alwaysTrue()
    for column, values in zip(columns, ends, strict=False):
        low = int(chance.integers(len(values) * 19 // 20))
        both = (values[low], values[low + len(values) // 20 - 1])
        least, most = (_literal(java, one.item() if isinstance(one, np.generic) else one) for one in both)
        for end in (made.greaterThanOrEqual(column, least), made.lessThanOrEqual(column, most)):
            found = getattr(made, "and")(found, end)
    return found


def _literal(java: JavaTable, value: Any) -> Any:
    return java.gateway.jvm.java.math.BigDecimal(str(value)) if isinstance(value, Decimal) else value


if __name__ == "__main__":
    main()
