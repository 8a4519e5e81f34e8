"""Updates and requirements of Iceberg's REST protocol, applied to table metadata of formats 1 to 3 as JSON values.

Results are those of Java's `TableMetadata.Builder`; unknown fields stay. InvalidArgument is what the protocol calls a
bad request; CommitConflict: the client has to look at the table again. Messages are worded as Iceberg's own.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from amoro_core.errors import CommitConflict, InvalidArgument

Json = Mapping[str, Any]
T = TypeVar("T")

_NEWEST = 3
_ROW_LINEAGE = 3  # the first format with row ids, and with defaults of columns
_LAST_ADDED = -1
_FIRST_FIELD = 1000  # of a partition
_MAIN = "main"
_NEW_TYPE = "timestamp_ns|timestamptz_ns|unknown|variant|geometry|geography"  # of format 3
_TYPE = re.compile(
    rf"(?:({_NEW_TYPE})|boolean|int|long|float|double|decimal|date|time|timestamp|timestamptz|string|uuid|fixed|binary)"
    r"(?:\s*[\[(][^\])]*[\])])?"
)
#: Properties that a new table does not keep: they say how it is made, or what it is.
_RESERVED = re.compile(
    "format-version|uuid|snapshot-count|current-(?:schema|snapshot-(?:id|summary|timestamp-ms))"
    "|default-(?:partition-spec|sort-order)"
)
#: Lists of which one item is the present one: the key of its id, that of the present id, and its name in words.
_SCHEMAS, _SPECS, _ORDERS = "schemas", "partition-specs", "sort-orders"
_PARTS = {
    _SCHEMAS: ("schema-id", "current-schema-id", "current schema"),
    _SPECS: ("spec-id", "default-spec-id", "default partition spec"),
    _ORDERS: ("order-id", "default-sort-order-id", "default sort order"),
}
_LISTS = (*_PARTS, "snapshots", "snapshot-log", "metadata-log", "statistics", "partition-statistics")
_MAPS = ("refs", "properties")


def field(value: Any, key: str, kind: type[T]) -> T:
    """The field of a request. Raises InvalidArgument unless it is there and of that kind."""
    result = value.get(key) if isinstance(value, Mapping) else None
    if not isinstance(result, kind) or (isinstance(result, bool) and kind is not bool):
        raise InvalidArgument(f"Cannot parse {key}: expected {kind.__name__}, found {result!r:.100}")
    return result


def normalised(metadata: Json) -> dict[str, Any]:
    """The metadata with what old writers of format 1 leave out; its lists and maps are copies."""
    result = dict(metadata)
    if not result.get(_SCHEMAS):
        schema = {"schema-id": 0, **result["schema"]}
        result |= {_SCHEMAS: [schema], "current-schema-id": schema["schema-id"]}
    if not result.get(_SPECS):
        fields = [{"field-id": _FIRST_FIELD + at, **item} for at, item in enumerate(result["partition-spec"])]
        result |= {_SPECS: [{"spec-id": 0, "fields": fields}], "default-spec-id": 0}
    if "last-partition-id" not in result:
        result["last-partition-id"] = max(map(_last_field, result[_SPECS]))
    if not result.get(_ORDERS):
        result |= {_ORDERS: [{"order-id": 0, "fields": []}], "default-sort-order-id": 0}
    if result.get("current-snapshot-id") in (None, -1):
        result["current-snapshot-id"] = None
    elif not result.get("refs"):
        result["refs"] = {_MAIN: {"snapshot-id": result["current-snapshot-id"], "type": "branch"}}
    copies = {key: list(result.get(key) or ()) for key in _LISTS}
    return {"last-sequence-number": 0, **result, **copies, **{key: {**(result.get(key) or {})} for key in _MAPS}}


#: Requirements of a number: the metadata's field, and its name in words. The requirement's field is its type's.
_NUMBERS = {
    "assert-last-assigned-field-id": ("last-column-id", "last assigned field id"),
    "assert-current-schema-id": ("current-schema-id", "current schema"),
    "assert-last-assigned-partition-id": ("last-partition-id", "last assigned partition id"),
    "assert-default-spec-id": ("default-spec-id", "default partition spec"),
    "assert-default-sort-order-id": ("default-sort-order-id", "default sort order"),
}


def is_create(requirements: Sequence[Json]) -> bool:
    """Whether the table must not exist. Raises InvalidArgument where more is required of such a table."""
    kinds = {field(requirement, "type", str) for requirement in requirements}
    if "assert-create" in kinds and len(kinds) > 1:
        raise InvalidArgument(f"Invalid create requirements: {sorted(kinds)}")
    return "assert-create" in kinds


def require(metadata: Json, requirements: Iterable[Json]) -> None:
    """Raise CommitConflict unless the normalised metadata is as required, InvalidArgument for what is not known."""
    for requirement in requirements:
        match field(requirement, "type", str):
            case "assert-create":
                problem = "table already exists"
            case "assert-table-uuid":
                wanted, actual = field(requirement, "uuid", str), str(metadata.get("table-uuid"))
                same = wanted.lower() == actual.lower()
                problem = "" if same else f"UUID does not match: expected {actual} != {wanted}"
            case "assert-ref-snapshot-id":
                problem = _ref_problem(metadata["refs"].get(field(requirement, "ref", str)), requirement)
            case kind if kind in _NUMBERS:
                place, words = _NUMBERS[kind]
                number = field(requirement, kind.removeprefix("assert-"), int)
                same = number == metadata[place]
                problem = "" if same else f"{words} changed: expected id {number} != {metadata[place]}"
            case kind:
                raise InvalidArgument(f"Cannot parse update requirement: unknown type {kind!r:.100}")
        if problem:
            raise CommitConflict(f"Requirement failed: {problem}")


def _ref_problem(ref: Json | None, requirement: Json) -> str:
    name, wanted = requirement["ref"], requirement.get("snapshot-id")
    if ref is None:
        return "" if wanted is None else f"branch or tag {name} is missing, expected {wanted}"
    if wanted is None:
        return f"{ref['type']} {name} was created concurrently"
    actual = ref["snapshot-id"]
    return "" if wanted == actual else f"{ref['type']} {name} has changed: expected id {wanted} != {actual}"


class _Draft:
    """Metadata under change, whose lists and maps are its own."""

    def __init__(self, metadata: dict[str, Any], now_ms: int) -> None:
        self.metadata = metadata
        self.now_ms = now_ms
        self.is_changed = self.has_removed = False
        self.added: dict[str, list[int]] = {key: [] for key in (*_PARTS, "snapshots")}
        self.last: dict[str, int | None] = dict.fromkeys(_PARTS)  # what -1 stands for
        self.been_current: list[int] = []

    @property
    def version(self) -> int:
        return int(self.metadata["format-version"])

    def put(self, key: str, value: Any) -> None:
        if self.metadata.get(key) != value:
            self.metadata[key] = value
            self.is_changed = True

    def snapshot(self, number: int) -> Json | None:
        return next((snapshot for snapshot in self.metadata["snapshots"] if snapshot["snapshot-id"] == number), None)

    def present(self, key: str) -> Json:
        """The present item of the list."""
        id_key, place, words = _PARTS[key]
        wanted = self.metadata[place]
        result: Json | None = next((item for item in self.metadata[key] if item[id_key] == wanted), None)
        if result is None:
            raise InvalidArgument(f"Cannot set {words} to unknown id: {wanted}")
        return result

    def apply(self, updates: Iterable[Json]) -> None:
        for update in updates:
            action = field(update, "action", str)
            if action not in _UPDATES:
                raise InvalidArgument(f"Cannot convert metadata update from json. Unrecognized action: {action:.100}")
            _UPDATES[action](self, update)

    def finished(self) -> dict[str, Any]:
        """The metadata as its format is written. Raises InvalidArgument where its parts don't fit together."""
        result, schema, spec = self.metadata, self.present(_SCHEMAS), self.present(_SPECS)
        _require_sources(schema, spec, "partition")
        _require_sources(schema, self.present(_ORDERS), "sort")
        self._correct_log()
        result["last-updated-ms"] = max(result["last-updated-ms"], self.now_ms)
        for key in ("schema", "partition-spec"):
            result.pop(key, None)
        if self.version == 1:
            result |= {"schema": schema, "partition-spec": spec["fields"]}
            del result["last-sequence-number"]
        if self.version >= _ROW_LINEAGE:
            result.setdefault("next-row-id", 0)
        elif result["current-snapshot-id"] is None:
            result["current-snapshot-id"] = -1
        return result

    def _correct_log(self) -> None:
        """Removes entries of intermediate and of removed snapshots from the log, and what is before a removed one."""
        metadata, current = self.metadata, self.metadata["current-snapshot-id"]
        passed = {number for number in self.been_current if number in self.added["snapshots"] and number != current}
        if not passed and not self.has_removed:
            return
        present, log = {item["snapshot-id"] for item in metadata["snapshots"]}, list[Json]()
        for entry in metadata["snapshot-log"]:
            if entry["snapshot-id"] not in present and self.has_removed:
                log.clear()
            elif entry["snapshot-id"] in present - passed:
                log.append(entry)
        if current in present and (not log or log[-1]["snapshot-id"] != current):
            raise InvalidArgument("Cannot set invalid snapshot log: latest entry is not the current snapshot")
        metadata["snapshot-log"] = log


