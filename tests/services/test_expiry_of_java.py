"""Iceberg's `TestRemoveSnapshots` and `TestExpireSnapshotsAction`, test by test: what proves the same here, or why not.

Those that need files and no other test has are below, each with the name of Java's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from tests.engine import oracle, writer
from tests.engine.aging import DAY_MS, aged
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.reached import reached
from tests.services.ported import Ported, require_proofs
from tests.services.test_expiring import AT_ONCE, expire, ids, made, sweep, whole
from tests.services.world import World

SELECTION, SERVICES, COMMIT = (
    "unit/maintaining/test_snapshots.py",
    "services/test_expiring.py",
    "iceberg/test_expiry.py",
)
REACHED, SPARK, HERE = "iceberg/test_reachable.py", "spark/test_expiring.py", "services/test_expiry_of_java.py"

RELEASED = (REACHED, "test_what_goes_is_what_nothing_else_reaches_before_and_after_the_commit")
AS_JAVA = (SPARK, "test_on_random_tables_the_same_snapshots_refs_and_files_go_as_by_java")
ALL_KINDS = (SERVICES, "test_old_snapshots_go_and_their_files_after_their_time")
STILL_LIVE = (SERVICES, "test_no_live_file_goes_by_whatever_path_it_is_still_live")
GC = (SERVICES, "test_what_gc_forbids_is_refused_also_when_it_was_set_after_planning")
RETAINED = (SELECTION, "test_retain_last_with_expire_older_than")
PICKED = (SPARK, "test_a_cherry_picked_file_stays_with_the_snapshot_that_picked_it")
CLEANED = (COMMIT, "test_unused_schemas_and_specs_go_where_it_is_asked_for")

NEVER_INCREMENTAL = "what goes is never told by following the history (iceberg #13568)"
OF_THE_CALLER = "of the interface: a command says each thing once, and deleting is a process of its own"

REMOVE_SNAPSHOTS: Ported = {
    "testExpireOlderThan": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireOlderThanWithDelete": ALL_KINDS,
    "testExpireOlderThanWithDeleteInMergedManifests": STILL_LIVE,
    "testExpireOlderThanWithRollbackWithReachableCleanup": (SELECTION, "test_expire_older_than_with_rollback"),
    "testCannotCleanupIncrementallyWithRollback": NEVER_INCREMENTAL,
    "testExpireOlderThanWithRollbackAndMergedManifests": RELEASED,
    "testRetainLastWithExpireOlderThan": RETAINED,
    "testRetainLastWithExpireById": (SELECTION, "test_retain_last_with_expire_by_id"),
    "testRetainNAvailableSnapshotsWithTransaction": RETAINED,
    "testRetainLastWithTooFewSnapshots": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testRetainNLargerThanCurrentSnapshots": (
        SELECTION,
        "test_what_java_does_not_protect_goes_exactly_as_it_does_there",
    ),
    "testRetainLastKeepsExpiringSnapshot": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireOlderThanMultipleCalls": OF_THE_CALLER,
    "testRetainLastMultipleCalls": OF_THE_CALLER,
    "testRetainZeroSnapshots": (SERVICES, "test_what_can_not_be_asked_for_is_refused_with_nothing_done"),
    "testScanExpiredManifestInValidSnapshotAppend": STILL_LIVE,
    "testScanExpiredManifestInValidSnapshotFastAppend": STILL_LIVE,
    "dataFilesCleanup": ALL_KINDS,
    "dataFilesCleanupWithParallelTasks": OF_THE_CALLER,
    "noDataFileCleanup": OF_THE_CALLER,
    "testWithExpiringDanglingStageCommitWithReachableCleanup": (
        SELECTION,
        "test_what_java_does_not_protect_goes_exactly_as_it_does_there",
    ),
    "testCannotIncrementallyCleanupWithStagedCommit": NEVER_INCREMENTAL,
    "testWithCherryPickTableSnapshot": PICKED,
    "testWithExpiringStagedThenCherrypick": PICKED,
    "testExpireSnapshotsWhenGarbageCollectionDisabled": GC,
    "testExpireWithDefaultRetainLast": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireWithDefaultSnapshotAge": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireWithDeleteFiles": ALL_KINDS,
    "testTagExpiration": (SELECTION, "test_tag_expiration"),
    "testBranchExpiration": (SELECTION, "test_branch_expiration"),
    "testIncrementalCleanupFailsWhenExpiringSnapshotId": NEVER_INCREMENTAL,
    "testMultipleRefsAndCleanExpiredFilesFailsForIncrementalCleanup": NEVER_INCREMENTAL,
    "testExpireWithStatisticsFiles": ALL_KINDS,
    "testExpireWithStatisticsFilesWithReuse": (HERE, "test_expire_with_statistics_files_with_reuse"),
    "testExpireWithPartitionStatisticsFiles": (COMMIT, "test_statistics_of_both_kinds_go_with_their_snapshot"),
    "testExpireWithPartitionStatisticsFilesWithReuse": RELEASED,
    "testFailRemovingSnapshotWhenStillReferencedByBranch": (
        SELECTION,
        "test_removing_a_snapshot_that_is_still_referenced_is_refused",
    ),
    "testFailRemovingSnapshotWhenStillReferencedByTag": (
        SELECTION,
        "test_removing_a_snapshot_that_is_still_referenced_is_refused",
    ),
    "testRetainUnreferencedSnapshotsWithinExpirationAge": (
        SELECTION,
        "test_retain_unreferenced_snapshots_within_expiration_age",
    ),
    "testUnreferencedSnapshotParentOfTag": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testSnapshotParentOfBranchNotUnreferenced": (SELECTION, "test_snapshot_parent_of_branch_not_unreferenced"),
    "testMinSnapshotsToKeepMultipleBranches": (SELECTION, "test_min_snapshots_to_keep_multiple_branches"),
    "testMaxSnapshotAgeMultipleBranches": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testRetainFilesOnRetainedBranches": (HERE, "test_retain_files_on_retained_branches"),
    "testRemoveFromTableWithBulkIO": OF_THE_CALLER,
    "testBulkDeletionWithBulkDeletionFailureException": OF_THE_CALLER,
    "testBulkDeletionWithRuntimeException": OF_THE_CALLER,
    "testRemoveSpecDuringExpiration": CLEANED,
    "testRemoveSpecsDoesntRemoveDefaultSpec": CLEANED,
    "testRemoveSchemas": CLEANED,
    "testNoSchemasOrSpecsToRemove": (COMMIT, "test_a_schema_that_an_equality_delete_compares_by_stays"),
    "testExpireSnapshotsWithExecutor": OF_THE_CALLER,
    "testRemoveMetadataWithNoSnapshots": "schemas and specs go along with snapshots only",
    "testRemoveSnapshotsNoOp": (SERVICES, "test_without_anything_old_there_is_nothing_to_do_and_it_says_what_stays"),
    "testFileCleanupOnAllRefsAgedOff": (HERE, "test_file_cleanup_on_a_branch_that_aged_off"),
    "testCleanupWhenBranchOnMainAgedOff": (HERE, "test_cleanup_when_branch_on_main_aged_off"),
    "testCleanupLevelAll": OF_THE_CALLER,
    "testCleanupLevelMetadataOnly": OF_THE_CALLER,
    "testCleanupLevelNone": OF_THE_CALLER,
    "testCleanExpiredFilesAPI": OF_THE_CALLER,
    "testCannotSetCleanExpiredFilesAndCleanupLevelTogether": OF_THE_CALLER,
    "testCanOverrideCleanExpiredFilesWithCleanupLevel": OF_THE_CALLER,
    "testCleanupLevelNullValidation": OF_THE_CALLER,
    "testAppendOnlyManifestsNotScannedDuringCleanup": NEVER_INCREMENTAL,
}
EXPIRE_SNAPSHOTS_ACTION: Ported = {
    "testFilesCleaned": ALL_KINDS,
    "dataFilesCleanupWithParallelTasks": OF_THE_CALLER,
    "testNoFilesDeletedWhenNoSnapshotsExpired": (
        SERVICES,
        "test_without_anything_old_there_is_nothing_to_do_and_it_says_what_stays",
    ),
    "testCleanupRepeatedOverwrites": AS_JAVA,
    "testRetainLastWithExpireOlderThan": RETAINED,
    "testExpireTwoSnapshotsById": (HERE, "test_expire_two_snapshots_by_id"),
    "testRetainLastWithExpireById": (SELECTION, "test_retain_last_with_expire_by_id"),
    "testRetainLastWithTooFewSnapshots": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testRetainLastKeepsExpiringSnapshot": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireSnapshotsWithDisabledGarbageCollection": GC,
    "testExpireOlderThanMultipleCalls": OF_THE_CALLER,
    "testRetainLastMultipleCalls": OF_THE_CALLER,
    "testRetainZeroSnapshots": (SERVICES, "test_what_can_not_be_asked_for_is_refused_with_nothing_done"),
    "testScanExpiredManifestInValidSnapshotAppend": STILL_LIVE,
    "testScanExpiredManifestInValidSnapshotFastAppend": STILL_LIVE,
    "testWithExpiringDanglingStageCommit": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testWithCherryPickTableSnapshot": PICKED,
    "testWithExpiringStagedThenCherrypick": PICKED,
    "testExpireOlderThan": (SELECTION, "test_what_java_does_not_protect_goes_exactly_as_it_does_there"),
    "testExpireOlderThanWithDelete": ALL_KINDS,
    "testExpireOlderThanWithDeleteInMergedManifests": STILL_LIVE,
    "testExpireOlderThanWithRollback": (SELECTION, "test_expire_older_than_with_rollback"),
    "testExpireOlderThanWithRollbackAndMergedManifests": RELEASED,
    "testExpireOlderThanWithDeleteFile": ALL_KINDS,
    "testExpireOnEmptyTable": (HERE, "test_expire_on_empty_table"),
    "testExpireAction": (SPARK, "test_our_counts_are_those_of_sparks_procedure"),
    "testUseLocalIterator": OF_THE_CALLER,
    "testExpireAfterExecute": OF_THE_CALLER,
    "testExpireFileDeletionMostExpired": AS_JAVA,
    "testExpireFileDeletionMostRetained": AS_JAVA,
    "testExpireFileDeletionWithDefaultRetention": AS_JAVA,
    "testExpireSomeCheckFilesDeleted": ALL_KINDS,
    "testNoExpiredMetadataCleanupByDefault": (SERVICES, "test_old_snapshots_go_and_their_files_after_their_time"),
    "testCleanExpiredMetadata": CLEANED,
}


def test_each_of_javas_tests_is_proved_or_has_a_reason() -> None:
    assert (len(REMOVE_SNAPSHOTS), len(EXPIRE_SNAPSHOTS_ACTION)) == (64, 34)
    require_proofs(REMOVE_SNAPSHOTS, EXPIRE_SNAPSHOTS_ACTION)


def _lost(table: Table) -> set[str]:
    return {path for path in reached(table.refresh().metadata) if not Path(local_path(path)).exists()}


def test_expire_with_statistics_files_with_reuse(world: World) -> None:
    table = made(world, 2, AT_ONCE)
    first, second = ids(table)
    path = f"{table.location()}/metadata/shared.stats"
    Path(local_path(path)).write_bytes(b"puffin")
    for one in (first, second):
        said: dict[str, Any] = {"snapshot-id": one, "statistics-path": path, "file-size-in-bytes": 6}
        with table.update_statistics() as update:
            update.set_statistics(StatisticsFile(**said, **{"file-footer-size-in-bytes": 1, "blob-metadata": []}))
    aged(table, 30)
    expire(world)
    sweep(world)
    assert [one.snapshot_id for one in table.refresh().metadata.statistics] == [second]
    assert _lost(table) == set()


def test_retain_files_on_retained_branches(world: World) -> None:
    """A file that main has removed stays as long as a branch has it, and goes with the branch."""
    table = made(world, 1, AT_ONCE)
    writer.create_branch(table, "test", max_ref_age_ms=60 * DAY_MS)
    path = oracle.live_files(table)[0].path
    writer.append(table, [row(5)], branch="test")
    writer.remove_files(table, [path])
    writer.append(table, [row(6)])
    aged(table, 30)
    expire(world)
    sweep(world)
    assert Path(local_path(path)).exists()
    whole(table)
    aged(table, 40)
    expire(world)
    sweep(world)
    assert not Path(local_path(path)).exists()
    assert (set(table.refresh().metadata.refs), _lost(table)) == ({"main"}, set())


def test_file_cleanup_on_a_branch_that_aged_off(world: World) -> None:
    table = made(world, 1, AT_ONCE)
    writer.create_branch(table, "branch", max_ref_age_ms=1)
    writer.append(table, [row(5)], branch="branch")
    files = {one.path for one in oracle.live_files(table, table.metadata.refs["branch"].snapshot_id)}
    kept = {one.path for one in oracle.live_files(table)}
    aged(table, 30)
    expire(world)
    sweep(world)
    assert set(table.refresh().metadata.refs) == {"main"}
    assert {path for path in files if Path(local_path(path)).exists()} == files & kept


def test_cleanup_when_branch_on_main_aged_off(world: World) -> None:
    """The branch stands in main's history: only its name goes."""
    table = made(world, 2, {**AT_ONCE, "history.expire.max-snapshot-age-ms": str(90 * DAY_MS)})
    writer.create_branch(table, "branch", ids(table)[0], max_ref_age_ms=1)
    process = expire(world)
    assert (len(ids(table)), set(table.metadata.refs), _lost(table)) == (2, {"main"}, set())
    assert process.receipt is not None
    assert process.receipt.words == "expired 0 of 2 snapshots, removed branch"


def test_expire_two_snapshots_by_id(world: World) -> None:
    table = made(world, 3, AT_ONCE, days=1)
    first, second, third = ids(table)
    expire(world, snapshot_ids=(first, second))
    sweep(world)
    assert (ids(table), _lost(table)) == ([third], set())


def test_expire_on_empty_table(world: World) -> None:
    writer.make_table(world.catalog, "db.t", SCHEMA)
    begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    assert (begun.process_id, begun.reason) == ("", "no snapshot is past its time: none stays")
