"""JSON documents: messages of the admin service as plain data for programs, and their schemas.

Keys are the field names of the proto. Moments end in `_at` instead of `_ms` and are ISO 8601 in UTC; those of what
never happened, and ids of what does not exist, are null; other numbers are exact.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from amoro_core.documents.formatting import iso_time
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol.operations import ROUTES, Route

if TYPE_CHECKING:
    from google.protobuf.message import Message


_EMPTY_IS_NULL = {
    *("process_id", "optimizer_id", "plan_id", "snapshot_id", "base_snapshot_id", "parent_snapshot_id"),
    *("type", "next"),
}
_DURATIONS = {"cpu_ms", "duration_ms"}
_SCORE = "health_score"  # −1: not known


def encode(message: "Message") -> dict[str, Any]:
    """The message as a dictionary in the order of its fields."""
    return dict(_field(message, field) for field in message.DESCRIPTOR.fields)


def encode_all(messages: "Sequence[Message]") -> list[dict[str, Any]]:
    """Each message as `encode` gives it."""
    return [encode(message) for message in messages]


@dataclass(frozen=True, slots=True)
class FieldShape:
    """How a field of a message appears: under which name, as a time or not, and whether it may be null."""

    name: str
    is_time: bool
    is_nullable: bool


def describe_field(field: Any) -> FieldShape:
    """The shape that `encode` gives the field."""
    name = field.name
    if field.is_repeated:
        return FieldShape(name, False, False)
    if field.message_type is not None:
        return FieldShape(name, False, True)
    if name.endswith("_ms") and name not in _DURATIONS:
        return FieldShape(_time_name(name), True, True)
    return FieldShape(name, False, name in _EMPTY_IS_NULL or name == _SCORE)


def _field(message: "Message", field: Any) -> tuple[str, Any]:
    shape, value = describe_field(field), getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return shape.name, dict(sorted(value.items()))
    if field.is_repeated:
        return shape.name, encode_all(value) if kind else list(value)
    if kind is not None:
        return shape.name, encode(value) if message.HasField(field.name) else None
    if shape.is_time:
        return shape.name, iso_time(value)
    if shape.is_nullable and (value < 0 if field.name == _SCORE else not value):
        return shape.name, None
    return shape.name, value


def _time_name(name: str) -> str:
    stem = name.removesuffix("_ms")
    return stem if stem.endswith(("_at", "_since")) else f"{stem}_at"


Body = dict[str, Any]


def optimize_body(plan: "pb.Plan", process_id: str, process: "pb.Process | None", changes: Sequence[str] = ()) -> Body:
    """Of amoro.optimize/v1.

    The outcome is "nothing_to_do", "changed" where the kept plan is not the plan any more, "planned" when the end was
    not waited for, else the status of the process.
    """
    begun = "planned" if process_id else "changed" if changes else "nothing_to_do"
    return {
        "table": plan.table,
        "outcome": process.status if process else begun,
        "process_id": process_id or None,
        "changes": list(changes),
        "plan": encode(plan),
        "process": encode(process) if process else None,
    }


def maintain_body(answer: "pb.MaintainTableResponse", process: "pb.Process | None") -> Body:
    """Of amoro.maintain/v1.

    The outcome is "nothing_to_do", "due" of a dry run, "planned" when the end was not waited for, else the status of
    the process. `plan` is what would be done, or was planned: the items with their reasons.
    """
    planned = "planned" if answer.process_id else "due" if answer.is_due else "nothing_to_do"
    answer_fields = encode(answer)
    del answer_fields["document"]
    return {
        **answer_fields,
        "outcome": process.status if process else planned,
        "plan": json.loads(answer.document) if answer.document else None,
        "process": encode(process) if process else None,
    }


def group_body(group: "pb.Group") -> Body:
    """Of amoro.group/v1: `occupation` is null for a table without limit."""
    body = encode(group)
    for use in body["uses"]:
        use["occupation"] = None if use["occupation"] < 0 else use["occupation"]
    return body


def check_body(problems: Sequence[str]) -> Body:
    """Of amoro.check/v1."""
    return {"ok": not problems, "problems": list(problems)}


Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"]


def schemas() -> dict[str, Schema]:
    """The schema of each document, by the name in its key `schema`, such as amoro.tables/v1."""
    lists = {route.schema: _answer(route) for route in ROUTES if route.items}
    answers = {route.schema: _answer(route) for route in ROUTES if not route.items}
    return {name: _document(name, make()) for name, make in sorted({**lists, **answers, **_SPECIAL}.items())}


def _answer(route: Route) -> Callable[[], dict[str, Schema]]:
    """The answer of the route's operation, or the list of its items."""
    answer = _SERVICE.methods_by_name[route.operation].output_type
    if not route.items:
        return _one(answer)
    if (item := answer.fields_by_name[route.items].message_type) is None:
        raise TypeError(f"{route.items} of {answer.name} is no list of messages")
    return (_page if "next" in answer.fields_by_name else _list)(route.key or route.items, item)