def updated(metadata: Json, updates: Iterable[Json], now_ms: int, location: str) -> dict[str, Any] | None:
    """The normalised metadata, of the file at `location`, after the updates; None when they change nothing.

    Raises InvalidArgument and CommitConflict. `metadata` is not changed.
    """
    draft = _Draft(normalised(metadata), now_ms)
    draft.apply(updates)
    if not draft.is_changed:
        return None
    log = draft.metadata["metadata-log"]
    most = max(1, _number(draft.metadata["properties"], "write.metadata.previous-versions-max", 100))
    entry = {"timestamp-ms": metadata["last-updated-ms"], "metadata-file": location}
    draft.metadata["metadata-log"] = [*log[max(0, len(log) - most + 1) :], entry]
    return draft.finished()


def created(updates: Sequence[Json], now_ms: int) -> dict[str, Any]:
    """The metadata of a table that a transaction creates by updates alone. Raises InvalidArgument."""
    versions = (update["format-version"] for update in updates if update.get("action") == "upgrade-format-version")
    version = next(versions, 2)
    if isinstance(version, bool) or version not in range(1, _NEWEST + 1):
        raise InvalidArgument(f"Unsupported format version: v{version} (supported: v{_NEWEST})")
    numbers = ("last-sequence-number", "last-updated-ms", "last-column-id", "last-partition-id")
    empty = {"format-version": version, "table-uuid": str(uuid.uuid4()), "location": "", **dict.fromkeys(numbers, 0)}
    empty |= {place: 0 for _, place, _ in _PARTS.values()}
    empty |= {"current-snapshot-id": None, **{key: [] for key in _LISTS}, **{key: {} for key in _MAPS}}
    draft = _Draft(empty, now_ms)
    draft.apply(updates)
    if not draft.metadata["location"]:
        raise InvalidArgument("Cannot create a table without a location")
    return draft.finished()


