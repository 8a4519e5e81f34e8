"""What Amoro answers, made of our messages: names and types of fields are those of Amoro 0.9, whose beans are named."""

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import Any

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2

Json = dict[str, Any]

#: The version of Amoro whose answers these are.
FOLLOWED = "0.9.0"
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB", "EB")
_MEGABYTE = 1024 * 1024
#: Producer of a snapshot that does not name its own.
_FOREIGN = "INGESTION"
_SIZES = ("total-files-size", "added-files-size", "removed-files-size")
_CATALOG_TYPES = frozenset({"hive", "hadoop", "glue", "rest"})
_OPTIMIZING = frozenset(one.value for one in OptimizingType)

#: Amoro's ProcessStatus for ours. What it partly did is committed, as its partial commits are.
PROCESS_STATUSES: Mapping[str, str] = {
    ProcessStatus.REQUESTED: "PENDING",
    ProcessStatus.RUNNING: "RUNNING",
    ProcessStatus.COMMITTING: "RUNNING",
    ProcessStatus.COMMIT_UNKNOWN: "UNKNOWN",
    ProcessStatus.CLEARING: "RUNNING",
    ProcessStatus.HELD: "PENDING",
    ProcessStatus.SUCCESS: "SUCCESS",
    ProcessStatus.PARTIAL: "SUCCESS",
    ProcessStatus.FAILED: "FAILED",
    ProcessStatus.CLOSED: "CLOSED",
}
#: Amoro's other ProcessStatus values: known, and never those of a process here.
OTHER_STATUSES = frozenset({"SUBMITTED", "CANCELING", "CANCELED", "KILLED"})
#: Amoro's OptimizingStatus for ours: its name, and how it is shown. It refuses no table.
_TABLE_STATUSES: Mapping[str, tuple[str, str]] = {
    OptimizingStatus.IDLE: ("IDLE", "idle"),
    OptimizingStatus.PENDING: ("PENDING", "pending"),
    OptimizingStatus.PLANNING: ("PLANNING", "planning"),
    OptimizingStatus.MINOR_OPTIMIZING: ("MINOR_OPTIMIZING", "minor"),
    OptimizingStatus.MAJOR_OPTIMIZING: ("MAJOR_OPTIMIZING", "major"),
    OptimizingStatus.FULL_OPTIMIZING: ("FULL_OPTIMIZING", "full"),
    OptimizingStatus.COMMITTING: ("COMMITTING", "committing"),
    OptimizingStatus.REFUSED: ("IDLE", "idle"),
}


