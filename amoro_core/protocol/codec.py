"""Messages to values and back."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, StageFacts, Strategy
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, DeleteKind, FileFormat, Partition
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import (
    DELETE,
    LIST,
    REWRITE,
    SKETCH,
    CopyRule,
    InputFile,
    LeftOutRows,
    PositionMap,
    RewriteInput,
    RewriteOutput,
    TableContext,
    Work,
    WorkResult,
)
from amoro_core.protocol import cluster_pb2 as cluster_pb
from amoro_core.protocol import optimizing_pb2 as opb
from amoro_core.protocol import rewrite_pb2 as pb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_us(moment: datetime) -> int:
    """The moment in microseconds, whole."""
    return (moment - _EPOCH) // _MICROSECOND


def from_us(microseconds: int) -> datetime:
    """The time in microseconds since 1970."""
    return _EPOCH + microseconds * _MICROSECOND


def milliseconds(time: timedelta) -> int:
    """How many whole milliseconds it is."""
    return time // timedelta(milliseconds=1)


_KINDS = {
    DeleteKind.POSITION: pb.DELETE_KIND_POSITION,
    DeleteKind.EQUALITY: pb.DELETE_KIND_EQUALITY,
}
_KINDS_BACK = {number: kind for kind, number in _KINDS.items()}


def encode_attempt(attempt: Attempt) -> opb.TaskAttempt:
    """The attempt as a message."""
    return opb.TaskAttempt(
        process_id=attempt.task_id.process_id, task_id=attempt.task_id.number, attempt=attempt.number
    )


def decode_attempt(message: opb.TaskAttempt) -> Attempt:
    """The attempt in the message."""
    return Attempt(TaskId(message.process_id, message.task_id), message.attempt)


def put_work(task: opb.Task, work: Work) -> None:
    """Set the task's work."""
    if work.kind in _TYPED:
        getattr(task, work.kind).ParseFromString(work.payload)
    else:
        task.other.kind, task.other.payload = work.kind, work.payload


def work_of(task: opb.Task) -> Work:
    """The task's work; of the kind "" if the message has none that is known here."""
    match task.WhichOneof("work"):
        case "other":
            return Work(task.other.kind, task.other.payload)
        case str(kind):
            return Work(kind, getattr(task, kind).SerializeToString(deterministic=True))
    return Work("", b"")


def put_result(message: opb.TaskResult, result: WorkResult) -> None:
    """Set the result."""
    if result.kind in _TYPED:
        getattr(message, result.kind).ParseFromString(result.payload)
    else:
        message.other.CopyFrom(opb.KindMessage(kind=result.kind, payload=result.payload))


def result_of(message: opb.TaskResult) -> WorkResult | None:
    """The result; None for a failure, a refusal, and an unknown kind."""
    match message.WhichOneof("result"):
        case "other":
            return WorkResult(message.other.kind, message.other.payload)
        case str(kind) if kind in _TYPED:
            return WorkResult(kind, getattr(message, kind).SerializeToString(deterministic=True))
    return None


#: Kinds whose messages stand in Task and TaskResult under their names.
_TYPED = (REWRITE, LIST, DELETE, SKETCH)


def encode_input(work: RewriteInput) -> pb.RewriteInput:
    """A rewrite's input as a message."""
    return pb.RewriteInput(
        table=_encode_context(work.table),
        rewritten=[_encode_input_file(file) for file in work.rewritten],
        converted=[_encode_input_file(file) for file in work.converted],
        deletes=[encode_delete_file(delete) for delete in work.deletes],
        sequence_number=work.sequence_number,
        target_size_bytes=work.target_size_bytes,
        output_count=work.output_count,
        marks_converted=work.marks_converted,
        copy=None if work.copy is None else _encode_rule(work.copy),
        tells_left_out=work.tells_left_out,
        max_hidden_ratio=work.max_hidden_ratio,
    )


def decode_input(message: pb.RewriteInput) -> RewriteInput:
    """The rewrite's input in the message."""
    return RewriteInput(
        table=_decode_context(message.table),
        rewritten=tuple(_decode_input_file(file) for file in message.rewritten),
        converted=tuple(_decode_input_file(file) for file in message.converted),
        deletes=tuple(decode_delete_file(delete) for delete in message.deletes),
        sequence_number=message.sequence_number,
        target_size_bytes=message.target_size_bytes,
        output_count=message.output_count,
        marks_converted=message.marks_converted,
        copy=_decode_rule(message.copy) if message.HasField("copy") else None,
        tells_left_out=message.tells_left_out,
        max_hidden_ratio=message.max_hidden_ratio,
    )


def encode_output(output: RewriteOutput) -> pb.RewriteOutput:
    """A rewrite's output as a message."""
    return pb.RewriteOutput(
        data_files=[encode_data_file(file) for file in output.data_files],
        delete_files=[encode_delete_file(file) for file in output.delete_files],
        rows_read=output.rows_read,
        rows_deleted=output.rows_deleted,
        rows_written=output.rows_written,
        positions_written=output.positions_written,
        bytes_read=output.bytes_read,
        duration_ms=output.duration_ms,
        peak_memory_bytes=output.peak_memory_bytes,
        files_copied=output.files_copied,
        encoded_because=output.encoded_because,
        encoded_files=dict(output.encoded_files),
        position_map=None if output.position_map is None else _encode_map(output.position_map),
    )


