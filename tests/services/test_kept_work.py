"""Most of what is rewritten is committed, whatever others delete, merge or replace meanwhile."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services.kept_work import Writer, beside, made_table, require_rows, rewrite_for
from tests.services.world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = made_table(tmp_path, rebase=True)
    yield made
    made.close()
    shutil.rmtree(tmp_path)  # gigabytes


@pytest.mark.parametrize(("deed", "pause_s", "seconds"), [("delete", 1.0, 120.0), ("merge", 5.0, 30.0)])
def test_beside_a_writer_that_deletes_by_position_work_is_kept(
    world: World, deed: str, pause_s: float, seconds: float
) -> None:
    other = Writer(world.catalog.load_table("db.t"), seed=1)
    kept = beside(world, getattr(other, deed), pause_s, seconds)
    require_rows(world, other)
    assert (other.failed, kept.share >= 0.9) == (0, True), kept
    assert kept.carried


def test_beside_a_writer_that_replaces_a_file_after_every_sixth_task_most_work_is_kept(world: World) -> None:
    other, tasks = Writer(world.catalog.load_table("db.t"), seed=1), 0

    def after_task() -> None:
        nonlocal tasks
        tasks += 1
        if tasks % 6 == 0:
            other.replace()

    kept = rewrite_for(world, lambda: tasks >= 20, after_task)
    require_rows(world, other)
    assert (other.failed, kept.share >= 0.7) == (0, True), kept
