"""The gain and cost of optimizing tables, and the order in which it pays."""

from typing import TYPE_CHECKING

from amoro_cli.outcomes import Outcome

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

#: The cost of opening a file, in bytes: the default of Iceberg's `read.split.open-file-cost`.
OPEN_FILE_COST = 4 * 1024 * 1024


def gain_of(plan: "pb.Plan") -> int:
    """The number of files saved: data files, and delete files of partitions that are rewritten."""
    return sum(
        part.data_files - part.expected_files + part.equality_delete_files + part.position_delete_files
        for part in plan.partitions
        if part.type
    )


def cost_of(plan: "pb.Plan") -> int:
    """The bytes to read, plus the cost of opening the files."""
    planned = [part for part in plan.partitions if part.type]
    files = sum(part.data_files + part.equality_delete_files + part.position_delete_files for part in planned)
    return sum(part.input_bytes for part in planned) + files * OPEN_FILE_COST


def ranked(outcomes: "list[Outcome[pb.Plan]]") -> "list[Outcome[pb.Plan]]":
    """Tables in the order in which optimizing them pays.

    First tables with work that a coordinator optimizes automatically, then those with work that are only observed, each
    by gain over cost; then those with nothing to do, and last those that could not be planned.
    """
    return sorted(outcomes, key=_place)


def _place(outcome: "Outcome[pb.Plan]") -> tuple[int, float, str]:
    plan = outcome.answer
    if plan is None:
        return 3, 0, outcome.table
    if not plan.type:
        return 2, 0, outcome.table
    return (0 if plan.enabled else 1), -gain_of(plan) / max(1, cost_of(plan)), outcome.table
