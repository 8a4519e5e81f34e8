"""Documents of plans, clustering and verification."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

from amoro_cli.output import Block, Document, Grid
from amoro_cli.views.tables import coarse
from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time, many
from amoro_core.documents.json_documents import encode
from amoro_core.protocol import admin_pb2 as pb

_HEADER = ("WHY", "FILES", "DELETES", "SIZE", "→ FILES", "PARTITION")
_NUMBERS = frozenset({"FILES", "DELETES", "SIZE", "→ FILES"})


def plan_document(plan: pb.Plan, command: str, explain: bool = False) -> Document:
    """Schema amoro.plan/v1: the fields of the plan. `command` carries it out; `explain` lists every partition."""
    names = (plan.table,) if plan.type else ()
    return Document("amoro.plan/v1", encode(plan), names, tuple(_blocks(plan, command, explain)))


def optimize_command(table: str, request: pb.OptimizeTableRequest) -> str:
    """The command that carries out what was planned for the request."""
    options = [
        *(["--type", request.type] if request.type else []),
        *(["--force"] if request.force else []),
        *(["--where", request.where] if request.where else []),
        *cluster_options(request),
    ]
    return shlex.join(["amoro", "optimize", table, *options])


def cluster_options(request: pb.OptimizeTableRequest) -> list[str]:
    """The options of `--type cluster` that the request has."""
    cluster = request.cluster
    return [
        *(["--columns", ",".join(cluster.columns)] if cluster.columns else []),
        *(["--strategy", cluster.strategy] if cluster.strategy else []),
        *(["--partitions", cluster.partitions] if cluster.partitions else []),
        *(["--full"] if cluster.full else []),
        *(["--schedule-only"] if cluster.schedule_only else []),
    ]


def nothing_to_do(plan: pb.Plan) -> list[str]:
    """Why there is nothing to do, and when the next scheduled optimizing is due."""
    why = plan.reason.removeprefix("nothing to do")
    if why == plan.reason:
        why = f": {plan.reason or 'below all triggers'}"
    lines = [f"Nothing to do for {plan.table}{why}"]
    if plan.next_at_ms:
        lines.append(f"Next scheduled: {format_time(plan.next_at_ms)}")
    if why.startswith(" in "):
        lines.append(f"Why, for each partition: amoro plan {shlex.quote(plan.table)} --explain")
    return lines


def layout(plan: pb.Plan) -> str:
    """The layout of a plan of clustering; where nothing is due, and the reason does not say how, how to do it again."""
    is_done = plan.layout and not plan.type and "--full" not in plan.reason
    return f"{plan.layout}; --full clusters files in this order again" if is_done else plan.layout


def thread_time(predicted_ms: int, measured_ms: int) -> str:
    """How long threads worked, beside what was predicted; "" without a prediction."""
    took = f"took {format_duration(measured_ms)} of threads, " if measured_ms else ""
    return f"{took}predicted {format_duration(predicted_ms)}{' of threads' * (not took)}" if predicted_ms else ""


def disputed_deletes(count: int, show: str) -> str:
    """The warning that Iceberg's Java readers `show` fewer rows once the deletes are applied."""
    single = count == 1
    return (
        f"{format_count(count)} equality delete{' applies' if single else 's apply'} by the specification, but "
        f"Iceberg's Java readers, such as Spark, skip {'it' if single else 'them'} by the"
        f" bounds of keys (such as UUIDs): they {show} fewer rows after the rewrite"
    )