def size_text(size: int) -> str:
    """The size in units of 1024, with two digits, such as 1.50KB."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.2f}{_UNITS[unit]}"


def file_figures(files: int, size: int) -> Json:
    """FilesStatistics."""
    return {"fileCnt": files, "totalSize": size, "averageSize": size // files if files else 0}


def version_info(own: str) -> Json:
    """VersionInfo: the version of Amoro that is followed, and ours in parentheses."""
    return {"version": f"{FOLLOWED}(amoro-python {own})", "commitTime": "UNKNOWN"}


def catalog(found: pb.Catalog) -> Json:
    """CatalogMeta; what configures storage and credentials is among our properties, with secrets masked."""
    properties = dict(found.properties)
    named, uri = properties.get("type", ""), properties.get("uri", "")
    by_uri = "rest" if uri.startswith("http") else "hive" if uri.startswith("thrift") else ""
    kind = named or by_uri
    return {
        "catalogName": found.name,
        "catalogType": kind if kind in _CATALOG_TYPES else "custom",
        "storageConfigs": {},
        "authConfigs": {},
        "catalogProperties": properties,
    }


def table_of_list(table: TableIdentifier, format_: str) -> Json:
    """TableMeta."""
    return {"name": table.name, "type": format_.upper()}


def identifier(table: TableIdentifier) -> Json:
    """TableIdentifier; a database is a namespace, its parts joined by dots."""
    return {"catalog": table.catalog, "database": database_of(table), "tableName": table.name}


def database_of(table: TableIdentifier) -> str:
    """The namespace in one text."""
    return ".".join(table.namespace)


def details(table: TableIdentifier, state: pb.Table, found: snapshots_pb2.TableMetadata) -> Json:
    """ServerTableMeta. Figures of files are those of the last evaluation; no watermark, creator or time of creation is
    known, and there is no change store.
    """
    files, parts = state.files, state.health_parts
    count = files.data_files + files.equality_delete_files + files.position_delete_files
    size = files.data_bytes + files.delete_bytes
    average = size_text(size // count if count else 0)
    columns = [_column(one) for one in found.columns]
    properties = dict(found.properties)
    return {
        "tableType": found.format.upper(),
        "tableIdentifier": identifier(table),
        "schema": columns,
        "pkList": [shown for shown, one in zip(columns, found.columns, strict=True) if one.identifies],
        "partitionColumnList": [_partition_column(one) for one in found.partition],
        "properties": properties,
        "changeMetrics": None,
        "baseMetrics": {
            "lastCommitTime": found.committed_ms or None,
            "totalSize": size_text(size),
            "fileCount": count,
            "averageFileSize": average,
            "baseWatermark": None,
        },
        "tableSummary": {
            "file": count,
            "size": size_text(size),
            "averageFile": average,
            "tableFormat": f"{found.format.capitalize()}(V{found.format_version})",
            "records": files.records,
            "optimizingStatus": _TABLE_STATUSES[state.status][0],
            "healthScore": state.health_score,
            "smallFileScore": parts.small_files,
            "equalityDeleteScore": parts.equality_deletes,
            "positionalDeleteScore": parts.position_deletes,
        },
        "baseLocation": found.location,
        "filter": None,
        "createTime": 0,
        "creator": None,
        "tableWatermark": None,
        "baseWatermark": None,
        "comment": properties.get("comment"),
    }


def chain(snapshots: Sequence[pb.Snapshot], ref: str) -> list[pb.Snapshot]:
    """The snapshot that a branch or tag points at and its ancestors, as far as they are known, the newest first."""
    by_id = {one.snapshot_id: one for one in snapshots}
    found, at = list[pb.Snapshot](), next((one for one in snapshots if ref in one.refs), None)
    while at is not None and at.snapshot_id in by_id:
        found.append(by_id.pop(at.snapshot_id))
        at = by_id.get(at.parent_snapshot_id)
    return sorted(found, key=lambda one: -one.committed_ms)


def producer_of(found: pb.Snapshot) -> str:
    """Who made the snapshot: OPTIMIZE, or what its writer says."""
    return found.summary.get("snapshot.producer") or _FOREIGN


def snapshot(found: pb.Snapshot) -> Json:
    """AmoroSnapshotsOfTable."""
    summary = dict(found.summary)

    def number(key: str) -> int:
        text = summary.get(key, "")
        return int(text) if text.isascii() and text.isdecimal() else 0

    files = number("total-data-files") + number("total-delete-files")
    changed = number("added-files-size") + number("removed-files-size")
    records = number("total-records")
    return {
        "snapshotId": str(found.snapshot_id),
        "fileCount": files,
        "fileSize": size_text(changed),
        "originalFileSize": changed,
        "records": records,
        "commitTime": found.committed_ms,
        "operation": found.operation,
        "producer": producer_of(found),
        "summary": {key: size_text(number(key)) if key in _SIZES else value for key, value in summary.items()},
        "recordsSummaryForChart": {
            "total-records": str(records),
            "eq-delete-records": summary.get("total-equality-deletes"),
            "pos-delete-records": summary.get("total-position-deletes"),
        },
        "filesSummaryForChart": {
            "data-files": summary.get("total-data-files"),
            "delete-files": summary.get("total-delete-files"),
            "total-files": str(files),
        },
    }


def is_optimizing(process_type: str) -> bool:
    """Whether a process of that type is one of Amoro's category OPTIMIZING."""
    return process_type in _OPTIMIZING


