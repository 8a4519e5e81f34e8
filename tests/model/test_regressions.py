"""Failures that others had, each under the reference of the catalogue of failures that this project is built against.

R: races with row-level deletes. B: deletes applied or removed wrongly. C: commits that had landed. D: planners and
executors that drop or change rows. Those that are not here are proved by tests of commits, stale plans and rewriting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import CommitUnknown, StoreFailed
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import processes
from tests.engine import oracle, writer
from tests.engine.writer import make_catalog
from tests.model.crashes import SteppedWorld, before, failing, instead_of_sending
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import NAME, Lake, ids_are, row
from tests.tiers import sample


@pytest.fixture
def lake(quick_path: Path) -> Iterator[Lake]:
    catalog = make_catalog(quick_path)
    yield Lake.created(catalog)
    catalog.close()


@pytest.fixture
def world(quick_path: Path, lake: Lake) -> Iterator[SteppedWorld]:
    home = quick_path / "home"
    home.mkdir()
    made = SteppedWorld(home, lake.catalog)
    yield made
    made.store.close()
    close_catalogs()


def fill(lake: Lake) -> None:
    """Small files with deletes of both kinds."""
    lake.append([row(1), row(2), row(3)])
    lake.append([row(4), row(5), row(6)])
    lake.upsert([row(1, value="new")])
    lake.delete_positions(ids_are(2))


def executed(world: SteppedWorld, kind: OptimizingType = OptimizingType.FULL) -> str:
    """A process whose commit is due."""
    process_id = world.begin(kind)
    world.run_all(process_id)
    return process_id


def delete_files(lake: Lake) -> list[str]:
    return [file.path for file in oracle.live_files(lake.table) if file.content != oracle.DATA]


def test_r3_a_table_reloaded_between_plan_and_commit_does_not_hide_a_delete(world: SteppedWorld, lake: Lake) -> None:
    """StarRocks #77709: validated from the snapshot that was current at the commit, so against nothing."""
    fill(lake)
    process_id = executed(world)
    lake.delete_positions(ids_are(5))
    world.restart()
    world.table()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    lake.require()
    require_tidy(world, lake, process_id)


def test_r4_a_delete_that_came_after_the_plan_stays_referenced(world: SteppedWorld, lake: Lake) -> None:
    """nimtable/iceberg-compaction #163: the new delete was retired with the file that it belonged to."""
    fill(lake)
    old = set(delete_files(lake))
    process_id = executed(world)
    lake.upsert([row(4, value="newer")])
    (new,) = set(delete_files(lake)) - old
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert delete_files(lake) == [new]
    lake.require()


def test_r7_rows_deleted_by_many_while_optimizing_stay_deleted(
    world: SteppedWorld, lake: Lake, quick_path: Path
) -> None:
    """trinodb/trino #18393: removing a file that another had replaced succeeded, and its rows were back."""
    ids = range(12)
    for id_ in ids:
        lake.append([row(id_)])
    failures: list[BaseException] = []

    def delete(mine: range) -> None:
        catalog = make_catalog(quick_path)
        try:
            table = catalog.load_table(NAME)
            for id_ in mine:
                writer.copy_on_write(table, ids_are(id_))
        except BaseException as error:
            failures.append(error)
        finally:
            catalog.close()

    threads = [threading.Thread(target=delete, args=(range(first, 12, 3),)) for first in range(3)]
    for thread in threads:
        thread.start()
    ended = []
    while any(thread.is_alive() for thread in threads):
        begun = world.planning.begin(world.table().table_id, trigger="request", requested=OptimizingType.FULL)
        if begun.process_id is not None:
            world.run_all(begun.process_id)
            ended.append(world.committing.commit(begun.process_id))
    for thread in threads:
        thread.join()
    assert failures == []
    assert set(ended) <= {ProcessStatus.SUCCESS, ProcessStatus.FAILED}
    assert oracle.live_rows(lake.table).total() == 0


def test_r9_each_attempt_is_validated_anew(world: SteppedWorld, lake: Lake) -> None:
    """apache/iceberg-python #3320: a retry that is not validated commits over what came in between."""
    fill(lake)
    process_id = executed(world)
    with before(world, "send", lambda: lake.append([row(7)]), lambda: lake.remove_file(ids_are(5))):
        assert world.committing.commit(process_id) is ProcessStatus.FAILED
    attempts = world.store.read(lambda db: processes.list_commits(db, process_id))
    assert [one.outcome for one in attempts] == [CommitOutcome.CONFLICT, CommitOutcome.CONFLICT]
    lake.require()
    require_tidy(world, lake, process_id)


def test_b1_a_commit_while_planning_does_not_make_live_deletes_dangle(world: SteppedWorld, lake: Lake) -> None:
    """apache/amoro #3348: files and dangling deletes came from scans of two snapshots."""
    fill(lake)
    with before(world, "context", lambda: lake.upsert([row(4, value="newer")])):
        process_id = executed(world)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    lake.require()
    assert len(delete_files(lake)) == 1