def decode_output(message: pb.RewriteOutput) -> RewriteOutput:
    """The rewrite's output in the message."""
    return RewriteOutput(
        data_files=tuple(decode_data_file(file) for file in message.data_files),
        delete_files=tuple(decode_delete_file(file) for file in message.delete_files),
        rows_read=message.rows_read,
        rows_deleted=message.rows_deleted,
        rows_written=message.rows_written,
        positions_written=message.positions_written,
        bytes_read=message.bytes_read,
        duration_ms=message.duration_ms,
        peak_memory_bytes=message.peak_memory_bytes,
        files_copied=message.files_copied,
        encoded_because=message.encoded_because,
        encoded_files=dict(message.encoded_files),
        position_map=_decode_map(message.position_map) if message.HasField("position_map") else None,
    )


def encode_data_file(file: DataFile) -> pb.DataFile:
    """The data file as a message."""
    return pb.DataFile(
        path=file.path,
        file_format=file.file_format.value,
        spec_id=file.spec_id,
        partition=_encode_partition(file.partition),
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        sequence_number=file.sequence_number,
        metrics=_encode_metrics(file.metrics),
        sort_order_id=file.sort_order_id,
        split_offsets=file.split_offsets,
        first_row_id=file.first_row_id,
    )


def decode_data_file(message: pb.DataFile) -> DataFile:
    """The data file in the message."""
    return DataFile(
        path=message.path,
        file_format=FileFormat(message.file_format),
        spec_id=message.spec_id,
        partition=_decode_partition(message.partition),
        record_count=message.record_count,
        size_bytes=message.size_bytes,
        sequence_number=message.sequence_number,
        metrics=_decode_metrics(message.metrics),
        sort_order_id=message.sort_order_id if message.HasField("sort_order_id") else None,
        split_offsets=tuple(message.split_offsets),
        first_row_id=message.first_row_id if message.HasField("first_row_id") else None,
    )


def encode_delete_file(file: DeleteFile) -> pb.DeleteFile:
    """The delete file as a message."""
    return pb.DeleteFile(
        path=file.path,
        kind=_KINDS[file.kind],
        file_format=file.file_format.value,
        spec_id=file.spec_id,
        partition=_encode_partition(file.partition),
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        sequence_number=file.sequence_number,
        equality_ids=file.equality_ids,
        referenced_data_file=file.referenced_data_file,
        metrics=_encode_metrics(file.metrics),
        split_offsets=file.split_offsets,
        content_offset=file.content_offset,
        content_size_bytes=file.content_size_bytes,
    )


def decode_delete_file(message: pb.DeleteFile) -> DeleteFile:
    """The delete file in the message. Raises ValueError for an unknown kind."""
    if message.kind not in _KINDS_BACK:
        raise ValueError(f"delete file {message.path} has the unknown kind {message.kind}")
    return DeleteFile(
        path=message.path,
        kind=_KINDS_BACK[message.kind],
        file_format=FileFormat(message.file_format),
        spec_id=message.spec_id,
        partition=_decode_partition(message.partition),
        record_count=message.record_count,
        size_bytes=message.size_bytes,
        sequence_number=message.sequence_number,
        equality_ids=tuple(message.equality_ids),
        referenced_data_file=message.referenced_data_file if message.HasField("referenced_data_file") else None,
        metrics=_decode_metrics(message.metrics),
        split_offsets=tuple(message.split_offsets),
        content_offset=message.content_offset if message.HasField("content_offset") else None,
        content_size_bytes=message.content_size_bytes if message.HasField("content_size_bytes") else None,
    )


def _encode_map(found: PositionMap) -> pb.PositionMap:
    return pb.PositionMap(
        path=found.path,
        size_bytes=found.size_bytes,
        left_out=[
            pb.LeftOutRows(
                input=rows.input,
                content_offset=rows.content_offset,
                content_size_bytes=rows.content_size_bytes,
                record_count=rows.record_count,
            )
            for rows in found.left_out
        ],
    )


def _decode_map(message: pb.PositionMap) -> PositionMap:
    left_out = tuple(
        LeftOutRows(rows.input, rows.content_offset, rows.content_size_bytes, rows.record_count)
        for rows in message.left_out
    )
    return PositionMap(message.path, message.size_bytes, left_out)


def _encode_rule(rule: CopyRule) -> pb.CopyRule:
    return pb.CopyRule(
        min_row_group_bytes=rule.min_row_group_bytes, max_row_groups=rule.max_row_groups, verifies=rule.verifies
    )


def _decode_rule(message: pb.CopyRule) -> CopyRule:
    return CopyRule(message.min_row_group_bytes, message.max_row_groups, message.verifies)


