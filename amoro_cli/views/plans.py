"""What would be rewritten, and why."""

import shlex
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from amoro_cli.ordering import AS_CONFIGURED, Ordering
from amoro_cli.output import Block, Document, Grid
from amoro_cli.views.tables import coarse, health
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_time, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

_HEADER = ("WHY", "FILES", "DELETES", "SIZE", "→ FILES", "PARTITION")
_NUMBERS = frozenset({"FILES", "DELETES", "SIZE", "→ FILES"})


def plan_document(plan: "pb.Plan", command: str, explain: bool = False) -> Document:
    """Schema amoro.plan/v1: the fields of the plan. `command` carries it out; `explain` lists every partition."""
    names = (plan.table,) if plan.type else ()
    return Document("amoro.plan/v1", encode(plan), names, tuple(_blocks(plan, command, explain)))


def optimize_command(table: str, type_: str, force: bool, where: str = "", ordering: Ordering = AS_CONFIGURED) -> str:
    """The command that carries out what was planned."""
    options = [
        *(["--type", str(type_)] if type_ else []),
        *(["--force"] if force else []),
        *(["--where", where] if where else []),
        *ordering.options,
    ]
    return shlex.join(["amoro", "optimize", table, *options])


def nothing_to_do(plan: "pb.Plan") -> list[str]:
    """Why there is nothing to do, and when the next scheduled optimizing is due."""
    why = plan.reason.removeprefix("nothing to do")
    if why == plan.reason:
        why = f": {plan.reason or 'below all triggers'}"
    lines = [f"Nothing to do for {plan.table}{why}"]
    if plan.next_at_ms:
        lines.append(f"Next by the clock: {format_time(plan.next_at_ms)}")
    if why.startswith(" in "):
        lines.append(f"Why, for each partition: amoro plan {shlex.quote(plan.table)} --explain")
    return lines


def disputed_deletes(count: int, show: str) -> str:
    """The warning that Iceberg's Java readers `show` fewer rows once the deletes are applied."""
    one = count == 1
    return (
        f"{format_count(count)} equality delete{' applies' if one else 's apply'} by the specification, but Iceberg's"
        f" Java readers, such as Spark, pass over {'it' if one else 'them'} by the bounds of keys (as of UUIDs):"
        f" they {show} fewer rows after the rewrite"
    )


def _blocks(plan: "pb.Plan", command: str, explain: bool) -> "list[Block]":
    chosen = [partition for partition in plan.partitions if partition.type]
    skipped = [partition for partition in plan.partitions if not partition.type]
    listed = list(plan.partitions) if explain else chosen
    blocks: list[Block] = [*_title(plan, len(chosen))]
    if listed:
        rows = tuple(_row(partition) for partition in listed)
        blocks.append(Grid(_HEADER, rows, _NUMBERS, indent=2, spare=("DELETES", "SIZE"), elastic="WHY"))
    if skipped and not explain:
        reasons = Counter(partition.reason for partition in skipped).most_common()
        blocks.extend(f"  skipped {many(count, 'partition')}: {reason}" for reason, count in reasons[:3])
        if len(reasons) > 3:
            blocks.append(
                f"  and {many(sum(count for _, count in reasons[3:]), 'partition')} for other reasons: see --explain"
            )
    if any(partition.files_to_fold for partition in plan.partitions):
        blocks.append(f"  {_to_fold(plan.partitions)}")
    blocks += [f"  {note}" for note in plan.notes]
    if explain:
        blocks += [f"  {line}" for line in _row_groups(plan)]
    if plan.disputed_deletes:
        blocks.append(f"  {disputed_deletes(plan.disputed_deletes, 'will show')}")
    if not plan.type:
        blocks += nothing_to_do(plan)
    if not plan.enabled and plan.enabled_origin:
        blocks.append(f"Not optimized by itself: {plan.enabled_origin}")
    if plan.type:
        blocks.append(f"Nothing was changed. Run: {command}")
    return blocks


def _row_groups(plan: "pb.Plan") -> list[str]:
    """Which row groups the plan copies, and which the table has that were copied before."""
    copying = [f"copying: {plan.copying}"] if plan.copying else []
    return [*copying, *([f"coarse: {coarse(plan.files)}"] if plan.files.coarse_files else [])]


def _title(plan: "pb.Plan", chosen: int) -> list[str]:
    snapshot = f"main@{plan.snapshot_id}" if plan.snapshot_id else "no snapshot"
    work = f"{chosen} of {many(len(plan.partitions), 'partition')} to be rewritten"
    kind = f"{plan.type}: {plan.reason}" if plan.type and plan.reason else plan.type
    tasks = f"  {many(plan.tasks, 'task')}" if plan.type else ""
    title = f"{plan.table}  {snapshot}  health {health(plan.health_score)}  {work}{tasks}"
    layout = [f"  {plan.layout}"] if plan.layout else []
    return [title, f"  {kind}", *layout] if kind else [title, *layout]


def _row(partition: "pb.PlannedPartition") -> tuple[str, ...]:
    place = partition.partition or "unpartitioned"
    return (
        f"{partition.type or 'skipped'}  {partition.reason}{_depths(partition)}",
        format_count(partition.data_files),
        _deletes(partition),
        format_bytes(partition.input_bytes if partition.type else partition.data_bytes),
        format_count(partition.expected_files) if partition.type else "-",
        f"{place} (spec {partition.spec_id})" if partition.spec_id else place,
    )


def _depths(partition: "pb.PlannedPartition") -> str:
    """What a point query on each column reads of the partition."""
    return "".join(f"; {one.column} {one.depth:.3g} files (ideal {one.ideal:.3g})" for one in partition.columns)


def _deletes(partition: "pb.PlannedPartition") -> str:
    vectors = partition.deletion_vectors
    position_files = partition.position_delete_files - vectors
    to_fold = f"pos ({format_bytes(partition.bytes_to_fold)} to fold)" if partition.files_to_fold else "pos"
    kinds = ((partition.equality_delete_files, "eq"), (position_files, to_fold), (vectors, "vec"))
    return ", ".join(f"{format_count(count)} {kind}" for count, kind in kinds if count) or "0"


def _to_fold(partitions: "Iterable[pb.PlannedPartition]") -> str:
    """What of an upgraded table is to become vectors, in all partitions."""
    folding = [one for one in partitions if one.files_to_fold]
    files = many(sum(one.delete_files_to_fold for one in folding), "position delete file")
    size, data = format_bytes(sum(one.bytes_to_fold for one in folding)), sum(one.files_to_fold for one in folding)
    return f"to fold into deletion vectors: {files} of {size}, for {many(data, 'data file')}"
