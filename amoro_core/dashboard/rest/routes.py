"""The table of routes: for each method and path the operation, and what its answer is.

Fields of a request that the path names come from it; the others from the query of a GET or DELETE, else from the body.
"""

from collections.abc import Mapping
from functools import cache

from amoro_core.records import record

PREFIX = "/api/v1"


@record
class Route:
    """One method of one path below /api/v1.

    `schema` names the document of the answer; with `items`, a field of it, the answer is the list of these. Where the
    answer names a process that has begun, it is `lasting`: 202 with its location, or later with `?wait`.
    """

    method: str
    path: str
    operation: str
    schema: str
    items: str = ""
    status: int = 200
    lasting: bool = False
    is_secret: bool = False  # the answer is not kept for a repeated request
    required: tuple[str, ...] = ()  # fields of the query or body that have to be there
    name: str = ""  # that no other route has; "": its operation's
    key: str = ""  # of the items in the document, if it is another than the field's name

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
        """Whether the request has a body."""
        return self.method in ("POST", "PATCH", "PUT")


def _list(path: str, operation: str, items: str, schema: str = "", name: str = "") -> Route:
    return Route("GET", path, operation, schema or f"amoro.{items}/v1", items, name=name)


def _get(path: str, operation: str, schema: str) -> Route:
    return Route("GET", path, operation, schema)


def _post(path: str, operation: str, schema: str, *required: str, status: int = 200) -> Route:
    return Route("POST", path, operation, schema, status=status, required=required)


def _begin(path: str, operation: str, schema: str, *required: str) -> Route:
    return Route("POST", path, operation, schema, lasting=True, required=required)


def _patch(path: str, operation: str, schema: str, *required: str) -> Route:
    return Route("PATCH", path, operation, schema, required=required)


def _delete(path: str, operation: str, schema: str = "amoro.removed/v1") -> Route:
    return Route("DELETE", path, operation, schema)


_TABLE = "/tables/{table}"