def _encode_context(table: TableContext) -> pb.TableContext:
    return pb.TableContext(
        catalog=table.catalog,
        table=table.table,
        table_uuid=table.table_uuid,
        format_version=table.format_version,
        location=table.location,
        data_location=table.data_location,
        schema_json=table.schema_json,
        spec_json=table.spec_json,
        name_mapping_json=table.name_mapping_json,
        dropped_fields_json=table.dropped_fields_json,
        sort_order_json=table.sort_order_json,
        properties=table.properties,
        read_locations=table.read_locations,
        once_unknown=table.once_unknown,
    )


def _decode_context(message: pb.TableContext) -> TableContext:
    return TableContext(
        catalog=message.catalog,
        table=message.table,
        table_uuid=message.table_uuid,
        format_version=message.format_version,
        location=message.location,
        data_location=message.data_location,
        schema_json=message.schema_json,
        spec_json=message.spec_json,
        name_mapping_json=message.name_mapping_json if message.HasField("name_mapping_json") else None,
        dropped_fields_json=tuple(message.dropped_fields_json),
        sort_order_json=message.sort_order_json if message.HasField("sort_order_json") else None,
        properties=dict(message.properties),
        read_locations=tuple(message.read_locations),
        once_unknown=tuple(message.once_unknown),
    )


def _encode_input_file(file: InputFile) -> pb.InputFile:
    return pb.InputFile(data=encode_data_file(file.data), deletes=file.deletes)


def _decode_input_file(message: pb.InputFile) -> InputFile:
    return InputFile(decode_data_file(message.data), tuple(message.deletes))


def _encode_partition(partition: Partition) -> list[pb.PartitionValue]:
    return [pb.PartitionValue(value=value) for value in partition]


def _decode_partition(values: Iterable[pb.PartitionValue]) -> Partition:
    return tuple(value.value if value.HasField("value") else None for value in values)


def _encode_metrics(metrics: ColumnMetrics) -> pb.ColumnMetrics:
    return pb.ColumnMetrics(
        column_sizes=metrics.column_sizes,
        value_counts=metrics.value_counts,
        null_value_counts=metrics.null_value_counts,
        nan_value_counts=metrics.nan_value_counts,
        lower_bounds=metrics.lower_bounds,
        upper_bounds=metrics.upper_bounds,
    )


def _decode_metrics(message: pb.ColumnMetrics) -> ColumnMetrics:
    return ColumnMetrics(
        column_sizes=dict(message.column_sizes),
        value_counts=dict(message.value_counts),
        null_value_counts=dict(message.null_value_counts),
        nan_value_counts=dict(message.nan_value_counts),
        lower_bounds=dict(message.lower_bounds),
        upper_bounds=dict(message.upper_bounds),
    )


def encode_layout(layout: Layout) -> cluster_pb.Layout:
    """The layout as a message."""
    keys = [
        cluster_pb.LayoutKey(
            field_id=key.field_id, transform=key.transform, descending=key.descending, nulls_last=key.nulls_last
        )
        for key in layout.keys
    ]
    return cluster_pb.Layout(strategy=layout.strategy.value, keys=keys, curve_version=layout.curve_version)


def decode_layout(message: cluster_pb.Layout) -> Layout:
    """The layout in the message. Raises ValueError for an unknown strategy."""
    keys = tuple(LayoutKey(key.field_id, key.transform, key.descending, key.nulls_last) for key in message.keys)
    return Layout(Strategy(message.strategy), keys, message.curve_version)


def encode_cluster_input(work: ClusterInput) -> bytes:
    """The input as the payload of its work, the same bytes each time."""
    return cluster_pb.ClusterInput(
        rewrite=encode_input(work.rewrite),
        layout=encode_layout(work.layout),
        sort_order_id=work.sort_order_id,
        group_id=work.group_id,
        seed=work.seed,
    ).SerializeToString(deterministic=True)


def decode_cluster_input(payload: bytes) -> ClusterInput:
    """The input in the payload. Raises ValueError for an unknown strategy."""
    message = cluster_pb.ClusterInput.FromString(payload)
    return ClusterInput(
        rewrite=decode_input(message.rewrite),
        layout=decode_layout(message.layout),
        group_id=message.group_id,
        seed=message.seed,
        sort_order_id=message.sort_order_id,
    )


def encode_cluster_output(output: ClusterOutput) -> bytes:
    """The output as the payload of a result, the same bytes each time."""
    return cluster_pb.ClusterOutput(
        rewrite=encode_output(output.rewrite),
        cuts=output.cuts,
        stages=[cluster_pb.StageFacts(name=one.name, core_ms=one.core_ms, rows=one.rows) for one in output.stages],
        shuffle_bytes=output.shuffle_bytes,
        spill_bytes=output.spill_bytes,
    ).SerializeToString(deterministic=True)


def decode_cluster_output(payload: bytes) -> ClusterOutput:
    """The output in the payload."""
    message = cluster_pb.ClusterOutput.FromString(payload)
    return ClusterOutput(
        rewrite=decode_output(message.rewrite),
        cuts=message.cuts,
        stages=tuple(StageFacts(one.name, one.core_ms, one.rows) for one in message.stages),
        shuffle_bytes=message.shuffle_bytes,
        spill_bytes=message.spill_bytes,
    )
