"""Iceberg's `TestRewriteManifests` and Amoro's `TestDataExpire`, test by test: what proves it here, or why not."""

from __future__ import annotations

from tests.services.ported import Ported, require_proofs

MANIFESTS, LAYOUT, SPARK, DATA = (
    "services/test_rewriting_manifests.py",
    "unit/maintaining/test_manifests.py",
    "spark/test_files_lane.py",
    "services/test_expiring_data.py",
)

SAME_ENTRIES = (MANIFESTS, "test_every_entry_stays_as_it_was_in_fewer_manifests")
OF_SPECS = (MANIFESTS, "test_manifests_of_specs_are_never_mixed")
OTHERS_ADD = (MANIFESTS, "test_what_others_add_while_it_is_written_stays")
OTHERS_REPLACE = (MANIFESTS, "test_what_came_of_a_manifest_that_another_replaced_is_left_out")
AFTER_FILES = (MANIFESTS, "test_files_are_rewritten_after_their_manifests_and_these_after_the_files")
REFUSED = (MANIFESTS, "test_a_refused_commit_leaves_no_file_behind_and_all_manifests_as_they_were")
AS_JAVA_PLANS = (
    SPARK,
    "test_after_clustering_java_plans_one_partition_from_a_tenth_of_the_manifests_and_all_entries_are_equal",
)
LIMITS = (LAYOUT, "test_every_layout_takes_all_entries_once_in_manifests_that_are_not_too_full")

OF_THE_CALLER = "of the interface: nobody gives manifests, or says how entries are grouped"

REWRITE_MANIFESTS: Ported = {
    "testRewriteManifestsAppendedDirectly": OF_THE_CALLER,
    "testRewriteManifestsWithScanExecutor": OF_THE_CALLER,
    "testRewriteManifestsGeneratedAndAppendedDirectly": OF_THE_CALLER,
    "testReplaceManifestsSeparate": AS_JAVA_PLANS,
    "testReplaceManifestsConsolidate": SAME_ENTRIES,
    "testReplaceManifestsWithFilter": (LAYOUT, "test_so_many_small_ones_are_due_and_one_fewer_is_not"),
    "testReplaceManifestsMaxSize": LIMITS,
    "testConcurrentRewriteManifest": (
        MANIFESTS,
        "test_two_that_rewrite_the_same_manifests_leave_the_work_of_the_first",
    ),
    "testAppendDuringRewriteManifest": OTHERS_ADD,
    "testRewriteManifestDuringAppend": OTHERS_ADD,
    "testBasicManifestReplacement": SAME_ENTRIES,
    "testBasicManifestReplacementWithSnapshotIdInheritance": SAME_ENTRIES,
    "testWithMultiplePartitionSpec": OF_SPECS,
    "testManifestSizeWithMultiplePartitionSpec": LIMITS,
    "testManifestReplacementConcurrentAppend": OTHERS_ADD,
    "testManifestReplacementConcurrentDelete": OTHERS_REPLACE,
    "testManifestReplacementConcurrentConflictingDelete": OTHERS_REPLACE,
    "testManifestReplacementCombinedWithRewrite": AFTER_FILES,
    "testManifestReplacementCombinedWithRewriteConcurrentDelete": AFTER_FILES,
    "testInvalidUsage": OF_THE_CALLER,
    "testManifestReplacementFailure": REFUSED,
    "testManifestReplacementFailureWithSnapshotIdInheritance": REFUSED,
    "testRewriteManifestsOnBranchUnsupported": "main alone is rewritten here, too: nobody can ask for a branch",
    "testRewriteDataManifestsPreservesDeletes": (
        SPARK,
        "test_clustered_manifests_keep_the_numbers_by_which_java_drops_old_deletes",
    ),
    "testReplaceDeleteManifestsOnly": OTHERS_REPLACE,
    "testReplaceDataAndDeleteManifests": SAME_ENTRIES,
    "testDeleteManifestReplacementConcurrentAppend": OTHERS_ADD,
    "testDeleteManifestReplacementConcurrentDeleteFileRemoval": OTHERS_REPLACE,
    "testDeleteManifestReplacementConflictingDeleteFileRemoval": OTHERS_REPLACE,
    "testDeleteManifestReplacementFailure": REFUSED,
}
DATA_EXPIRE: Ported = {
    "testPartitionLevel": (DATA, "test_partition_level"),
    "testFileLevel": (DATA, "test_file_level"),
    "testBaseOnRule": (DATA, "test_base_on_rule"),
    "testNormalFieldPartitionLevel": (DATA, "test_partition_level"),
    "testNormalFieldFileLevel": (DATA, "test_file_level"),
    "testExpireByPartitionWhenMetricsModeIsNone": (DATA, "test_expire_by_partition_when_metrics_mode_is_none"),
    "testGcDisabled": (DATA, "test_gc_disabled"),
    "testDateTypeBoundaryConditions": (DATA, "test_date_type_boundary_conditions"),
    "testDateTypeBoundaryConditionsFileLevel": (DATA, "test_date_type_boundary_conditions_file_level"),
    "testDateTypeBoundaryConditionsPartitionLevel": (DATA, "test_date_type_boundary_conditions_partition_level"),
    "testDateTypeBoundaryConditionsKeyedTable": "there are no keyed tables of the Mixed formats here",
    "testDateTypeCrossDateBoundaryScenarios": (DATA, "test_date_type_cross_date_boundary_scenarios"),
}


def test_each_of_theirs_has_one_of_ours_or_a_reason() -> None:
    assert (len(REWRITE_MANIFESTS), len(DATA_EXPIRE)) == (30, 12)
    require_proofs(REWRITE_MANIFESTS, DATA_EXPIRE)