def file_name(name: str) -> str:
    """The file of a schema: tables.v1.json for amoro.tables/v1."""
    return f"{name.removeprefix('amoro.').replace('/', '.')}.json"


def message_schema(descriptor: Descriptor) -> Schema:
    """The schema of a message as `encode` gives it, wherever it stands in a document."""
    return _object(_message(descriptor))


def _document(name: str, properties: Mapping[str, Schema]) -> Schema:
    return {
        "$schema": _DRAFT,
        "title": name,
        **_object({"schema": {"const": name}, **properties}, _OPTIONAL.get(name, ())),
    }


def _object(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
    }


def _message(descriptor: Descriptor, without: tuple[str, ...] = ()) -> dict[str, Schema]:
    described = (_schema_of_field(field) for field in descriptor.fields if field.name not in without)
    return dict(described)


def _schema_of_field(field: FieldDescriptor) -> tuple[str, Schema]:
    known = describe_field(field)
    return known.name, _nullable(_value(field, known.is_time)) if known.is_nullable else _value(field, known.is_time)


def _value(field: FieldDescriptor, is_time: bool) -> Schema:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _TEXT}
    single = _object(_message(kind)) if kind is not None else _scalar(field, is_time)
    return {"type": "array", "items": single} if field.is_repeated else single


def _scalar(field: FieldDescriptor, is_time: bool) -> Schema:
    if is_time:
        return {"type": "string", "format": "date-time"}
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return _TEXT
        case FieldDescriptor.CPPTYPE_BOOL:
            return _FLAG
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return {"type": "number"}
    return _NUMBER


def _nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _list(key: str, descriptor: Descriptor, without: tuple[str, ...] = ()) -> Callable[[], dict[str, Schema]]:
    return lambda: {key: {"type": "array", "items": _object(_message(descriptor, without))}}


def _page(key: str, descriptor: Descriptor, without: tuple[str, ...] = ()) -> Callable[[], dict[str, Schema]]:
    """A list that may continue on further pages."""
    return lambda: {**_list(key, descriptor, without)(), "total": _NUMBER, "next": _nullable(_TEXT)}


def _one(descriptor: Descriptor, **before: Schema) -> Callable[[], dict[str, Schema]]:
    return lambda: {**before, **_message(descriptor)}


def _group() -> dict[str, Schema]:
    properties = _message(pb.Group.DESCRIPTOR)
    occupation = properties["uses"]["items"]["properties"]["occupation"]
    properties["uses"]["items"]["properties"]["occupation"] = _nullable(occupation)
    return properties


def _optimize() -> dict[str, Schema]:
    return {
        "table": _TEXT,
        "outcome": _TEXT,
        "process_id": _nullable(_TEXT),
        "changes": {"type": "array", "items": _TEXT},
        "plan": _object(_message(pb.Plan.DESCRIPTOR)),
        "process": _nullable(_object(_message(pb.Process.DESCRIPTOR))),
    }


def _maintain() -> dict[str, Schema]:
    process = _nullable(_object(_message(pb.Process.DESCRIPTOR)))
    answer_fields = {
        name: shape for name, shape in _message(pb.MaintainTableResponse.DESCRIPTOR).items() if name != "document"
    }
    return {**answer_fields, "outcome": _TEXT, "plan": _nullable({"type": "object"}), "process": process}


