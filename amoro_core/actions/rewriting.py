"""Minor, major and full optimizing: plans of tasks, and the commit of their outputs."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    ActionDefaults,
    Plan,
    PlannedTask,
    PlanningContext,
    Prepare,
    Request,
    duration_ms,
    summary_of,
)
from amoro_core.errors import AmoroError, CheckFailed, CommitConflict, DataFileMissing, UnreadableFile
from amoro_core.failpoints import failpoint
from amoro_core.files.schema.write_options import writer_options
from amoro_core.formats.ports import Rewritable
from amoro_core.formats.tables import FileReadCache
from amoro_core.model.clustering import OTHERS, PLANNED, EncodedFiles, commonest, is_copied
from amoro_core.model.commits import OPTIMIZING_TYPE, CommitContent, FileFacts, Group, Head, PlanRecord, SnapshotAdded
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    NO_METRICS,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteIdentity,
    DeleteKind,
    FileFormat,
    ScannedFile,
)
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import Evaluation, OptimizingPlan, PartitionKey, TaskPlan
from amoro_core.model.processes import (
    FILES,
    OPTIMIZING_ACTION,
    Change,
    Figure,
    OptimizingProcess,
    ProcessContext,
    Receipt,
)
from amoro_core.model.tables import OptimizingType
from amoro_core.model.task_payload import REWRITE, CopyRule, InputFile, RewriteInput, RewriteOutput, TableContext, Work
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.messages import excluding_reserved, ordered_groups, with_reserved
from amoro_core.planning.optimizing.planner import plan
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.scan.live_files import LiveFiles
from amoro_core.validation.matching import match
from amoro_core.validation.result_check import check, check_maps
from amoro_core.validation.rules import carried_over, validate
from amoro_core.validation.view import CarriedRows, ValidationView, carried_deletes

_ENABLED = "self-optimizing.rewrite.use-parquet-row-group-merge.enabled"
_MOST = "self-optimizing.rewrite.copy.max-row-groups"
_ENCODES = "every row is encoded anew"


def copy_rule(
    task: TaskPlan, properties: Mapping[str, str], config: OptimizingConfig, kind: OptimizingType
) -> CopyRule | None:
    """What of the task is copied; None where nothing can be: it is switched off, or every file is encoded anyway.

    Minor copies small row groups, too, unless the property says that no type does. A file that tells no split offsets
    may have large row groups. `properties` are the table's.
    """
    return _decided(task, writer_options(properties).row_group_rows, config, kind)[0]


def copy_description(
    tasks: Sequence[TaskPlan], properties: Mapping[str, str], config: OptimizingConfig, kind: OptimizingType
) -> str:
    """Whether the tasks copy row groups, which, and else why not, in words; "" where no file is rewritten."""
    limit = writer_options(properties).row_group_rows
    rewriting = [task for task in tasks if task.rewritten]
    words = Counter(_decided(task, limit, config, kind)[1] for task in rewriting)
    if len(words) == 1:
        return next(iter(words))
    return "; ".join(f"{count} of {len(rewriting)} tasks: {reason}" for reason, count in words.most_common())


def _decided(
    task: TaskPlan, row_limit: int, config: OptimizingConfig, kind: OptimizingType
) -> tuple[CopyRule | None, str]:
    """The rule, and what it does in words."""
    rule = CopyRule(config.row_group_merge_min_size, config.copy_max_row_groups, config.copy_verify)
    files = [file.data for file in task.rewritten]
    groups = [_row_groups(data, rule) for data in files]
    if config.row_group_merge is False:
        return None, f"{_ENCODES}: {_ENABLED} is false"
    if sum(max(1, group) for group in groups) > task.output_count * rule.max_row_groups:
        return None, f"{_ENCODES}: there are more row groups than {rule.max_row_groups:,} for each output ({_MOST})"
    if all(data.file_format is not FileFormat.PARQUET for data in files):
        return None, f"{_ENCODES}: no file is Parquet"
    sizes = [(data.size_bytes, data.record_count) for data in files]
    size, rows = (sum(column) for column in zip(*sizes, strict=True))
    copies = (
        "files are copied as they are stored, except those with deleted rows or other columns than the table's; "
        f"an output has up to {rule.max_row_groups:,} row groups"
    )
    small = f"smaller than {rule.min_row_group_bytes / (1 << 20):.3g} MiB on average"
    if config.row_group_merge is None and kind is OptimizingType.MINOR:
        if rule.is_coarse(size, rows, sum(max(1, group) for group in groups), row_limit):
            return replace(
                rule, min_row_group_bytes=0
            ), f"{copies}; row groups are {small}: major and full encode them later"
        return rule, _copies(copies, rule, small)
    for data, count in zip(files, groups, strict=True):
        if data.file_format is FileFormat.PARQUET and not (
            count and rule.is_coarse(data.size_bytes, data.record_count, count, row_limit)
        ):
            return rule, _copies(copies, rule, small)
    why = f", and {kind} encodes such" if config.row_group_merge is None else ""
    return None, f"{_ENCODES}: the row groups of each file are {small}{why}"


def _row_groups(data: DataFile, rule: CopyRule) -> int:
    """How many row groups a file has at least, by its manifest; 0: unknown. Those of a copied file count as small."""
    count = len(data.split_offsets)
    if not is_copied(data.path) or not rule.min_row_group_bytes:
        return count
    return max(count, data.size_bytes // rule.min_row_group_bytes + 1)


def _copies(words: str, rule: CopyRule, small: str) -> str:
    return f"{words}; files whose row groups are {small} are encoded" if rule.min_row_group_bytes else words


#: Maximum size of bounds of integers, dates and times: only these are compared with those of row groups.
_NUMBER_BYTES = 8
#: Maximum size of bounds that a task carries for its outputs: a message must not grow with the texts of a table.
_CARRIED_BYTES = 64


def _tasks(table: Rewritable, new: OptimizingPlan, config: OptimizingConfig) -> tuple[PlannedTask, ...]:
    contexts = {spec_id: table.context(spec_id) for spec_id in {task.key.spec_id for task in new.tasks}}
    tasks = []
    for task in new.tasks:
        work = rewrite_work(task, contexts[task.key.spec_id], new.sequence_number, config, new.type)
        files = [file.data for file in (*task.rewritten, *task.converted)]
        payload = codec.encode(pb.RewriteInput, work).SerializeToString(deterministic=True)
        tasks.append(PlannedTask.reading(Work(REWRITE, payload), files, task.cost, table.partition_path(task.key)))
    return tuple(tasks)


def rewrite_work(
    task: TaskPlan,
    context: TableContext,
    sequence_number: int,
    config: OptimizingConfig,
    kind: OptimizingType = OptimizingType.FULL,
) -> RewriteInput:
    """The input of a task: each delete once, metrics left out but for bounds that are used."""
    deletes: dict[DeleteIdentity, int] = {}
    ordered: list[DeleteFile] = []
    for file in (*task.rewritten, *task.converted):
        for delete in file.deletes:
            if delete.identity not in deletes:
                deletes[delete.identity] = len(ordered)
                ordered.append(_slim(delete))

    copy = copy_rule(task, context.properties, config, kind)

    def inputs(files: Sequence[ScannedFile], whole: bool) -> tuple[InputFile, ...]:
        return tuple(
            InputFile(
                replace(file.data, metrics=_carried(file) if whole else _key_bounds(file), split_offsets=()),
                tuple(deletes[delete.identity] for delete in file.deletes),
            )
            for file in files
        )

    return RewriteInput(
        table=context,
        rewritten=inputs(task.rewritten, copy is not None),
        converted=inputs(task.converted, False),
        deletes=tuple(ordered),
        sequence_number=sequence_number,
        target_size_bytes=config.target_size,
        output_count=task.output_count,
        marks_converted=task.marks,
        copy=copy,
        tells_left_out=config.rebase,
        max_hidden_ratio=config.max_hidden_ratio,
        may_reorder=True,
    )


def _carried(file: ScannedFile) -> ColumnMetrics:
    """The bounds and NaN counts of the file, which hold for an output it is copied into, except long bounds."""
    metrics = file.data.metrics
    bounds = _bounds(metrics, lambda field_id, bound: len(bound) <= _CARRIED_BYTES)
    return replace(bounds, nan_value_counts=dict(metrics.nan_value_counts))


def _key_bounds(file: ScannedFile) -> ColumnMetrics:
    """The bounds of the key columns of the file's equality deletes, except long strings and binaries."""
    named = {field_id for delete in file.deletes for field_id in delete.equality_ids}
    return _bounds(file.data.metrics, lambda field_id, bound: field_id in named and len(bound) <= _NUMBER_BYTES)


