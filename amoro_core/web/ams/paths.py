"""The paths: for each the operations that are asked, and the part of the answers that the query wants."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from amoro_core.admin.dispatcher import Operations
from amoro_core.errors import AmoroError, MalformedRequest, NotFound, TableNotFound
from amoro_core.model.paging import PAGE
from amoro_core.model.principals import Principal
from amoro_core.model.tables import TableIdentifier, parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2
from amoro_core.web.ams import shapes
from amoro_core.web.ams.shapes import Json

#: How far a list is read: what lies beyond has cursors below /api/v1.
FARTHEST = 10_000
_PAGE_SIZE = 20
_ALL = "all"
_QUOTA = "self-optimizing.quota"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request by an account for one of the paths."""

    operations: Operations
    principal: Principal
    path: Mapping[str, str]
    query: Mapping[str, str]

    async def ask(self, method: str, request: Message) -> Any:
        """The answer of the operation. Raises its errors."""
        return await self.operations.call(method, request, self.principal)

    async def walk(self, method: str, request: Any, items: str, most: int = FARTHEST) -> tuple[list[Any], int]:
        """At most so many items of a list, from its start, and how many there are in all."""
        found: list[Any] = []
        while True:
            request.limit = min(PAGE, most - len(found))
            answer = await self.ask(method, request)
            found += getattr(answer, items)
            if not answer.next or len(found) >= most:
                return found, answer.total
            request.after = answer.next


async def catalogs(asked: Asked) -> list[Json]:
    """`catalogs`."""
    found, _ = await asked.walk("ListCatalogs", pb.ListCatalogsRequest(), "catalogs")
    return [shapes.catalog(one) for one in found]


async def databases(asked: Asked) -> list[str]:
    """`catalogs/{catalog}/databases`: the namespaces that have tables."""
    wanted = asked.query.get("keywords", "").strip()
    found = sorted({shapes.database_of(one) for one in await _tables_of(asked)})
    return [name for name in found if wanted in name]


async def tables(asked: Asked) -> list[Json]:
    """`catalogs/{catalog}/databases/{db}/tables`."""
    wanted, database = asked.query.get("keywords", "").strip(), asked.path["db"]
    known, _ = await asked.walk("ListTables", pb.ListTablesRequest(catalog=asked.path["catalog"]), "tables")
    formats = {one.table: one.format for one in known if one.format}
    found = [one for one in await _tables_of(asked) if shapes.database_of(one) == database and wanted in one.name]
    shown = (shapes.table_of_list(one, formats.get(str(one), "iceberg")) for one in found)
    return sorted(shown, key=lambda one: (one["type"], one["name"]))


async def details(asked: Asked) -> Json:
    """`…/tables/{table}/details`."""
    table = await _table(asked)
    state = await asked.ask("GetTable", pb.GetTableRequest(table=str(table)))
    metadata = await asked.ask("GetTableMetadata", snapshots_pb2.GetTableMetadataRequest(table=str(table)))
    return shapes.details(table, state, metadata)


async def snapshots(asked: Asked) -> Json:
    """`…/tables/{table}/snapshots` of a branch or tag, by default main; `operation` says whose."""
    table, operation = await _table(asked), asked.query.get("operation", "all")
    if operation not in ("all", "optimizing", "non-optimizing"):
        raise MalformedRequest(f"{operation!r} is no operation", hint="One of: all, optimizing, non-optimizing.")
    known, _ = await asked.walk("ListSnapshots", pb.ListSnapshotsRequest(table=str(table)), "snapshots")
    found = [
        one
        for one in shapes.chain(known, asked.query.get("ref") or "main")
        if operation == "all" or (shapes.producer_of(one) == "OPTIMIZE") == (operation == "optimizing")
    ]
    return _page([shapes.snapshot(one) for one in _cut(asked, found)], len(found))


async def processes(asked: Asked) -> Json:
    """`…/tables/{table}/optimizing-processes`; those of optimizing unless the query names a type or category."""
    table, wanted = await _table(asked), _wanted_processes(asked.query)
    known, _ = await asked.walk("ListProcesses", pb.ListProcessesRequest(table=str(table)), "processes")
    found, table_id, now_ms = [one for one in known if wanted(one)], await _table_id(asked, table), _now_ms()
    return _page([shapes.process(one, table, table_id, now_ms) for one in _cut(asked, found)], len(found))


