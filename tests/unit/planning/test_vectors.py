"""Planning where deletes by position are vectors: these trigger nothing by their number, and older files are folded."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    TableScan,
)
from amoro_core.model.optimizing_config import OptimizingConfig, parse_config
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionKey, PartitionVerdict
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan import matching as in_columns
from amoro_core.scan.live_files import LiveFiles
from amoro_core.scan.matching import match
from amoro_core.validation.removable_deletes import removable_deletes
from tests.tiers import count
from tests.unit.planning.builders import MIB, NOW, PROCESS, data, equality_delete, many, position_delete
from tests.unit.planning.test_evaluating import CONFIG
from tests.unit.test_validating import group

MINOR, MAJOR, FULL = OptimizingType
BIG = 128 * MIB


def vector(of: DataFile, *, records: int = 10, sequence_number: int = 2, offset: int = 4, size: int = 40) -> DeleteFile:
    plain = position_delete("v", of, records=records, sequence_number=sequence_number)
    return replace(
        plain,
        path="/t/data/v.puffin",
        file_format=FileFormat.PUFFIN,
        size_bytes=10**6,
        content_offset=offset,
        content_size_bytes=size,
    )


def scan_of(files: Sequence[DataFile], deletes: Sequence[DeleteFile] = (), version: int = 3) -> TableScan:
    matched, dangling = match(files, deletes, frozenset({0}))
    return TableScan(100, 9, matched, dangling, frozenset({0}), version)


def verdict(scan: TableScan, requested: OptimizingType | None = None) -> PartitionVerdict:
    """The verdict on the one partition."""
    (found,) = evaluated(scan, requested=requested).partitions
    return found


def evaluated(
    scan: TableScan, config: OptimizingConfig = CONFIG, requested: OptimizingType | None = None
) -> Evaluation:
    """The evaluation of a table whose partitions were optimized ten minutes ago."""
    keys = {PartitionKey(file.data.spec_id, file.data.partition) for file in scan.files}
    last = LastOptimized(*[NOW - timedelta(minutes=10)] * 3)
    return evaluate(scan, config, dict.fromkeys(keys, last), NOW, requested)


def converted(found: PartitionVerdict) -> list[DataFile]:
    assert not any(task.rewritten for task in found.work)
    return sorted((file.data for task in found.work for file in task.converted), key=lambda file: file.path)


def test_a_vector_triggers_major_by_its_share_of_rows_and_nothing_by_its_number() -> None:
    files = many(40, BIG)
    found = verdict(scan_of(files, [vector(one, offset=4 + 40 * at) for at, one in enumerate(files)]))
    assert (found.type, found.work, found.deletion_vectors, found.position_delete_files) == (None, (), 40, 40)
    assert found.reason == "nothing to do: no small files; 40 deletion vectors within bounds"
    files = many(2, BIG)
    within = scan_of(files, [vector(files[0], records=100)])
    beyond = scan_of(files, [vector(files[0], records=101)])
    assert verdict(within).type is None
    found = verdict(beyond)
    assert (found.type, found.reason) == (MAJOR, "1 file with more than 0.1 of the rows deleted")
    assert [[file.data for file in task.rewritten] for task in found.work] == [files[:1]]


def test_a_vector_costs_the_bytes_of_its_part_of_the_file() -> None:
    files = many(2, BIG)
    scan = scan_of(files, [vector(one, records=500, offset=4 + 40 * at) for at, one in enumerate(files)])
    assert verdict(scan).input_bytes == 2 * (BIG + 40)
    summary = evaluated(scan).summary
    assert (summary.delete_bytes, summary.position_delete_files) == (80, 2)


def test_position_delete_files_are_folded_once_they_are_enough_for_minor() -> None:
    files = many(12, BIG)
    deletes = [position_delete(f"p{at:02}", one) for at, one in enumerate(files)]
    enough, fewer = scan_of(files, deletes), scan_of(files, deletes[:11])
    found = verdict(enough)
    assert found.type is MINOR
    assert (
        found.reason
        == "12 small files (12 position deletes of 12 files to convert among them), 12 are enough for minor"
    )
    assert (converted(found), found.files_to_fold) == (files, 12)
    assert verdict(fewer).type is None
    before = verdict(replace(enough, format_version=2))
    assert before.type is None
    assert (before.files_to_fold, before.delete_files_to_fold, before.bytes_to_fold) == (0, 0, 0)


def test_a_shared_position_delete_file_counts_once_and_all_its_files_are_converted() -> None:
    files = many(20, BIG)
    shared = [position_delete(f"p{at}", None, records=1) for at in range(12)]
    own = vector(files[0])
    found = verdict(scan_of(files, [*shared, own]))
    assert (found.type, found.files_to_fold, found.deletion_vectors) == (MINOR, 19, 1)
    assert (found.delete_files_to_fold, found.bytes_to_fold) == (12, sum(one.size_bytes for one in shared))
    assert converted(found) == files[1:]
    assert verdict(scan_of(files, [*shared[1:], own])).reason.startswith(
        "nothing to do: 11 small files (11 position deletes of 19 files to convert among them), 12 needed;"
        " 1 deletion vector within bounds; next minor at "
    )


def test_a_request_for_minor_folds_and_full_rewrites() -> None:
    scan = scan_of(many(2, BIG), [position_delete("p", None)])
    assert len(converted(verdict(scan, requested=MINOR))) == 2
    assert [len(task.rewritten) for task in verdict(scan, requested=FULL).work] == [1, 1]
    nothing = verdict(scan_of(many(2, BIG)), requested=MINOR)
    assert nothing.reason == "nothing to do: fewer than two fragments, no equality deletes, no position delete files"


def committed(scan: TableScan, made: OptimizingPlan, chance: random.Random) -> TableScan:
    """The table after the plan: rewritten files are one of their live rows, converted ones have a vector each."""
    number = scan.sequence_number
    groups = []
    for at, task in enumerate(made.tasks):
        outputs = [
            data(f"out-{scan.snapshot_id}-{at}-{n}", BIG, sequence_number=number, partition=task.key.partition,
                 spec_id=task.key.spec_id)
            for n in range(task.output_count)
        ]  # fmt: skip
        vectors = [
            replace(
                vector(
                    file.data, records=_found(file.data, file.deletes, chance), sequence_number=number, offset=n + 4
                ),
                path=f"/t/data/{PROCESS}-{scan.snapshot_id}-1-{at:032x}-deletes.puffin",
            )
            for n, file in enumerate(task.converted)
        ]
        vectors = [one for one in vectors if one.record_count or task.marks]
        groups.append(group(at, task.rewritten, task.converted, outputs, vectors))
    going = {delete.numbered for delete in removable_deletes(groups, scan, number)}
    rewritten = {file.data.path for task in made.tasks for file in task.rewritten}
    live = LiveFiles.of(scan.files)
    files = [file.data for file in live if file.data.path not in rewritten]
    files += [file for one in groups for file in one.output.data_files]
    deletes = [one for one in (*live.applied, *scan.dangling) if one.numbered not in going]
    deletes += [one for each in groups for one in each.output.delete_files]
    in_columns.refuse_several_vectors(deletes)
    matched, dangling = match(files, deletes, scan.unpartitioned_specs)
    return replace(scan, snapshot_id=scan.snapshot_id + 1, sequence_number=number + 1, files=matched, dangling=dangling)


def _found(file: DataFile, deletes: Sequence[DeleteFile], chance: random.Random) -> int:
    """How many positions a conversion may find: those of the old vector, and perhaps others."""
    old = max((one.record_count for one in deletes if one.is_vector), default=0)
    return min(file.record_count, max(old, chance.choice([0, old, old + 1])))


def random_segments(chance: random.Random) -> TableScan:
    """Files of the target size in two partitions, with all sorts of deletes."""
    places = (b"a",), (b"b",)
    files = [
        data(f"f{at:02}", BIG, sequence_number=chance.randint(1, 4), partition=chance.choice(places), spec_id=1)
        for at in range(chance.randint(1, 12))
    ]
    deletes: list[DeleteFile] = []
    for at in range(chance.randint(0, 8)):
        of, number = chance.choice(files), chance.randint(4, 6)
        free = position_delete(f"s{at}", None, sequence_number=number, partition=of.partition)
        match chance.randint(0, 4):
            case 0:
                deletes.append(position_delete(f"p{at}", of, sequence_number=number))
            case 1:
                deletes.append(replace(free, spec_id=1))
            case 2:
                bounds = [{DELETE_PATH_FIELD_ID: one.encode()} for one in sorted((of.path, chance.choice(files).path))]
                metrics = ColumnMetrics(lower_bounds=bounds[0], upper_bounds=bounds[1])
                deletes.append(replace(free, spec_id=1, metrics=metrics))
            case 3:
                deletes.append(equality_delete(f"e{at}", sequence_number=number, partition=of.partition, spec_id=1))
            case _:
                if not any(one.is_vector and one.referenced_data_file == of.path for one in deletes):
                    deletes.append(vector(of, sequence_number=number, offset=4 + 40 * at))
    return replace(scan_of(files, deletes), sequence_number=7)


@pytest.mark.parametrize("limit", [10_000, 3])
def test_what_was_folded_needs_no_further_plan(limit: int) -> None:
    """Whatever a conversion finds; with a limit of files, too, where some of them come later."""
    config = parse_config({"self-optimizing.max-file-count": str(limit)})
    seen: Counter[str] = Counter()
    for seed in range(count(30, 80)):
        chance = random.Random(seed)
        scan = random_segments(chance)
        while True:
            found = evaluated(scan, config, requested=MINOR)
            next_plan = plan(scan, found, config, threads=1)
            if next_plan is None:
                break
            seen["plans"] += 1
            seen["converted"] += sum(len(task.converted) for task in next_plan.tasks)
            assert scan.sequence_number < 40, (seed, found.reason)
            scan = committed(scan, next_plan, chance)
        assert not LiveFiles.of(scan.files).has_position_file.any(), seed
        seen["marks"] += sum(one.is_vector and not one.record_count for one in LiveFiles.of(scan.files).applied)
    assert seen["converted"] > 50, seen
    assert seen["marks"] > 1, seen


def test_equality_deletes_are_folded_into_vectors_as_into_position_delete_files() -> None:
    files = many(2, BIG)
    scan = scan_of(files, [equality_delete(f"e{at}", sequence_number=3) for at in range(12)])
    assert converted(verdict(scan)) == files
    own = replace(vector(files[0], sequence_number=3), path=f"/t/data/{PROCESS}-1-1-{1:032x}-deletes.puffin")
    after = scan_of(files, [*(delete for delete in scan.files[0].deletes), own])
    assert converted(verdict(after)) == files[1:]
    assert own.kind is DeleteKind.POSITION