def _slim(delete: DeleteFile) -> DeleteFile:
    if delete.kind is DeleteKind.EQUALITY:
        return replace(delete, metrics=NO_METRICS, split_offsets=())
    path_bounds = _bounds(delete.metrics, lambda field_id, bound: field_id == DELETE_PATH_FIELD_ID)
    return replace(delete, metrics=path_bounds, split_offsets=())


def _bounds(metrics: ColumnMetrics, is_kept: Callable[[int, bytes], bool]) -> ColumnMetrics:
    """Only those bounds."""
    lower, upper = (
        {field_id: bound for field_id, bound in bounds.items() if is_kept(field_id, bound)}
        for bounds in (metrics.lower_bounds, metrics.upper_bounds)
    )
    return ColumnMetrics(lower_bounds=lower, upper_bounds=upper)


#: Keys of the summary of a snapshot that carries deletes of others over to its outputs: how many tasks, and rows.
REBASED_GROUPS = "amoro.rebased-groups"
REBASED_DELETES = "amoro.rebased-deletes"
_AGAIN = "The next round plans it anew."
#: In the detail of a process whose plan leaves a part to the next one: from this task on partitions are cut.
_FIRST_CUT = "first_cut"


class Rewriting(ActionDefaults):
    """The action of minor, major and full."""

    name = OPTIMIZING_ACTION
    names = tuple(kind.value for kind in OptimizingType)
    lane = FILES
    roles = OPTIMIZING_ROLES

    def plan(self, table: Rewritable, situation: PlanningContext, request: Request) -> tuple[Evaluation, Plan | None]:
        """The verdict on the table, by its triggers or on request, and the plan; None: nothing to do."""
        config = situation.config
        scan, reserved = table.scan(), situation.taken.paths
        evaluation = evaluate(
            scan,
            config,
            situation.last,
            situation.now,
            None if request.name is None else OptimizingType(request.name),
            request.force,
            table.partition_path,
            excluding_reserved(reserved, table.selects(config.filter) if config.filter is not None else None),
            table.chooses(request.where) if request.where else None,
            clustered=ordered_groups(scan),
            commits=situation.commits,
        )
        evaluation = with_reserved(evaluation, scan, reserved)
        capacity = situation.capacity
        new = None if scan is None else plan(scan, evaluation, config, capacity.threads, capacity.max_input_per_thread)
        if new is None:
            return evaluation, None
        files = [file for task in new.tasks for file in (*task.rewritten, *task.converted)]
        deletes = (delete.path for file in files for delete in file.deletes)
        data_files = tuple(file.data.path for file in files)
        table.refuse_inputs(dict.fromkeys((*data_files, *deletes)))
        tasks, evaluation = _tasks(table, new, config), new.evaluation
        return evaluation, Plan(
            new.type,
            evaluation.reason,
            new.snapshot_id,
            new.sequence_number,
            tasks,
            detail=json.dumps({_FIRST_CUT: new.first_cut}) if new.first_cut else "",
            data_files=data_files,
            work_s=new.work_s,
        )

    def preparing(self) -> Prepare:
        """A function that validates, checks and stages the commit of one process."""
        cache = FileReadCache()
        return lambda table, case, now: _change(table, case, cache, now)

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        """The partitions of these tasks, but for one of which the plan leaves a part: it stays due."""
        whole = json.loads(case.process.detail)[_FIRST_CUT] if case.process.detail else case.tasks + 1
        return frozenset(_key(group) for group in _groups(case) if group.number in groups and group.number < whole)

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        """The data and delete files that its tasks read."""
        return paths_of([codec.decode_input(pb.RewriteInput.FromString(given)) for given in inputs_in(case)])

    def data_files(self, given: bytes) -> tuple[str, ...]:
        """The rewritten and the converted files."""
        work = codec.decode_input(pb.RewriteInput.FromString(given))
        return tuple(file.data.path for file in (*work.rewritten, *work.converted))

    def gives_up(self, given: bytes, gone: Set[str]) -> bool:
        """Unless rows of these files can be hidden in the outputs, as in `few_rows_of_missing_inputs`."""
        work = codec.decode_input(pb.RewriteInput.FromString(given))
        rows = {file.data.path: file.data.record_count for file in work.rewritten}
        hidden = sum(rows.get(path, 0) for path in gone)
        is_followed = work.tells_left_out and work.table.format_version > 1 and gone < rows.keys()
        return not is_followed or hidden > work.max_hidden_ratio * sum(rows.values())

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        """What these tasks have written; of all tasks the omitted rows, and vectors that no attempt of a commit has."""
        own = _groups(case)
        return (*_outputs([group for group in own if group.number in groups]), *_maps(own), *_joined(own, case))


