"""CPU of looking at a large table, and again after small commits: `python -m tests.bench.looking` prints JSON.

`[--files 1000000] [--manifests 1000] [--commits 5]`. The table is metadata alone: daily partitions, statistics of ten
columns; its latest partitions have fragments, equality deletes and position deletes. In one process, by the services'
own calls: the first look (load, scan, evaluate), the look and the plan after another's commit of twelve files, and the
same after a restart. Looks and plans after commits are medians of so many commits.
"""

from __future__ import annotations

import gc
import os
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.iceberg.manifest.reading import read_list
from amoro_core.iceberg.manifest.writing import Listing, added_entry, new_header, write_list, write_manifest
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from tests.bench.machine import Child, answer, memory_mb, options, say, tell
from tests.engine.commits import MAIN, _send

MIB = 1024 * 1024
PARTITIONS = 1000
COLUMNS = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
#: Files of another's commit.
ADDED = 12


def main() -> None:
    """Make the table and measure, or be the process that looks."""
    given = options(__doc__, files=1_000_000, manifests=1000, commits=5, look="")
    if given.look:
        _look(Path(given.look))
        return
    # As `amoro` does before Arrow is loaded.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0")
    with tempfile.TemporaryDirectory(prefix="amoro-bench-") as directory:
        catalog = make_table(Path(directory), given.files, given.manifests)
        tell(f"made a table of {given.files:,} files in {given.manifests:,} manifests")
        say({"files": given.files, "manifests": given.manifests, **_measured(catalog, Path(directory), given.commits)})
        catalog.close()


def _measured(catalog: SqlCatalog, root: Path, commits: int) -> dict[str, float]:
    steps: dict[str, list[float]] = {}
    with Child("tests.bench.looking", "--look", str(root)) as looking:
        first = looking.figures("look")
        for number in range(2 * commits):
            append(catalog, number + 1)
            after = "after a commit" if number < commits else "after a restart and a commit"
            if number >= commits:
                looking.ask("restart")
            for step in ("look", "plan"):
                steps.setdefault(f"{step} {after}, cpu s", []).append(looking.figures(step)["cpu s"])
        peak = looking.figures("look")["peak MB"]
    medians = {name: round(statistics.median(some), 3) for name, some in steps.items()}
    return {"first look, cpu s": first["cpu s"], "first look, peak MB": first["peak MB"], **medians, "peak MB": peak}


def _look(root: Path) -> None:
    """Take the steps that a coordinator takes, as it is told."""
    config = CatalogConfig("cat", (("type", "sql"), ("uri", _uri(root)), ("warehouse", root.as_uri())))

    def look() -> Any:
        table = formats.load(config, TableIdentifier("cat", ("db",), "t"))
        table.refuse_unsupported()
        scan = table.scan()
        assert scan is not None
        return scan, evaluate(scan, OptimizingConfig(), {}, NOW, path_of=table.partition_path)

    formats = IcebergFormat(TableManifestCache(2**40))
    gc.freeze()  # as `amoro` does after its imports
    for line in sys.stdin:
        begun = time.process_time()
        match line.strip():
            case "restart":
                formats = IcebergFormat(TableManifestCache(2**40))  # nothing is known
            case "plan":
                assert plan(*look(), OptimizingConfig(), threads=4) is not None
            case _:
                look()
        answer({"cpu s": round(time.process_time() - begun, 3), "peak MB": round(memory_mb("VmHWM"))})


def _uri(root: Path) -> str:
    return f"sqlite:///{root / 'catalog.db'}"


def make_table(root: Path, files: int, data_manifests: int, active: int = 20) -> SqlCatalog:
    """A table in a catalog below the directory, of which only the metadata exist; its last partitions are active."""
    root.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("cat", uri=_uri(root), warehouse=root.as_uri())
    catalog.create_namespace("db")
    schema = Schema(*(NestedField(at, f"c{at}", LongType(), required=False) for at in range(1, COLUMNS + 1)))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c1"))
    table = catalog.create_table("db.t", schema, partition_spec=spec, properties={"format-version": "2"})
    header, snapshot_id = new_header(table.metadata, table.metadata.default_spec_id), 1
    manifests = []
    for content, some in _manifests(table.location(), files, active, data_manifests):
        path = f"{table.location()}/metadata/m{len(manifests)}.avro"
        # The first entry is written as commits write it; the others are written by its schema, many times faster.
        entry = added_entry(_file(some[0]), header, snapshot_id)
        listed = write_manifest(table.io, path, 2, ManifestContent(content), header, snapshot_id, [entry])
        place = Path(path.removeprefix("file://"))
        with place.open("rb") as source:
            reader: Any = fastavro.reader(source)
            metadata = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
            avro = reader.writer_schema
        with place.open("wb") as target:
            records = (_record(snapshot_id, one) for one in some)
            fastavro.writer(target, avro, records, codec="deflate", sync_interval=64_000, metadata=metadata)
        for at, value in ((1, place.stat().st_size), (7, len(some)), (10, sum(one["record_count"] for one in some))):
            listed._data[at] = value
        manifests.append(listed)
    path = f"{table.location()}/metadata/snap-1.avro"
    _commit(table, path, Listing(2, snapshot_id, 0, 10), manifests)
    return catalog