def new_table(
    schema: Json, spec: Json | None, order: Json | None, location: str, properties: Mapping[str, str], now_ms: int
) -> dict[str, Any]:
    """The metadata of a new table, its columns and partition fields with new ids. Raises InvalidArgument."""
    version, ids = _number(properties, "format-version", 2), dict[int, int]()
    fresh = _fresh(_checked(schema, version), ids)
    if identifiers := schema.get("identifier-field-ids"):
        fresh["identifier-field-ids"] = [ids[identifier] for identifier in identifiers]

    def of_fresh(item: Json | None) -> list[dict[str, Any]]:
        fields = field(item, "fields", list) if item else []
        return [{**item, "source-id": ids.get(field(item, "source-id", int), -1)} for item in fields]

    fields = [{**item, "field-id": _FIRST_FIELD + at} for at, item in enumerate(of_fresh(spec))]
    match = {key: value for key, value in properties.items() if not _RESERVED.fullmatch(key)}
    updates = (
        {"action": "upgrade-format-version", "format-version": version},
        {"action": "add-schema", "schema": {**fresh, "schema-id": 0}},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": fields}},
        {"action": "set-default-spec", "spec-id": _LAST_ADDED},
        {"action": "add-sort-order", "sort-order": {"order-id": 1, "fields": of_fresh(order)}},
        {"action": "set-default-sort-order", "sort-order-id": _LAST_ADDED},
        {"action": "set-location", "location": location},
        {"action": "set-properties", "updates": {"write.parquet.compression-codec": "zstd", **match}},
    )
    return created(updates, now_ms)