def inputs_in(case: ProcessContext) -> list[bytes]:
    """The inputs of all tasks of the process, as they are stored."""
    return [*(result.input for result in case.results), *(work.payload for work in case.open_work)]


def paths_of(works: Sequence[RewriteInput]) -> tuple[str, ...]:
    """The distinct data and delete files of the works."""
    files = (file.data.path for work in works for file in (*work.rewritten, *work.converted))
    return tuple(dict.fromkeys((*files, *(delete.path for work in works for delete in work.deletes))))


def record_of(process: OptimizingProcess, groups: Sequence[Group]) -> PlanRecord:
    """The record of the process's plan, with the results of its tasks."""
    return PlanRecord(
        process_id=process.process_id,
        table_uuid=process.table_uuid,
        format_version=process.format_version,
        snapshot_id=process.snapshot_id,
        sequence_number=process.sequence_number,
        last_column_id=process.last_column_id,
        groups=tuple(groups),
    )


def _groups(case: ProcessContext) -> list[Group]:
    return [
        Group(
            result.number,
            codec.decode_input(pb.RewriteInput.FromString(result.input)),
            codec.decode(RewriteOutput, pb.RewriteOutput.FromString(result.output)),
        )
        for result in case.results
    ]


def _change(table: Rewritable, case: ProcessContext, cache: FileReadCache, now: datetime) -> Change:
    """Validate, check, stage."""
    record = record_of(case.process, [group for group in _groups(case) if group.number not in case.dropped])
    check_maps(record)
    head = table.head(record.snapshot_id, record.sequence_number)
    view = cache.view_of(table, record, head)
    validation = validate(view)
    if validation.conflict is not None:
        raise CommitConflict(validation.conflict, hint=_AGAIN)
    if validation.content is None:
        raise CommitConflict("; ".join(validation.dropped.values()), hint=_AGAIN)
    content = validation.content
    inputs = inputs_of(record, content, head)
    check_content(record, content, inputs, table, cache)
    summary = {**summary_of(case.process, "OPTIMIZE"), OPTIMIZING_TYPE: case.process.type}
    change = rewrite_change(table, case, view, content, inputs, summary, now)
    encoded = encoded_files([group for group in record.groups if group.number in content.groups])
    return replace(change, receipt=replace(change.receipt, encoded=encoded), dropped=validation.dropped)


