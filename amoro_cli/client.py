"""The admin service as the command line calls it."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from amoro_cli.access import AccessCalls
from amoro_cli.lists import ListCalls
from amoro_cli.ordering import AS_CONFIGURED, Ordering
from amoro_cli.paging import Part, gather
from amoro_cli.wanted import Wanted
from amoro_core.errors import WaitTimeout
from amoro_core.model.learning import Told
from amoro_core.model.paging import ALL, Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol.deadlines import LASTING, QUICK, READING, TOUCHING

SLACK = timedelta(seconds=15)  # for the answer to arrive, on top of the time that the server may wait


class AdminClient(AccessCalls, ListCalls):
    """The methods of the AdminService; every one may raise an AmoroError."""

    def get_status(self) -> pb.GetStatusResponse:
        """The coordinator's version, start time and counts."""
        return self._call(self._stub.GetStatus, pb.GetStatusRequest(), QUICK)

    def list_conditions(self) -> Sequence[monitoring.Condition]:
        """The conditions that hold, the worst first."""
        return self._call(self._stub.ListConditions, monitoring.ListConditionsRequest(), QUICK).conditions

    def add_catalog(
        self,
        name: str,
        properties: Mapping[str, str],
        allowed_locations: Sequence[str],
        site_files: Mapping[str, str],
    ) -> pb.Catalog:
        """The catalog that was added."""
        request = pb.AddCatalogRequest(
            name=name, properties=properties, allowed_locations=allowed_locations, site_files=site_files
        )
        return self._call(self._stub.AddCatalog, request, TOUCHING)

    def get_catalog(self, name: str) -> pb.Catalog:
        """The catalog of that name."""
        return self._call(self._stub.GetCatalog, pb.GetCatalogRequest(name=name), QUICK)

    def update_catalog(
        self,
        name: str,
        properties: Mapping[str, str],
        unset: Sequence[str],
        allowed_locations: Sequence[str],
        removed_locations: Sequence[str],
        site_files: Mapping[str, str],
        removed_site_files: Sequence[str],
    ) -> pb.Catalog:
        """The catalog as it was changed."""
        request = pb.UpdateCatalogRequest(
            name=name,
            properties=properties,
            removed_properties=unset,
            allowed_locations=allowed_locations,
            removed_locations=removed_locations,
            site_files=site_files,
            removed_site_files=removed_site_files,
        )
        return self._call(self._stub.UpdateCatalog, request, TOUCHING)

    def remove_catalog(self, name: str) -> pb.RemoveCatalogResponse:
        """What was removed with the catalog."""
        return self._call(self._stub.RemoveCatalog, pb.RemoveCatalogRequest(name=name), TOUCHING)

    def list_catalogs(self, window: Window = ALL) -> Part[pb.Catalog]:
        """Catalogs by name."""

        def ask(limit: int, after: str) -> pb.ListCatalogsResponse:
            return self._call(self._stub.ListCatalogs, pb.ListCatalogsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.catalogs)[1]

    def select_tables(self, names: Sequence[str]) -> pb.SelectTablesResponse:
        """The tables that match the names and patterns; without names, those of all catalogs."""
        return self._call(self._stub.SelectTables, pb.SelectTablesRequest(names=names), TOUCHING)

    def get_table(self, table: str, within: timedelta = TOUCHING) -> pb.Table:
        """What is known of the table."""
        return self._call(self._stub.GetTable, pb.GetTableRequest(table=table), within)

    def get_settings(self) -> Sequence[pb.Setting]:
        """Every setting of the coordinator."""
        return self._call(self._stub.GetSettings, pb.GetSettingsRequest(), QUICK).settings

    def get_table_properties(self, table: str) -> pb.GetTablePropertiesResponse:
        """The table's effective properties."""
        return self._call(self._stub.GetTableProperties, pb.GetTablePropertiesRequest(table=table), TOUCHING)

    def get_table_health(self, table: str) -> pb.TableHealth:
        """The health of the table's head."""
        return self._call(self._stub.GetTableHealth, pb.GetTableHealthRequest(table=table), READING)

    def list_table_files(self, table: str, window: Window) -> tuple[int, Part[pb.TableFile]]:
        """The snapshot's id (0 without one) and its live files."""
        snapshot_id = 0

        def ask(limit: int, after: str) -> pb.ListTableFilesResponse:
            nonlocal snapshot_id
            request = pb.ListTableFilesRequest(table=table, limit=limit, after=after, snapshot_id=snapshot_id)
            answer = self._call(self._stub.ListTableFiles, request, READING)
            snapshot_id = answer.snapshot_id
            return answer

        first, part = gather(window, ask, lambda answer: answer.files)
        return first.snapshot_id, part

    def list_snapshots(self, table: str, window: Window) -> Part[pb.Snapshot]:
        """The table's snapshots, the newest first."""

        def ask(limit: int, after: str) -> pb.ListSnapshotsResponse:
            request = pb.ListSnapshotsRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListSnapshots, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.snapshots)[1]

    def get_state(self) -> pb.StateFacts:
        """The state database's size, schema and last backup."""
        return self._call(self._stub.GetState, pb.GetStateRequest(), READING)

    def backup_state(self, path: str) -> pb.BackupStateResponse:
        """Where the state was copied to."""
        return self._call(self._stub.BackupState, pb.BackupStateRequest(path=path), READING)

    def check_state(self) -> Sequence[str]:
        """The problems of the state database; empty when it is sound."""
        return self._call(self._stub.CheckState, pb.CheckStateRequest(), READING).problems

    def set_table_enabled(self, table: str, enabled: bool) -> pb.Table:
        """The table after optimizing was switched on or off."""
        request = pb.SetTableEnabledRequest(table=table, enabled=enabled)
        return self._call(self._stub.SetTableEnabled, request, TOUCHING)

    def table_changed(self, table: str, hint: str) -> pb.Table:
        """The table as it is known, once the coordinator has heard that it has changed."""
        return self._call(self._stub.TableChanged, pb.TableChangedRequest(table=table, hint=hint), TOUCHING)

    def block_table(self, table: str, operations: Sequence[str], hold: timedelta | None, reason: str) -> pb.Blocker:
        """The blocker that was taken; `hold` None: as the coordinator's settings say."""
        request = pb.BlockTableRequest(table=table, operations=operations, hold_ms=_ms(hold), reason=reason)
        return self._call(self._stub.BlockTable, request, TOUCHING)

    def renew_blocker(self, blocker_id: str, hold: timedelta | None) -> pb.Blocker:
        """The blocker with its new end; `hold` None: as long as it was taken for."""
        request = pb.RenewBlockerRequest(blocker_id=blocker_id, hold_ms=_ms(hold))
        return self._call(self._stub.RenewBlocker, request, QUICK)

    def release_blocker(self, blocker_id: str) -> pb.Blocker:
        """The blocker that was ended."""
        return self._call(self._stub.ReleaseBlocker, pb.ReleaseBlockerRequest(blocker_id=blocker_id), QUICK)

    def list_blockers(self, table: str = "", window: Window = ALL) -> Part[pb.Blocker]:
        """Active blockers, oldest first."""

        def ask(limit: int, after: str) -> pb.ListBlockersResponse:
            request = pb.ListBlockersRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListBlockers, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.blockers)[1]

    def plan_table(
        self,
        table: str,
        type_: str = "",
        force: bool = False,
        where: str = "",
        within: timedelta | None = None,
        ordering: Ordering = AS_CONFIGURED,
    ) -> pb.Plan:
        """Raises WaitTimeout when reading the table takes longer than `within`."""
        request = pb.PlanTableRequest(table=table, type=type_, force=force, where=where, cluster=ordering.message)
        return self._call(self._stub.PlanTable, request, READING if within is None else within, late=WaitTimeout)

    def optimize_table(
        self,
        table: str,
        type_: str,
        force: bool,
        within: timedelta,
        where: str = "",
        ordering: Ordering = AS_CONFIGURED,
    ) -> pb.OptimizeTableResponse:
        """The process that was planned. Raises WaitTimeout when planning takes longer than `within`."""
        request = pb.OptimizeTableRequest(table=table, type=type_, force=force, where=where, cluster=ordering.message)
        return self._call(self._stub.OptimizeTable, request, within, late=WaitTimeout)

    def show_clustering(self, table: str) -> pb.Clustering:
        """How well the table is clustered, and what would be done next."""
        return self._call(self._stub.ShowClustering, pb.ShowClusteringRequest(table=table), LASTING)

    def suggest_columns(self, table: str) -> pb.SuggestedColumns:
        """Columns that the table may be clustered by."""
        return self._call(self._stub.SuggestColumns, pb.SuggestColumnsRequest(table=table), LASTING)

    def learn_scans(self, table: str, told: Sequence[Told]) -> pb.LearnedScans:
        """What was kept of a report of how the table is read."""
        scans = [
            pb.ToldScan(
                day=one.day.isoformat() if one.day else "",
                filters=[pb.ScanFilter(column=item.column, operator=item.operator.value) for item in one.filters],
                scans=one.scans,
                place=one.place,
                source=one.source,
            )
            for one in told
        ]
        return self._call(self._stub.LearnScans, pb.LearnScansRequest(table=table, scans=scans), TOUCHING)

    def start_process(self, process_id: str) -> pb.Process:
        """The process that a stored plan is from now on, without its tasks."""
        return self._call(self._stub.StartProcess, pb.StartProcessRequest(process_id=process_id), LASTING)

    def preview_maintenance(self, wanted: Wanted, within: timedelta) -> pb.MaintainTableResponse:
        """What the action would do on the table. Raises WaitTimeout when that takes longer than `within`."""
        return self._call(self._stub.PreviewMaintenance, wanted.request, within, late=WaitTimeout)

    def maintain_table(self, wanted: Wanted, within: timedelta) -> pb.MaintainTableResponse:
        """The process that was planned, or resumed. Raises WaitTimeout when planning takes longer than `within`."""
        method = self._stub.ConfirmMaintenance if wanted.confirm else self._stub.MaintainTable
        return self._call(method, wanted.request, within, late=WaitTimeout)

    def preview_undo(self, process_id: str, within: timedelta) -> pb.MaintainTableResponse:
        """The plan that would undo the process. Raises WaitTimeout when that takes longer than `within`."""
        return self._call(self._stub.PreviewUndo, pb.UndoRequest(process_id=process_id), within, late=WaitTimeout)

    def undo_process(self, process_id: str, within: timedelta) -> pb.MaintainTableResponse:
        """The process that undoes another one. Raises WaitTimeout when planning takes longer than `within`."""
        return self._call(self._stub.UndoProcess, pb.UndoRequest(process_id=process_id), within, late=WaitTimeout)

    def list_actions(self, table: str) -> pb.ListActionsResponse:
        """Every action available on the table, with its state."""
        return self._call(self._stub.ListActions, pb.ListActionsRequest(table=table), TOUCHING)

    def show_trash(self, process_id: str, window: Window = ALL) -> tuple[pb.ShowTrashResponse, Part[pb.CondemnedFile]]:
        """What a process has condemned, and its files."""

        def ask(limit: int, after: str) -> pb.ShowTrashResponse:
            request = pb.ShowTrashRequest(process_id=process_id, limit=limit, after=after)
            return self._call(self._stub.ShowTrash, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.files)

    def restore_trash(self, process_id: str) -> pb.Trash:
        """The condemned files of a process that were restored."""
        return self._call(self._stub.RestoreTrash, pb.RestoreTrashRequest(process_id=process_id), TOUCHING)

    def hurry_trash(self, table: str, confirm: str) -> pb.HurryTrashResponse:
        """The table's condemned files, all due now: their waiting time is waived."""
        return self._call(self._stub.HurryTrash, pb.HurryTrashRequest(table=table, confirm=confirm), TOUCHING)

    def take_lease(
        self,
        table: str,
        snapshot_id: int,
        since: bool,
        hold: timedelta | None,
        holder: str,
        *,
        as_tag: bool = False,
    ) -> pb.Lease:
        """The lease that was taken; `hold` None: for a day."""
        request = pb.TakeLeaseRequest(
            table=table, snapshot_id=snapshot_id, since=since, hold_ms=_ms(hold), holder=holder, as_tag=as_tag
        )
        return self._call(self._stub.TakeLease, request, TOUCHING)

    def renew_lease(self, lease_id: str, hold: timedelta | None) -> pb.Lease:
        """The lease with its new end; `hold` None: in a day."""
        return self._call(self._stub.RenewLease, pb.RenewLeaseRequest(lease_id=lease_id, hold_ms=_ms(hold)), TOUCHING)

    def release_lease(self, lease_id: str) -> pb.Lease:
        """The lease that was ended."""
        return self._call(self._stub.ReleaseLease, pb.ReleaseLeaseRequest(lease_id=lease_id), TOUCHING)

    def verify_table(self, table: str, before: int, after: int, within: timedelta) -> pb.Verification:
        """Raises WaitTimeout when reading the table takes longer than `within`; the verification is then abandoned."""
        request = pb.VerifyTableRequest(table=table, before=before, after=after)
        try:
            return self._call(self._stub.VerifyTable, request, within, late=WaitTimeout)
        except WaitTimeout as late:
            raise WaitTimeout(
                f"Reading both sides of {table} did not end within {within.total_seconds():g} s, and was given up",
                hint="Nothing was changed. Give it more time with --timeout.",
            ) from late

    def list_processes(self, table: str = "", status: str = "", window: Window = ALL) -> Part[pb.Process]:
        """The newest first, without their tasks."""

        def ask(limit: int, after: str) -> pb.ListProcessesResponse:
            request = pb.ListProcessesRequest(table=table, status=status, limit=limit, after=after)
            return self._call(self._stub.ListProcesses, request, QUICK)

        return gather(window, ask, lambda answer: answer.processes)[1]

    def list_tasks(
        self, process_id: str, status: str = "", window: Window = ALL
    ) -> tuple[pb.Process, Part[pb.TaskInfo]]:
        """The process, without its tasks, and its tasks by number."""

        def ask(limit: int, after: str) -> pb.ListTasksResponse:
            request = pb.ListTasksRequest(process_id=process_id, status=status, limit=limit, after=after)
            return self._call(self._stub.ListTasks, request, QUICK)

        first, part = gather(window, ask, lambda answer: answer.tasks)
        return first.process, part

    def get_process(self, process_id: str, wait: timedelta = timedelta(0)) -> pb.Process:
        """The process without its tasks, when it ends or after `wait`, whichever comes first."""
        request = pb.GetProcessRequest(process_id=process_id, wait_ms=round(wait.total_seconds() * 1000))
        return self._call(self._stub.GetProcess, request, wait + SLACK)

    def with_tasks(self, process: pb.Process) -> pb.Process:
        """The same process with all its tasks, which the coordinator lists page by page."""
        if process.tasks_total > len(process.tasks):
            del process.tasks[:]
            process.tasks.extend(self.list_tasks(process.process_id)[1].items)
        return process

    def cancel_process(self, process_id: str) -> pb.Process:
        """The process that was cancelled, without its tasks."""
        return self._call(self._stub.CancelProcess, pb.CancelProcessRequest(process_id=process_id), QUICK)

    def list_optimizers(self, group: str = "", window: Window = ALL) -> Part[pb.Optimizer]:
        """Optimizers in the order of their registration."""

        def ask(limit: int, after: str) -> pb.ListOptimizersResponse:
            request = pb.ListOptimizersRequest(group=group, limit=limit, after=after)
            return self._call(self._stub.ListOptimizers, request, QUICK)

        return gather(window, ask, lambda answer: answer.optimizers)[1]

    def drain_optimizer(self, optimizer_id: str) -> pb.Optimizer:
        """The draining optimizer, which leaves when its tasks are done."""
        return self._call(self._stub.DrainOptimizer, pb.DrainOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def release_optimizer(self, optimizer_id: str) -> pb.ReleaseOptimizerResponse:
        """The optimizer that was unregistered, and how many of its tasks are planned again."""
        return self._call(self._stub.ReleaseOptimizer, pb.ReleaseOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def get_instance(self, id_: str) -> pb.InstanceStatus:
        """The instance, by its id or its optimizer's."""
        return self._call(self._stub.GetInstance, pb.GetInstanceRequest(id=id_), TOUCHING)

    def get_instance_logs(self, id_: str, lines: int) -> pb.InstanceLogs:
        """The last lines of the instance."""
        return self._call(self._stub.GetInstanceLogs, pb.GetInstanceLogsRequest(id=id_, lines=lines), TOUCHING)

    def kill_instance(self, id_: str) -> pb.InstanceStatus:
        """The instance that was killed."""
        return self._call(self._stub.KillInstance, pb.KillInstanceRequest(id=id_), TOUCHING)

    def create_group(self, name: str, policy: str, properties: Mapping[str, str], container: str) -> pb.Group:
        """The group that was added."""
        request = pb.CreateGroupRequest(name=name, scheduling_policy=policy, properties=properties, container=container)
        return self._call(self._stub.CreateGroup, request, QUICK)

    def list_groups(self, window: Window = ALL) -> Part[pb.Group]:
        """Groups by name."""

        def ask(limit: int, after: str) -> pb.ListGroupsResponse:
            return self._call(self._stub.ListGroups, pb.ListGroupsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.groups)[1]

    def get_group(self, name: str) -> pb.Group:
        """The group of that name."""
        return self._call(self._stub.GetGroup, pb.GetGroupRequest(name=name), QUICK)

    def update_group(
        self, name: str, policy: str, properties: Mapping[str, str], unset: Sequence[str], container: str
    ) -> pb.Group:
        """The group as it was changed."""
        request = pb.UpdateGroupRequest(
            name=name,
            scheduling_policy=policy,
            properties=properties,
            removed_properties=unset,
            container=container,
        )
        return self._call(self._stub.UpdateGroup, request, QUICK)

    def scale_group(self, name: str, instances: int) -> pb.Group:
        """The group with its new number of instances."""
        return self._call(self._stub.ScaleGroup, pb.ScaleGroupRequest(name=name, instances=instances), QUICK)

    def remove_group(self, name: str) -> pb.RemoveGroupResponse:
        """The group that was removed."""
        return self._call(self._stub.RemoveGroup, pb.RemoveGroupRequest(name=name), QUICK)

    def create_token(self, name: str, kind: str, pattern: str = "", lasts: timedelta | None = None) -> pb.Token:
        """The new token with its secret, which is returned only here."""
        request = pb.CreateTokenRequest(name=name, kind=kind, pattern=pattern, lasts_ms=_ms(lasts))
        return self._call(self._stub.CreateToken, request, QUICK)

    def list_tokens(self, window: Window = ALL) -> Part[pb.Token]:
        """Tokens by name."""

        def ask(limit: int, after: str) -> pb.ListTokensResponse:
            return self._call(self._stub.ListTokens, pb.ListTokensRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.tokens)[1]

    def revoke_token(self, name: str) -> pb.RevokeTokenResponse:
        """The token that was revoked."""
        return self._call(self._stub.RevokeToken, pb.RevokeTokenRequest(name=name), QUICK)


def _ms(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // timedelta(milliseconds=1)
