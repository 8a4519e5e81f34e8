"""The table of operations: for each method of the AdminService its function, role and deadline."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from amoro_core.admin import (
    audit,
    blockers,
    catalogs,
    clustering,
    conditions,
    groups,
    journal,
    leases,
    maintaining,
    optimizers,
    optimizing,
    processes,
    queue,
    saved_plans,
    snapshots,
    status,
    tables,
    tokens,
    trash,
    upgrading,
    users,
)
from amoro_core.admin.rights import Acted, by_blocker, by_lease, by_process, by_table
from amoro_core.admin.services import Call, Services
from amoro_core.model.tokens import Role
from amoro_core.protocol.deadlines import CHECKING, LASTING, QUICK, READING, TOUCHING
from amoro_core.records import record


@record
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
    "ListConditions": Operation(conditions.list_conditions, _VIEWER, QUICK),
    "GetSettings": Operation(status.get_settings, _ADMIN, QUICK),
    "GetState": Operation(status.get_state, _ADMIN, READING),
    "BackupState": Operation(status.backup_state, _ADMIN, READING, changes=True),
    "CheckState": Operation(status.check_state, _ADMIN, READING),
    "CreateToken": Operation(tokens.create_token, _ADMIN, QUICK, changes=True),
    "ListTokens": Operation(tokens.list_tokens, _ADMIN, QUICK),
    "AddUser": Operation(users.add_user, _ADMIN, QUICK, changes=True),
    "UpdateUser": Operation(users.update_user, _ADMIN, QUICK, changes=True),
    "SetPassword": Operation(users.set_password, _ADMIN, QUICK, changes=True),
    "RemoveUser": Operation(users.remove_user, _ADMIN, QUICK, changes=True),
    "ListUsers": Operation(users.list_users, _ADMIN, QUICK),
    "MakeLoginLink": Operation(users.make_login_link, _ADMIN, QUICK, changes=True),
    "ListAudit": Operation(audit.list_audit, _ADMIN, QUICK),
    "RevokeToken": Operation(tokens.revoke_token, _ADMIN, QUICK, changes=True),
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
    "GetTableDigest": Operation(journal.get_table_digest, _VIEWER, QUICK),
    "ListTableFiles": Operation(tables.list_table_files, _VIEWER, READING),
    "ListSnapshots": Operation(tables.list_snapshots, _VIEWER, TOUCHING),
    "CompareSnapshots": Operation(snapshots.compare_snapshots, _VIEWER, TOUCHING),
    "GetRetention": Operation(snapshots.get_retention, _VIEWER, TOUCHING),
    "SetTableEnabled": Operation(tables.set_table_enabled, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "TableChanged": Operation(tables.table_changed, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "UpgradeTable": Operation(upgrading.upgrade_table, _ADMIN, TOUCHING, changes=True, on=by_table),
    "BlockTable": Operation(blockers.block_table, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "RenewBlocker": Operation(blockers.renew_blocker, _OPERATOR, QUICK, changes=True, on=by_blocker),
    "ReleaseBlocker": Operation(blockers.release_blocker, _OPERATOR, QUICK, changes=True, on=by_blocker),
    "ListBlockers": Operation(blockers.list_blockers, _VIEWER, TOUCHING),
    "PlanTable": Operation(optimizing.plan_table, _VIEWER, LASTING),
    "GetSavedPlan": Operation(saved_plans.get_saved_plan, _VIEWER, QUICK),
    "OptimizeTable": Operation(optimizing.optimize_table, _OPERATOR, LASTING, changes=True, on=by_table),
    "PreviewMaintenance": Operation(maintaining.preview_maintenance, _OPERATOR, LASTING, on=by_table, is_dry_run=True),
    "MaintainTable": Operation(maintaining.maintain_table, _OPERATOR, LASTING, changes=True, on=by_table),
    "ConfirmMaintenance": Operation(maintaining.confirm_maintenance, _ADMIN, LASTING, changes=True, on=by_table),
    "PreviewUndo": Operation(maintaining.preview_undo, _OPERATOR, LASTING, on=by_process, is_dry_run=True),
    "UndoProcess": Operation(maintaining.undo_process, _OPERATOR, LASTING, changes=True, on=by_process),
    "ShowClustering": Operation(clustering.show_clustering, _VIEWER, LASTING),
    "SuggestColumns": Operation(clustering.suggest_columns, _VIEWER, LASTING),
    "LearnScans": Operation(clustering.learn_scans, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "ListActions": Operation(maintaining.list_actions, _VIEWER, TOUCHING),
    "ListTrash": Operation(trash.list_trash, _VIEWER, TOUCHING),
    "ShowTrash": Operation(trash.show_trash, _VIEWER, TOUCHING),
    "RestoreTrash": Operation(trash.restore_trash, _OPERATOR, TOUCHING, changes=True, on=by_process),
    "HurryTrash": Operation(trash.hurry_trash, _ADMIN, TOUCHING, changes=True, on=by_table),
    "TakeLease": Operation(leases.take_lease, _OPERATOR, TOUCHING, changes=True, on=by_table),
    "RenewLease": Operation(leases.renew_lease, _OPERATOR, TOUCHING, changes=True, on=by_lease),
    "ReleaseLease": Operation(leases.release_lease, _OPERATOR, TOUCHING, changes=True, on=by_lease),
    "ListLeases": Operation(leases.list_leases, _VIEWER, TOUCHING),
    "VerifyTable": Operation(optimizing.verify_table, _VIEWER, LASTING, is_apart=True),
    "GetOverview": Operation(queue.get_overview, _VIEWER, QUICK),
    "ListQueue": Operation(queue.list_queue, _VIEWER, QUICK),
    "ListProcesses": Operation(processes.list_processes, _VIEWER, QUICK),
    "ListTasks": Operation(processes.list_tasks, _VIEWER, QUICK),
    "ListAttempts": Operation(journal.list_attempts, _VIEWER, QUICK),
    "GetSeries": Operation(journal.get_series, _VIEWER, QUICK),
    "ListEvents": Operation(journal.list_events, _VIEWER, QUICK),
    "GetProcess": Operation(processes.get_process, _VIEWER, TOUCHING, is_news=processes.has_moved),
    "CancelProcess": Operation(processes.cancel_process, _OPERATOR, QUICK, changes=True, on=by_process),
    "StartProcess": Operation(clustering.start_process, _OPERATOR, LASTING, changes=True, on=by_process),
    "ListOptimizers": Operation(optimizers.list_optimizers, _VIEWER, QUICK),
    "GetOptimizer": Operation(optimizers.get_optimizer, _VIEWER, QUICK),
    "DrainOptimizer": Operation(optimizers.drain_optimizer, _OPERATOR, QUICK, changes=True),
    "ReleaseOptimizer": Operation(optimizers.release_optimizer, _OPERATOR, QUICK, changes=True),
    "GetInstance": Operation(optimizers.get_instance, _VIEWER, TOUCHING),
    "GetInstanceLogs": Operation(optimizers.get_instance_logs, _ADMIN, TOUCHING),
    "KillInstance": Operation(optimizers.kill_instance, _ADMIN, TOUCHING, changes=True),
    "CreateGroup": Operation(groups.create_group, _ADMIN, QUICK, changes=True),
    "ListGroups": Operation(groups.list_groups, _VIEWER, QUICK),
    "GetGroup": Operation(groups.get_group, _VIEWER, QUICK),
    "UpdateGroup": Operation(groups.update_group, _ADMIN, QUICK, changes=True),
    "ScaleGroup": Operation(groups.scale_group, _OPERATOR, QUICK, changes=True),
    "RemoveGroup": Operation(groups.remove_group, _ADMIN, QUICK, changes=True),
}