def rewrite_change(
    table: Rewritable,
    case: ProcessContext,
    view: ValidationView,
    content: CommitContent,
    inputs: Sequence[ScannedFile],
    summary: Mapping[str, str],
    now: datetime,
    figures: Sequence[Figure] | None = None,
) -> Change:
    """Stage the content, with the deletes of rows that others have deleted meanwhile. Nothing stays on failure.

    `figures` replace those about copied and folded files.
    """
    failpoint("commit.before_intent")
    record, carried = view.record, carried_over(view, content)
    carried_more = carried_figures(carried, record)
    deletes = table.write_carried(carried, case.process.process_id) if carried else ()
    failpoint("commit.after_carried")
    content = replace(content, carried_deletes=deletes)
    try:
        if carried_more:
            rows, groups, _ = carried_more
            summary = {**summary, REBASED_GROUPS: str(groups.value), REBASED_DELETES: str(rows.value)}
        staged = table.stage(view.head, content, summary)
    except BaseException:
        for file in deletes:
            with suppress(AmoroError):
                table.access().delete(file.path)
        raise
    failpoint("commit.after_stage")
    committed = [group for group in record.groups if group.number in content.groups]
    more = (*_copied(committed), *_folded(committed, content)) if figures is None else figures
    written = (*content.added_deletes, *content.carried_deletes)
    files = (*(file.path for file in content.added_data), *(file.path for file in written))
    removed = {delete.identity for delete in content.removed_deletes}
    scan = view.head.scan
    equality = {
        delete.identity
        for delete in (*scan.dangling, *LiveFiles.of(scan.files).applied)
        if delete.kind is DeleteKind.EQUALITY
    }
    receipt = Receipt(
        data_files_before=len(content.removed_data),
        data_files_after=len(content.added_data),
        delete_files_before=len(content.removed_deletes),
        delete_files_after=len(content.added_deletes),
        equality_delete_files_after=len(equality - removed),
        bytes_before=_bytes(content.removed_data, content.removed_deletes),
        bytes_after=_bytes(content.added_data, content.added_deletes),
        rows_before=sum(group.output.rows_read - group.output.rows_deleted for group in committed),
        rows_after=sum(file.record_count for group in committed for file in group.output.data_files),
        snapshot_id=staged.snapshot_id,
        base_snapshot_id=staged.parent_snapshot_id,
        duration_ms=duration_ms(case.process, now),
        disputed_deletes=len(table.disputed_deletes(inputs)),
        carried=carried_deletes(committed, view),
        more=(*more, *carried_more),
    )
    return Change(
        payload=staged.payload,
        evidence=SnapshotAdded(staged.snapshot_id, staged.parent_snapshot_id, staged.sequence_number, files),
        receipt=receipt,
        groups=content.groups,
        files=files,
        metadata_files=(*staged.metadata_files, *(file.path for file in content.carried_deletes)),
    )