def _number(properties: Mapping[str, str], key: str, default: int) -> int:
    try:
        return int(properties.get(key, default))
    except ValueError as error:
        raise InvalidArgument(f"Cannot parse property {key} as a number: {properties[key]!r:.100}") from error


def _upgrade(draft: _Draft, update: Json) -> None:
    version = field(update, "format-version", int)
    if version > _NEWEST:
        raise InvalidArgument(f"Cannot upgrade table to unsupported format version: v{version} (supported: v{_NEWEST})")
    if version < draft.version:
        raise InvalidArgument(f"Cannot downgrade v{draft.version} table to v{version}")
    draft.put("format-version", version)


def _walk(kind: Any, path: str = "") -> Iterator[tuple[int, str, Json]]:
    """Every field below a type: its id, its full name, and `type` with what else a field of a struct has."""
    if isinstance(kind, str):
        return
    fields: list[tuple[int, str, Json]] = []
    match field(kind, "type", str):
        case "struct":
            fields = [(field(item, "id", int), field(item, "name", str), item) for item in field(kind, "fields", list)]
        case "list":
            fields = [(field(kind, "element-id", int), "element", {"type": kind.get("element")})]
        case "map":
            fields = [(field(kind, f"{part}-id", int), part, {"type": kind.get(part)}) for part in ("key", "value")]
        case other:
            raise InvalidArgument(f"Cannot parse type from json: {other!r:.100}")
    for number, name, item in fields:
        yield number, path + name, item
        yield from _walk(item.get("type"), f"{path}{name}.")


def _columns(schema: Json) -> dict[int, tuple[str, Any]]:
    return {number: (name, item["type"]) for number, name, item in _walk({**schema, "type": "struct"})}


def _checked(schema: Json, version: int) -> dict[str, Any]:
    """The schema, as a struct. Raises InvalidArgument for one that no table of that format can have."""
    struct, names, ids = {**schema, "type": "struct"}, set[str](), set[int]()
    for number, name, item in _walk(struct):
        if name in names or number in ids:
            raise InvalidArgument(f"Invalid schema: multiple fields for name {name} or id {number}")
        names.add(name)
        ids.add(number)
        kind, default, problem = item.get("type"), item.get("initial-default"), ""
        if isinstance(kind, str):
            match = _TYPE.fullmatch(kind)
            if match is None:
                raise InvalidArgument(f"Cannot parse type string to primitive: {kind!r:.100}")
            if match[1]:
                problem = f"Invalid type for {name}: {kind} is not supported until v{_ROW_LINEAGE}"
        if default is not None:
            problem = f"Invalid initial default for {name}: {default!r:.100} is not supported until v{_ROW_LINEAGE}"
        if problem and version < _ROW_LINEAGE:
            raise InvalidArgument(f"Invalid schema for v{version}:\n- {problem}")
    if unknown := set(schema.get("identifier-field-ids") or ()) - ids:
        raise InvalidArgument(f"Cannot add fields {sorted(unknown)} as identifier fields: not found in the schema")
    return struct


def _fresh(kind: Any, ids: dict[int, int]) -> Any:
    """The type with ids from 1 on, those of a struct before those within its fields; `ids` has them by the old ones."""
    if isinstance(kind, str):
        return kind
    inner = [key for key in ("element", "key", "value") if key in kind]
    new: dict[str, Any] = {f"{key}-id": ids.setdefault(kind[f"{key}-id"], len(ids) + 1) for key in inner}
    fields = [{**item, "id": ids.setdefault(item["id"], len(ids) + 1)} for item in kind.get("fields", ())]
    if kind["type"] == "struct":
        new["fields"] = [{**field, "type": _fresh(field["type"], ids)} for field in fields]
    return {**kind, **new, **{key: _fresh(kind[key], ids) for key in inner}}