def test_b6_b7_deletes_are_listed_once_and_all_go_in_the_end(world: SteppedWorld, lake: Lake) -> None:
    """apache/iceberg-rust #2203, apache/iceberg #4127: tables with a history had deletes twice, or for ever."""
    for number in range(4):
        lake.append([row(number), row(number + 10)])
        lake.upsert([row(number, value=f"{number}")])
        lake.delete_positions(ids_are(number + 10))
        if number % 2:
            assert world.optimize(OptimizingType.MINOR) is ProcessStatus.SUCCESS
            lake.require()
    lake.append([row(20)])
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    lake.require()
    assert delete_files(lake) == []
    assert len(oracle.live_files(lake.table)) == 1


ERRORS = (MemoryError(), KeyboardInterrupt(), SystemExit(1), StoreFailed("the disk failed"))


@pytest.mark.parametrize("is_restarted", sample([True, False], every=2), ids=lambda given: "again" if given else "on")
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", sample(ERRORS, every=3), ids=lambda error: type(error).__name__)
def test_c2_d3_any_error_at_any_effect_of_a_commit_leaves_it_to_be_finished(
    world: SteppedWorld, lake: Lake, error: BaseException, after: bool, is_restarted: bool
) -> None:
    """apache/iceberg #4666, apache/amoro #240: an error after the commit led to an abort that deleted live files."""
    fill(lake)
    for at in count():
        lake.append([row(100 + at), row(200 + at)])
        process_id = executed(world)
        with failing(world, at, error, after=after) as effects, suppress(type(error)):
            world.committing.commit(process_id)
        if is_restarted:
            world.restart()
        assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
        lake.require()
        assert require_ended(world, lake, process_id) is ProcessStatus.SUCCESS
        if at >= len(effects):
            break
    assert at == 4  # stage, intent, send, end: the fifth round met no error


@pytest.mark.parametrize("error", ERRORS[:3], ids=lambda error: type(error).__name__)
def test_c2_an_error_within_the_catalogs_client_after_the_commit_is_no_failure(
    world: SteppedWorld, lake: Lake, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apache/iceberg #12499: any throwable, out of memory too, may hide a commit that landed."""
    fill(lake)
    process_id = executed(world)
    commit_table = SqlCatalog.commit_table

    def late(*given: Any) -> object:
        commit_table(*given)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "commit_table", late)
        with suppress(type(error)):
            assert world.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    assert world.clearing.clean_up(process_id) == ()
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    assert require_ended(world, lake, process_id) is ProcessStatus.SUCCESS
    lake.require()


def test_c5_format_1_a_commit_that_others_overtook_is_not_unknown_for_ever(quick_path: Path) -> None:
    """Format 1 has no sequence numbers: what refutes an attempt is that main has left its parent."""
    catalog = make_catalog(quick_path)
    lake = Lake.created(catalog, 1)
    home = quick_path / "home"
    home.mkdir()
    world = SteppedWorld(home, catalog)
    lake.append([row(1)])
    lake.append([row(2)])
    process_id = executed(world)

    def lose(send: Callable[[], object]) -> None:
        raise CommitUnknown("503")

    with instead_of_sending(world, lose):
        assert world.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    lake.append([row(3)])
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    lake.require()
    world.store.close()
    close_catalogs()
    catalog.close()


@pytest.mark.parametrize("over", sample([1, 200, 2000], every=3), ids=lambda over: f"{over} bytes over")
def test_d1_a_file_just_above_the_target_is_rewritten_whole(world: SteppedWorld, lake: Lake, over: int) -> None:
    """apache/iceberg #2195: a part of the file's splits was rewritten, and the whole file removed."""
    lake.append([row(id_, value=f"{id_ * 2654435761:x}" * 8) for id_ in range(200)])
    (file,) = oracle.live_files(lake.table)
    with lake.table.transaction() as change:
        change.set_properties({"self-optimizing.target-size": str(file.file_size_bytes - over)})
    process_id = world.begin(OptimizingType.FULL, force=True)
    world.run_all(process_id)
    assert world.committing.commit(process_id) is ProcessStatus.SUCCESS
    lake.require()


def test_d10_files_of_an_older_spec_stay_in_it(world: SteppedWorld, lake: Lake) -> None:
    """pyiceberg writes every new file under the table's default spec."""
    lake.append([row(1, "a"), row(2, "b")])
    lake.append([row(3, "a")])
    lake.partition_by_part()
    lake.append([row(4, "a")])
    lake.append([row(5, "a"), row(6, "b")])
    old, new = 0, lake.table.metadata.default_spec_id
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS
    lake.require()
    files = oracle.live_files(lake.table)
    assert sorted((file.spec_id, file.partition, file.record_count) for file in files) == [
        (old, (), 3),
        (new, ("a",), 2),
        (new, ("b",), 1),
    ]
