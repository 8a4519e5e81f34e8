"""What a plan leaves behind needs no further plan."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig, parse_config
from amoro_core.model.plans import OptimizingPlan, PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from amoro_core.planning.optimizing.tasks import weigh
from tests.tiers import count
from tests.unit.planning.builders import (
    NOW,
    assess,
    by_bounds,
    commit,
    data,
    equality_delete,
    own_delete,
    position_delete,
    scan_of,
)

SPECS = (0,)  # a former spec, whose equality deletes hold in all partitions
BOUNDLESS = 10**9


@st.composite
def configs(draw: st.DrawFn) -> OptimizingConfig:
    target = draw(st.sampled_from([1000, 1024, 4096]))
    properties = {
        "self-optimizing.target-size": target,
        "self-optimizing.max-task-size-bytes": target * draw(st.sampled_from([1, 1, 2, 5])),
        "self-optimizing.fragment-ratio": draw(st.sampled_from([8, 8, 4, 2, 1])),
        "self-optimizing.min-target-size-ratio": draw(st.sampled_from([0.75, 0.75, 0.5, 0.0, 1.0])),
        "self-optimizing.minor.trigger.file-count": draw(st.sampled_from([2, 4, 12])),
        "self-optimizing.major.trigger.duplicate-ratio": draw(st.sampled_from([0.0, 0.1, 0.5])),
        "self-optimizing.full.trigger.interval": draw(st.sampled_from([-1, -1, 0, 3600000])),
        "self-optimizing.full.rewrite-all-files": draw(st.sampled_from(["true", "false"])),
        "read.split.open-file-cost": draw(st.sampled_from([0, 10, 500])),
    }
    return parse_config({key: str(value) for key, value in properties.items()})


@st.composite
def scans(draw: st.DrawFn) -> TableScan:
    """Tables of up to two partitions with files of all sizes and every kind of delete."""
    files: list[DataFile] = []
    for number in range(draw(st.integers(0, 24))):
        size = draw(st.one_of(st.integers(1, 300), st.integers(1, 1300), st.sampled_from([125, 500, 750, 1000, 5000])))
        partition = (draw(st.sampled_from([b"a", b"a", b"a", None])),)
        sequence_number = draw(st.integers(1, 4))
        copied = draw(st.sampled_from(["", "", SUFFIX]))
        files.append(
            data(f"f{number:02}{copied}", size, sequence_number=sequence_number, partition=partition, spec_id=1)
        )
    deletes: list[DeleteFile] = []
    for number in range(draw(st.integers(0, 6))) if files else ():
        of = draw(st.sampled_from(files))
        sequence_number = draw(st.integers(of.sequence_number, 5))
        records = draw(st.integers(1, 400))
        match draw(st.sampled_from(["equality", "everywhere", "position", "by bounds", "shared", "own"])):
            case "equality":
                deletes.append(
                    equality_delete(f"e{number}", sequence_number=sequence_number, partition=of.partition, spec_id=1)
                )
            case "everywhere":
                deletes.append(equality_delete(f"g{number}", sequence_number=sequence_number))
            case "position":
                deletes.append(position_delete(f"p{number}", of, records=records, sequence_number=sequence_number))
            case "by bounds":
                named = position_delete(f"b{number}", of, records=records, sequence_number=sequence_number)
                deletes.append(by_bounds(named))
            case "shared":
                shared = position_delete(f"s{number}", of, records=records, sequence_number=sequence_number)
                deletes.append(replace(shared, referenced_data_file=None))
            case "own":
                made = own_delete(of, records=records, sequence_number=sequence_number)
                deletes.append(replace(made, path=made.path.replace("-1-1-", f"-{number}-1-")))
    # The newest snapshot is an empty append: a delete file of the plan's own sequence number would go on applying
    # to the outputs by its bounds.
    scan = scan_of(files, deletes, unpartitioned_specs=SPECS)
    return replace(scan, sequence_number=scan.sequence_number + 1)


def plan_now(scan: TableScan, config: OptimizingConfig, **options: Any) -> OptimizingPlan | None:
    evaluation = evaluate(scan, config, {}, NOW, **options)
    made = plan(scan, evaluation, config, threads=1, max_input_per_thread=BOUNDLESS)
    assert (made is None) == (evaluation.type is None), "a verdict is a plan"
    return made


@pytest.mark.parametrize("requested", [None, *OptimizingType])
@settings(max_examples=count(40, 80), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scan=scans(), config=configs())
def test_after_one_plan_there_is_nothing_left_to_do(
    requested: OptimizingType | None, scan: TableScan, config: OptimizingConfig
) -> None:
    made = plan_now(scan, config, requested=requested)
    if made is not None:
        rewritten = [file.data.path for task in made.tasks for file in task.rewritten]
        assert len(rewritten) == len(set(rewritten)), "a pass writes nothing twice"
        after = commit(scan, made, unpartitioned_specs=SPECS)
        assert len(after.files) <= len(scan.files) + splits(made)
        assert plan_now(after, config, requested=requested) is None


LIMITS = st.one_of(
    st.integers(2, 12).map(lambda most: {"max_file_count": most}),
    st.sampled_from([1, 1500, 6000]).map(lambda most: {"max_plan_bytes": most}),
)


@settings(max_examples=count(80, 160), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scan=scans(), config=configs(), limit=LIMITS)
def test_small_processes_come_to_an_end_too(scan: TableScan, config: OptimizingConfig, limit: dict[str, int]) -> None:
    limited = replace(config, **limit)
    most = limit.get("max_plan_bytes")
    rounds = 0
    converted: set[str] = set()
    while (made := plan_now(scan, limited)) is not None:
        once = {file.data.path for task in made.tasks for file in task.converted}
        assert not once & converted, "no file is converted twice"
        converted |= once
        if most is not None:
            assert weigh(made.tasks, config)[0] <= most or len(made.tasks) == 1, "a task alone may be larger"
            assert made.evaluation.reason.endswith(f"max-plan-bytes ({most} bytes)") == bool(made.first_cut)
        scan = commit(scan, made, unpartitioned_specs=SPECS)
        rounds += 1
        assert rounds <= 60
    assert plan_now(scan, config) is None


@settings(max_examples=count(30, 60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scan=scans(), config=configs())
def test_every_copied_file_is_encoded_once(scan: TableScan, config: OptimizingConfig) -> None:
    """The clock goes on for a day after each round, so that all intervals have passed."""
    keys = {PartitionKey(file.data.spec_id, file.data.partition) for file in scan.files}
    last = dict.fromkeys(keys, LastOptimized(NOW, NOW, NOW))
    now, rounds = NOW, 0
    while (evaluation := evaluate(scan, config, last, now := now + timedelta(days=2))).type is not None:
        made = plan(scan, evaluation, config, threads=1, max_input_per_thread=BOUNDLESS)
        assert made is not None
        rounds += 1
        assert rounds <= 3, "minor, then major for what it copied"
        scan = commit(scan, made, unpartitioned_specs=SPECS)
    assert not [file for file in scan.files if assess(file, config).is_coarse]


@settings(max_examples=count(30, 60), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(scan=scans(), config=configs(), excluded=st.integers(0, 3))
def test_a_filter_leaves_nothing_to_do_either(scan: TableScan, config: OptimizingConfig, excluded: int) -> None:
    def selects(file: DataFile) -> bool:
        return "out-" in file.path or int(file.path.removeprefix("/t/data/f")[:2]) % 4 != excluded

    evaluation = evaluate(scan, config, {}, NOW, selects=selects)
    made = plan(scan, evaluation, config, threads=1, max_input_per_thread=BOUNDLESS)
    if made is not None:
        assert all(selects(file.data) for task in made.tasks for file in (*task.rewritten, *task.converted))
        after = commit(scan, made, unpartitioned_specs=SPECS)
        assert evaluate(after, config, {}, NOW, selects=selects).type is None


def splits(made: OptimizingPlan) -> int:
    """Files that large single inputs with deletes are split into."""
    return sum(max(0, task.output_count - len(task.rewritten)) for task in made.tasks)


def test_splitting_a_large_file_for_no_fewer_files_is_not_begun() -> None:
    # Found by the property above: 5000 and 2501 bytes became two files of 3750, and so on for ever.
    config = OptimizingConfig(target_size=4096, max_task_size=4096, min_target_size_ratio=0.5, open_file_cost=0)
    files = [data(f"f{size}", size, partition=(b"a",), spec_id=1) for size in (5000, 2501, 2502)]
    assert plan_now(scan_of(files, [], unpartitioned_specs=SPECS), config, requested=OptimizingType.FULL) is None
