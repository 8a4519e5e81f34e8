"""Minor, major and full leave the order of clustered files alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from amoro_core.model.clustering import Layout, LayoutKey, Strategy, group_of
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import TaskPlan
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.clustering.layouts import preserved_groups
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.scan.columns import Paths
from amoro_core.scan.matching import match
from tests.unit.planning.builders import MIB, NOW, UNPARTITIONED, data, equality_delete, many, position_delete

CONFIG = OptimizingConfig()
ONE, TWO = "0" * 12, "1" * 12
MINOR, MAJOR, FULL = OptimizingType
BOTH = frozenset({ONE, TWO})


def clustered(count: int, size: int, group: str = ONE, **values: int) -> list[DataFile]:
    return [data(f"f{at}-g{group}", size, **values) for at in range(count)]


def work(
    files: list[DataFile],
    deletes: tuple[DeleteFile, ...] = (),
    kind: OptimizingType | None = None,
    *,
    kept: frozenset[str] = BOTH,
    force: bool = False,
) -> tuple[TaskPlan, ...]:
    found, dangling = match(tuple(files), deletes, frozenset({0}))
    scan = TableScan(1, 9, found, dangling, frozenset({0}))
    last = {UNPARTITIONED: LastOptimized()}
    return tuple(
        task for one in evaluate(scan, CONFIG, last, NOW, kind, force, clustered=kept).partitions for task in one.work
    )


@pytest.mark.parametrize("kind", [None, MINOR, MAJOR, FULL])
def test_clustered_files_are_small_for_nobody(kind: OptimizingType | None) -> None:
    files = clustered(40, MIB) + clustered(40, 60 * MIB, TWO)
    assert work(files, kind=kind) == ()
    assert work(files, kind=kind, kept=frozenset()) != ()  # though their sizes would make work


def test_clustered_files_are_rewritten_by_themselves_when_they_are_forced_and_never_with_others() -> None:
    tasks = work([*clustered(20, MIB), *many(20, MIB)])
    assert [group_of(file.data.path) for task in tasks for file in task.rewritten] == [None] * 20
    tasks = work([*clustered(20, MIB), *many(20, MIB)], kind=FULL)
    assert [group_of(file.data.path) for task in tasks for file in task.rewritten] == [None] * 20
    tasks = work(clustered(6, MIB), kind=FULL, force=True)
    assert [len(task.rewritten) for task in tasks] == [1] * 6


@pytest.mark.parametrize("size", [MIB, 60 * MIB, 120 * MIB])
@pytest.mark.parametrize("kind", [None, MAJOR, FULL])
def test_one_with_too_many_deleted_rows_is_rewritten_by_itself(kind: OptimizingType | None, size: int) -> None:
    files = [*clustered(5, size), *clustered(5, size, TWO), *many(20, MIB)]
    deletes = tuple(position_delete(f"d{at}", file, records=500) for at, file in enumerate(files[:10]))
    tasks = work(files, deletes, kind)
    alone = [task for task in tasks if any(group_of(file.data.path) for file in task.rewritten)]
    assert sorted(file.data.path for task in alone for file in task.rewritten) == sorted(f.path for f in files[:10])
    assert {len(task.rewritten) for task in alone} == {1}


def test_few_deleted_rows_of_a_clustered_file_are_bearable_and_equality_deletes_are_converted() -> None:
    files = clustered(5, MIB)
    assert work(files, (position_delete("d", files[0], records=50),)) == ()
    tasks = work(files, tuple(equality_delete(f"e{at}") for at in range(12)))
    assert sorted(file.data.path for task in tasks for file in task.converted) == [file.path for file in files]
    assert {task.rewritten for task in tasks} == {()}


def test_outputs_of_clustered_files_are_no_reason_for_a_major() -> None:
    """A minor that rewrites many for a deleted row each leaves files that no major may put together."""
    files = clustered(12, 60 * MIB, records=5)
    deletes = tuple(equality_delete(f"e{at}") for at in range(12))
    tasks = work(files, deletes)
    assert {(len(task.rewritten), len(task.converted)) for task in tasks} == {(1, 0)}
    assert len(tasks) == 12
    found, _ = match(tuple(files), deletes, frozenset({0}))
    scan = TableScan(1, 9, found, (), frozenset({0}))
    told = evaluate(scan, CONFIG, {UNPARTITIONED: LastOptimized()}, NOW, clustered=BOTH).reason
    assert "one deleted row is too many" in told
    assert "fill up" not in told


def test_groups_that_are_known_to_have_another_layout_are_not_kept() -> None:
    now, before = Layout(Strategy.LINEAR, (LayoutKey(1),)), Layout(Strategy.LINEAR, (LayoutKey(2),))
    one, two = [*clustered(2, 1), *many(2, 1)], clustered(1, 1, TWO)
    paths = [Paths(pa.array([file.path for file in files])) for files in (one, two)]
    assert preserved_groups(paths, {}, now) == BOTH
    assert preserved_groups(paths, {ONE: before, TWO: now}, now) == {TWO}
    assert preserved_groups(paths, {ONE: before}, None) == BOTH