def process(found: pb.Process, table: TableIdentifier, table_id: int, now_ms: int) -> Json:
    """OptimizingProcessInfo; a process without a receipt has no figures of files yet."""
    receipt = found.receipt if found.HasField("receipt") else None
    read = receipt and file_figures(receipt.data_files_before + receipt.delete_files_before, receipt.bytes_before)
    made = receipt and file_figures(receipt.data_files_after + receipt.delete_files_after, receipt.bytes_after)
    counts = found.task_counts
    return {
        "tableId": table_id,
        "catalogName": table.catalog,
        "dbName": database_of(table),
        "tableName": table.name,
        "processId": found.process_id,
        "startTime": found.created_ms,
        "optimizingType": found.type.upper(),
        "status": PROCESS_STATUSES[found.status],
        "failReason": found.failure or None,
        "duration": (found.finished_ms or now_ms) - found.created_ms,
        "successTasks": counts.success,
        "totalTasks": found.tasks_total,
        "runningTasks": counts.scheduled + counts.acked,
        "finishTime": found.finished_ms,
        "inputFiles": read,
        "outputFiles": made,
        "summary": {one.name: str(one.value) for one in receipt.figures} if receipt else {},
    }


def task(found: pb.TaskInfo, process_id: str, table_id: int) -> Json:
    """OptimizingTaskInfo; what a single task has written is not kept. The token of an optimizer is known to it alone:
    its id stands there.
    """
    return {
        "tableId": table_id,
        "processId": process_id,
        "taskId": found.task_id,
        "partitionData": found.partition,
        "status": found.status.upper(),
        "retryNum": found.failed_runs,
        "optimizerToken": found.optimizer_id or None,
        "threadId": found.thread_id,
        "startTime": found.started_ms,
        "endTime": found.finished_ms,
        "costTime": found.finished_ms - found.started_ms if found.started_ms and found.finished_ms else 0,
        "failReason": found.failure or None,
        "inputFiles": file_figures(found.input_files, found.input_bytes),
        "outputFiles": None,
        "summary": {},
        "properties": {},
    }


def group(found: pb.Group, optimizers: Iterable[pb.Optimizer]) -> Json:
    """OptimizerResourceInfo, with memory in megabytes."""
    memory = sum(one.memory_bytes for one in optimizers if one.group == found.name)
    resources = {"name": found.name, "container": found.container, "properties": dict(found.properties)}
    return {
        "resourceGroup": resources,
        "occupationCore": found.threads,
        "occupationMemory": memory // _MEGABYTE,
    }


def optimizer(found: pb.Optimizer, container: str) -> Json:
    """OptimizerInstanceInfo; the token of an optimizer is known to it alone: its id stands there."""
    return {
        "token": found.optimizer_id,
        "startTime": found.registered_ms,
        "touchTime": found.touched_ms,
        "jobId": found.optimizer_id,
        "groupName": found.group,
        "coreNumber": found.threads,
        "memory": found.memory_bytes // _MEGABYTE,
        "jobStatus": "RUNNING",
        "container": container,
    }


def shown_status(state: pb.Table) -> str:
    """The table's optimizing status as Amoro shows it."""
    return _TABLE_STATUSES[state.status][1]


def optimizing_table(
    table: TableIdentifier, state: pb.Table, quota: float, use: pb.GroupUse | None, threads: int, now_ms: int
) -> Json:
    """TableOptimizingInfo; `quota` is the table's property, `use` what it used of it, `threads` those of its group.

    Files are counted while something waits or runs, as in Amoro; these are all files of the table.
    """
    files = state.files if shown_status(state) != "idle" else pb.FileSummary()
    return {
        "tableIdentifier": {
            "id": state.table_id,
            **identifier(table),
            "format": state.format.upper(),
            "identifier": identifier(table),
        },
        "tableName": ".".join((table.catalog, *table.in_catalog)),
        "optimizeStatus": shown_status(state),
        "duration": now_ms - state.status_since_ms,
        "fileCount": files.data_files + files.equality_delete_files + files.position_delete_files,
        "fileSize": files.data_bytes + files.delete_bytes,
        "quota": float(int(quota) if quota > 1 else ceil(quota * max(threads, 1))),
        "quotaOccupation": round(max(use.occupation, 0.0), 4) if use else 0.0,
        "groupName": state.group,
    }


def _column(one: snapshots_pb2.SchemaColumn) -> Json:
    """AMSColumnInfo."""
    return {"field": one.name, "type": one.type, "required": one.required, "comment": one.doc or None}


def _partition_column(one: snapshots_pb2.PartitionColumn) -> Json:
    """AMSPartitionField."""
    return {
        "field": one.name,
        "sourceField": one.source or None,
        "transform": one.transform,
        "fieldId": one.field_id,
        "sourceFieldId": one.source_id,
    }
