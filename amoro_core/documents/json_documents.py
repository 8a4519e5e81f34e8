"""JSON documents: messages of the admin service as plain data for programs, and their schemas.

Keys are the field names of the proto. Moments end in `_at` instead of `_ms` and are ISO 8601 in UTC; those of what
never happened, and ids of what does not exist, are null; other numbers are exact.
"""

import csv
import io
import json
from collections.abc import Mapping, Sequence
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
_DURATIONS = {"cpu_ms", "duration_ms", "predicted_ms", "measured_ms", "last_predicted_ms", "last_measured_ms"}
_SCORE = "health_score"  # −1: not known


def encode(message: "Message") -> dict[str, Any]:
    """The message as a dictionary in the order of its fields."""
    return dict(_field(message, field) for field in message.DESCRIPTOR.fields)


def encode_all(messages: "Sequence[Message]") -> list[dict[str, Any]]:
    """Each message as `encode` gives it."""
    return [encode(message) for message in messages]


@dataclass(frozen=True, slots=True)
class _FieldShape:
    """How a field of a message appears: under which name, as a time or not, and whether it may be null."""

    name: str
    is_time: bool
    is_nullable: bool


def _shape_of(field: Any) -> _FieldShape:
    """The shape that `encode` gives the field."""
    name = field.name
    if field.is_repeated:
        return _FieldShape(name, False, False)
    if field.message_type is not None:
        return _FieldShape(name, False, True)
    if name.endswith("_ms") and name not in _DURATIONS:
        return _FieldShape(_time_name(name), True, True)
    return _FieldShape(name, False, name in _EMPTY_IS_NULL or name == _SCORE or field.has_presence)


def _field(message: "Message", field: Any) -> tuple[str, Any]:
    shape, value = _shape_of(field), getattr(message, field.name)
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return shape.name, dict(sorted(value.items()))
    if field.is_repeated:
        return shape.name, encode_all(value) if kind else list(value)
    if kind is not None:
        return shape.name, encode(value) if message.HasField(field.name) else None
    if shape.is_time:
        return shape.name, iso_time(value)
    if field.has_presence:
        return shape.name, value if message.HasField(field.name) else None
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


def rows_body(result: "pb.StatementResult") -> Body:
    """Of amoro.rows/v1: each row is a list of texts, null where there is none."""
    rows = [[value.text if value.HasField("text") else None for value in row.values] for row in result.rows]
    return {**encode(result), "rows": rows}


def rows_csv(result: "pb.StatementResult") -> str:
    """The names of the columns and the rows, as RFC 4180 has them; what is null is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column.name for column in result.columns])
    writer.writerows([value.text for value in row.values] for row in result.rows)
    return text.getvalue()


def check_body(problems: Sequence[str]) -> Body:
    """Of amoro.check/v1."""
    return {"ok": not problems, "problems": list(problems)}


Schema = dict[str, Any]

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Schema = {"type": "string"}
_NUMBER: Schema = {"type": "integer"}
_FLAG: Schema = {"type": "boolean"}
_SERVICE = pb.DESCRIPTOR.services_by_name["AdminService"]
#: Keys that only some documents of the name have: tables are forgotten with a catalog only.
_OPTIONAL: Mapping[str, tuple[str, ...]] = {"amoro.removed/v1": ("tables",)}


def request_type(operation: str) -> Descriptor:
    """The message that the operation takes."""
    result: Descriptor = _SERVICE.methods_by_name[operation].input_type
    return result


def answer_type(operation: str) -> Descriptor:
    """The message that the operation answers."""
    result: Descriptor = _SERVICE.methods_by_name[operation].output_type
    return result


def schemas() -> dict[str, Schema]:
    """The schema of each document, by the name in its key `schema`, such as amoro.tables/v1."""
    lists = {route.schema: _items(route) for route in ROUTES if route.items}
    answers = {route.schema: _message(answer_type(route.operation)) for route in ROUTES if not route.items}
    properties = {**lists, **answers, **_special()}
    return {name: _document(name, properties[name]) for name in sorted(properties)}


def _items(route: Route) -> dict[str, Schema]:
    """The list of the items of the route's answer."""
    answer = answer_type(route.operation)
    if (item := answer.fields_by_name[route.items].message_type) is None:
        raise TypeError(f"{route.items} of {answer.name} is no list of messages")
    return (_page if "next" in answer.fields_by_name else _list)(route.key or route.items, item)


def message_schema(descriptor: Descriptor) -> Schema:
    """The schema of a message as `encode` gives it, wherever it stands in a document."""
    return _object(_message(descriptor))


def _document(name: str, properties: Mapping[str, Schema]) -> Schema:
    body = _object({"schema": {"const": name}, **properties}, _OPTIONAL.get(name, ()))
    return {"$schema": _DRAFT, "title": name, **body}


