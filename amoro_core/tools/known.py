"""The tools: for each its operation, its arguments, and what it answers."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, cast

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from amoro_core.documents.contract import message_schema
from amoro_core.documents.encoding import encode
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.records import record
from amoro_core.tools.safe import with_text_ids

#: How many items of a list an answer has, unless fewer are asked for or fit.
ITEMS = 20

Schema = Mapping[str, Any]

_TEXT: Schema = {"type": "string"}


def _text(about: str) -> Schema:
    return {**_TEXT, "description": about}


_TABLE = _text("The table's full name: catalog.namespace.table")
_PROCESS = _text("The process's id, or its first six characters or more")
_TYPE = {**_text("How much to rewrite; left out: what the table needs"), "enum": ["minor", "major", "full"]}
_DRY_RUN: Schema = {
    "type": "boolean",
    "default": True,
    "description": "true, as by default: change nothing, and answer what it is about",
}


@record
class Tool:
    """A tool that asks one operation; one that writes asks another one, which only reads, for a dry run."""

    name: str
    about: str
    method: str
    request: type[Message]
    answer: type[Message]
    arguments: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    fixed: Mapping[str, Any] = field(default_factory=dict)  # fields that are always so
    is_list: bool = False  # its request has `limit` and `after`, its answer `next`
    dry: "Tool | None" = None  # of a tool that writes

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.dry is not None

    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        more: dict[str, Schema] = {}
        if self.is_list:
            more["limit"] = {"type": "integer", "minimum": 1, "maximum": 100, "default": ITEMS}
            more["after"] = _text("`next` of the answer before")
        if self.writes:
            more["dry_run"] = _DRY_RUN
        known = {name: dict(schema) for name, schema in {**self.arguments, **more}.items()}
        return {"type": "object", "properties": known, "required": [*self.required], "additionalProperties": False}

    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of its answers."""
        mark = {"type": "boolean", "description": "Texts or lists were cut to keep the answer small"}
        told = {"is_shortened": mark}
        if not self.writes or self.dry is None:
            return _open(with_text_ids(message_schema(descriptor_of(self.answer))), told)
        parts = {"dry_run": {"type": "boolean"}, **told}
        for name, message in (("would", self.dry.answer), ("done", self.answer)):
            parts[name] = with_text_ids(message_schema(descriptor_of(message)))
        return {"type": "object", "properties": parts, "required": ["dry_run"]}

    def message(self, arguments: Mapping[str, Any]) -> Message:
        """The request for arguments that are known to be of its schema."""
        own = {name: value for name, value in arguments.items() if name != "dry_run"}
        return self.request(**{**self.fixed, **own})

    def document(self, answer: Message) -> dict[str, Any]:
        """The answer as data."""
        return encode(answer)


def _open(schema: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with further properties that need not be there."""
    return {**schema, "properties": {**schema["properties"], **more}}


_GET_TABLE = Tool(
    "get_table",
    "One table as the coordinator knows it: status, why it is not optimized, health, files, deletes, group.",
    "GetTable",
    pb.GetTableRequest,
    pb.Table,
    {"table": _TABLE},
    ("table",),
    {"known_only": True},
)
_GET_RECEIPT = Tool(
    "get_receipt",
    "One process with its receipt: snapshots, files and rows before and after, failure.",
    "GetProcess",
    pb.GetProcessRequest,
    pb.Process,
    {"process_id": _PROCESS},
    ("process_id",),
)
_EXPLAIN_PLAN = Tool(
    "explain_plan",
    "What optimizing a table would rewrite now, and why. Reads the table's metadata, changes nothing.",
    "PlanTable",
    pb.PlanTableRequest,
    pb.Plan,
    {"table": _TABLE, "type": _TYPE},
    ("table",),
)

READING = (
    Tool(
        "status",
        "Version, start and counts.",
        "GetStatus",
        pb.GetStatusRequest,
        pb.GetStatusResponse,
    ),
    Tool(
        "list_conditions",
        "What is wrong now, the worst first, and what to do about it.",
        "ListConditions",
        monitoring.ListConditionsRequest,
        monitoring.ListConditionsResponse,
    ),
    Tool(
        "list_tables",
        "Tables, those with the lowest health first.",
        "ListTables",
        pb.ListTablesRequest,
        pb.ListTablesResponse,
        {
            "catalog": _text("Only tables of this catalog"),
            "status": _text("Only tables in this status, such as pending or refused"),
            "group": _text("Only tables of this optimizer group"),
            "text": _text("Only tables with this text in their names"),
        },
        fixed={"sort": "health", "order": "asc"},
        is_list=True,
    ),
    _GET_TABLE,
    _EXPLAIN_PLAN,
    Tool(
        "list_processes",
        "Processes, the newest first.",
        "ListProcesses",
        pb.ListProcessesRequest,
        pb.ListProcessesResponse,
        {"table": _TABLE, "status": _text("Only processes in this status, such as running or failed")},
        is_list=True,
    ),
    _GET_RECEIPT,
    Tool("list_groups", "Optimizer groups.", "ListGroups", pb.ListGroupsRequest, pb.ListGroupsResponse, is_list=True),
    Tool(
        "list_optimizers",
        "Registered optimizers.",
        "ListOptimizers",
        pb.ListOptimizersRequest,
        pb.ListOptimizersResponse,
        {"group": _text("Only optimizers of this group")},
        is_list=True,
    ),
    Tool(
        "list_events",
        "What happened, the newest first.",
        "ListEvents",
        journal.ListEventsRequest,
        journal.ListEventsResponse,
        {"table": _TABLE, "process_id": _PROCESS},
        is_list=True,
    ),
)

WRITING = (
    Tool(
        "optimize_table",
        "Begin to optimize a table. Rows stay the same; every commit is validated.",
        "OptimizeTable",
        pb.OptimizeTableRequest,
        pb.OptimizeTableResponse,
        {"table": _TABLE, "type": _TYPE},
        ("table",),
        dry=_EXPLAIN_PLAN,
    ),
    Tool(
        "cancel_process",
        "Cancel a process that has sent no commit.",
        "CancelProcess",
        pb.CancelProcessRequest,
        pb.Process,
        {"process_id": _PROCESS},
        ("process_id",),
        dry=_GET_RECEIPT,
    ),
    Tool(
        "set_enabled",
        "Have the coordinator optimize a table by itself, or not.",
        "SetTableEnabled",
        pb.SetTableEnabledRequest,
        pb.Table,
        {"table": _TABLE, "enabled": {"type": "boolean"}},
        ("table", "enabled"),
        dry=_GET_TABLE,
    ),
)


def tools(*, allow_writes: bool) -> tuple[Tool, ...]:
    """Those that are offered."""
    return (*READING, *(WRITING if allow_writes else ()))


def items_of(answer: type[Message]) -> str:
    """The field of a list's answer that holds its items."""
    return next(each.name for each in descriptor_of(answer).fields if each.is_repeated)


def descriptor_of(message: type[Message]) -> Descriptor:
    """The descriptor of a message, which has another type in protobuf's stubs where it is compiled."""
    return cast(Descriptor, message.DESCRIPTOR)
