"""The table of admin operations: role, deadline, audit and REST routes of each method of the AdminService.

The messages are those of the method in `proto/amoro/v1/admin.proto`; the function has the method's name in snake case,
in a module of `amoro_core.admin`. gRPC, REST, pages, MCP and the command line read this table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal

from amoro_core.model.principals import Role

QUICK = timedelta(seconds=30)  # answered from the state database
CHECKING = timedelta(seconds=10)  # asks a catalog whether it answers
TOUCHING = timedelta(minutes=2)  # calls a catalog or a container
READING = timedelta(minutes=10)  # reads manifests of a table
LASTING = timedelta(hours=24)  # the client sets a deadline of its own

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

#: The field of the request that leads to the table that a call acts on.
Target = Literal["table", "process_id", "blocker_id", "lease_id"]


@dataclass(frozen=True, slots=True)
class Route:
    """One method of one path below /api/v1.

    `schema` names the document of the answer; with `items`, a field of it, the answer is the list of these. Where the
    answer names a process that has begun, it is `lasting`: 202 with its location, or later with `?wait`.
    """

    method: str
    path: str
    schema: str
    items: str = ""
    status: int = 200
    lasting: bool = False
    is_secret: bool = False  # the answer is not kept for a repeated request
    required: tuple[str, ...] = ()  # fields of the query or body that have to be there
    name: str = ""  # that no other route has; "": its operation's
    key: str = ""  # of the items in the document, if it is another than the field's name
    operation: str = ""

    @property
    def segments(self) -> tuple[str, ...]:
        """The path, split; a field stands in braces."""
        return tuple(self.path.strip("/").split("/"))

    @property
    def from_path(self) -> tuple[str, ...]:
        """The fields of the request that the path names."""
        return tuple(segment[1:-1] for segment in self.segments if segment.startswith("{"))

    @property
    def has_body(self) -> bool:
        return self.method in ("POST", "PATCH", "PUT")


@dataclass(frozen=True, slots=True)
class Operation:
    """The rules of one operation."""

    role: Role  # the minimum role of a token
    deadline: timedelta
    routes: tuple[Route, ...]
    changes: bool = False  # False: it only reads
    on: Target | None = None  # leads to the table that the pattern of an operator has to match; None: no one table
    is_dry_run: bool = False  # it changes nothing, and is audited like what it tries
    is_blocking: bool = False  # it may hang or last: it runs in threads of its own, a few at once
    most_at_once: int = 4  # of a blocking one; one that hangs counts until it ends
    is_recorded: bool = False  # it only reads, and is audited all the same

    @property
    def is_audited(self) -> bool:
        """Whether the audit keeps its calls."""
        return self.changes or self.is_dry_run or self.is_recorded


def _read(role: Role, deadline: timedelta, *routes: Route, is_blocking: bool = False) -> Operation:
    return Operation(role, deadline, routes, is_blocking=is_blocking)


def _change(role: Role, deadline: timedelta, *routes: Route, on: Target | None = None) -> Operation:
    return Operation(role, deadline, routes, changes=True, on=on)


def _dry_run(role: Role, deadline: timedelta, *routes: Route, on: Target | None = None) -> Operation:
    return Operation(role, deadline, routes, on=on, is_dry_run=True)


def _items(path: str, items: str, schema: str = "", name: str = "", key: str = "") -> Route:
    return Route("GET", path, schema or f"amoro.{items}/v1", items, name=name, key=key)


def _get(path: str, schema: str, *required: str, name: str = "") -> Route:
    return Route("GET", path, schema, required=required, name=name)


def _post(path: str, schema: str, *required: str, status: int = 200, is_secret: bool = False) -> Route:
    return Route("POST", path, schema, status=status, is_secret=is_secret, required=required)


def _begin(path: str, schema: str, *required: str) -> Route:
    return Route("POST", path, schema, lasting=True, required=required)


def _patch(path: str, schema: str, *required: str) -> Route:
    return Route("PATCH", path, schema, required=required)


def _delete(path: str, schema: str = "amoro.removed/v1") -> Route:
    return Route("DELETE", path, schema)


OPERATIONS: Mapping[str, Operation] = {
    "GetStatus": _read(VIEWER, QUICK, _get("/status", "amoro.coordinator/v1")),
    "ListConditions": _read(VIEWER, QUICK, _items("/conditions", "conditions", schema="amoro.status/v1")),
    "GetSettings": _read(ADMIN, QUICK, _items("/settings", "settings")),
    "GetState": _read(ADMIN, READING, _get("/state", "amoro.state/v1")),
    "BackupState": _change(ADMIN, READING, _post("/state/backup", "amoro.backup/v1", "path", status=201)),
    "CheckState": _read(ADMIN, READING, _get("/state/check", "amoro.check/v1")),
    "CreateToken": _change(
        ADMIN, QUICK, _post("/tokens", "amoro.token/v1", "name", "kind", status=201, is_secret=True)
    ),
    "ListTokens": _read(ADMIN, QUICK, _items("/tokens", "tokens")),
    "AddUser": _change(ADMIN, QUICK, _post("/users", "amoro.user/v1", "name", "password", status=201, is_secret=True)),
    "UpdateUser": _change(ADMIN, QUICK, _post("/users/{name}", "amoro.user/v1")),
    "SetPassword": _change(ADMIN, QUICK, _post("/users/{name}/password", "amoro.user/v1", "password", is_secret=True)),
    "RemoveUser": _change(ADMIN, QUICK, _delete("/users/{name}")),
    "ListUsers": _read(ADMIN, QUICK, _items("/users", "users")),
    "MakeLoginLink": _change(ADMIN, QUICK, _post("/login-links", "amoro.login/v1", status=201, is_secret=True)),
    "ListAudit": _read(ADMIN, QUICK, _items("/audit", "events", schema="amoro.audit/v1", key="audit")),
    "RevokeToken": _change(ADMIN, QUICK, _delete("/tokens/{name}")),
    "AddCatalog": _change(ADMIN, TOUCHING, _post("/catalogs", "amoro.catalog/v1", "name", status=201)),
    "GetCatalog": _read(VIEWER, QUICK, _get("/catalogs/{name}", "amoro.catalog/v1")),
    "CheckCatalog": _read(VIEWER, CHECKING, _post("/catalogs/{name}/check", "amoro.checked/v1"), is_blocking=True),
    "ListCatalogs": _read(VIEWER, QUICK, _items("/catalogs", "catalogs")),
    "UpdateCatalog": _change(ADMIN, TOUCHING, _patch("/catalogs/{name}", "amoro.catalog/v1")),
    "RemoveCatalog": _change(ADMIN, TOUCHING, _delete("/catalogs/{name}")),
    "ApplyPolicies": _change(ADMIN, TOUCHING, _post("/policies", "amoro.applied-policies/v1", "text")),
    "GetPolicies": _read(VIEWER, QUICK, _get("/policies", "amoro.policies/v1")),
    "CreateNamespace": _change(OPERATOR, TOUCHING, _post("/namespaces", "amoro.namespace/v1", "namespace", status=201)),
    "ListNamespaces": _read(VIEWER, TOUCHING, _items("/catalogs/{catalog}/namespaces", "namespaces")),
    "DropNamespace": _change(OPERATOR, TOUCHING, _delete("/namespaces/{namespace}", "amoro.namespace/v1")),
    "CreateTable": _change(
        OPERATOR, TOUCHING, _post("/tables", "amoro.entry/v1", "table", "columns", status=201), on="table"
    ),
    "RenameTable": _change(OPERATOR, TOUCHING, _post("/tables/{table}/rename", "amoro.entry/v1", "to"), on="table"),
    "DropTable": _change(OPERATOR, TOUCHING, _delete("/tables/{table}", "amoro.entry/v1"), on="table"),
    "ListTables": _read(VIEWER, QUICK, _items("/tables", "tables")),
    "SelectTables": _read(VIEWER, TOUCHING, _get("/selection", "amoro.selection/v1")),
    "GetTable": _read(VIEWER, TOUCHING, _get("/tables/{table}", "amoro.table/v1")),
    "GetTableProperties": _read(VIEWER, TOUCHING, _get("/tables/{table}/properties", "amoro.properties/v1")),
    "GetTableMetadata": _read(VIEWER, TOUCHING, _get("/tables/{table}/metadata", "amoro.metadata/v1")),
    "GetTableHealth": _read(VIEWER, READING, _get("/tables/{table}/health", "amoro.health/v1")),
    "GetTableDigest": _read(VIEWER, QUICK, _get("/tables/{table}/partitions", "amoro.digest/v1")),
    "ListTableFiles": _read(VIEWER, READING, _items("/tables/{table}/files", "files")),
    "ListSnapshots": _read(VIEWER, TOUCHING, _items("/tables/{table}/snapshots", "snapshots")),
    "CompareSnapshots": _read(
        VIEWER, TOUCHING, _get("/tables/{table}/comparison", "amoro.comparison/v1", "before", "after")
    ),
    "GetRetention": _read(VIEWER, TOUCHING, _get("/tables/{table}/retention", "amoro.retention/v1")),
    "SetTableEnabled": _change(OPERATOR, TOUCHING, _patch("/tables/{table}", "amoro.table/v1", "enabled"), on="table"),
    "SetTableProperties": _change(
        OPERATOR, TOUCHING, _post("/tables/{table}/properties", "amoro.changed-properties/v1"), on="table"
    ),
    "TableChanged": _change(OPERATOR, TOUCHING, _post("/tables/{table}/changed", "amoro.table/v1"), on="table"),
    "ReceiveEvents": _change(OPERATOR, TOUCHING, _post("/events", "amoro.received-events/v1", status=202)),
    "UpgradeTable": _change(
        ADMIN, TOUCHING, _post("/tables/{table}/upgrade", "amoro.upgrade/v1", "format_version"), on="table"
    ),
    "BlockTable": _change(
        OPERATOR, TOUCHING, _post("/tables/{table}/blockers", "amoro.blocker/v1", status=201), on="table"
    ),
    "RenewBlocker": _change(
        OPERATOR, QUICK, _post("/blockers/{blocker_id}/renew", "amoro.blocker/v1"), on="blocker_id"
    ),
    "ReleaseBlocker": _change(OPERATOR, QUICK, _delete("/blockers/{blocker_id}", "amoro.blocker/v1"), on="blocker_id"),
    "ListBlockers": _read(
        VIEWER,
        TOUCHING,
        _items("/tables/{table}/blockers", "blockers", name="ListTableBlockers"),
        _items("/blockers", "blockers"),
    ),
    "PlanTable": _read(VIEWER, LASTING, _post("/tables/{table}/plan", "amoro.plan/v1")),
    "GetSavedPlan": _read(VIEWER, QUICK, _get("/tables/{table}/plans/{plan_id}", "amoro.saved-plan/v1")),
    "OptimizeTable": _change(OPERATOR, LASTING, _begin("/tables/{table}/optimize", "amoro.optimize/v1"), on="table"),
    "PreviewMaintenance": _dry_run(
        OPERATOR, LASTING, _post("/tables/{table}/maintenance/{action}/preview", "amoro.maintain/v1"), on="table"
    ),
    "MaintainTable": _change(
        OPERATOR, LASTING, _begin("/tables/{table}/maintenance/{action}", "amoro.maintain/v1"), on="table"
    ),
    "ConfirmMaintenance": _change(
        ADMIN,
        LASTING,
        _begin("/tables/{table}/maintenance/{action}/confirm", "amoro.maintain/v1", "confirm"),
        on="table",
    ),
    "PreviewUndo": _dry_run(
        OPERATOR, LASTING, _post("/processes/{process_id}/undo/preview", "amoro.maintain/v1"), on="process_id"
    ),
    "UndoProcess": _change(
        OPERATOR, LASTING, _begin("/processes/{process_id}/undo", "amoro.maintain/v1"), on="process_id"
    ),
    "ShowClustering": _read(VIEWER, LASTING, _get("/tables/{table}/clustering", "amoro.clustering/v1")),
    "SuggestColumns": _read(VIEWER, LASTING, _get("/tables/{table}/clustering/columns", "amoro.suggested/v1")),
    "LearnScans": _change(
        OPERATOR, TOUCHING, _post("/tables/{table}/clustering/scans", "amoro.learned/v1", "scans"), on="table"
    ),
    "ListActions": _read(
        VIEWER,
        TOUCHING,
        _get("/tables/{table}/maintenance", "amoro.actions/v1"),
        _items("/maintenance", "actions", name="ListAllActions"),
    ),
    "ListTrash": _read(
        VIEWER, TOUCHING, _items("/tables/{table}/trash", "trash", name="ListTableTrash"), _items("/trash", "trash")
    ),
    "ShowTrash": _read(
        VIEWER,
        TOUCHING,
        _get("/trash/{process_id}", "amoro.trashed/v1"),
        _items("/trash/{process_id}/files", "files", schema="amoro.trashed/v1", name="ListTrashFiles"),
    ),
    "RestoreTrash": _change(
        OPERATOR, TOUCHING, _post("/trash/{process_id}/restore", "amoro.restored/v1"), on="process_id"
    ),
    "HurryTrash": _change(
        ADMIN, TOUCHING, _post("/tables/{table}/trash/hurry", "amoro.hurried/v1", "confirm"), on="table"
    ),
    "TakeLease": _change(OPERATOR, TOUCHING, _post("/tables/{table}/leases", "amoro.lease/v1", status=201), on="table"),
    "RenewLease": _change(OPERATOR, TOUCHING, _post("/leases/{lease_id}/renew", "amoro.lease/v1"), on="lease_id"),
    "ReleaseLease": _change(OPERATOR, TOUCHING, _delete("/leases/{lease_id}", "amoro.lease/v1"), on="lease_id"),
    "ListLeases": _read(
        VIEWER,
        TOUCHING,
        _items("/tables/{table}/leases", "leases", name="ListTableLeases"),
        _items("/leases", "leases"),
    ),
    "VerifyTable": _read(VIEWER, LASTING, _post("/tables/{table}/verify", "amoro.verification/v1"), is_blocking=True),
    "RunStatement": Operation(
        OPERATOR,
        LASTING,
        (_post("/sql", "amoro.rows/v1", "statement", is_secret=True),),
        is_blocking=True,
        most_at_once=100,  # terminal.max-sessions limits them
        is_recorded=True,
    ),
    "CancelStatement": _read(OPERATOR, QUICK, _post("/sql/{statement_id}/cancel", "amoro.cancelled-statement/v1")),
    "GetOverview": _read(VIEWER, QUICK, _get("/overview", "amoro.overview/v1")),
    "ListQueue": _read(VIEWER, QUICK, _get("/queue", "amoro.queue/v1")),
    "ListProcesses": _read(
        VIEWER,
        QUICK,
        _items("/tables/{table}/processes", "processes", name="ListTableProcesses"),
        _items("/processes", "processes"),
    ),
    "ListTasks": _read(VIEWER, QUICK, _items("/processes/{process_id}/tasks", "tasks")),
    "ListAttempts": _read(VIEWER, QUICK, _items("/processes/{process_id}/attempts", "attempts")),
    "GetReport": _read(VIEWER, QUICK, _get("/report", "amoro.report/v1")),
    "GetSeries": _read(
        VIEWER,
        QUICK,
        _get("/series", "amoro.series/v1"),
        _get("/tables/{table}/series", "amoro.series/v1", name="GetTableSeries"),
    ),
    "ListEvents": _read(VIEWER, QUICK, _items("/events", "events")),
    "ListListeners": _read(VIEWER, QUICK, _items("/listeners", "listeners")),
    "ResumeListener": _change(OPERATOR, QUICK, _post("/listeners/{name}/resume", "amoro.listener/v1")),
    "GetProcess": _read(VIEWER, TOUCHING, _get("/processes/{process_id}", "amoro.process/v1")),
    "CancelProcess": _change(
        OPERATOR, QUICK, _post("/processes/{process_id}/cancel", "amoro.process/v1"), on="process_id"
    ),
    "StartProcess": _change(
        OPERATOR, LASTING, _post("/processes/{process_id}/start", "amoro.process/v1"), on="process_id"
    ),
    "ListOptimizers": _read(VIEWER, QUICK, _items("/optimizers", "optimizers")),
    "GetOptimizer": _read(VIEWER, QUICK, _get("/optimizers/{optimizer_id}", "amoro.optimizer/v1")),
    "DrainOptimizer": _change(OPERATOR, QUICK, _post("/optimizers/{optimizer_id}/drain", "amoro.optimizer/v1")),
    "ReleaseOptimizer": _change(OPERATOR, QUICK, _post("/optimizers/{optimizer_id}/release", "amoro.released/v1")),
    "GetInstance": _read(VIEWER, TOUCHING, _get("/instances/{id}", "amoro.instance/v1")),
    "GetInstanceLogs": _read(ADMIN, TOUCHING, _get("/instances/{id}/logs", "amoro.logs/v1")),
    "KillInstance": _change(ADMIN, TOUCHING, _post("/instances/{id}/kill", "amoro.instance/v1")),
    "CreateGroup": _change(ADMIN, QUICK, _post("/groups", "amoro.group/v1", "name", status=201)),
    "ListGroups": _read(VIEWER, QUICK, _items("/groups", "groups")),
    "GetGroup": _read(
        VIEWER,
        QUICK,
        _get("/groups/{name}", "amoro.group/v1"),
        _items("/groups/{name}/uses", "uses", schema="amoro.group/v1", name="ListGroupUses"),
    ),
    "ListJobs": _read(VIEWER, QUICK, _items("/groups/{name}/jobs", "jobs")),
    "UpdateGroup": _change(ADMIN, QUICK, _patch("/groups/{name}", "amoro.group/v1")),
    "ScaleGroup": _change(OPERATOR, QUICK, _post("/groups/{name}/scale", "amoro.group/v1", "instances")),
    "RemoveGroup": _change(ADMIN, QUICK, _delete("/groups/{name}")),
}

#: Every route of REST.
ROUTES: tuple[Route, ...] = tuple(
    replace(route, operation=name) for name, operation in OPERATIONS.items() for route in operation.routes
)