def carried_figures(carried: Sequence[CarriedRows], record: PlanRecord) -> tuple[Figure, ...]:
    """What others deleted meanwhile: rows of the outputs, the tasks that wrote these, and how much they have written;
    nothing where no row was deleted."""
    rebased = [carried_rows for carried_rows in carried if not carried_rows.is_joined]
    if not rebased:
        return ()
    numbers = {carried_rows.group for carried_rows in rebased}
    written = [file for group in record.groups if group.number in numbers for file in group.output.data_files]
    return (
        Figure("rows_carried_over", sum(len(carried_rows.positions) for carried_rows in rebased), "rows"),
        Figure("groups_rebased", len(numbers), "groups"),
        Figure("bytes_rebased", sum(file.size_bytes for file in written), "bytes"),
    )


def check_content(
    record: PlanRecord, content: CommitContent, inputs: Sequence[ScannedFile], table: Rewritable, cache: FileReadCache
) -> None:
    """The check that can't be skipped: what is committed adds up, file by file and row by row. Raises CheckFailed."""
    plan_record = replace(record, groups=tuple(group for group in record.groups if group.number in content.groups))
    facts: dict[str, FileFacts] = {}
    for path in _outputs(plan_record.groups):
        try:
            facts[path] = cache.facts(table, path)
        except (DataFileMissing, UnreadableFile) as error:
            raise CheckFailed(f"output {path} is not as reported: {error.message}") from error
    check(plan_record, {file.data.path: file for file in inputs}, facts)