def _blocks(plan: pb.Plan, command: str, explain: bool) -> list[Block]:
    chosen = [partition for partition in plan.partitions if partition.type]
    blocks: list[Block] = [*_title(plan, len(chosen))]
    if listed := list(plan.partitions) if explain else chosen:
        rows = tuple(_row(partition) for partition in listed)
        blocks.append(Grid(_HEADER, rows, _NUMBERS, indent=2, spare=("DELETES", "SIZE"), elastic="WHY"))
    if not explain:
        blocks += _skipped([partition for partition in plan.partitions if not partition.type])
    if any(partition.files_to_fold for partition in plan.partitions):
        blocks.append(f"  {_to_fold(plan.partitions)}")
    blocks += [f"  {note}" for note in plan.notes]
    blocks += _explained(plan) if explain else []
    if plan.disputed_deletes:
        blocks.append(f"  {disputed_deletes(plan.disputed_deletes, 'will show')}")
    if not plan.type:
        blocks += nothing_to_do(plan)
    if not plan.enabled and plan.enabled_origin:
        blocks.append(f"Not optimized automatically: {plan.enabled_origin}")
    if plan.type:
        blocks.append(f"Nothing was changed. Run: {command}")
    return blocks


def _explained(plan: pb.Plan) -> Iterator[str]:
    """What `--explain` says of the whole plan."""
    if plan.copying:
        yield f"  copying: {plan.copying}"
    if plan.predicted_ms:
        last = thread_time(plan.last_predicted_ms, plan.last_measured_ms) if plan.last_measured_ms else ""
        yield f"  work: {thread_time(plan.predicted_ms, 0)}{'; the last process ' * bool(last)}{last}"
    if plan.files.coarse_files:
        yield f"  small row groups: {coarse(plan.files)}"


def _skipped(partitions: Iterable[pb.PlannedPartition]) -> list[str]:
    """The most frequent reasons of partitions that are not rewritten."""
    reasons = Counter(partition.reason for partition in partitions).most_common()
    lines = [f"  skipped {many(count, 'partition')}: {reason}" for reason, count in reasons[:3]]
    if others := sum(count for _, count in reasons[3:]):
        lines.append(f"  and {many(others, 'partition')} for other reasons: see --explain")
    return lines


def _title(plan: pb.Plan, chosen: int) -> list[str]:
    snapshot = f"main@{plan.snapshot_id}" if plan.snapshot_id else "no snapshot"
    work = f"{chosen} of {many(len(plan.partitions), 'partition')} to be rewritten"
    kind = f"{plan.type}: {plan.reason}" if plan.type and plan.reason else plan.type
    tasks = f"  {many(plan.tasks, 'task')}" if plan.type else ""
    files = plan.files
    small = f"{format_count(files.fragment_files + files.undersized_files)} of {many(files.data_files, 'file')} small"
    parts = (f"{plan.table}  {snapshot}", small if files.data_files else "", f"{work}{tasks}")
    title = "  ".join(filter(None, parts))
    return [title, *(f"  {line}" for line in (kind, layout(plan)) if line)]


def _row(partition: pb.PlannedPartition) -> tuple[str, ...]:
    depths = "".join(f"; {item.column} {item.depth:.3g} files (ideal {item.ideal:.3g})" for item in partition.columns)
    return (
        f"{partition.type or 'skipped'}  {partition.reason}{depths}",
        format_count(partition.data_files),
        _deletes(partition),
        format_bytes(partition.input_bytes if partition.type else partition.data_bytes),
        format_count(partition.expected_files) if partition.type else "-",
        _place(partition),
    )


def _place(partition: pb.PlannedPartition | pb.ComparedPartition) -> str:
    """The partition, with its spec unless that is the first one."""
    place = partition.partition or "unpartitioned"
    return f"{place} (spec {partition.spec_id})" if partition.spec_id else place


def _deletes(partition: pb.PlannedPartition) -> str:
    vectors = partition.deletion_vectors
    position_files = partition.position_delete_files - vectors
    to_fold = f"pos ({format_bytes(partition.bytes_to_fold)} to convert)" if partition.files_to_fold else "pos"
    kinds = ((partition.equality_delete_files, "eq"), (position_files, to_fold), (vectors, "vec"))
    return ", ".join(f"{format_count(count)} {kind}" for count, kind in kinds if count) or "0"