def _object(properties: Mapping[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _message(descriptor: Descriptor, without: tuple[str, ...] = ()) -> dict[str, Schema]:
    result = {}
    for field in descriptor.fields:
        if field.name not in without:
            shape = _shape_of(field)
            schema = _value(field, shape.is_time)
            result[shape.name] = _nullable(schema) if shape.is_nullable else schema
    return result


def _value(field: FieldDescriptor, is_time: bool) -> Schema:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return {"type": "object", "additionalProperties": _TEXT}
    single = message_schema(kind) if kind is not None else _scalar(field, is_time)
    return _array(single) if field.is_repeated else single


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


def _list(key: str, descriptor: Descriptor, without: tuple[str, ...] = ()) -> dict[str, Schema]:
    return {key: _array(_object(_message(descriptor, without)))}


def _page(key: str, descriptor: Descriptor, without: tuple[str, ...] = ()) -> dict[str, Schema]:
    """A list that may continue on further pages."""
    return {**_list(key, descriptor, without), "total": _NUMBER, "next": _nullable(_TEXT)}


def _outcomes(properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """Several tables, each with its outcome and these properties."""
    texts = dict.fromkeys(("code", "message", "hint"), _TEXT)
    table = {"table": _TEXT, "outcome": _TEXT, "exit_status": _NUMBER, **texts, **properties}
    return {"tables": _array(_object(table)), "exit_status": _NUMBER}


def _special() -> dict[str, dict[str, Schema]]:
    """The properties of documents that are not the answer of a route as it is."""
    plan, process = message_schema(pb.Plan.DESCRIPTOR), _nullable(message_schema(pb.Process.DESCRIPTOR))
    process_id = _nullable(_TEXT)
    group = _message(pb.Group.DESCRIPTOR)
    use = group["uses"]["items"]["properties"]
    use["occupation"] = _nullable(use["occupation"])
    maintain = {
        **_message(pb.MaintainTableResponse.DESCRIPTOR, without=("document",)),
        "outcome": _TEXT,
        "plan": _nullable({"type": "object"}),
        "process": process,
    }
    finding = _object({"name": _TEXT, "ok": _FLAG, "detail": _TEXT, "fix": _TEXT})
    return {
        "amoro.audited/v1": _message(audit.AuditEvent.DESCRIPTOR),
        "amoro.attempts/v1": {"process_id": _TEXT, **_page("attempts", journal.AttemptInfo.DESCRIPTOR)},
        "amoro.check/v1": {"ok": _FLAG, "problems": _array(_TEXT)},
        "amoro.event/v1": _message(journal.Event.DESCRIPTOR),
        "amoro.exported/v1": {"files": _array(_TEXT)},
        "amoro.files/v1": {"table": _TEXT, **_message(pb.ListTableFilesResponse.DESCRIPTOR)},
        "amoro.findings/v1": {"ok": _FLAG, "findings": _array(finding)},
        "amoro.group/v1": group,
        "amoro.groups/v1": _page("groups", pb.Group.DESCRIPTOR, without=("uses", "instances")),
        "amoro.maintain/v1": maintain,
        "amoro.maintenance/v1": {"table": _TEXT, "actions": _array(_object(maintain))},
        "amoro.optimize/v1": {
            "table": _TEXT,
            "outcome": _TEXT,
            "process_id": process_id,
            "changes": _array(_TEXT),
            "plan": plan,
            "process": process,
        },
        "amoro.optimized/v1": _outcomes({"process_id": process_id, "plan": _nullable(plan), "process": process}),
        "amoro.rows/v1": {**_message(pb.StatementResult.DESCRIPTOR), "rows": _array(_array(_nullable(_TEXT)))},
        "amoro.package/v1": {
            "path": _TEXT,
            "size_bytes": _NUMBER,
            "python": _TEXT,
            "has_interpreter": _FLAG,
            "distributions": _array(_object({"name": _TEXT, "version": _TEXT})),
        },
        "amoro.plans/v1": _outcomes({"gain_files": _NUMBER, "cost_bytes": _NUMBER, "plan": _nullable(plan)}),
        "amoro.removed/v1": {"name": _TEXT, "tables": _NUMBER},
        "amoro.selected/v1": _outcomes({"result": _nullable(message_schema(pb.Table.DESCRIPTOR))}),
        "amoro.snapshots/v1": {"table": _TEXT, **_message(pb.ListSnapshotsResponse.DESCRIPTOR)},
        "amoro.status/v1": {
            **_message(pb.GetStatusResponse.DESCRIPTOR),
            **_list("conditions", monitoring.Condition.DESCRIPTOR),
        },
        "amoro.task/v1": {"process_id": _TEXT, "table": _TEXT, **_message(pb.TaskInfo.DESCRIPTOR)},
        "amoro.tasks/v1": {"process_id": _TEXT, **_page("tasks", pb.TaskInfo.DESCRIPTOR)},
        "amoro.tokens/v1": _page("tokens", pb.Token.DESCRIPTOR, without=("token",)),
    }
