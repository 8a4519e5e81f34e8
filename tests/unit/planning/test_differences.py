"""Each rule by which the planner differs from Amoro's (`docs/differences.md`), on the smallest table that shows it."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from amoro_core.model.config import OptimizingConfig, parse_config
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile, TableScan
from amoro_core.model.groups import DEFAULT_MAX_INPUT_BYTES
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan
from tests.unit.planning.amoro import plan_as_amoro
from tests.unit.planning.builders import MIB, NOW, data, equality_delete, many, position_delete, scan_of
from tests.unit.planning.verdicts import CASES, Case, last_of, scan_of_case

MINOR, MAJOR, FULL = OptimizingType
CONFIG = OptimizingConfig()
FULL_DUE = replace(CONFIG, full_trigger_interval=timedelta())
#: What `amoro.py` leaves out of Amoro's rules.
BEYOND = {"c08e_target4096_2x2560", "c11a_disabled", "c12_three_frag_in_parts_pending2"}
Shape = tuple[OptimizingType | None, list[tuple[list[int], list[int]]]]  # MiB of rewritten and converted files by task


def sizes(files: Iterable[ScannedFile]) -> list[int]:
    return sorted(file.data.size_bytes // MIB for file in files)


def both(scan: TableScan, config: OptimizingConfig = CONFIG, budget: int = DEFAULT_MAX_INPUT_BYTES) -> list[Shape]:
    """What Amoro plans, and what we do, on a table that was never optimized."""
    theirs = plan_as_amoro(scan, config, {}, NOW, budget)
    ours = plan(scan, evaluate(scan, config, {}, NOW), config, threads=1, max_input_per_thread=budget)
    made = [(task.rewritten, task.converted) for task in ours.tasks] if ours is not None else []
    return [
        (theirs.type, sorted((sizes(rewritten), sizes(converted)) for rewritten, converted in theirs.tasks)),
        (ours and ours.type, sorted((sizes(rewritten), sizes(converted)) for rewritten, converted in made)),
    ]


@pytest.mark.parametrize("case", [one for one in CASES if one["commits"]], ids=lambda case: case["name"])
def test_amoros_rules_give_what_was_measured(case: Case) -> None:
    scan = scan_of_case(case)
    assert scan is not None
    budget = case["limits"].get("max_input_per_thread", DEFAULT_MAX_INPUT_BYTES)
    found = plan_as_amoro(scan, parse_config(case["properties"]), last_of(case, scan), NOW, budget)
    amoro = case["amoro"]
    same = (found.is_pending, found.type, len(found.tasks)) == (amoro["pending"], amoro["type"], len(amoro["tasks"]))
    assert same == (case["name"] not in BEYOND)


def test_a_partition_costs_what_its_tasks_read_not_what_its_small_files_are() -> None:
    a = [*many(12, MIB, prefix="a", partition=(b"a",)), data("a-large", 90 * MIB, partition=(b"a",))]
    scan = scan_of([*a, *many(20, 3 * MIB, prefix="b", partition=(b"b",))], unpartitioned_specs=())
    amoro, ours = both(scan, budget=MIB)
    assert amoro == (MINOR, [([1] * 12, [])])
    assert ours == (MINOR, [([3] * 20, [])])


def test_undersized_files_are_left_to_major_and_converted_meanwhile() -> None:
    scan = scan_of(
        [*many(2, 50 * MIB, prefix="u"), data("t", 110 * MIB)], [equality_delete("e1"), equality_delete("e2")]
    )
    amoro, ours = both(scan)
    assert amoro == (MINOR, [([], [110]), ([50, 50], [])])
    assert ours == (MINOR, [([], [50, 50]), ([], [110])])
    amoro, ours = both(scan_of([*many(2, 40 * MIB, prefix="u"), *many(2, MIB)]))
    assert amoro == (MINOR, [([1, 1], []), ([40, 40], [])])
    assert ours == (MINOR, [([1, 1], [])])


def test_conversions_share_no_task_with_rewrites() -> None:
    file = data("t", 100 * MIB)
    scan = scan_of([file, *many(2, MIB)], [position_delete("d1", file), position_delete("d2", file)])
    assert both(scan) == [(MINOR, [([1, 1], [100])]), (MINOR, [([], [100]), ([1, 1], [])])]


@pytest.mark.parametrize("count", [3, 4])
def test_full_makes_one_file_fewer_of_files_that_do_not_fit_in_pairs(count: int) -> None:
    assert both(scan_of(many(count, 85 * MIB)), FULL_DUE) == [(None, []), (FULL, [([85] * 3, [])])]


def test_files_are_packed_by_the_bytes_of_their_live_rows() -> None:
    files = many(2, 70 * MIB)
    scan = scan_of(files, [position_delete("d", files[0], records=200)])
    assert both(scan) == [(MAJOR, [([70], [])]), (MAJOR, [([70, 70], [])])]


def test_single_position_delete_of_one_file_is_left_alone() -> None:
    file = data("t", 110 * MIB)
    assert both(scan_of([file, *many(2, MIB)], [position_delete("d", file)])) == [
        (MINOR, [([1, 1], [110])]),
        (MINOR, [([1, 1], [])]),
    ]


def random_table(chance: random.Random) -> TableScan:
    """A partition of up to three kinds of files, with equality deletes or a few position deletes, or without."""
    files: list[DataFile] = []
    for kind in range(chance.randint(1, 3)):
        size = chance.choice([1, 10, 16, 17, 50, 60, 70, 85, 90, 100, 110, 130, 140, 260])
        files += many(chance.choice([1, 2, 3, 5, 12]), size * MIB, prefix=f"{kind}-")
    of = chance.choice(files)
    deletes: Sequence[DeleteFile] = chance.choice(
        [
            [],
            [equality_delete(f"e{number}") for number in range(chance.choice([1, 2, 12]))],
            [position_delete(f"p{number}", of) for number in range(2)],
            [position_delete("p", of, records=200)],
        ]
    )
    return scan_of(files, deletes)


def test_type_differs_from_amoros_by_the_listed_rules_only() -> None:
    """Over random tables: a minor that is major at once, a full that makes one file fewer; never less than Amoro."""
    chance = random.Random(13)
    seen: dict[tuple[OptimizingType | None, OptimizingType | None], int] = {}
    for _ in range(600):
        scan, config = (
            random_table(chance),
            chance.choice([CONFIG, CONFIG, replace(CONFIG, full_trigger_interval=timedelta(hours=1))]),
        )
        at = NOW - chance.choice([timedelta(minutes=10), timedelta(hours=2)])
        last = {PartitionKey(0, ()): LastOptimized(at, at, at)}
        theirs = plan_as_amoro(scan, config, last, NOW, DEFAULT_MAX_INPUT_BYTES).type
        ours = evaluate(scan, config, last, NOW).type
        if theirs is not ours:
            seen[theirs, ours] = seen.get((theirs, ours), 0) + 1
    assert seen.keys() == {(MINOR, MAJOR), (None, FULL)}