async def tasks(asked: Asked) -> Json:
    """`…/optimizing-processes/{process}/tasks`."""
    table, (offset, size) = await _table(asked), _window(asked)
    request = pb.ListTasksRequest(process_id=asked.path["process"])
    process = await asked.ask("GetProcess", pb.GetProcessRequest(process_id=request.process_id))
    if process.table != str(table):
        raise NotFound(f"process {process.process_id} is of {process.table}, not of {table}")
    found, total = await asked.walk("ListTasks", request, "tasks", offset + size)
    table_id = await _table_id(asked, table)
    return _page([shapes.task(one, process.process_id, table_id) for one in found[offset:]], total)


async def groups(asked: Asked) -> list[Json]:
    """`optimize/resourceGroups`."""
    found, optimizers = await _groups(asked), await _optimizers(asked)
    return [shapes.group(one, optimizers) for one in found]


async def tables_of_group(asked: Asked) -> Json:
    """`optimize/optimizerGroups/{group}/tables`; of all groups for "all"."""
    name, now_ms = asked.path["group"], _now_ms()
    request = pb.ListTablesRequest(group="" if name == _ALL else name)
    owners = {one.name: one for one in await _groups(asked) if name in (_ALL, one.name)}
    if not owners:
        raise NotFound(f"there is no group {name!r}")
    wanted = _wanted_tables(asked)
    if wanted is None:
        offset, size = _window(asked)
        known, total = await asked.walk("ListTables", request, "tables", offset + size)
        found: Sequence[pb.Table] = known[offset:]
    else:
        known, _ = await asked.walk("ListTables", request, "tables")
        every = [one for one in known if wanted(one)]
        found, total = _cut(asked, every), len(every)
    uses: dict[str, pb.GroupUse] = {}
    for group in sorted({one.group for one in found} & set(owners)):
        used = await asked.ask("GetGroup", pb.GetGroupRequest(name=group))
        uses |= {one.table: one for one in used.uses}
    shown = []
    for one in found:
        use = uses.get(one.table)
        quota = use.quota if use else await _quota(asked, one.table)
        threads = owners[one.group].threads if one.group in owners else 0
        shown.append(shapes.optimizing_table(parse_table(one.table), one, quota, use, threads, now_ms))
    return _page(shown, total)


async def optimizers(asked: Asked) -> Json:
    """`optimize/optimizerGroups/{group}/optimizers`, the newest first; of all groups for "all"."""
    name, containers = asked.path["group"], {one.name: one.container for one in await _groups(asked)}
    if name != _ALL and name not in containers:
        raise NotFound(f"there is no group {name!r}")
    known = [one for one in await _optimizers(asked) if name in (_ALL, one.group)]
    known.sort(key=lambda one: -one.registered_ms)
    shown = [shapes.optimizer(one, containers.get(one.group, "external")) for one in _cut(asked, known)]
    return _page(shown, len(known))


_TABLE = "tables/catalogs/{catalog}/dbs/{db}/tables/{table}"
#: Every path that needs an account.
PATHS: Mapping[str, Callable[[Asked], Awaitable[Any]]] = {
    "catalogs": catalogs,
    "catalogs/{catalog}/databases": databases,
    "catalogs/{catalog}/databases/{db}/tables": tables,
    f"{_TABLE}/details": details,
    f"{_TABLE}/snapshots": snapshots,
    f"{_TABLE}/optimizing-processes": processes,
    f"{_TABLE}/optimizing-processes/{{process}}/tasks": tasks,
    "optimize/resourceGroups": groups,
    "optimize/optimizerGroups/{group}/tables": tables_of_group,
    "optimize/optimizerGroups/{group}/optimizers": optimizers,
}


async def _tables_of(asked: Asked) -> list[TableIdentifier]:
    """The tables of the path's catalog, which is asked for them. Raises CatalogNotFound and what listing raises."""
    name = asked.path["catalog"]
    await asked.ask("GetCatalog", pb.GetCatalogRequest(name=name))
    quoted = name.replace("`", "``")
    try:
        found = await asked.ask("SelectTables", pb.SelectTablesRequest(names=[f"`{quoted}`.*"]))
    except TableNotFound:
        return []
    for one in found.unlisted:
        raise AmoroError(f"catalog {one.catalog} can't be listed: {one.message}", hint=one.hint)
    known = (parse_table(text) for text in found.tables)
    return [one for one in known if one.catalog == name]