def _plain(value: Any) -> Any:
    """The value without fields that are null, to compare two."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _add(draft: _Draft, key: str, item: Json, same: Json | None, first: int) -> None:
    """Add the item under the next id from `first` on; the same one keeps its id."""
    id_key, last = _PARTS[key][0], draft.last[key]
    if same is None:
        number = max((first, *(item[id_key] + 1 for item in draft.metadata[key])))
        draft.metadata[key].append({**item, id_key: number})
        draft.added[key].append(number)
        draft.last[key], draft.is_changed = number, True
    elif last is None or (same[id_key] if key == _SCHEMAS else last) not in draft.added[key]:
        draft.last[key] = None  # -1 names nothing that this request has not added
    else:
        draft.last[key] = same[id_key]


def _set(key: str, name: str, draft: _Draft, update: Json) -> None:
    wanted: int | None = field(update, name, int)
    if wanted == _LAST_ADDED:
        wanted, words = draft.last[key], _PARTS[key][2].split(" ", 1)[1].removeprefix("partition ")
        if wanted is None:
            raise InvalidArgument(f"Cannot set last added {words}: no {words} has been added")
    draft.put(_PARTS[key][1], wanted)
    draft.present(key)


def _remove(key: str, draft: _Draft, update: Json) -> None:
    id_key, place, words = _PARTS[key]
    going = set(field(update, f"{id_key}s", list))
    if draft.metadata[place] in going:
        raise InvalidArgument(f"Cannot remove the {words}")
    draft.metadata[key] = [item for item in draft.metadata[key] if item[id_key] not in going]
    draft.is_changed |= bool(going)


def _add_schema(draft: _Draft, update: Json) -> None:
    schema = _checked(field(update, "schema", dict), draft.version)

    def key(item: Json) -> Any:
        return _plain(item["fields"]), set(item.get("identifier-field-ids") or ())

    same = next((item for item in draft.metadata[_SCHEMAS] if key(item) == key(schema)), None)
    _add(draft, _SCHEMAS, schema, same, draft.metadata["current-schema-id"])
    draft.put("last-column-id", max((draft.metadata["last-column-id"], *_columns(schema))))


_TIMESTAMP = "timestamp(?:tz)?(?:_ns)?"
#: The types that a transform takes, where it does not take all.
_SOURCES = {
    "bucket": rf"int|long|decimal.*|date|time|{_TIMESTAMP}|string|uuid|fixed.*|binary",
    "truncate": "int|long|decimal.*|string|binary",
    **dict.fromkeys(("year", "month", "day"), f"date|{_TIMESTAMP}"),
    "hour": _TIMESTAMP,
}


def _require_sources(schema: Json, item: Json, verb: str) -> None:
    """Raise InvalidArgument unless each field is made of columns with a primitive type; void ones may lack theirs."""
    columns = _columns(schema)
    for part in item["fields"]:
        for source in part.get("source-ids") or [field(part, "source-id", int)]:
            if field(part, "transform", str) == "void":
                continue
            if source not in columns:
                raise InvalidArgument(f"Cannot find source column for {verb} field: {part}")
            (name, kind), transform = columns[source], part["transform"].partition("[")[0]
            if not isinstance(kind, str) or not re.fullmatch(_SOURCES.get(transform, ".*"), kind):
                raise InvalidArgument(f"Invalid source type {kind!r:.100} of {name} for transform: {part['transform']}")


def _last_field(spec: Json) -> int:
    return max((item["field-id"] for item in spec["fields"]), default=_FIRST_FIELD - 1)


def _add_spec(draft: _Draft, update: Json) -> None:
    spec = field(update, "spec", dict)
    given = enumerate(field(spec, "fields", list))
    fields = [
        {**item, "field-id": _FIRST_FIELD + at if item.get("field-id") is None else item["field-id"]}
        for at, item in given
    ]
    _require_sources(draft.present(_SCHEMAS), {"fields": fields}, "partition")
    if len({field(item, "name", str) for item in fields}) < len(fields):
        raise InvalidArgument(f"Cannot use partition name more than once: {fields}")
    ids = [item["field-id"] for item in fields]
    if draft.version == 1 and ids != [*range(_FIRST_FIELD, _FIRST_FIELD + len(fields))]:
        raise InvalidArgument(f"Spec does not use sequential IDs that are required in v1: {fields}")

    def key(spec: Json) -> Any:
        return [(part.get("source-id"), part["transform"], part["name"]) for part in spec["fields"]]

    same = next((item for item in draft.metadata[_SPECS] if key(item) == key({"fields": fields})), None)
    _add(draft, _SPECS, {**spec, "fields": fields}, same, 0)
    if same is None:
        last = _last_field({"fields": fields})
        draft.metadata["last-partition-id"] = max(draft.metadata["last-partition-id"], last)


def _add_sort_order(draft: _Draft, update: Json) -> None:
    order = field(update, "sort-order", dict)
    fields = field(order, "fields", list)
    _require_sources(draft.present(_SCHEMAS), order, "sort")
    same = next((item for item in draft.metadata[_ORDERS] if _plain(item["fields"]) == _plain(fields)), None)
    if same is None and not fields:  # no order has the id 0 everywhere
        draft.metadata[_ORDERS].insert(0, {"order-id": 0, "fields": []})
        draft.added[_ORDERS], draft.last[_ORDERS], draft.is_changed = [*draft.added[_ORDERS], 0], 0, True
    else:
        _add(draft, _ORDERS, order, same, 1)


def _add_snapshot(draft: _Draft, update: Json) -> None:
    snapshot, metadata = field(update, "snapshot", dict), draft.metadata
    number, problem = field(snapshot, "snapshot-id", int), ""
    field(snapshot, "timestamp-ms", int)
    draft.present(_SCHEMAS)
    if draft.snapshot(number) is not None:
        raise InvalidArgument(f"Snapshot already exists for id: {number}")
    if draft.version > 1:
        field(snapshot, "manifest-list", str)
        sequence, last = field(snapshot, "sequence-number", int), metadata["last-sequence-number"]
        if sequence <= last and snapshot.get("parent-snapshot-id") is not None:
            problem = f"Cannot add snapshot with sequence number {sequence} older than last sequence number {last}"
        # One that replaces the table may be older. The table's number stays then: Java lets it go back.
        metadata["last-sequence-number"] = max(sequence, last)
    if draft.version >= _ROW_LINEAGE:
        if snapshot.get("first-row-id") is None:
            raise InvalidArgument("Cannot add a snapshot: first-row-id is null")
        first, following = field(snapshot, "first-row-id", int), metadata.get("next-row-id") or 0
        if first < following:
            problem = f"Cannot add a snapshot, first-row-id is behind table next-row-id: {first} < {following}"
        metadata["next-row-id"] = first + field(snapshot, "added-rows", int)  # Java gives ids twice after a gap
    if problem:
        raise CommitConflict(f"Validation failed, please retry: {problem}")
    metadata["snapshots"].append(snapshot)
    draft.added["snapshots"].append(number)
    draft.is_changed = True


def _set_ref(draft: _Draft, update: Json) -> None:
    name, number, kind = field(update, "ref-name", str), field(update, "snapshot-id", int), field(update, "type", str)
    ref: dict[str, Any] = {"snapshot-id": number, "type": kind.lower()}
    metadata = draft.metadata
    for key in ("min-snapshots-to-keep", "max-snapshot-age-ms", "max-ref-age-ms"):
        if update.get(key) is not None:
            if ref["type"] == "tag" and key != "max-ref-age-ms":
                raise InvalidArgument(f"Tags do not support setting {key}")
            ref[key] = field(update, key, int)
            if ref[key] <= 0:
                raise InvalidArgument(f"{key} must be greater than 0: {ref[key]}")
    if _plain(metadata["refs"].get(name)) == ref:
        return
    if (snapshot := draft.snapshot(number)) is None:
        raise InvalidArgument(f"Cannot set {name} to unknown snapshot: {number}")
    if ref["type"] not in ("branch", "tag") or (name == _MAIN and ref["type"] == "tag"):
        raise InvalidArgument(
            f"Cannot set {name} to a {kind:.20}, it must be a branch{'' if name == _MAIN else ' or tag'}"
        )
    if name == _MAIN:
        metadata["current-snapshot-id"] = number
        draft.been_current.append(number)
        at_ms = snapshot["timestamp-ms"] if number in draft.added["snapshots"] else draft.now_ms
        metadata["snapshot-log"].append({"timestamp-ms": at_ms, "snapshot-id": number})
    metadata["refs"][name] = ref
    draft.is_changed = True


def _remove_ref(draft: _Draft, update: Json) -> None:
    name = field(update, "ref-name", str)
    if name == _MAIN:
        draft.metadata["current-snapshot-id"] = None
    draft.is_changed |= draft.metadata["refs"].pop(name, None) is not None


def _remove_snapshots(draft: _Draft, update: Json) -> None:
    going, metadata = set(field(update, "snapshot-ids", list)), draft.metadata
    rest = [item for item in metadata["snapshots"] if item["snapshot-id"] not in going]
    if len(rest) == len(metadata["snapshots"]):
        return
    metadata["snapshots"] = rest
    draft.is_changed = draft.has_removed = True
    for key in ("statistics", "partition-statistics"):
        metadata[key] = [item for item in metadata[key] if item["snapshot-id"] not in going]
    for name in [name for name, ref in metadata["refs"].items() if draft.snapshot(ref["snapshot-id"]) is None]:
        _remove_ref(draft, {"ref-name": name})


def _put_item(key: str, name: str, id_key: str, kind: type[T], draft: _Draft, update: Json) -> None:
    """Put the item of an update into a list, instead of that of the same id."""
    item = field(update, name, dict)
    number = field(item, id_key, kind)
    draft.put(key, [*(other for other in draft.metadata.get(key) or () if other[id_key] != number), item])


def _remove_item(key: str, id_key: str, kind: type[T], draft: _Draft, update: Json) -> None:
    number, items = field(update, id_key, kind), draft.metadata.get(key) or []
    draft.put(key, [item for item in items if item[id_key] != number])


def _set_properties(draft: _Draft, update: Json) -> None:
    texts = field(update, "updates" if "updates" in update else "updated", dict)
    if not all(isinstance(text, str) for text in texts.values()):
        raise InvalidArgument("Cannot parse updates: the values of properties are texts")
    draft.metadata["properties"] |= texts
    draft.is_changed |= bool(texts)


def _remove_properties(draft: _Draft, update: Json) -> None:
    keys = field(update, "removals" if "removals" in update else "removed", list)
    for key in keys:
        draft.metadata["properties"].pop(key, None)
    draft.is_changed |= bool(keys)


_UPDATES: Mapping[str, Callable[[_Draft, Json], None]] = {
    "assign-uuid": lambda draft, update: draft.put("table-uuid", field(update, "uuid", str)),
    "upgrade-format-version": _upgrade,
    "add-schema": _add_schema,
    "set-current-schema": partial(_set, _SCHEMAS, "schema-id"),
    "remove-schemas": partial(_remove, _SCHEMAS),
    "add-spec": _add_spec,
    "set-default-spec": partial(_set, _SPECS, "spec-id"),
    "remove-partition-specs": partial(_remove, _SPECS),
    "add-sort-order": _add_sort_order,
    "set-default-sort-order": partial(_set, _ORDERS, "sort-order-id"),
    "add-snapshot": _add_snapshot,
    "set-snapshot-ref": _set_ref,
    "remove-snapshots": _remove_snapshots,
    "remove-snapshot-ref": _remove_ref,
    "set-location": lambda draft, update: draft.put("location", field(update, "location", str).rstrip("/")),
    "set-properties": _set_properties,
    "remove-properties": _remove_properties,
    "set-statistics": partial(_put_item, "statistics", "statistics", "snapshot-id", int),
    "remove-statistics": partial(_remove_item, "statistics", "snapshot-id", int),
    "set-partition-statistics": partial(_put_item, "partition-statistics", "partition-statistics", "snapshot-id", int),
    "remove-partition-statistics": partial(_remove_item, "partition-statistics", "snapshot-id", int),
    "add-encryption-key": partial(_put_item, "encryption-keys", "encryption-key", "key-id", str),
    "remove-encryption-key": partial(_remove_item, "encryption-keys", "key-id", str),
}
