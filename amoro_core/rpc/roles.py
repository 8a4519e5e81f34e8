"""Who may call what: the role that each method of the AdminService needs, in one table."""

from collections.abc import Mapping

from amoro_core.model.tokens import Role

_VIEWER = (
    "GetStatus",
    "GetCatalog",
    "ListCatalogs",
    "ListTables",
    "SelectTables",
    "GetTable",
    "GetTableProperties",
    "GetTableHealth",
    "ListTableFiles",
    "ListSnapshots",
    "ListBlockers",
    "PlanTable",
    "VerifyTable",
    "ListProcesses",
    "ListTasks",
    "GetProcess",
    "ListOptimizers",
    "GetInstance",
    "ListGroups",
    "GetGroup",
)
_OPERATOR = (
    "SetTableEnabled",
    "BlockTable",
    "RenewBlocker",
    "ReleaseBlocker",
    "OptimizeTable",
    "CancelProcess",
    "DrainOptimizer",
    "ReleaseOptimizer",
    "ScaleGroup",
)
_ADMIN = (
    "GetSettings",
    "GetInstanceLogs",
    "KillInstance",
    "BackupState",
    "CheckState",
    "CreateToken",
    "ListTokens",
    "RevokeToken",
    "AddCatalog",
    "UpdateCatalog",
    "RemoveCatalog",
    "CreateGroup",
    "UpdateGroup",
    "RemoveGroup",
)

#: By method. Who has a higher role may call it, too.
ROLES: Mapping[str, Role] = {
    **dict.fromkeys(_VIEWER, Role.VIEWER),
    **dict.fromkeys(_OPERATOR, Role.OPERATOR),
    **dict.fromkeys(_ADMIN, Role.ADMIN),
}
