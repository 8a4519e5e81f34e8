"""Amoro's tests of its maintainers, test by test: ours of the same name below, what proves the same, or why not.

`TestDataExpire` is in `test_manifests_of_java`. The variants for Iceberg and Hive run the same tests on other tables.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from pyiceberg.table.statistics import StatisticsFile

from amoro_core.errors import TableRefused
from amoro_core.model.processes import ProcessStatus
from tests.engine import oracle, writer
from tests.services.ported import Ported, require_proofs
from tests.services.test_expiring import ids, made, whole
from tests.services.test_expiring import sweep as sweep_all
from tests.services.test_orphans import Place, place
from tests.services.world import World

__all__ = ["place"]

HERE, ORPHANS, DANGLING, EXPIRY, SELECTION, TAGS, TAGGING, JAVA, SWEEPING, MOVING = (
    "services/test_maintainers_of_amoro.py",
    "services/test_orphans.py",
    "services/test_dangling.py",
    "services/test_expiring.py",
    "unit/maintaining/test_snapshots.py",
    "unit/maintaining/test_times.py",
    "services/test_maintaining.py",
    "services/test_expiry_of_java.py",
    "services/test_sweeping.py",
    "services/test_moving_trash.py",
)

NO_KEYED = "there are no keyed tables of the Mixed formats here"
NO_FOLDERS = "only files are moved, none of which is a folder"
DROPPED = "the trash of a dropped table stays: nobody is asked whether its files are needed"
OF_FILE_IO = "of Amoro's FileIO, which there is none of here"

ORPHAN_FILE_CLEAN: Ported = {
    "orphanDataFileClean": (HERE, "test_orphan_data_file_clean"),
    "orphanMetadataFileClean": (HERE, "test_orphan_metadata_file_clean"),
    "notDeleteFlinkTemporaryFile": (ORPHANS, "test_files_that_flink_has_not_committed_are_kept"),
    "notDeleteStatisticsFile": (HERE, "test_not_delete_statistics_file"),
    "testGcDisabled": (HERE, "test_gc_disabled"),
    "cleanDanglingDeleteFiles": (DANGLING, "test_only_what_applies_to_no_file_goes_and_no_row_changes"),
}
SNAPSHOT_EXPIRE: Ported = {
    "testExpireChangeTableFiles": NO_KEYED,
    "testNotExpireFlinkLatestCommit": (EXPIRY, "test_a_streaming_writer_finds_how_far_it_had_come"),
    "testNotExpireOptimizedSequenceCommit": NO_KEYED,
    "testNotExpireOptimizeCommit": (EXPIRY, "test_the_base_of_a_running_process_stays_with_its_chain"),
    "testExpireTableFiles": (EXPIRY, "test_old_snapshots_go_and_their_files_after_their_time"),
    "testExpireTableFilesRepeatedly": (HERE, "test_expire_table_files_repeatedly"),
    "testExpireStatisticsFiles": (JAVA, "test_expire_with_statistics_files_with_reuse"),
    "testChangeTableGcDisabled": NO_KEYED,
    "testBaseTableGcDisabled": (EXPIRY, "test_what_gc_forbids_is_refused_also_when_it_was_set_after_planning"),
    "testRetainMinSnapshot": (SELECTION, "test_of_the_two_ages_and_the_two_counts_the_larger_one_counts"),
    "testSnapshotExpireConfig": (SELECTION, "test_a_malformed_property_is_refused_by_name"),
    "testExpireKeepsFilesReferencedByCurrentSnapshot": (
        EXPIRY,
        "test_no_live_file_goes_by_whatever_path_it_is_still_live",
    ),
}
AUTO_CREATE_TAG: Ported = {
    "testDefaultNotEnableCreateTag": (TAGGING, "test_without_its_property_nothing_is_due_but_what_is_asked_for"),
    "testCreateDailyTag": (TAGS, "test_a_tag_is_named_after_the_period_that_ended"),
    "testCreateHourlyTag": (TAGS, "test_a_tag_is_named_after_the_period_that_ended"),
    "testCreateMonthlyTag": (TAGS, "test_a_tag_is_named_after_the_period_that_ended"),
    "testMonthlyTagNameAcrossMonthBoundary": (TAGS, "test_a_tag_is_named_after_the_period_that_ended"),
    "testCreateDailyOffsetTag": (TAGS, "test_a_period_has_begun_once_its_offset_has_passed"),
    "testCreateHourlyOffsetTag": (TAGS, "test_a_period_has_begun_once_its_offset_has_passed"),
    "testNotCreateDelayDailyTag": (TAGS, "test_a_snapshot_may_come_as_late_as_the_delay_and_no_later"),
    "testNotCreateDelayHourlyTag": (TAGS, "test_a_snapshot_may_come_as_late_as_the_delay_and_no_later"),
    "testTagFormat": (TAGS, "test_a_text_in_the_patterns_form_is_read_as_it_is_written"),
    "testTriggerTimePeriod": (TAGS, "test_a_period_has_begun_once_its_offset_has_passed"),
    "testTagExpiration": (TAGGING, "test_a_tag_has_the_age_that_properties_say"),
}
OTHERS: Ported = {
    "TestRollingFileCleaner.testCleanFiles": (
        SWEEPING,
        "test_kinds_go_in_their_order_and_a_batch_has_one_kind",
    ),
    "TestIcebergTableMaintainer.testExpireSnapshotsUsesMaintenancePool": (
        "of the pool that Iceberg's Java plans with; there is one thread for each process here"
    ),
    "TestTableTrashManagers": (MOVING, "test_a_root_of_its_own_is_used_below_the_allowed_places_alone"),
    "TestBasicTableTrashManager.testGenerateFileLocationInTrash": (
        MOVING,
        "test_due_files_are_moved_by_day_and_deleted_from_there_when_their_days_are_over",
    ),
    "TestBasicTableTrashManager.testDeleteAndRestore": (
        MOVING,
        "test_what_was_moved_is_listed_where_it_lies_and_comes_back",
    ),
    "TestBasicTableTrashManager.testMoveAndOverwrite": (
        MOVING,
        "test_a_file_of_an_earlier_name_stays_in_the_trash_when_the_name_is_used_again",
    ),
    "TestBasicTableTrashManager.testDeleteDirectory": NO_FOLDERS,
    "TestBasicTableTrashManager.testRestoreDirectory": NO_FOLDERS,
    "TestBasicTableTrashManager.testCleanFiles": (
        MOVING,
        "test_due_files_are_moved_by_day_and_deleted_from_there_when_their_days_are_over",
    ),
    "TestBasicTableTrashManager.testDeleteTrashLocation": DROPPED,
    "TestRecoverableAuthenticatedFileIO": OF_FILE_IO,
}


def test_each_of_theirs_has_one_of_ours_or_a_reason() -> None:
    every = (ORPHAN_FILE_CLEAN, SNAPSHOT_EXPIRE, AUTO_CREATE_TAG, OTHERS)
    assert [len(one) for one in every] == [6, 12, 12, 11]
    require_proofs(*every)


def test_orphan_data_file_clean(place: Place) -> None:
    """Also in a folder of its own. It is young at first, and the rest of the table is read as before."""
    nested = place.put("data/testLocation/orphan.parquet")
    now = place.world.now.timestamp()
    for path in (nested, place.orphan):
        os.utime(path, (now, now))
    assert place.found() == []
    place.age()
    assert place.found() == sorted([place.orphan, nested])
    place.run()
    assert place.run("empty-trash").status is ProcessStatus.SUCCESS
    assert not any(os.path.exists(path) for path in (nested, place.orphan))
    assert all(os.path.exists(path.removeprefix("file://")) for path in place.live)


def test_orphan_metadata_file_clean(place: Place) -> None:
    orphans = [place.put(f"metadata/{name}") for name in ("orphan.avro", "snap-1-1-orphan.avro", "orphan.stats")]
    place.run()
    place.run("empty-trash")
    assert not any(os.path.exists(path) for path in orphans)
    whole(place.table)


def test_not_delete_statistics_file(place: Place) -> None:
    """Wherever they lie, as long as the metadata names them."""
    snapshots = place.table.refresh().metadata.snapshots
    paths = [place.put(below) for below in ("metadata/t1.puffin", "data/t2.puffin", "data/puffin/t3.puffin")]
    with place.table.update_statistics() as update:
        for snapshot, path in zip(snapshots, paths, strict=True):
            update.set_statistics(
                StatisticsFile(
                    **{
                        "snapshot-id": snapshot.snapshot_id,
                        "statistics-path": f"file://{path}",
                        "file-size-in-bytes": 3,
                        "file-footer-size-in-bytes": 1,
                        "blob-metadata": [],
                    }
                )
            )
    place.age()
    unnamed = place.put("data/puffin/t4.puffin")
    assert place.found() == sorted([place.orphan, unnamed])


def test_gc_disabled(place: Place) -> None:
    with place.table.refresh().transaction() as change:
        change.set_properties({"clean-orphan-file.enabled": "true", "gc.enabled": "false"})
    with pytest.raises(TableRefused, match=r"gc\.enabled=false"):
        place.preview()
    with pytest.raises(TableRefused, match=r"gc\.enabled=false"):
        place.run()
    assert os.path.exists(place.orphan)


def test_expire_table_files_repeatedly(world: World) -> None:
    """Files that were removed, added again by a later snapshot and removed again go once, with all that named them."""
    table = made(world, 2, {"maintenance.expire-snapshots.trash-keep": "0"})
    rows = [one.path for one in oracle.live_files(table)]
    for _ in range(2):
        writer.copy_on_write(table.refresh(), lambda one: one["id"] == 0, lambda one: one)
    head = ids(table)[-1]
    world.later(timedelta(days=30).total_seconds())
    begun = world.maintaining.begin(world.table().table_id, "expire-snapshots", trigger="request")
    assert world.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
    sweep_all(world)
    assert ids(table) == [head]
    whole(table)
    gone = [path for path in rows if not os.path.exists(path.removeprefix("file://"))]
    assert len(gone) == 1
