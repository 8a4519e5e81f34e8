"""Failures that others had, each under the reference of the catalogue of failures that this project is built against.

R: races with row-level deletes. B: deletes applied or removed wrongly. C: commits that had landed. D: planners and
executors that drop or change rows. What other tests prove stands in `PROVED_BY`, what can't concern us in `NOT_OURS`.
"""

from __future__ import annotations

import ast
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from amoro_core.errors import CommitUnknown, StoreFailed
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.iceberg.sqlite import SqliteCatalog
from amoro_core.model.processes import CommitOutcome, ProcessStatus
from amoro_core.model.tables import OptimizingType
from amoro_core.store import commits
from tests.engine import oracle, writer
from tests.engine.writer import make_catalog
from tests.model.crashes import SteppedWorld, before, failing, instead_of_sending
from tests.model.invariants import require_ended, require_tidy
from tests.model.lake import NAME, Lake, ids_are, row

TESTS = Path(__file__).parents[1]
PROVED_BY = {
    "R1": ("iceberg/test_stale_plans.py", "test_a_position_delete_since_the_plan_is_never_lost"),
    "R2": ("iceberg/test_stale_plans.py", "test_an_equality_delete_since_the_plan_goes_on_applying_to_the_outputs"),
    "R5": ("iceberg/test_stale_plans.py", "test_a_position_delete_since_the_plan_is_never_lost"),
    "R6": ("model/test_live_writer.py", "test_rewrites_land_beside_a_writer_that_commits_each_second"),
    "R8": ("faults/test_stale_catalog.py", "test_plan_of_an_old_state_never_commits"),
    "R10": ("model/test_interleavings.py", "test_rows_are_kept_whatever_others_do_at_any_point"),
    "R11": ("iceberg/test_stale_plans.py", "test_two_optimizers_never_uncover_a_row"),
    "B2": ("unit/rewrite/test_equality_deletes.py", "test_exactly_the_rows_with_a_deleted_key_go"),
    "B3": ("unit/rewrite/test_outputs.py", "test_an_output_carries_the_plan_s_numbers_and_a_name_of_its_attempt"),
    "B4": ("unit/test_matching.py", "test_match_says_what_the_rules_say_pair_by_pair"),
    "B5": ("iceberg/test_stale_plans.py", "test_deletes_of_all_kinds_are_folded_and_go"),
    "B9": ("unit/rewrite/test_position_deletes.py", "test_positions_count_over_all_row_groups"),
    "B10": ("unit/rewrite/test_position_deletes.py", "test_a_negative_position_makes_the_delete_file_unreadable"),
    "C1": ("faults/test_ambiguous_commits.py", "test_commit_that_is_applied_after_its_error_lands_once"),
    "C3": (
        "faults/test_random_maintenance.py",
        "test_maintenance_with_random_faults_lands_at_most_once_and_keeps_every_row",
    ),
    "C4": (
        "faults/test_ambiguous_commits.py",
        "test_commit_that_the_client_sent_twice_by_itself_is_found_behind_the_conflict",
    ),
    "C5": (
        "faults/test_ambiguous_commits.py",
        "test_last_answer_of_two_sendings_does_not_hide_that_the_first_is_unknown",
    ),
    "C7": ("iceberg/test_catalogs_of_pyiceberg.py", "test_kinds_of_catalogs_that_may_commit"),
    "C8": ("iceberg/test_port_of_iceberg_tables.py", "test_a_catalog_without_compare_and_set_is_refused_by_name"),
    "C9": ("services/test_committing.py", "test_a_coordinator_that_died_after_sending_finds_its_commit"),
    "C10": ("services/test_committing.py", "test_what_conflicts_wholly_fails_and_leaves_no_file_behind"),
    "C11": ("iceberg/test_commit.py", "test_any_other_error_leaves_the_commit_unknown"),
    "C12": ("model/test_machine.py", "test_every_ref_keeps_its_rows_in_random_schedules"),
    "D2": ("services/test_optimizing.py", "test_every_stage_survives_a_restart"),
    "D4": ("model/test_interleavings.py", "test_rows_are_kept_whatever_others_do_at_any_point"),
    "D5": ("services/test_tables.py", "test_one_table_under_two_names_is_refused_under_the_later_one"),
    "D6": ("unit/rewrite/test_outputs.py", "test_a_file_with_a_broken_page_is_unreadable"),
    "D7": ("unit/test_check.py", "test_a_result_that_does_not_add_up_is_refused"),
    "D8": ("services/test_random_lineage.py", "test_rows_keep_their_lineage_through_random_stories"),
    "D9": ("unit/rewrite/test_schema_evolution.py", "test_written_types_are_those_of_the_specification"),
}
#: The rows of each class in the catalogue.
ROWS = {"R": 12, "B": 11, "C": 12, "D": 10}
#: Rows without anything of ours that they could concern yet, with the reason.
NOT_OURS = {
    "R12": "other engines abort the loser of the same race, as we do (R1)",
    "B8": "we promise equal scans, not counts from metadata",
    "B11": "Delta's deletion vectors; a second engine reads back what we write in tests/spark",
    "C6": "no catalog of ours lies on an object store",
}


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


@pytest.mark.parametrize("reference", PROVED_BY)
def test_the_named_test_exists(reference: str) -> None:
    path, name = PROVED_BY[reference]
    tree = ast.parse((TESTS / path).read_text())
    assert name in {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


def test_every_row_of_the_catalogue_has_its_place() -> None:
    tree = ast.parse(Path(__file__).read_text())
    names = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    here = {word.upper() for name in names for word in name.split("_")[1:3] if re.fullmatch(r"[rbcd]\d+", word)}
    every = {f"{letter}{number}" for letter, last in ROWS.items() for number in range(1, last + 1)}
    assert {*PROVED_BY, *NOT_OURS, *here} == every
    assert NOT_OURS.keys().isdisjoint({*PROVED_BY, *here})


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
    attempts = world.store.read(lambda db: commits.list_for_process(db, process_id))
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


@pytest.mark.parametrize("is_restarted", [False, True], ids=["lives on", "restarts"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
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
    commit_table = SqliteCatalog.commit_table

    def late(*given: Any) -> object:
        commit_table(*given)
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(SqliteCatalog, "commit_table", late)
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


@pytest.mark.parametrize("over", [1, 200, 2000], ids=lambda over: f"{over} bytes over")
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
