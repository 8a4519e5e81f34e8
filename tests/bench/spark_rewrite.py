"""Spark's `rewrite_data_files` on the same files: `python -m tests.bench.spark_rewrite TABLE DIRECTORY FILES`.

local[2], with code generation and all that makes it fast; the start of the JVM is not measured. A first table of a
quarter of the files warms it up, the second is measured: CPU of the JVM, as the system counts it. The files that Spark
has written are then in `out` of the directory.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.typedef import Record

from amoro_core.model.files import DataFile as InputDataFile
from tests.bench.data import TABLES, write_files
from tests.engine.commits import Change, commit
from tests.engine.parquet_rows import local_path
from tests.spark.catalogs import register_in_spark, sqlite_uri, warehouse_uri
from tests.spark.session import EXTENSIONS, JARS, missing_parts

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Register the files as tables, rewrite them and print the figures."""
    if missing := missing_parts():
        sys.exit(f"Spark needs {', '.join(missing)}: run make test")
    kind, root, count = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    from pyspark import __version__

    with tempfile.TemporaryDirectory(prefix="amoro-bench-spark-") as scratch:
        directory = Path(scratch)
        (directory / "warehouse").mkdir()
        catalog = SqlCatalog("bench", uri=sqlite_uri(directory), warehouse=warehouse_uri(directory))
        catalog.create_namespace("db")
        files = write_files(kind, root, count)
        for name, chosen in (("warm", files[: max(1, count // 4)]), ("measured", files)):
            add_table(catalog, kind, f"db.{name}", chosen)
        spark = fast_session(directory, cores=2)
        register_in_spark(spark, directory, "bench")
        _rewrite(spark, "warm")
        found = _rewrite(spark, "measured")
        spark.stop()
        _keep(catalog, directory, root / "out")
        catalog.close()
        shutil.rmtree(directory / "warehouse")
    print(json.dumps({**found, "version": __version__}))


def fast_session(scratch: Path, cores: int) -> Any:
    """A new local session with code generation; what it keeps meanwhile is in the scratch directory."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master(f"local[{cores}]").appName("amoro-bench")
    for key, value in {
        "spark.driver.memory": "3g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in sorted(JARS.glob("*.jar"))),
        "spark.sql.extensions": EXTENSIONS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def add_table(catalog: SqlCatalog, kind: str, name: str, files: Iterable[InputDataFile]) -> None:
    """Make a table of files that are there."""
    table = catalog.create_table(name, TABLES[kind].schema, properties={"format-version": "2"})
    added = tuple(_entry(file.path, file.record_count, file.size_bytes) for file in files)
    commit(table, lambda head: Change(added))


def _entry(path: str, rows: int, size: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=EntryFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=size,
    )
    file.spec_id = 0
    return file


def _rewrite(spark: Any, name: str) -> dict[str, float]:
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    before, started = cpu_of(pid), time.perf_counter()
    spark.sql(
        f"CALL bench.system.rewrite_data_files(table => 'db.{name}', options => map('rewrite-all', 'true'))"
    ).collect()
    wall = time.perf_counter() - started
    return {"cpu": cpu_of(pid) - before, "wall": wall, "peak_mb": _peak(pid)}


def _keep(catalog: SqlCatalog, warehouse: Path, out: Path) -> None:
    """Move the measured table's files out of its warehouse; those that were not rewritten are none of them."""
    out.mkdir(exist_ok=True)
    for one in catalog.load_table("db.measured").scan().plan_files():
        path = Path(local_path(one.file.file_path))
        if path.is_relative_to(warehouse):
            shutil.move(path, out / path.name)


def cpu_of(pid: int) -> float:
    """Seconds of CPU of a process, as the system counts them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _peak(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
