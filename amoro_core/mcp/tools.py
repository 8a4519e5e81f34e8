"""The tools of the MCP server: one operation each, with documents cleaned of texts that may instruct."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from amoro_core.documents.json_documents import answer_type, message_schema, request_type
from amoro_core.model.text_sanitizing import without_secrets

#: Of a document: the answer holds it twice, as data and as text, and stays below 25 kB.
MOST_BYTES = 12_000
#: How long texts and lists may be, tried in this order until a document is small enough.
_STEPS = ((2000, 100), (500, 30), (200, 10), (80, 3), (30, 1))


def cleaned(value: Any, key: str = "") -> Any:
    """The value without control and bidirectional characters and without secrets; ids as text.

    Ids are of 64 bits, and JavaScript rounds whole numbers above 2^53.
    """
    if isinstance(value, Mapping):
        return {clean_text(name): cleaned(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item, key) for item in value]
    if isinstance(value, str):
        return clean_text(value)
    return str(value) if is_id(key) and isinstance(value, int) and not isinstance(value, bool) else value


def clean_text(text: str) -> str:
    """The text on one line: breaks become blanks, and other invisible characters are removed."""
    safe = without_secrets(text)
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in safe)


def is_id(key: str) -> bool:
    """Whether a field of that name is an id, or several."""
    return key.endswith(("_id", "_ids"))


def with_text_ids(schema: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """The JSON Schema of documents as `cleaned` gives them."""
    result = dict(schema)
    if is_id(key) and result.get("type") == "integer":
        result["type"] = "string"
    elif is_id(key) and isinstance(result.get("type"), list):
        result["type"] = ["string" if type_ == "integer" else type_ for type_ in result["type"]]
    if isinstance(result.get("items"), Mapping):
        result["items"] = with_text_ids(result["items"], key)
    if isinstance(result.get("properties"), Mapping):
        result["properties"] = {name: with_text_ids(item, name) for name, item in result["properties"].items()}
    return result


def size_of(document: Mapping[str, Any]) -> int:
    """How many bytes its JSON takes."""
    return len(json.dumps(document))


def fitted(document: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The document with long texts and lists cut as far as needed, and whether that was needed."""
    if size_of(document) <= MOST_BYTES:
        return document, False
    small = document
    for longest, most in _STEPS:
        small = _cut(document, longest, most)
        if size_of(small) <= MOST_BYTES:
            break
    return small, True


def _cut(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, Mapping):
        # A map of properties is cut, too; a document has fewer fields than any step allows for a map.
        return {name: _cut(item, longest, most) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, longest, most) for item in value[:most]]
    if isinstance(value, str) and len(value) > longest:
        return f"{value[: longest - 1]}…"
    return value


#: How many items of a list an answer has, unless fewer are asked for or fit.
ITEMS = 20

Schema = Mapping[str, Any]


def _text(about: str) -> Schema:
    return {"type": "string", "description": about}


_TABLE = _text("The table's full name: catalog.namespace.table")
_PROCESS = _text("The process's id, or six or more characters of its beginning or end")
_TYPE = {**_text("How much to rewrite; left out: what the table needs"), "enum": ["minor", "major", "full"]}
_DRY_RUN: Schema = {
    "type": "boolean",
    "default": True,
    "description": "true, as by default: change nothing, and answer what it is about",
}


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that asks one operation; one that writes asks another one, which only reads, for a dry run."""

    name: str
    about: str
    method: str
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
        properties = {name: dict(schema) for name, schema in {**self.arguments, **more}.items()}
        return {"type": "object", "properties": properties, "required": [*self.required], "additionalProperties": False}

    def output_schema(self) -> dict[str, Any]:
        """The JSON Schema of its answers."""
        more = {"is_shortened": {"type": "boolean", "description": "Texts or lists were cut to keep the answer small"}}
        answer = with_text_ids(message_schema(answer_type(self.method)))
        if self.dry is None:
            return {**answer, "properties": {**answer["properties"], **more}}
        would = with_text_ids(message_schema(answer_type(self.dry.method)))
        parts = {"dry_run": {"type": "boolean"}, **more, "would": would, "done": answer}
        return {"type": "object", "properties": parts, "required": ["dry_run"]}

    def message(self, arguments: Mapping[str, Any]) -> Message:
        """The request for arguments that are known to be of its schema."""
        own = {name: value for name, value in arguments.items() if name != "dry_run"}
        result: Message = GetMessageClass(request_type(self.method))(**{**self.fixed, **own})
        return result


_GET_TABLE = Tool(
    "get_table",
    "One table as the coordinator knows it: state, why it is not optimized, files, deletes, group.",
    "GetTable",
    {"table": _TABLE},
    ("table",),
    {"known_only": True},
)
_GET_RECEIPT = Tool(
    "get_receipt",
    "One process with its receipt: snapshots, files and rows before and after, failure.",
    "GetProcess",
    {"process_id": _PROCESS},
    ("process_id",),
)
_EXPLAIN_PLAN = Tool(
    "explain_plan",
    "What optimizing a table would rewrite now, and why. Reads the table's metadata, changes nothing.",
    "PlanTable",
    {"table": _TABLE, "type": _TYPE},
    ("table",),
)

READING = (
    Tool("status", "Version, start and counts.", "GetStatus"),
    Tool("list_conditions", "What is wrong now, the worst first, and what to do about it.", "ListConditions"),
    Tool(
        "list_tables",
        "Tables, those that optimizing would save most files first.",
        "ListTables",
        {
            "catalog": _text("Only tables of this catalog"),
            "state": _text("Only tables in this state: healthy, due, observed, optimizing, failing, refused or new"),
            "status": _text("Only tables in this status of Amoro's, such as pending or refused"),
            "group": _text("Only tables of this optimizer group"),
            "text": _text("Only tables with this text in their names"),
        },
        fixed={"sort": "saving", "order": "desc"},
        is_list=True,
    ),
    _GET_TABLE,
    _EXPLAIN_PLAN,
    Tool(
        "list_processes",
        "Processes, the newest first.",
        "ListProcesses",
        {"table": _TABLE, "status": _text("Only processes in this status, such as running or failed")},
        is_list=True,
    ),
    _GET_RECEIPT,
    Tool("list_groups", "Optimizer groups.", "ListGroups", is_list=True),
    Tool(
        "list_optimizers",
        "Registered optimizers.",
        "ListOptimizers",
        {"group": _text("Only optimizers of this group")},
        is_list=True,
    ),
    Tool(
        "list_events",
        "What happened, the newest first.",
        "ListEvents",
        {"table": _TABLE, "process_id": _PROCESS},
        is_list=True,
    ),
)

WRITING = (
    Tool(
        "optimize_table",
        "Begin to optimize a table. Rows stay the same; every commit is validated.",
        "OptimizeTable",
        {"table": _TABLE, "type": _TYPE},
        ("table",),
        dry=_EXPLAIN_PLAN,
    ),
    Tool(
        "cancel_process",
        "Cancel a process that has sent no commit.",
        "CancelProcess",
        {"process_id": _PROCESS},
        ("process_id",),
        dry=_GET_RECEIPT,
    ),
    Tool(
        "set_enabled",
        "Have the coordinator optimize a table by itself, or not.",
        "SetTableEnabled",
        {"table": _TABLE, "enabled": {"type": "boolean"}},
        ("table", "enabled"),
        dry=_GET_TABLE,
    ),
)


def tools(*, allow_writes: bool) -> tuple[Tool, ...]:
    """Those that are offered."""
    return (*READING, *(WRITING if allow_writes else ()))
