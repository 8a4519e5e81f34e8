"""The table of operations: for each method of the AdminService its function, role and deadline."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from amoro_core.admin import (
    access,
    catalogs,
    clustering,
    groups,
    history,
    maintenance,
    optimizing,
    processes,
    status,
    tables,
)
from amoro_core.admin.context import Acted, Call, Services, by_blocker, by_lease, by_process, by_table
from amoro_core.model.principals import Role
from amoro_core.protocol.deadlines import CHECKING, LASTING, QUICK, READING, TOUCHING


@dataclass(frozen=True, slots=True)
class Operation:
    """A function of the services, the request and the call, and its rules."""

    work: Callable[[Services, Any, Call], Any]
    role: Role  # the minimum role of a token
    deadline: timedelta
    changes: bool = False  # False: it only reads
    on: Acted | None = None  # the table it acts on, which the pattern of an operator has to match; None: no one table
    is_dry_run: bool = False  # it changes nothing, and is written down like what it tries
    #: For requests with `wait_ms`: whether this answer, after the one before, ends the wait.
    is_news: Callable[[Any, Any], bool] | None = None
    is_apart: bool = False  # it may hang or last: it runs in threads of its own, a few at once
    late: Callable[[Any], Any] | None = None  # the answer at the deadline, where that is no error


_VIEWER, _OPERATOR, _ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

OPERATIONS: Mapping[str, Operation] = {
    "GetStatus": Operation(status.get_status, _VIEWER, QUICK),
    "ListConditions": Operation(status.list_conditions, _VIEWER, QUICK),
    "GetSettings": Operation(status.get_settings, _ADMIN, QUICK),
    "GetState": Operation(status.get_state, _ADMIN, READING),
    "BackupState": Operation(status.backup_state, _ADMIN, READING, changes=True),
    "CheckState": Operation(status.check_state, _ADMIN, READING),
    "CreateToken": Operation(access.create_token, _ADMIN, QUICK, changes=True),
    "ListTokens": Operation(access.list_tokens, _ADMIN, QUICK),
    "AddUser": Operation(access.add_user, _ADMIN, QUICK, changes=True),
    "UpdateUser": Operation(access.update_user, _ADMIN, QUICK, changes=True),
    "SetPassword": Operation(access.set_password, _ADMIN, QUICK, changes=True),
    "RemoveUser": Operation(access.remove_user, _ADMIN, QUICK, changes=True),
    "ListUsers": Operation(access.list_users, _ADMIN, QUICK),
    "MakeLoginLink": Operation(access.make_login_link, _ADMIN, QUICK, changes=True),
    "ListAudit": Operation(access.list_audit, _ADMIN, QUICK),
    "RevokeToken": Operation(access.revoke_token, _ADMIN, QUICK, changes=True),
    "AddCatalog": Operation(catalogs.add_catalog, _ADMIN, TOUCHING, changes=True),
    "GetCatalog": Operation(catalogs.get_catalog, _VIEWER, QUICK),
    "CheckCatalog": Operation(catalogs.check_catalog, _VIEWER, CHECKING, is_apart=True, late=catalogs.late_check),
    "ListCatalogs": Operation(catalogs.list_catalogs, _VIEWER, QUICK),
    "UpdateCatalog": Operation(catalogs.update_catalog, _ADMIN, TOUCHING, changes=True),
    "RemoveCatalog": Operation(catalogs.remove_catalog, _ADMIN, TOUCHING, changes=True),
    "ListTables": Operation(tables.list_tables, _VIEWER, QUICK),
    "SelectTables": Operation(tables.select_tables, _VIEWER, TOUCHING),
    "GetTable": Operation(tables.get_table, _VIEWER, TOUCHING),
    "GetTableProperties": Operation(tables.get_table_properties, _VIEWER, TOUCHING),
    "GetTableMetadata": Operation(tables.get_table_metadata, _VIEWER, TOUCHING),
    "GetTableHealth": Operation(tables.get_table_health, _VIEWER, READING),
    "GetTableDigest": Operation(history.get_table_digest, _VIEWER, QUICK),
    "ListTableFiles": Operation(tables.list_table_files, _VIEWER, READING),
    "ListSnapshots": Operation(tables.list_snapshots, _VIEWER, TOUCHING),
    "CompareSnapshots": Operation(maintenance.compare_snapshots, _VIEWER, TOUCHING),
    "GetRetention": Operation(maintenance.get_retention, _VIEWER, TOUCHING),
    "SetTableEnabled": Operation(tables.set_table_enabled, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "TableChanged": Operation(tables.table_changed, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "UpgradeTable": Operation(maintenance.upgrade_table, _ADMIN, TOUCHING, changes=True, on=by_table),
    "BlockTable": Operation(tables.block_table, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "RenewBlocker": Operation(tables.renew_blocker, _OPERATOR, QUICK, changes=True, on=by_blocker),
    "ReleaseBlocker": Operation(tables.release_blocker, _OPERATOR, QUICK, changes=True, on=by_blocker),
    "ListBlockers": Operation(tables.list_blockers, _VIEWER, TOUCHING),
    "PlanTable": Operation(optimizing.plan_table, _VIEWER, LASTING),
    "GetSavedPlan": Operation(optimizing.get_saved_plan, _VIEWER, QUICK),
    "OptimizeTable": Operation(optimizing.optimize_table, _OPERATOR, LASTING, changes=True, on=by_table),
    "PreviewMaintenance": Operation(maintenance.preview_maintenance, _OPERATOR, LASTING, on=by_table, is_dry_run=True),
    "MaintainTable": Operation(maintenance.maintain_table, _OPERATOR, LASTING, changes=True, on=by_table),
    "ConfirmMaintenance": Operation(maintenance.confirm_maintenance, _ADMIN, LASTING, changes=True, on=by_table),
    "PreviewUndo": Operation(maintenance.preview_undo, _OPERATOR, LASTING, on=by_process, is_dry_run=True),
    "UndoProcess": Operation(maintenance.undo_process, _OPERATOR, LASTING, changes=True, on=by_process),
    "ShowClustering": Operation(clustering.show_clustering, _VIEWER, LASTING),
    "SuggestColumns": Operation(clustering.suggest_columns, _VIEWER, LASTING),
    "LearnScans": Operation(clustering.learn_scans, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "ListActions": Operation(maintenance.list_actions, _VIEWER, TOUCHING),
    "ListTrash": Operation(maintenance.list_trash, _VIEWER, TOUCHING),
    "ShowTrash": Operation(maintenance.show_trash, _VIEWER, TOUCHING),
    "RestoreTrash": Operation(maintenance.restore_trash, _OPERATOR, TOUCHING, changes=True, on=by_process),
    "HurryTrash": Operation(maintenance.hurry_trash, _ADMIN, TOUCHING, changes=True, on=by_table),
    "TakeLease": Operation(maintenance.take_lease, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "RenewLease": Operation(maintenance.renew_lease, _OPERATOR, TOUCHING, changes=True, on=by_lease),
    "ReleaseLease": Operation(maintenance.release_lease, _OPERATOR, TOUCHING, changes=True, on=by_lease),
    "ListLeases": Operation(maintenance.list_leases, _VIEWER, TOUCHING),
    "VerifyTable": Operation(optimizing.verify_table, _VIEWER, LASTING, is_apart=True),
    "GetOverview": Operation(groups.get_overview, _VIEWER, QUICK),
    "ListQueue": Operation(groups.list_queue, _VIEWER, QUICK),
    "ListProcesses": Operation(processes.list_processes, _VIEWER, QUICK),
    "ListTasks": Operation(processes.list_tasks, _VIEWER, QUICK),
    "ListAttempts": Operation(history.list_attempts, _VIEWER, QUICK),
    "GetSeries": Operation(history.get_series, _VIEWER, QUICK),
    "ListEvents": Operation(history.list_events, _VIEWER, QUICK),
    "GetProcess": Operation(processes.get_process, _VIEWER, TOUCHING, is_news=processes.has_moved),
    "CancelProcess": Operation(processes.cancel_process, _OPERATOR, QUICK, changes=True, on=by_process),
    "StartProcess": Operation(clustering.start_process, _OPERATOR, LASTING, changes=True, on=by_process),
    "ListOptimizers": Operation(groups.list_optimizers, _VIEWER, QUICK),
    "GetOptimizer": Operation(groups.get_optimizer, _VIEWER, QUICK),
    "DrainOptimizer": Operation(groups.drain_optimizer, _OPERATOR, QUICK, changes=True),
    "ReleaseOptimizer": Operation(groups.release_optimizer, _OPERATOR, QUICK, changes=True),
    "GetInstance": Operation(groups.get_instance, _VIEWER, TOUCHING),
    "GetInstanceLogs": Operation(groups.get_instance_logs, _ADMIN, TOUCHING),
    "KillInstance": Operation(groups.kill_instance, _ADMIN, TOUCHING, changes=True),
    "CreateGroup": Operation(groups.create_group, _ADMIN, QUICK, changes=True),
    "ListGroups": Operation(groups.list_groups, _VIEWER, QUICK),
    "GetGroup": Operation(groups.get_group, _VIEWER, QUICK),
    "UpdateGroup": Operation(groups.update_group, _ADMIN, QUICK, changes=True),
    "ScaleGroup": Operation(groups.scale_group, _OPERATOR, QUICK, changes=True),
    "RemoveGroup": Operation(groups.remove_group, _ADMIN, QUICK, changes=True),
}
