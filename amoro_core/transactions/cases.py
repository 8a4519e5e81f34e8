"""A process under commit: all that was stored of it, and the attempt that is written down before it is sent."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from amoro_core.model.commits import CommitContent, Group, Head, PlanRecord, StagedCommit
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.processes import CommitAttempt, CommitOutcome, OptimizingProcess, Receipt, TaskStatus
from amoro_core.model.tables import TableRuntime
from amoro_core.protocol import codec
from amoro_core.protocol import rewrite_pb2 as pb
from amoro_core.store import commits, processes, tables, tasks
from amoro_core.store.database import Database


@dataclass(frozen=True, slots=True)
class CommitCase:
    """A process under commit, with all that was stored of it."""

    process: OptimizingProcess
    runtime: TableRuntime
    record: PlanRecord
    attempts: tuple[CommitAttempt, ...]
    tasks: int


def read_case(db: Database, process_id: str) -> CommitCase:
    """The process with its plan record, the outputs of its finished tasks and its attempts. Raises ProcessNotFound."""
    process = processes.get(db, process_id)
    listed = tasks.list_for_process(db, process_id)
    groups = []
    for task in listed:
        stored = tasks.read_output(db, task.task_id)
        if task.status is TaskStatus.SUCCESS and stored is not None:
            work = codec.decode_input(pb.RewriteInput.FromString(tasks.read_input(db, task.task_id)))
            output = codec.decode_output(pb.RewriteOutput.FromString(stored[1]))
            groups.append(Group(task.task_id.number, work, output))
    record = PlanRecord(
        process_id=process_id,
        table_uuid=process.table_uuid,
        format_version=process.format_version,
        snapshot_id=process.snapshot_id,
        sequence_number=process.sequence_number,
        last_column_id=process.last_column_id,
        groups=tuple(groups),
    )
    attempts = tuple(commits.list_for_process(db, process_id))
    return CommitCase(process, tables.get(db, process.table_id), record, attempts, len(listed))


def attempt_of(
    case: CommitCase, content: CommitContent, head: Head, staged: StagedCommit, now: datetime
) -> CommitAttempt:
    """The next attempt of the case: what was staged, with the receipt that it gets if it lands."""
    return CommitAttempt(
        process_id=case.process.process_id,
        number=len(case.attempts) + 1,
        snapshot_id=staged.snapshot_id,
        parent_snapshot_id=staged.parent_snapshot_id,
        sequence_number=staged.sequence_number,
        manifest_list=staged.manifest_list,
        payload=staged.payload,
        groups=content.groups,
        files=(*(file.path for file in content.added_data), *(file.path for file in content.added_deletes)),
        metadata_files=staged.metadata_files,
        outcome=CommitOutcome.SENT,
        created_at=now,
        receipt=_receipt(case, content, head, staged, now),
    )


def _receipt(case: CommitCase, content: CommitContent, head: Head, staged: StagedCommit, now: datetime) -> Receipt:
    kept = [group for group in case.record.groups if group.number in content.groups]
    removed = {delete.path for delete in content.removed_deletes}
    equality = {
        delete.path
        for delete in (*head.scan.dangling, *(delete for file in head.scan.files for delete in file.deletes))
        if delete.kind is DeleteKind.EQUALITY
    }
    return Receipt(
        data_files_before=len(content.removed_data),
        data_files_after=len(content.added_data),
        delete_files_before=len(content.removed_deletes),
        delete_files_after=len(content.added_deletes),
        equality_delete_files_after=len(equality - removed),
        bytes_before=_bytes(content.removed_data) + _bytes(content.removed_deletes),
        bytes_after=_bytes(content.added_data) + _bytes(content.added_deletes),
        rows_before=sum(group.output.rows_read - group.output.rows_deleted for group in kept),
        rows_after=sum(file.record_count for group in kept for file in group.output.data_files),
        snapshot_id=staged.snapshot_id,
        base_snapshot_id=staged.parent_snapshot_id,
        duration_ms=round((now - case.process.created_at).total_seconds() * 1000),
    )


def _bytes(files: Sequence[DataFile] | Sequence[DeleteFile]) -> int:
    return sum(file.size_bytes for file in files)
