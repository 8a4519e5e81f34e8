"""Parts of the code that are mutated, each with its tests and its page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """Modules, tests and page. Without modules those of `[tool.mutmut]` in pyproject.toml."""

    title: str
    modules: str  # in words, for the page
    page: Path
    sources: Sequence[str] = ("amoro_core",)
    only_mutate: Sequence[str] = ()
    tests: Sequence[str] = ()


_OF_STORAGE_PROPERTIES = (
    "test_a_table_that_cannot_be_loaded_is_asked_for_again_after_a_second",
    "test_properties_that_came_with_a_table_count_from_its_loading_and_are_not_kept_longer",
    "test_a_clock_that_was_set_back_keeps_no_properties_longer",
)

PARTS: Mapping[str, Part] = {
    "commit": Part(
        "matching, validation and commit",
        "The modules and tests of `[tool.mutmut]` in `pyproject.toml`: matching of deletes, validation,\n"
        "manifests and commits of Iceberg, the commit service. The tests need neither a JVM nor processes.",
        Path("docs/mutants.md"),
    ),
    "maintenance": Part(
        "decisions on deletes",
        "The modules and tests of `tests/mutants/parts.py`: selection of snapshots and orphans, reachable\n"
        "files, the guard, the deletion of files in batches, the trash, and undo.",
        Path("docs/mutants-of-maintenance.md"),
        ("amoro_core",),
        (
            "amoro_core/maintenance/snapshots.py",
            "amoro_core/maintenance/orphans.py",
            "amoro_core/iceberg/maintenance/reachable.py",
            "amoro_core/iceberg/maintenance/reachability_guard.py",
            "amoro_core/services/file_deletion.py",
            "amoro_core/store/pending_deletions.py",
            "amoro_core/transactions/file_holds.py",
            "amoro_core/validation/revert_rules.py",
        ),
        (
            "tests/unit/maintaining/test_snapshots.py",
            "tests/unit/maintaining/test_orphans.py",
            "tests/unit/maintaining/test_times.py",
            "tests/unit/test_undoing.py",
            "tests/iceberg/test_guarding.py",
            "tests/iceberg/test_orphans.py::test_tasks_find_what_the_coordinator_finds_alone",
            "tests/iceberg/test_orphans.py::test_named_paths_stand_in_the_range_of_each_of_their_spellings",
            "tests/iceberg/test_orphans.py::test_a_blob_that_does_not_fit_its_columns_is_refused",
            "tests/iceberg/test_orphans.py::test_what_was_written_since_the_plan_is_young_and_no_sign_of_a_wrong_clock",
            "tests/store/test_tables.py",
            "tests/services/test_inspecting.py",
            "tests/services/test_sweeping.py",
            "tests/services/test_undoing.py",
        ),
    ),
    "clustering": Part(
        "clustering",
        "The modules and tests of `tests/mutants/parts.py`: sort keys, ranks, curves, samples and cut\n"
        "points; depth, groups and plans; names and footers of clustered files.",
        Path("docs/mutants-of-clustering.md"),
        ("amoro_core", "amoro_optimizer"),
        (
            "amoro_optimizer/cluster/range_partitioner.py",
            "amoro_optimizer/cluster/sort_keys.py",
            "amoro_optimizer/cluster/writing.py",
            "amoro_core/planning/clustering/grouping.py",
            "amoro_core/planning/clustering/layouts.py",
            "amoro_core/planning/clustering/planner.py",
            "amoro_core/model/clustering.py",
        ),
        (
            "tests/unit/cluster",
            "tests/unit/planning/clustering",
            "tests/unit/planning/test_in_order.py",
            "tests/unit/test_copy_rule.py",
        ),
    ),
    "following": Part(
        "position translation",
        "The modules and tests of `tests/mutants/parts.py`: the view of the head and its rules, translation\n"
        "of positions, deletion vectors, maps of deleted rows, row lineage, and the files of a commit\n"
        "attempt.",
        Path("docs/mutants-of-following.md"),
        ("amoro_core",),
        (
            "amoro_core/validation/view.py",
            "amoro_core/validation/rules.py",
            "amoro_core/validation/result_check.py",
            "amoro_core/model/row_positions.py",
            "amoro_core/files/deletes/vectors.py",
            "amoro_core/files/schema/schemas.py",
            "amoro_core/files/deletes/row_matcher.py",
            "amoro_core/formats/tables.py",
        ),
        (
            "tests/unit/test_following.py",
            "tests/unit/test_check.py",
            "tests/unit/test_validating.py",
            "tests/unit/test_vectors.py",
            "tests/unit/cluster/test_row_lookup.py",
            "tests/unit/rewrite/test_position_maps.py",
            "tests/unit/rewrite/test_lineage.py",
            "tests/unit/rewrite/test_vectors.py",
            "tests/unit/rewrite/test_schema_evolution.py",
            "tests/unit/rewrite/test_types_of_format_3.py",
            "tests/unit/rewrite/test_digests.py",
            "tests/unit/files",
            "tests/formats/test_tables.py",
            "tests/iceberg/test_scan_of_tables.py",
            "tests/iceberg/test_promoted_bounds.py",
            "tests/services/test_carry_over.py",
            "tests/services/test_format_3.py",
            *(f"tests/services/test_optimizing.py::{name}" for name in _OF_STORAGE_PROPERTIES),
        ),
    ),
}
