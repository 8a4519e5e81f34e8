"""Columns, incremental evaluation and all spellings of paths give the results of reading row by row."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from amoro_core.model.files import NO_METRICS, ColumnMetrics, DataFile, TableScan
from amoro_core.model.paths import normalise
from amoro_core.model.plans import BOUNDS, Evaluation, FileDigest, OptimizingPlan, PartitionDigest, PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.partitions import histogram
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan import matching as in_columns
from amoro_core.scan.columns import (
    FEW,
    Gathering,
    PackedMap,
    PackedMetrics,
    Paths,
    Shape,
    numbered,
    pack_map,
    pack_metrics,
    read_bytes,
    read_number,
    shape_of,
)
from amoro_core.scan.live_files import LiveFiles
from amoro_core.store import table_stats
from amoro_core.validation import matching as one_by_one
from amoro_core.validation.removable_deletes import removable_deletes
from tests.tiers import count, seeds
from tests.unit.planning.builders import MIB, NOW, data, position_delete, scan_of
from tests.unit.planning.random_tables import PLACES, UNPARTITIONED, lived, random_config, random_files
from tests.unit.planning.test_evaluating import CONFIG
from tests.unit.test_matching import said_of
from tests.unit.test_validating import group

METRICS = ColumnMetrics({1: 5, 300: 2**62}, {1: 0}, {2: -1}, {}, {1: b"abc" * 100, 2: b""}, {5: b"\x00"})


def gathered(files: list[DataFile]) -> Gathering:
    """The files as a scan takes them in, in parts."""
    done = Gathering()
    for at, file in enumerate(files):
        done.add(file)
        if at % 3 == 0:
            done.end_part()
    return done


def test_verdicts_plans_and_the_deletes_that_a_commit_removes_are_the_same_by_columns_and_by_rows() -> None:
    removed = 0
    kinds: Counter[OptimizingType | None] = Counter()
    for seed in range(count(150, 400)):
        chance = random.Random(seed)
        files, deletes = random_files(chance)
        expected = said_of(one_by_one.match, files, deletes, UNPARTITIONED)
        found = said_of(in_columns.match, gathered(files).columns(), deletes, UNPARTITIONED)
        assert found == expected, seed
        (rows, dangling), (live, _) = expected, found
        if not isinstance(live, LiveFiles):
            continue
        assert {id(one) for one in live.applied} == {id(one) for file in rows for one in file.deletes}, seed
        asked = _asked(chance)
        of_rows, of_columns = (decided(TableScan(7, 9, some, dangling), asked) for some in (rows, live))
        assert of_columns == of_rows, seed
        kinds[of_rows[0].type] += 1
        made = of_columns[2]
        tasks = [task for task in made.tasks if chance.random() < 0.8] if made is not None else []
        groups = [group(at, task.rewritten, task.converted) for at, task in enumerate(tasks)]
        by_rows, by_columns = (removable_deletes(groups, TableScan(7, 9, some, dangling), 4) for some in (rows, live))
        assert by_columns == by_rows, seed
        removed += len(by_columns)
    assert removed > 20
    assert min(kinds[kind] for kind in (None, *OptimizingType)) > 3, kinds


def _asked(chance: random.Random) -> dict[str, Any]:
    ago = NOW - chance.choice([timedelta(minutes=10), timedelta(hours=2)])
    keys = [PartitionKey(*place) for place in PLACES if chance.random() < 0.7]
    return {
        "config": random_config(chance),
        "last": {key: LastOptimized(*(chance.choice([None, ago]) for _ in range(3))) for key in keys},
        "requested": chance.choice([None, None, *OptimizingType]),
        "force": chance.random() < 0.3,
        "selects": chance.choice([None, None, lambda file: file.sequence_number > 2]),
        "chooses": chance.choice([None, None, lambda key: key.spec_id != 1]),
    }


def decided(scan: TableScan, asked: dict[str, Any]) -> tuple[Evaluation, object, OptimizingPlan | None]:
    """The verdict with the work that it does not compare, and the plan."""
    found = evaluate(scan, now=NOW, **asked)
    made = plan(scan, found, asked["config"], threads=1)
    return found, ([one.work for one in found.partitions], found.basis), made


def test_a_row_is_made_of_what_was_gathered_and_a_packed_map_is_the_map() -> None:
    files = [
        replace(data("a", 1, partition=(None,), spec_id=1), metrics=METRICS, sort_order_id=0, split_offsets=(4, 2**40)),
        data("b", 2**47, records=2**47, sequence_number=2**62),
    ]
    columns = gathered(files).columns()

    assert [columns.row(at) for at in range(2)] == files
    assert columns.row(0) is not columns.row(0)
    numbers, bounds = {1: 5, -2: 2**62}, {3: b"x", 4: b""}
    # A block of one pair, one with its size in bytes, and none.
    blocks = b"\x02\x02\x0a" + b"\x01\x04\x04\x0c" + b"\x00"

    assert PackedMap(pack_map(numbers), read_number) == numbers
    assert dict(PackedMap(pack_map(bounds), read_bytes).items()) == bounds
    assert dict(PackedMap(blocks, read_number)) == {1: 5, 2: 6}
    assert len(PackedMap(pack_map(None), read_bytes)) == 0


@pytest.mark.parametrize("metrics", [METRICS, NO_METRICS])
def test_packed_metrics_are_the_metrics(metrics: ColumnMetrics) -> None:
    packed = PackedMetrics(pack_metrics(metrics))

    assert packed == metrics
    assert metrics == packed
    assert packed.upper_bounds == metrics.upper_bounds
    assert pack_metrics(packed) == pack_metrics(metrics)
    assert (packed == NO_METRICS) is (metrics == NO_METRICS)


@pytest.mark.parametrize("ids", [[], [0], [99], [98, 3, 4, 3, 50], list(range(99, -1, -1))])
def test_the_paths_of_some_files_come_in_the_order_in_which_they_are_asked_for(ids: list[int]) -> None:
    files = [data(f"{at}.parquet", MIB) for at in range(100)]
    found = gathered(files).columns().paths_of(np.array(ids, np.int64))
    assert found.to_pylist() == [files[at].path for at in ids]


def test_bytes_times_rows_may_have_more_than_64_bits() -> None:
    big = data("big", 2**47, records=2**40)
    half = position_delete("half", big, records=2**39)
    scan = scan_of([big], [half])

    (verdict,) = evaluate(replace(scan, files=LiveFiles.of(scan.files)), CONFIG, {}, NOW).partitions

    assert [task.output_count for task in verdict.work] == [2**46 // CONFIG.target_size]


SPELLINGS = ("file:/t/", "file:///t/", "file://h/t/", "s3://b/k/", "S3A://b/", "hdfs:///")
BEGINS = ("", "/", "/t/", "/\n/", "a/../", "//", *SPELLINGS)
MIXED = "3-B-0-1-2-x"
ENDS = ("", "a", ".", "..", "...", "\n", "a\n", ".\n", "..\n", "a\0", "\0", "ä", MIXED, f"{MIXED}\n", f"x{MIXED}")


def in_one(shapes: list[Shape]) -> tuple[set[str], list[str], int]:
    directories = {one for shape in shapes for one in shape.directories}
    return directories, [one for shape in shapes for one in shape.odd], sum(shape.mixed for shape in shapes)


def check(paths: list[str]) -> Shape:
    assert len(paths) > FEW
    # A part may be a slice of a larger array.
    array = pa.array(["x/y", *paths, "\0"], pa.string()).slice(1, len(paths))
    found = shape_of(array)
    assert in_one([found]) == in_one([shape_of(pa.array([path])) for path in paths])
    assert len(set(found.directories)) == len(found.directories)
    assert found.first_mixed == next((path for path in paths if shape_of(pa.array([path])).mixed), None)
    assert numbered(Paths(array)).tolist() == [hash(normalise(path)) for path in paths]
    return found


def test_every_spelling_beside_every_other() -> None:
    check([f"{begin}{end}" for begin in BEGINS for end in ENDS])


def test_random_histories_by_difference_are_as_they_are_file_by_file() -> None:
    """`make prove` goes on with other seeds."""
    seen: Counter[str] = Counter()
    for seed in seeds(15, 40):
        seen += lived(seed)
    assert min(seen[what] for what in ("None", "minor", "major", "full")) > 0, seen


@pytest.mark.parametrize(
    ("size", "lower"), [(0, 0), (1024, 1024), (2047, 1024), (2048, 2048), (2**27 - 1, 2**26), (2**62 - 1, 2**33)]
)
def test_a_file_is_in_the_bin_whose_bounds_hold_it(size: int, lower: int) -> None:
    found = histogram(np.array([size], np.int64))
    place = BOUNDS.index(lower)
    assert found.files == tuple(int(at == place) for at in range(len(BOUNDS)))
    assert found.sizes == tuple(size if at == place else 0 for at in range(len(BOUNDS)))


def test_what_is_stored_is_small_however_long_names_are() -> None:
    drawn = Random(1)
    names = ["".join(chr(drawn.randrange(0x4E00, 0x9FFF)) for _ in range(200)) for _ in range(200)]
    many = tuple(PartitionDigest(name, 50, "minor", name, 1, 2, 3, 4, 5, 6) for name in names)
    document = table_stats.pack_digest(FileDigest(7, 1, partitions=many, partitions_total=5000))
    assert 4000 < len(document) <= table_stats.LARGEST
    days = [(f"day=2026-01-{n:03}", 50, "minor", f"{n} fragments", n, n, n, n, n, n) for n in range(200)]
    ordinary = tuple(PartitionDigest(*one) for one in days)
    assert len(table_stats.pack_digest(FileDigest(7, 1, partitions=ordinary))) < 6000