def _outcomes(more: Callable[[], dict[str, Schema]]) -> Callable[[], dict[str, Schema]]:
    """Several tables, each with its outcome and `more`."""

    def made() -> dict[str, Schema]:
        words = {
            "table": _TEXT,
            "outcome": _TEXT,
            "exit_status": _NUMBER,
            "code": _TEXT,
            "message": _TEXT,
            "hint": _TEXT,
        }
        return {"tables": {"type": "array", "items": _object({**words, **more()})}, "exit_status": _NUMBER}

    return made


def _optimized() -> dict[str, Schema]:
    return {
        "process_id": _nullable(_TEXT),
        "plan": _nullable(_object(_message(pb.Plan.DESCRIPTOR))),
        "process": _nullable(_object(_message(pb.Process.DESCRIPTOR))),
    }


def _ranked() -> dict[str, Schema]:
    plan = _nullable(_object(_message(pb.Plan.DESCRIPTOR)))
    return {"gain_files": _NUMBER, "cost_bytes": _NUMBER, "plan": plan}


def _findings() -> dict[str, Schema]:
    finding = _object({"name": _TEXT, "ok": _FLAG, "detail": _TEXT, "fix": _TEXT})
    return {"ok": _FLAG, "findings": {"type": "array", "items": finding}}


def _package() -> dict[str, Schema]:
    distribution = _object({"name": _TEXT, "version": _TEXT})
    return {
        "path": _TEXT,
        "size_bytes": _NUMBER,
        "python": _TEXT,
        "has_interpreter": _FLAG,
        "distributions": {"type": "array", "items": distribution},
    }


#: Keys that only some documents of the name have: tables are forgotten with a catalog only.
_OPTIONAL: Mapping[str, tuple[str, ...]] = {"amoro.removed/v1": ("tables",)}

#: Documents that are not the answer of a route as it is.
_SPECIAL: Mapping[str, Callable[[], dict[str, Schema]]] = {
    "amoro.audited/v1": _one(audit.AuditEvent.DESCRIPTOR),
    "amoro.attempts/v1": lambda: {"process_id": _TEXT, **_page("attempts", journal.AttemptInfo.DESCRIPTOR)()},
    "amoro.check/v1": lambda: {"ok": _FLAG, "problems": {"type": "array", "items": _TEXT}},
    "amoro.event/v1": _one(journal.Event.DESCRIPTOR),
    "amoro.exported/v1": lambda: {"files": {"type": "array", "items": _TEXT}},
    "amoro.files/v1": _one(pb.ListTableFilesResponse.DESCRIPTOR, table=_TEXT),
    "amoro.findings/v1": _findings,
    "amoro.group/v1": _group,
    "amoro.groups/v1": _page("groups", pb.Group.DESCRIPTOR, without=("uses", "instances")),
    "amoro.maintain/v1": _maintain,
    "amoro.maintenance/v1": lambda: {"table": _TEXT, "actions": {"type": "array", "items": _object(_maintain())}},
    "amoro.optimize/v1": _optimize,
    "amoro.optimized/v1": _outcomes(_optimized),
    "amoro.package/v1": _package,
    "amoro.plans/v1": _outcomes(_ranked),
    "amoro.removed/v1": lambda: {"name": _TEXT, "tables": _NUMBER},
    "amoro.selected/v1": _outcomes(lambda: {"result": _nullable(_object(_message(pb.Table.DESCRIPTOR)))}),
    "amoro.snapshots/v1": _one(pb.ListSnapshotsResponse.DESCRIPTOR, table=_TEXT),
    "amoro.status/v1": lambda: {
        **_message(pb.GetStatusResponse.DESCRIPTOR),
        **_list("conditions", monitoring.Condition.DESCRIPTOR)(),
    },
    "amoro.task/v1": _one(pb.TaskInfo.DESCRIPTOR, process_id=_TEXT, table=_TEXT),
    "amoro.tasks/v1": lambda: {"process_id": _TEXT, **_page("tasks", pb.TaskInfo.DESCRIPTOR)()},
    "amoro.tokens/v1": _page("tokens", pb.Token.DESCRIPTOR, without=("token",)),
}