def _to_fold(partitions: Iterable[pb.PlannedPartition]) -> str:
    """What of an upgraded table is to become vectors, in all partitions."""
    folding = [partition for partition in partitions if partition.files_to_fold]
    files = many(sum(partition.delete_files_to_fold for partition in folding), "position delete file")
    size, data = format_bytes(sum(part.bytes_to_fold for part in folding)), sum(part.files_to_fold for part in folding)
    return f"to be converted to deletion vectors: {files} of {size}, for {many(data, 'data file')}"


#: Columns that are shown of a report; JSON has all.
_MOST_SHOWN = 20


def clustering_document(answer: pb.Clustering) -> Document:
    """Schema amoro.clustering/v1: the fields of the answer; `next` is the plan that would be made now."""
    sealed = f"{many(answer.sealed_groups, 'sealed group')} ({format_bytes(answer.sealed_bytes)})"
    still_open = f"{format_count(answer.open_groups)} open ({format_bytes(answer.open_bytes)})"
    unclustered = f"{format_bytes(answer.unclustered_bytes)} unclustered"
    blocks: list[Block] = [
        f"{answer.table}  {answer.layout or 'no layout'}  {many(answer.files, 'file')}, {format_bytes(answer.bytes)}: "
        f"{sealed}, {still_open}, {unclustered}"
    ]
    if answer.columns:
        reads = ", ".join(
            f"{column.column} {column.all_files:.3g}" + (f" (ideal {column.ideal:.3g})" if column.ideal else "")
            for column in answer.columns
        )
        blocks.append(f"  a point query reads, of {many(answer.files, 'file')}: {reads}")
    blocks += [f"  {note}" for note in answer.next.notes]
    if answer.next.type:
        chosen = [partition for partition in answer.next.partitions if partition.tasks]
        size = sum(partition.input_bytes for partition in chosen)
        blocks.append(
            f"  next: {many(answer.next.tasks, 'group')}, {format_bytes(size)}, about "
            f"{answer.next.cpu_ms / 60_000:.2g} CPU min: {answer.next.reason}"
        )
    else:
        blocks += [f"  {line}" for line in nothing_to_do(answer.next)]
    blocks += [f"  waits for its start: amoro process start {process_id}" for process_id in answer.waiting]
    return Document("amoro.clustering/v1", encode(answer), (answer.table,), tuple(blocks))


def suggested_document(answer: pb.SuggestedColumns) -> Document:
    """Schema amoro.suggested/v1: the fields of the answer."""
    blocks: list[Block] = [f"{answer.table}  {many(answer.files, 'file')}"]
    for suggested_column in answer.columns:
        met = f"a point query reads {suggested_column.files_met:.3g} files; " if suggested_column.files_met else ""
        blocks.append(f"  {suggested_column.column}: {met}{suggested_column.reason}")
    if not answer.columns:
        blocks.append("  nothing in the table suggests a column")
    columns = ", ".join(f"{chosen_column.column} {chosen_column.saved:.0%}" for chosen_column in answer.auto.columns)
    layout = f"{answer.auto.strategy}({columns}), " if columns else ""
    blocks.append(f"  auto: {layout}{answer.auto_reason}")
    return Document("amoro.suggested/v1", encode(answer), (answer.table,), tuple(blocks))


def learned_document(answer: pb.LearnedScans) -> Document:
    """Schema amoro.learned/v1: the fields of the answer."""
    days = f" of {answer.first_day}" if answer.first_day else ""
    if answer.last_day != answer.first_day:
        days += f" to {answer.last_day}"
    blocks: list[Block] = [f"{answer.table}: learned from {many(answer.scans, 'scan')}{days}"]
    blocks += [f"  {item.column}: filtered by {many(item.scans, 'scan')}" for item in answer.columns[:_MOST_SHOWN]]
    if len(answer.columns) > _MOST_SHOWN:
        blocks.append(f"  and {many(len(answer.columns) - _MOST_SHOWN, 'column')} more")
    if answer.unfiltered_scans:
        blocks.append(f"  no column of the table: {many(answer.unfiltered_scans, 'scan')}")
    if answer.old_scans:
        blocks.append(f"  {many(answer.old_scans, 'scan')} left out: older than 30 d")
    blocks.append(
        f"  {many(answer.recent_scans, 'scan')} of the last 7 d are known; self-optimizing.cluster.columns=auto needs "
        f"{format_count(answer.enough_scans)}"
    )
    return Document("amoro.learned/v1", encode(answer), (answer.table,), tuple(blocks))