def append(catalog: SqlCatalog, number: int) -> None:
    """Another's commit of small files to one partition."""
    table = catalog.load_table("db.t")
    head = table.current_snapshot()
    assert head is not None
    snapshot_id, sequence = 1000 + number, table.metadata.next_sequence_number()
    header = new_header(table.metadata, table.metadata.default_spec_id)
    described = (
        _described(table.location(), number % PARTITIONS, f"n{number}{at}", MIB, sequence) for at in range(ADDED)
    )
    entries = [added_entry(_file(one), header, snapshot_id) for one in described]
    path = f"{table.location()}/metadata/n{number}.avro"
    added = write_manifest(table.io, path, 2, ManifestContent.DATA, header, snapshot_id, entries)
    path = f"{table.location()}/metadata/snap-n{number}.avro"
    listing = Listing(2, snapshot_id, head.snapshot_id, sequence)
    _commit(table, path, listing, [added, *read_list(table.io, head.manifest_list)])


def _commit(table: Table, path: str, listing: Listing, manifests: list[ManifestFile]) -> None:
    write_list(table.io, path, listing, manifests)
    snapshot = Snapshot(
        snapshot_id=listing.snapshot_id,
        parent_snapshot_id=listing.parent_snapshot_id or None,
        sequence_number=listing.sequence_number,
        manifest_list=path,
        summary=Summary(operation=Operation.APPEND),
        schema_id=table.metadata.current_schema_id,
    )
    _send(table, snapshot, MAIN)


def _manifests(
    location: str, files: int, active: int, data_manifests: int
) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """The content of each manifest and its files, in the order of partitions, then the deletes of all."""
    each, most = files // PARTITIONS, max(1, files // data_manifests)
    deletes: list[dict[str, Any]] = []
    some: list[dict[str, Any]] = []
    for day in range(PARTITIONS):
        busy = day >= PARTITIONS - active
        small = min(20, each) if busy else 0
        for at in range(each):
            size = (1 + at % 8) * MIB if at < small else (97 + (at * 7919 + day) % 60) * MIB
            some.append(_described(location, day, f"{at:06}", size, 1 if at >= small else 8))
        if busy:
            deletes += [_described(location, day, f"e{number}", 4000, number, 2) for number in (5, 9)]
            deletes += [
                {**_described(location, day, f"p{at}", 2000, 6, 1), "referenced_data_file": some[-1 - at]["file_path"]}
                for at in range(each // 20)
            ]
        while len(some) >= most or (some and day == PARTITIONS - 1):
            yield 0, some[:most]
            some = some[most:]
    if deletes:
        yield 1, deletes


def _described(location: str, day: int, name: str, size: int, number: int, content: int = 0) -> dict[str, Any]:
    key = f"{day:04}{name:0>10}".encode().hex()
    return {
        "content": content,
        "file_path": f"{location}/data/c1={day}/{day:05}-{name}-{key}-00001.parquet",
        "partition": day,
        "record_count": 100_000 if content == 0 else 50,
        "file_size_in_bytes": size,
        "number": number,
        "equality_ids": [2] if content == 2 else None,
    }


def _file(one: dict[str, Any]) -> Any:
    path, figures = one["file_path"], (one["record_count"], one["file_size_in_bytes"], one["number"])
    common = (FileFormat.PARQUET, 0, (struct.pack("<q", one["partition"]),), *figures)
    return DataFile(path, *common) if one["content"] == 0 else DeleteFile(path, DeleteKind.EQUALITY, *common)


def _record(snapshot_id: int, one: dict[str, Any]) -> dict[str, Any]:
    rows, day = one["record_count"], one["partition"]

    def pairs(value: Callable[[int], object]) -> list[dict[str, object]]:
        return [{"key": at, "value": value(at)} for at in range(1, COLUMNS + 1)]

    file = {key: value for key, value in one.items() if key != "number"} | {
        "file_format": "PARQUET",
        "partition": {"c1": day},
        "column_sizes": pairs(lambda at: one["file_size_in_bytes"] // COLUMNS + at),
        "value_counts": pairs(lambda at: rows),
        "null_value_counts": pairs(lambda at: at),
        "nan_value_counts": [],
        "lower_bounds": pairs(lambda at: struct.pack("<q", day * 1000 + at)),
        "upper_bounds": pairs(lambda at: struct.pack("<q", day * 1_000_000 + at)),
        "key_metadata": None,
        "split_offsets": [4],
        "sort_order_id": 0 if one["content"] == 0 else None,
    }
    numbers = dict.fromkeys(("sequence_number", "file_sequence_number"), one["number"])
    return {"status": 1, "snapshot_id": snapshot_id, **numbers, "data_file": file}


if __name__ == "__main__":
    main()