async def _table(asked: Asked) -> TableIdentifier:
    """The path's table. Raises CatalogNotFound; whether the table is there is not looked at."""
    catalog, database, name = (asked.path[key] for key in ("catalog", "db", "table"))
    # A first part that is no catalog would be taken for a namespace of the only one.
    await asked.ask("GetCatalog", pb.GetCatalogRequest(name=catalog))
    return TableIdentifier(catalog, tuple(database.split(".")), name)


async def _table_id(asked: Asked, table: TableIdentifier) -> int:
    """The table's number; 0 while it is not known."""
    try:
        state = await asked.ask("GetTable", pb.GetTableRequest(table=str(table), known_only=True))
    except TableNotFound:
        return 0
    return int(state.table_id)


async def _quota(asked: Asked, table: str) -> float:
    request = pb.GetTablePropertiesRequest(table=table, known_only=True)
    found = await asked.ask("GetTableProperties", request)
    text = next((one.value for one in found.properties if one.key == _QUOTA), "")
    try:
        return float(text)
    except ValueError:
        return 0.0  # a malformed one refuses the table


async def _groups(asked: Asked) -> list[pb.Group]:
    found, _ = await asked.walk("ListGroups", pb.ListGroupsRequest(), "groups")
    return found


async def _optimizers(asked: Asked) -> list[pb.Optimizer]:
    found, _ = await asked.walk("ListOptimizers", pb.ListOptimizersRequest(), "optimizers")
    return found


def _wanted_processes(query: Mapping[str, str]) -> Callable[[pb.Process], bool]:
    type_, category = query.get("type", "").strip(), query.get("processCategory", "").strip().upper()
    status = query.get("status", "").strip()
    known = {*shapes.PROCESS_STATUSES.values(), *shapes.OTHER_STATUSES}
    if status and status not in known:
        raise MalformedRequest(f"{status!r} is no status", hint=f"One of: {', '.join(sorted(known))}.")

    def is_wanted(one: pb.Process) -> bool:
        if status and shapes.PROCESS_STATUSES[one.status] != status:
            return False
        if type_:
            return one.type.upper() == type_.upper()
        match category:
            case "" | "OPTIMIZING":
                return shapes.is_optimizing(one.type)
            case "CLEANUP":
                return not shapes.is_optimizing(one.type) and one.type not in _PROFILING
            case "PROFILING":
                return one.type in _PROFILING
        return False

    return is_wanted


#: Types of Amoro's category PROFILING.
_PROFILING = frozenset({"auto-create-tags"})


def _wanted_tables(asked: Asked) -> Callable[[pb.Table], bool] | None:
    """Whether a table is one that the query looks for; None if it looks for all."""
    query = asked.query
    database, name = query.get("dbSearchInput", "").strip(), query.get("tableSearchInput", "").strip()
    many = getattr(query, "getlist", lambda key: [query[key]] if key in query else [])
    statuses = frozenset(many("actions[]"))
    if not (database or name or statuses):
        return None

    def is_wanted(one: pb.Table) -> bool:
        table = parse_table(one.table)
        is_there = database in shapes.database_of(table) and name in table.name
        return is_there and (not statuses or shapes.shown_status(one) in statuses)

    return is_wanted


def _window(asked: Asked) -> tuple[int, int]:
    """Where the page begins, and how many items it has. Raises MalformedRequest."""
    page, size = (_number(asked.query, name, usual) for name, usual in (("page", 1), ("pageSize", _PAGE_SIZE)))
    if (page - 1) * size + size > FARTHEST:
        raise MalformedRequest(
            f"page {page} of {size} is beyond item {FARTHEST}", hint="Lists below /api/v1 have cursors: see `after`."
        )
    return (page - 1) * size, size


def _number(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, str(usual))
    if not (text.isascii() and text.isdecimal() and int(text[:9]) >= 1 and len(text) < 9):
        raise MalformedRequest(f"{name} is a number from 1 on, not {text!r}", value=text)
    return int(text)


def _cut(asked: Asked, items: Sequence[Any]) -> Sequence[Any]:
    offset, size = _window(asked)
    return items[offset : offset + size]


def _page(items: Iterable[Json], total: int) -> Json:
    """PageResult."""
    return {"list": list(items), "total": total}


def _now_ms() -> int:
    return round(time.time() * 1000)
