"""Memory and CPU of a table's live files: `python -m tests.bench.live_files [--files 1000000] [--before DIR]`.

A table of daily partitions whose files have statistics of ten columns, made of manifests alone. Its latest partitions
(`--active`) have fragments, equality deletes and position deletes as well. A process of its own scans the table and
evaluates it, and scans it again with a cache of decoded manifests. `--before` names a checkout of an earlier version,
which does the same in the same run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
PARTITIONS = 1000
COLUMNS = 10
NOW = datetime(2026, 1, 1, tzinfo=UTC)
HERE = Path(__file__).resolve()
#: What the command `amoro` names for Arrow before it is loaded; here for every version.
OF_AMORO = {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc", "JE_ARROW_MALLOC_CONF": "dirty_decay_ms:1000,muzzy_decay_ms:0"}


def main() -> None:
    """Parse the command line; print the figures of this version and of the one before."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--active", type=int, default=20, help="partitions with fragments and deletes")
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--root", type=Path, help="where the table is, or is to be made; else a temporary directory")
    parser.add_argument("--run", action="store_true", help="measure this version in this process")
    given = parser.parse_args()
    if given.run:
        print(json.dumps(measured(given.root)))
        return
    with tempfile.TemporaryDirectory(prefix="amoro-live-files-") as directory:
        root = given.root or Path(directory)
        if not (root / "catalog.db").exists():
            made_up(root, given.files, given.active)
        load = os.getloadavg()[0]
        print(f"{given.files} data files, {given.active} of {PARTITIONS} partitions active, load {load:.1f}")
        for name, version in (("now", HERE.parents[2]), ("before", given.before)):
            if version is not None:
                figures = _run(version, root)
                print(f"{name:<7}" + ", ".join(f"{key} {value}" for key, value in figures.items()), flush=True)


def _run(version: Path, root: Path) -> dict[str, Any]:
    command = [sys.executable, str(HERE), "--run", "--root", str(root)]
    env = {**os.environ, **OF_AMORO, "PYTHONPATH": str(version)}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True, text=True)
    return dict(json.loads(done.stdout))


def measured(root: Path) -> dict[str, float | str]:
    """Seconds of CPU and MB of one scan and one evaluation by whatever version is imported."""
    from pyiceberg.catalog.sql import SqlCatalog

    from amoro_core.model.config import OptimizingConfig
    from amoro_core.planning.evaluating import evaluate

    scanning = importlib.import_module("amoro_core.iceberg.scan")
    table = SqlCatalog("cat", uri=f"sqlite:///{root / 'catalog.db'}", warehouse=root.as_uri()).load_table("db.t")
    matching: list[float] = []
    scanning.match = _timed(scanning.match, matching)
    before, begun = _memory("VmRSS"), time.process_time()
    scan = scanning.scan(table, (table.location(),))
    read = time.process_time() - begun - sum(matching)
    begun = time.process_time()
    evaluation = evaluate(scan, OptimizingConfig(), {}, NOW)
    evaluated = time.process_time() - begun
    peak = _memory("VmHWM")
    return {
        "read s": round(read, 1),
        "match s": round(sum(matching), 2),
        "evaluate s": round(evaluated, 2),
        "match and evaluate s": round(sum(matching) + evaluated, 2),
        "MB before": round(before),
        "MB after": round(_memory("VmRSS")),
        "MB peak": round(peak),
        **_cached(scanning.scan, table),
        "verdict": f"{evaluation.type}, {len(evaluation.partitions)} partitions, "
        f"{sum(len(one.work) for one in evaluation.partitions)} tasks, {evaluation.summary}",
    }


def _cached(scan: Callable[..., Any], table: Any) -> dict[str, float | str]:
    """Seconds of CPU of a scan that fills a cache, and of one that finds everything there; nothing without a cache."""
    try:
        from amoro_core.iceberg.column_cache import ColumnCache
        from amoro_core.iceberg.scan import Known
    except ImportError:
        return {}
    with tempfile.TemporaryDirectory(prefix="amoro-live-files-cache-") as directory:
        cache, seconds = ColumnCache(Path(directory), 2**40), []
        for _ in range(2):
            begun = time.process_time()
            scan(table, (table.location(),), known=Known(cache))
            seconds.append(round(time.process_time() - begun, 2))
        size = sum(path.stat().st_size for path in Path(directory).iterdir())
    return {"scan and cache s": seconds[0], "scan again s": seconds[1], "MB of cache": round(size / MIB)}


def _timed(function: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        begun = time.process_time()
        try:
            return function(*arguments)
        finally:
            seconds.append(time.process_time() - begun)

    return call


def _memory(key: str) -> float:
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def made_up(root: Path, files: int, active: int, data_manifests: int = PARTITIONS // 10) -> None:
    """A table in a catalog below the directory, of which only the metadata exist."""
    import fastavro
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import ManifestContent
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Operation, Snapshot, Summary
    from pyiceberg.transforms import IdentityTransform
    from pyiceberg.types import LongType, NestedField

    from amoro_core.iceberg.list_writing import Listing, write_list
    from amoro_core.iceberg.manifest_writing import added_entry, new_header, write_manifest
    from tests.engine.commits import MAIN, _send

    root.mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog("cat", uri=f"sqlite:///{root / 'catalog.db'}", warehouse=root.as_uri())
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
    write_list(table.io, path, Listing(2, snapshot_id, 0, 10), manifests)
    summary = Summary(operation=Operation.APPEND)
    snapshot = Snapshot(
        snapshot_id=snapshot_id, sequence_number=10, manifest_list=path, summary=summary, schema_id=schema.schema_id
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
    from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat

    common = (FileFormat.PARQUET, 0, (struct.pack("<q", one["partition"]),), one["record_count"])
    if one["content"] == 0:
        return DataFile(one["file_path"], *common, one["file_size_in_bytes"], one["number"])
    return DeleteFile(one["file_path"], DeleteKind.EQUALITY, *common, one["file_size_in_bytes"], one["number"])


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
    return {
        "status": 1,
        "snapshot_id": snapshot_id,
        "sequence_number": one["number"],
        "file_sequence_number": one["number"],
        "data_file": file,
    }


if __name__ == "__main__":
    main()
