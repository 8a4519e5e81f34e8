"""Most of what is rewritten is committed, whatever others delete, merge or replace meanwhile."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tests.services.kept_work import Kept, Writer, made_table, require_rows, rewrite_for, rewrite_in_turns
from tests.services.world import World

FORMATS = 2, 3


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[[int, bool], World]]:
    """Makes a world with a table of that format, whose rewrites are rebased or not."""
    made = []

    def one(version: int, rebase: bool) -> World:
        made.append(made_table(tmp_path / f"{version}-{rebase}", rebase=rebase, version=version))
        return made[-1]

    yield one
    for world in made:
        world.close()
    shutil.rmtree(tmp_path)  # gigabytes


def writers_of(worlds: Sequence[World]) -> list[Writer]:
    return [Writer(world.catalog.load_table("db.t"), seed=1) for world in worlds]


def test_beside_writers_that_delete_by_position_or_by_vector_work_is_kept(make: Callable[[int, bool], World]) -> None:
    sides = [(version, rebase) for rebase in (True, False) for version in FORMATS]
    worlds = [make(version, rebase) for version, rebase in sides]
    others = writers_of(worlds)

    def is_enough(kept: Sequence[Kept]) -> bool:
        return min(one.processes for one in kept) >= 2 and all(one.carried for one in kept[: len(FORMATS)])

    every = rewrite_in_turns(worlds, [other.delete for other in others], 1.0, 120.0, is_enough)
    for (version, rebase), world, other, kept in zip(sides, worlds, others, every, strict=True):
        print(
            f"format {version}, rebase {rebase}: {kept.share:.1%} of {kept.rewritten} bytes kept, {other.done} deletes"
        )
        require_rows(world, other)
        assert other.failed == 0
        assert (bool(kept.carried), kept.share >= 0.9) == (True, True) if rebase else not kept.carried, kept


def test_beside_writers_that_merge_work_is_kept(make: Callable[[int, bool], World]) -> None:
    worlds = [make(version, True) for version in FORMATS]
    others = writers_of(worlds)
    every = rewrite_in_turns(
        worlds, [other.merge for other in others], 5.0, 30.0, lambda kept: all(one.carried for one in kept)
    )
    for world, other, kept in zip(worlds, others, every, strict=True):
        require_rows(world, other)
        assert (other.failed, bool(kept.carried), kept.share >= 0.9) == (0, True, True), kept


@pytest.mark.parametrize("version", FORMATS)
def test_beside_a_writer_that_replaces_a_file_after_every_sixth_task_most_work_is_kept(
    make: Callable[[int, bool], World], version: int
) -> None:
    world, tasks = make(version, True), 0
    (other,) = writers_of([world])

    def after_task() -> None:
        nonlocal tasks
        tasks += 1
        if tasks % 6 == 0:
            other.replace()

    kept = rewrite_for(world, lambda: tasks >= 20, after_task)
    require_rows(world, other)
    assert (other.failed, kept.share >= 0.7) == (0, True), kept
