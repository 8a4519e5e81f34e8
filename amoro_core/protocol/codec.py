"""Messages to values and back."""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from google.protobuf.message import Message

from amoro_core.model.clustering import ClusterInput, ClusterOutput
from amoro_core.model.files import DeleteKind, Partition
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import DELETE, LIST, REWRITE, SKETCH, RewriteInput, Work, WorkResult
from amoro_core.protocol import cluster_pb2 as cluster_pb
from amoro_core.protocol import optimizing_pb2 as opb
from amoro_core.protocol import rewrite_pb2 as pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

V = TypeVar("V")
M = TypeVar("M", bound=Message)

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


#: Kinds of deletes are numbers in messages; other enums are their words.
_DELETE_KINDS = {DeleteKind.POSITION: pb.DELETE_KIND_POSITION, DeleteKind.EQUALITY: pb.DELETE_KIND_EQUALITY}
_DELETE_KINDS_BACK = {number: kind for kind, number in _DELETE_KINDS.items()}


def encode(message_kind: type[M], value: "DataclassInstance") -> M:
    """The value as a message of that kind, whose fields have the names of the value's."""
    return message_kind(**_encoded_fields(value))


def decode(kind: type[V], message: Message) -> V:
    """The value of that class in the message; what the class lacks is passed over.

    Raises ValueError for an unknown kind of delete, format or strategy.
    """
    return kind(**{name: read(message, name) for name, read in _readers(kind)})  # type: ignore[arg-type]


def _encoded_fields(value: "DataclassInstance") -> dict[str, Any]:
    return {field.name: _encoded(field.name, getattr(value, field.name)) for field in fields(value) if field.init}


def _encoded(name: str, value: Any) -> Any:
    """A field's value as the constructor of a message takes it."""
    if name == "partition":
        return [pb.PartitionValue(value=item) for item in value]
    if isinstance(value, DeleteKind):
        return _DELETE_KINDS[value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple) and value and is_dataclass(value[0]):
        return [_encoded_fields(item) for item in value]
    return _encoded_fields(value) if is_dataclass(value) and not isinstance(value, type) else value


@cache
def _readers(kind: type) -> tuple[tuple[str, Callable[[Any, str], Any]], ...]:
    """Of each field of a class its name, and the function that reads it from a message."""
    hints = get_type_hints(kind)
    return tuple((field.name, _reader(field.name, hints[field.name])) for field in fields(kind) if field.init)


def _reader(name: str, hint: Any) -> Callable[[Any, str], Any]:
    if name == "partition":
        return _read_partition
    inner = get_args(hint)
    if NoneType in inner:
        read = _reader(name, inner[0])
        return lambda message, name: read(message, name) if message.HasField(name) else None
    origin = get_origin(hint)
    if origin is tuple and is_dataclass(inner[0]):
        return lambda message, name: tuple(decode(inner[0], item) for item in getattr(message, name))
    if origin in (tuple, Mapping):
        make = tuple if origin is tuple else dict
        return lambda message, name: make(getattr(message, name))
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda message, name: decode(hint, getattr(message, name))
    if hint is DeleteKind:
        return _read_delete_kind
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda message, name: hint(getattr(message, name))
    return getattr


def _read_partition(message: Any, name: str) -> Partition:
    return tuple(item.value if item.HasField("value") else None for item in message.partition)


def _read_delete_kind(message: Any, name: str) -> DeleteKind:
    if message.kind not in _DELETE_KINDS_BACK:
        raise ValueError(f"delete file {message.path} has the unknown kind {message.kind}")
    return _DELETE_KINDS_BACK[message.kind]


def decode_input(message: pb.RewriteInput) -> RewriteInput:
    """The rewrite's input in the message."""
    return decode(RewriteInput, message)


def encode_cluster_input(work: ClusterInput) -> bytes:
    """The input as the payload of its work, the same bytes each time."""
    return encode(cluster_pb.ClusterInput, work).SerializeToString(deterministic=True)


def decode_cluster_input(payload: bytes) -> ClusterInput:
    """The input in the payload. Raises ValueError for an unknown strategy."""
    return decode(ClusterInput, cluster_pb.ClusterInput.FromString(payload))


def encode_cluster_output(output: ClusterOutput) -> bytes:
    """The output as the payload of a result, the same bytes each time."""
    return encode(cluster_pb.ClusterOutput, output).SerializeToString(deterministic=True)


def decode_cluster_output(payload: bytes) -> ClusterOutput:
    """The output in the payload."""
    return decode(ClusterOutput, cluster_pb.ClusterOutput.FromString(payload))
