"""The parts of the code that are mutated, each with the tests that watch it and a page of its own."""

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


PARTS: Mapping[str, Part] = {
    "commit": Part(
        "matching, validation and commit",
        "The modules: `live`; `validating`; of `iceberg` those that a commit is made of (`commit`, `staging`, "
        "`manifests`,\n`merging`, `heads`, `entries`, `tracing`; not `guards`, which keeps foreign classes out and "
        "decides nothing about rows);\n`services.committing` with `transactions.cases`. The tests: those of them that "
        "need neither a JVM nor processes, as\n`[tool.mutmut]` in `pyproject.toml` names them.",
        Path("docs/mutants.md"),
    ),
    "maintenance": Part(
        "decisions on deletes",
        "The modules: the selection of snapshots and orphans (`maintaining.snapshots`, `maintaining.orphans`), what a "
        "table\nreaches (`iceberg.reachable`), the guard (`iceberg.guarding`, `iceberg.guard_reading`), the sweep with "
        "its batches\n(`services.sweeping`, `store.condemned`), moves to a trash (`transactions.trashing`) "
        "and undo (`validating.undoing`). The tests: those of "
        "`tests/mutants/parts.py`.",
        Path("docs/mutants-of-maintenance.md"),
        ("amoro_core",),
        (
            "amoro_core/maintenance/snapshots.py",
            "amoro_core/maintenance/orphans.py",
            "amoro_core/iceberg/maintenance/reachable.py",
            "amoro_core/iceberg/maintenance/reachability_guard.py",
            "amoro_core/iceberg/maintenance/reachability_guard.py",
            "amoro_core/services/file_deletion.py",
            "amoro_core/store/pending_deletions.py",
            "amoro_core/transactions/file_holds.py",
            "amoro_core/validation/revert_rules.py",
        ),
        (
            "tests/unit/maintaining/test_snapshots.py",
            "tests/unit/maintaining/test_orphans.py",
            "tests/unit/test_undoing.py",
            "tests/iceberg/test_guarding.py",
            "tests/iceberg/test_listing_tasks.py",
            "tests/store/test_tables.py",
            "tests/services/test_sweeping.py",
            "tests/services/test_large_sweeping.py",
            "tests/services/test_moving_trash.py",
            "tests/services/test_undoing.py",
        ),
    ),
    "clustering": Part(
        "what puts rows in order and plans groups",
        "The modules: the order of rows, ranks, curves, samples and cut points (`amoro_optimizer.cluster`: `order`, "
        "`buckets`,\n`points`, `curves`, `sample`, `cuts`, `ordering`, `writing`); depth, groups that are kept and "
        "plans (`planning.clustering`: `depth`,\n`grouping`, `kept`, `layouts`, `partition`, `pieces`, `planner`); "
        "names and footers of clustered files\n(`model.clustered_files`). The tests: those of "
        "`tests/mutants/parts.py`.",
        Path("docs/mutants-of-clustering.md"),
        ("amoro_core", "amoro_optimizer"),
        (
            "amoro_optimizer/cluster/range_bounds.py",
            "amoro_optimizer/cluster/range_bounds.py",
            "amoro_optimizer/cluster/range_partitioner.py",
            "amoro_optimizer/cluster/range_partitioner.py",
            "amoro_optimizer/cluster/sort_keys.py",
            "amoro_optimizer/cluster/writing.py",
            "amoro_optimizer/cluster/range_partitioner.py",
            "amoro_optimizer/cluster/writing.py",
            "amoro_core/planning/clustering/grouping.py",
            "amoro_core/planning/clustering/grouping.py",
            "amoro_core/planning/clustering/layouts.py",
            "amoro_core/planning/clustering/layouts.py",
            "amoro_core/planning/clustering/partition.py",
            "amoro_core/planning/clustering/partition.py",
            "amoro_core/planning/clustering/planner.py",
            "amoro_core/model/clustering.py",
        ),
        (
            "tests/unit/cluster",
            "tests/unit/planning/clustering",
            "tests/unit/planning/test_in_order.py",
        ),
    ),
    "following": Part(
        "what follows rows beside other writers",
        "The modules: what a commit sees and the rules on the head's state (`validating`: `sight`, `state_rules`, "
        "`reading`,\n`joining`, `looking_up`, `lineage`), translation (`validating.rebasing`, `positions`), vectors, "
        "maps and lineage in\nfiles (`files`: `vectors`, `vector_reading`, `vector_writing`, `position_maps`, "
        "`lineage`, `row_lookup`), and what is\nread and written for an attempt (`formats.known`, "
        "`formats.carrying`). The tests: those of `tests/mutants/parts.py`.",
        Path("docs/mutants-of-following.md"),
        ("amoro_core",),
        (
            "amoro_core/validation/view.py",
            "amoro_core/validation/rules.py",
            "amoro_core/validation/position_translation.py",
            "amoro_core/validation/position_translation.py",
            "amoro_core/validation/position_translation.py",
            "amoro_core/validation/result_check.py",
            "amoro_core/validation/view.py",
            "amoro_core/model/row_positions.py",
            "amoro_core/files/deletes/vectors.py",
            "amoro_core/files/deletes/vectors.py",
            "amoro_core/files/deletes/vectors.py",
            "amoro_core/files/deletes/vectors.py",
            "amoro_core/files/schema/schemas.py",
            "amoro_core/files/deletes/row_matcher.py",
            "amoro_core/formats/tables.py",
            "amoro_core/formats/iceberg.py",
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
            "tests/iceberg/test_port_of_iceberg_tables.py",
            "tests/services/test_followed_rows.py",
            "tests/services/test_carry_over.py",
            "tests/services/test_vectors.py",
            "tests/services/test_lineage.py",
        ),
    ),
}