_VERIFIED_HEADER = ("PARTITION", "FILES", "ROWS BEFORE", "ROWS AFTER", "CHECKSUM BEFORE", "CHECKSUM AFTER", "")
_VERIFIED_NUMBERS = frozenset({"FILES", "ROWS BEFORE", "ROWS AFTER"})
#: A narrow terminal shows counts, the mark and the verdict.
_SPARE = ("CHECKSUM AFTER", "CHECKSUM BEFORE", "FILES")
_SHOWN = 20  # equal partitions


def verification_document(answer: pb.Verification) -> Document:
    """Schema amoro.verification/v1: the fields of the verification; as text, partitions that differ come first."""
    blocks: list[Block] = [block for item in answer.comparisons for block in _comparison(item)]
    if answer.note:
        blocks.append(f"Nothing to compare: {answer.note}.")
    if answer.other_snapshots:
        others, listed = answer.other_snapshots, ", ".join(map(str, answer.other_snapshots))
        blocks.append(f"Not compared, because other writers changed rows: {many(len(others), 'snapshot')} {listed}")
    blocks += [f"✗ {problem}" for problem in answer.problems]
    if not answer.problems:
        blocks.append(
            f"files  all {format_count(answer.files)} of snapshot {answer.snapshot_id} exist with their sizes, "
            f"{many(answer.dangling_deletes, 'dangling delete')}"
        )
    if answer.comparisons:
        blocks.append(_verdict(answer))
    return Document("amoro.verification/v1", encode(answer), (answer.table,), tuple(blocks))


def _comparison(item: pb.Comparison) -> list[Block]:
    by = f" by {', '.join(item.process_ids)}" if item.process_ids else ""
    differing = [partition for partition in item.partitions if not partition.equal]
    equal = [partition for partition in item.partitions if partition.equal]
    partitions = [*differing, *equal[:_SHOWN]]
    blocks: list[Block] = [f"snapshot {item.before} → {item.after}{by}"]
    if partitions:
        rows = tuple(_verified_row(partition) for partition in partitions)
        blocks.append(Grid(_VERIFIED_HEADER, rows, _VERIFIED_NUMBERS, indent=2, spare=_SPARE, elastic="PARTITION"))
    if len(equal) > _SHOWN:
        blocks.append(f"  and {many(len(equal) - _SHOWN, 'equal partition')}: see -o json")
    if item.disputed_deletes:
        blocks.append(f"  {disputed_deletes(item.disputed_deletes, 'show')}")
    if item.files_in_both:
        verb = "is" if item.files_in_both == 1 else "are"
        blocks.append(f"  {many(item.files_in_both, 'more data file')} {verb} in both, with the same deletes")
    return blocks


def _verified_row(partition: pb.ComparedPartition) -> tuple[str, ...]:
    return (
        _place(partition),
        f"{format_count(partition.files_before)} → {format_count(partition.files_after)}",
        format_count(partition.rows_before),
        format_count(partition.rows_after),
        partition.checksum_before,
        partition.checksum_after,
        "=" if partition.equal else "≠",
    )


def _verdict(answer: pb.Verification) -> str:
    before, after = (sum(getattr(item, side) for item in answer.comparisons) for side in ("rows_before", "rows_after"))
    if all(item.equal for item in answer.comparisons):
        return f"rows   {format_count(before)} = {format_count(after)} ✓ none was lost, added or changed"
    return f"rows   {format_count(before)} before, {format_count(after)} after ✗ they differ"