def inputs_of(record: PlanRecord, content: CommitContent, head: Head) -> list[ScannedFile]:
    """The files that the commit's groups have read, with their deletes of the head matched one by one."""
    groups = (group for group in record.groups if group.number in content.groups)
    paths = {file.data.path for group in groups for file in (*group.work.rewritten, *group.work.converted)}
    scan, live = head.scan, LiveFiles.of(head.scan.files)
    rows = (live.columns.row(at) for at in live.ids_of(paths).tolist())
    data = [file for file in rows if file.path in paths]
    return list(match(data, (*live.applied, *scan.dangling), scan.unpartitioned_specs)[0])


def _outputs(groups: Sequence[Group]) -> tuple[str, ...]:
    data = [file.path for group in groups for file in group.output.data_files]
    return (*data, *(file.path for group in groups for file in group.output.delete_files))


def _maps(groups: Sequence[Group]) -> tuple[str, ...]:
    """The files that name the rows which the tasks left out."""
    position_maps = (group.output.position_map for group in groups)
    return tuple(position_map.path for position_map in position_maps if position_map is not None and position_map.path)


def _joined(groups: Sequence[Group], case: ProcessContext) -> tuple[str, ...]:
    """The files of vectors of which no attempt has any."""
    sent = {path for attempt in case.attempts for path in attempt.files}
    vectors = (file.path for group in groups for file in group.output.delete_files if file.is_vector)
    return tuple(dict.fromkeys(path for path in vectors if path not in sent)) if sent else ()


def _key(group: Group) -> PartitionKey:
    first = (*group.work.rewritten, *group.work.converted)[0].data
    return PartitionKey(first.spec_id, first.partition)


def _copied(groups: Sequence[Group]) -> tuple[Figure, ...]:
    """How many of the rewritten files were copied, how many encoded, and the bytes of outputs with small row groups
    that were copied, of whatever size; nothing where no task may copy."""
    if all(group.work.copy is None for group in groups):
        return ()
    copied = sum(group.output.files_copied for group in groups)
    rewritten = sum(len(group.work.rewritten) for group in groups)
    outputs = (file for group in groups for file in group.output.data_files)
    small = sum(file.size_bytes for file in outputs if is_copied(file.path))
    return (
        Figure("files_copied", copied, "files"),
        Figure("files_encoded", rewritten - copied, "files"),
        Figure("coarse_bytes", small, "bytes"),
    )


def encoded_files(groups: Sequence[Group]) -> tuple[EncodedFiles, ...]:
    """Why rewritten files were encoded, by the commonest reasons; nothing where no task may copy."""
    if all(group.work.copy is None for group in groups):
        return ()
    return commonest(reason for group in groups for reason in _reasons(group))


def _reasons(group: Group) -> Iterator[tuple[str, int]]:
    output, encoded = group.output, len(group.work.rewritten) - group.output.files_copied
    if group.work.copy is None:
        yield PLANNED, encoded
        return
    # Older optimizers report only the most frequent reason: it stands for all.
    reasons = output.encoded_files or {output.encoded_because: encoded}
    yield from reasons.items()
    yield OTHERS, encoded - sum(reasons.values())


def _folded(groups: Sequence[Group], content: CommitContent) -> tuple[Figure, ...]:
    """The position delete files that go because vectors of converted files hold what they deleted; nothing without."""
    if not any(file.is_vector for file in content.added_deletes):
        return ()
    applied = {
        group.work.deletes[at].identity for group in groups for given in group.work.converted for at in given.deletes
    }
    dropped = (file for file in content.removed_deletes if file.kind is DeleteKind.POSITION and not file.is_vector)
    folded = {file.identity for file in dropped} & applied
    if not folded:
        return ()
    return (
        Figure("position_deletes_folded", len(folded), "files"),
        Figure("bytes_folded", sum(file.size for file in folded), "bytes"),
    )


def _bytes(data: Sequence[DataFile], deletes: Sequence[DeleteFile]) -> int:
    return sum(file.size_bytes for file in data) + sum(delete.identity.size for delete in deletes)