ROUTES: tuple[Route, ...] = (
    _get("/status", "GetStatus", "amoro.coordinator/v1"),
    _get("/overview", "GetOverview", "amoro.overview/v1"),
    _get("/queue", "ListQueue", "amoro.queue/v1"),
    Route("GET", "/audit", "ListAudit", "amoro.audit/v1", "events", key="audit"),
    _list("/conditions", "ListConditions", "conditions", "amoro.status/v1"),
    _get("/series", "GetSeries", "amoro.series/v1"),
    _list("/events", "ListEvents", "events"),
    _list("/settings", "GetSettings", "settings"),
    _get("/state", "GetState", "amoro.state/v1"),
    _post("/state/backup", "BackupState", "amoro.backup/v1", "path", status=201),
    _get("/state/check", "CheckState", "amoro.check/v1"),
    _list("/tokens", "ListTokens", "tokens"),
    Route("POST", "/tokens", "CreateToken", "amoro.token/v1", status=201, is_secret=True, required=("name",)),
    _delete("/tokens/{name}", "RevokeToken"),
    _list("/users", "ListUsers", "users"),
    Route("POST", "/users", "AddUser", "amoro.user/v1", status=201, is_secret=True, required=("name", "password")),
    Route("POST", "/users/{name}", "UpdateUser", "amoro.user/v1"),
    Route("POST", "/users/{name}/password", "SetPassword", "amoro.user/v1", is_secret=True, required=("password",)),
    _delete("/users/{name}", "RemoveUser"),
    Route("POST", "/login-links", "MakeLoginLink", "amoro.login/v1", status=201, is_secret=True),
    _list("/catalogs", "ListCatalogs", "catalogs"),
    _post("/catalogs", "AddCatalog", "amoro.catalog/v1", "name", status=201),
    _get("/catalogs/{name}", "GetCatalog", "amoro.catalog/v1"),
    _post("/catalogs/{name}/check", "CheckCatalog", "amoro.checked/v1"),
    _patch("/catalogs/{name}", "UpdateCatalog", "amoro.catalog/v1"),
    _delete("/catalogs/{name}", "RemoveCatalog"),
    _list("/tables", "ListTables", "tables"),
    _get("/selection", "SelectTables", "amoro.selection/v1"),
    _get(_TABLE, "GetTable", "amoro.table/v1"),
    _patch(_TABLE, "SetTableEnabled", "amoro.table/v1", "enabled"),
    _post(f"{_TABLE}/changed", "TableChanged", "amoro.table/v1"),
    _post(f"{_TABLE}/upgrade", "UpgradeTable", "amoro.upgrade/v1", "format_version"),
    _get(f"{_TABLE}/health", "GetTableHealth", "amoro.health/v1"),
    _get(f"{_TABLE}/metadata", "GetTableMetadata", "amoro.metadata/v1"),
    _get(f"{_TABLE}/partitions", "GetTableDigest", "amoro.digest/v1"),
    _get(f"{_TABLE}/properties", "GetTableProperties", "amoro.properties/v1"),
    Route("GET", f"{_TABLE}/series", "GetSeries", "amoro.series/v1", name="GetTableSeries"),
    _list(f"{_TABLE}/files", "ListTableFiles", "files"),
    _list(f"{_TABLE}/snapshots", "ListSnapshots", "snapshots"),
    Route("GET", f"{_TABLE}/comparison", "CompareSnapshots", "amoro.comparison/v1", required=("before", "after")),
    _get(f"{_TABLE}/retention", "GetRetention", "amoro.retention/v1"),
    _list(f"{_TABLE}/processes", "ListProcesses", "processes", name="ListTableProcesses"),
    _list(f"{_TABLE}/blockers", "ListBlockers", "blockers", name="ListTableBlockers"),
    _post(f"{_TABLE}/blockers", "BlockTable", "amoro.blocker/v1", status=201),
    _list(f"{_TABLE}/leases", "ListLeases", "leases", name="ListTableLeases"),
    _post(f"{_TABLE}/leases", "TakeLease", "amoro.lease/v1", status=201),
    _list(f"{_TABLE}/trash", "ListTrash", "trash", name="ListTableTrash"),
    _post(f"{_TABLE}/trash/hurry", "HurryTrash", "amoro.hurried/v1", "confirm"),
    _post(f"{_TABLE}/plan", "PlanTable", "amoro.plan/v1"),
    _get(f"{_TABLE}/plans/{{plan_id}}", "GetSavedPlan", "amoro.saved-plan/v1"),
    _begin(f"{_TABLE}/optimize", "OptimizeTable", "amoro.optimize/v1"),
    _post(f"{_TABLE}/verify", "VerifyTable", "amoro.verification/v1"),
    _get(f"{_TABLE}/maintenance", "ListActions", "amoro.actions/v1"),
    _begin(f"{_TABLE}/maintenance/{{action}}", "MaintainTable", "amoro.maintain/v1"),
    _post(f"{_TABLE}/maintenance/{{action}}/preview", "PreviewMaintenance", "amoro.maintain/v1"),
    _begin(f"{_TABLE}/maintenance/{{action}}/confirm", "ConfirmMaintenance", "amoro.maintain/v1", "confirm"),
    _get(f"{_TABLE}/clustering", "ShowClustering", "amoro.clustering/v1"),
    _get(f"{_TABLE}/clustering/columns", "SuggestColumns", "amoro.suggested/v1"),
    _post(f"{_TABLE}/clustering/scans", "LearnScans", "amoro.learned/v1", "scans"),
    _list("/blockers", "ListBlockers", "blockers"),
    _post("/blockers/{blocker_id}/renew", "RenewBlocker", "amoro.blocker/v1"),
    _delete("/blockers/{blocker_id}", "ReleaseBlocker", "amoro.blocker/v1"),
    _list("/leases", "ListLeases", "leases"),
    _post("/leases/{lease_id}/renew", "RenewLease", "amoro.lease/v1"),
    _delete("/leases/{lease_id}", "ReleaseLease", "amoro.lease/v1"),
    _list("/trash", "ListTrash", "trash"),
    _get("/trash/{process_id}", "ShowTrash", "amoro.trashed/v1"),
    _list("/trash/{process_id}/files", "ShowTrash", "files", "amoro.trashed/v1", "ListTrashFiles"),
    _post("/trash/{process_id}/restore", "RestoreTrash", "amoro.restored/v1"),
    _list("/processes", "ListProcesses", "processes"),
    _get("/processes/{process_id}", "GetProcess", "amoro.process/v1"),
    _list("/processes/{process_id}/tasks", "ListTasks", "tasks"),
    _list("/processes/{process_id}/attempts", "ListAttempts", "attempts"),
    _post("/processes/{process_id}/cancel", "CancelProcess", "amoro.process/v1"),
    _post("/processes/{process_id}/start", "StartProcess", "amoro.process/v1"),
    _post("/processes/{process_id}/undo/preview", "PreviewUndo", "amoro.maintain/v1"),
    _begin("/processes/{process_id}/undo", "UndoProcess", "amoro.maintain/v1"),
    _list("/optimizers", "ListOptimizers", "optimizers"),
    _get("/optimizers/{optimizer_id}", "GetOptimizer", "amoro.optimizer/v1"),
    _post("/optimizers/{optimizer_id}/drain", "DrainOptimizer", "amoro.optimizer/v1"),
    _post("/optimizers/{optimizer_id}/release", "ReleaseOptimizer", "amoro.released/v1"),
    _get("/instances/{id}", "GetInstance", "amoro.instance/v1"),
    _get("/instances/{id}/logs", "GetInstanceLogs", "amoro.logs/v1"),
    _post("/instances/{id}/kill", "KillInstance", "amoro.instance/v1"),
    _list("/groups", "ListGroups", "groups"),
    _post("/groups", "CreateGroup", "amoro.group/v1", "name", status=201),
    _get("/groups/{name}", "GetGroup", "amoro.group/v1"),
    _patch("/groups/{name}", "UpdateGroup", "amoro.group/v1"),
    _delete("/groups/{name}", "RemoveGroup"),
    _list("/groups/{name}/uses", "GetGroup", "uses", "amoro.group/v1", "ListGroupUses"),
    _post("/groups/{name}/scale", "ScaleGroup", "amoro.group/v1", "instances"),
)


@cache
def paths() -> Mapping[str, Mapping[str, Route]]:
    """The routes by path, then by method."""
    found: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        found.setdefault(route.path, {})[route.method] = route
    return found
