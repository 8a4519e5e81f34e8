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
        "what decides about deletes",
        "The modules: the selection of snapshots and orphans (`maintaining.snapshots`, `maintaining.orphans`), what a "
        "table\nreaches (`iceberg.reachable`), the guard (`iceberg.guarding`, `iceberg.guard_reading`), the sweep with "
        "its batches\n(`services.sweeping`, `store.condemned`), moves to a trash (`transactions.trashing`) "
        "and undo (`validating.undoing`). The tests: those of "
        "`tests/mutants/parts.py`.",
        Path("docs/mutants-of-maintenance.md"),
        (
            "amoro_core/maintaining/snapshots.py",
            "amoro_core/maintaining/orphans.py",
            "amoro_core/iceberg/reachable.py",
            "amoro_core/iceberg/guarding.py",
            "amoro_core/iceberg/guard_reading.py",
            "amoro_core/services/sweeping.py",
            "amoro_core/store/condemned.py",
            "amoro_core/transactions/trashing.py",
            "amoro_core/validating/undoing.py",
        ),
        (
            "tests/unit/maintaining/test_snapshots.py",
            "tests/unit/maintaining/test_orphans.py",
            "tests/unit/test_undoing.py",
            "tests/iceberg/test_guarding.py",
            "tests/iceberg/test_reachable.py",
            "tests/iceberg/test_listing_tasks.py",
            "tests/store/test_condemned.py",
            "tests/services/test_sweeping.py",
            "tests/services/test_large_sweeping.py",
            "tests/services/test_moving_trash.py",
            "tests/services/test_trash_and_leases.py",
            "tests/services/test_undoing.py",
            "tests/services/test_undoing_entries.py",
        ),
    ),
}
