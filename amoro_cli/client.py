"""The admin service as the command line calls it: a deadline on each call, errors as ours."""

import getpass
import os
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import grpc

from amoro_cli.launcher import Endpoint
from amoro_cli.paging import Part, gather
from amoro_cli.remote import remote_error
from amoro_core.errors import AmoroError, CoordinatorUnavailable, NotAllowed, WaitTimeout, WorkFailed
from amoro_core.model.paging import ALL, Window
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.channels import USER_KEY, explained, is_encrypted, open_channel
from amoro_core.protocol.deadlines import QUICK, READING, TOUCHING
from amoro_core.protocol.tokens import parse_token

Answer = TypeVar("Answer")

SLACK = timedelta(seconds=15)  # the answer's way, on top of the time that the server may wait

#: How a call ends whose coordinator has ended, before it or meanwhile.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # a long list from our own coordinator is no danger
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2000),  # a wait goes on soon after a coordinator's restart
]
_WHERE_TOKENS_ARE = (
    "On the coordinator's machine the token is read from STATE_DIRECTORY/admin.token (see --home); "
    "elsewhere give it with --token-file or AMORO_TOKEN."
)


def _user() -> str:
    """The name of the user who runs this, or the number where the machine knows no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return str(os.getuid())


class AdminClient:
    """A connection to one coordinator; every call may raise an AmoroError."""

    def __init__(self, endpoint: Endpoint, after: Callable[[Endpoint], Endpoint | None] = lambda gone: None) -> None:
        """`after` says where to go on when the coordinator there has ended; None: nowhere."""
        self._after = after
        self._open(endpoint)

    def _open(self, endpoint: Endpoint) -> None:
        try:
            token = parse_token(endpoint.token.reveal()).reveal()
        except ValueError as error:
            raise NotAllowed(f"The admin token can't be used: {error}", hint=_WHERE_TOKENS_ARE) from error
        self._endpoint = endpoint
        self.address = endpoint.address
        self._metadata = (("authorization", f"Bearer {token}"), (USER_KEY, _user().encode(errors="replace")))
        self._encrypted = is_encrypted(endpoint.address, endpoint.trust)
        self._channel = open_channel(endpoint.address, endpoint.trust, _OPTIONS)
        self._stub = AdminServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def get_status(self) -> pb.GetStatusResponse:
        return self._call(self._stub.GetStatus, pb.GetStatusRequest(), QUICK)

    def add_catalog(
        self,
        name: str,
        properties: Mapping[str, str],
        allowed_locations: Sequence[str],
        site_files: Mapping[str, str],
    ) -> pb.Catalog:
        request = pb.AddCatalogRequest(
            name=name, properties=properties, allowed_locations=allowed_locations, site_files=site_files
        )
        return self._call(self._stub.AddCatalog, request, TOUCHING)

    def get_catalog(self, name: str) -> pb.Catalog:
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
        return self._call(self._stub.RemoveCatalog, pb.RemoveCatalogRequest(name=name), TOUCHING)

    def list_catalogs(self, window: Window = ALL) -> Part[pb.Catalog]:
        def ask(limit: int, after: str) -> pb.ListCatalogsResponse:
            return self._call(self._stub.ListCatalogs, pb.ListCatalogsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.catalogs)[1]

    def list_tables(self, catalog: str = "", status: str = "", group: str = "", window: Window = ALL) -> Part[pb.Table]:
        def ask(limit: int, after: str) -> pb.ListTablesResponse:
            request = pb.ListTablesRequest(catalog=catalog, status=status, group=group, limit=limit, after=after)
            return self._call(self._stub.ListTables, request, QUICK)

        return gather(window, ask, lambda answer: answer.tables)[1]

    def select_tables(self, names: Sequence[str]) -> pb.SelectTablesResponse:
        """The tables that names and patterns mean; without names those of all catalogs."""
        return self._call(self._stub.SelectTables, pb.SelectTablesRequest(names=names), TOUCHING)

    def get_table(self, table: str, within: timedelta = TOUCHING) -> pb.Table:
        return self._call(self._stub.GetTable, pb.GetTableRequest(table=table), within)

    def get_settings(self) -> Sequence[pb.Setting]:
        return self._call(self._stub.GetSettings, pb.GetSettingsRequest(), QUICK).settings

    def get_table_properties(self, table: str) -> pb.GetTablePropertiesResponse:
        return self._call(self._stub.GetTableProperties, pb.GetTablePropertiesRequest(table=table), TOUCHING)

    def get_table_health(self, table: str) -> pb.TableHealth:
        return self._call(self._stub.GetTableHealth, pb.GetTableHealthRequest(table=table), READING)

    def list_table_files(self, table: str, window: Window) -> tuple[int, Part[pb.TableFile]]:
        """The snapshot, 0 without one, and live files of it."""
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
        def ask(limit: int, after: str) -> pb.ListSnapshotsResponse:
            request = pb.ListSnapshotsRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListSnapshots, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.snapshots)[1]

    def backup_state(self, path: str) -> pb.BackupStateResponse:
        return self._call(self._stub.BackupState, pb.BackupStateRequest(path=path), READING)

    def check_state(self) -> Sequence[str]:
        return self._call(self._stub.CheckState, pb.CheckStateRequest(), READING).problems

    def set_table_enabled(self, table: str, enabled: bool) -> pb.Table:
        request = pb.SetTableEnabledRequest(table=table, enabled=enabled)
        return self._call(self._stub.SetTableEnabled, request, TOUCHING)

    def block_table(self, table: str, operations: Sequence[str], hold: timedelta | None, reason: str) -> pb.Blocker:
        request = pb.BlockTableRequest(table=table, operations=operations, hold_ms=_ms(hold), reason=reason)
        return self._call(self._stub.BlockTable, request, TOUCHING)

    def renew_blocker(self, blocker_id: str, hold: timedelta | None) -> pb.Blocker:
        request = pb.RenewBlockerRequest(blocker_id=blocker_id, hold_ms=_ms(hold))
        return self._call(self._stub.RenewBlocker, request, QUICK)

    def release_blocker(self, blocker_id: str) -> pb.Blocker:
        return self._call(self._stub.ReleaseBlocker, pb.ReleaseBlockerRequest(blocker_id=blocker_id), QUICK)

    def list_blockers(self, table: str = "", window: Window = ALL) -> Part[pb.Blocker]:
        def ask(limit: int, after: str) -> pb.ListBlockersResponse:
            request = pb.ListBlockersRequest(table=table, limit=limit, after=after)
            return self._call(self._stub.ListBlockers, request, TOUCHING)

        return gather(window, ask, lambda answer: answer.blockers)[1]

    def plan_table(
        self, table: str, type_: str = "", force: bool = False, where: str = "", within: timedelta | None = None
    ) -> pb.Plan:
        """Raises WaitTimeout when reading the table takes longer than `within`."""
        request = pb.PlanTableRequest(table=table, type=type_, force=force, where=where)
        return self._call(self._stub.PlanTable, request, READING if within is None else within, late=WaitTimeout)

    def optimize_table(
        self, table: str, type_: str, force: bool, within: timedelta, where: str = ""
    ) -> pb.OptimizeTableResponse:
        """The process that was planned. Raises WaitTimeout when planning takes longer than `within`."""
        request = pb.OptimizeTableRequest(table=table, type=type_, force=force, where=where)
        return self._call(self._stub.OptimizeTable, request, within, late=WaitTimeout)

    def verify_table(self, table: str, before: int, after: int, within: timedelta) -> pb.Verification:
        """Raises WaitTimeout when reading the table takes longer than `within`; it is given up then."""
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
        """The process without its tasks, at its end or after `wait`, whichever is first."""
        request = pb.GetProcessRequest(process_id=process_id, wait_ms=round(wait.total_seconds() * 1000))
        return self._call(self._stub.GetProcess, request, wait + SLACK)

    def with_tasks(self, process: pb.Process) -> pb.Process:
        """The same process with all its tasks, which the coordinator lists page by page."""
        if process.tasks_total > len(process.tasks):
            del process.tasks[:]
            process.tasks.extend(self.list_tasks(process.process_id)[1].items)
        return process

    def cancel_process(self, process_id: str) -> pb.Process:
        return self._call(self._stub.CancelProcess, pb.CancelProcessRequest(process_id=process_id), QUICK)

    def list_optimizers(self, group: str = "", window: Window = ALL) -> Part[pb.Optimizer]:
        def ask(limit: int, after: str) -> pb.ListOptimizersResponse:
            request = pb.ListOptimizersRequest(group=group, limit=limit, after=after)
            return self._call(self._stub.ListOptimizers, request, QUICK)

        return gather(window, ask, lambda answer: answer.optimizers)[1]

    def drain_optimizer(self, optimizer_id: str) -> pb.Optimizer:
        return self._call(self._stub.DrainOptimizer, pb.DrainOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def release_optimizer(self, optimizer_id: str) -> pb.ReleaseOptimizerResponse:
        return self._call(self._stub.ReleaseOptimizer, pb.ReleaseOptimizerRequest(optimizer_id=optimizer_id), QUICK)

    def get_instance(self, id_: str) -> pb.InstanceStatus:
        return self._call(self._stub.GetInstance, pb.GetInstanceRequest(id=id_), TOUCHING)

    def get_instance_logs(self, id_: str, lines: int) -> pb.InstanceLogs:
        return self._call(self._stub.GetInstanceLogs, pb.GetInstanceLogsRequest(id=id_, lines=lines), TOUCHING)

    def kill_instance(self, id_: str) -> pb.InstanceStatus:
        return self._call(self._stub.KillInstance, pb.KillInstanceRequest(id=id_), TOUCHING)

    def create_group(self, name: str, policy: str, properties: Mapping[str, str], container: str) -> pb.Group:
        request = pb.CreateGroupRequest(name=name, scheduling_policy=policy, properties=properties, container=container)
        return self._call(self._stub.CreateGroup, request, QUICK)

    def list_groups(self, window: Window = ALL) -> Part[pb.Group]:
        def ask(limit: int, after: str) -> pb.ListGroupsResponse:
            return self._call(self._stub.ListGroups, pb.ListGroupsRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.groups)[1]

    def get_group(self, name: str) -> pb.Group:
        return self._call(self._stub.GetGroup, pb.GetGroupRequest(name=name), QUICK)

    def update_group(
        self, name: str, policy: str, properties: Mapping[str, str], unset: Sequence[str], container: str
    ) -> pb.Group:
        request = pb.UpdateGroupRequest(
            name=name,
            scheduling_policy=policy,
            properties=properties,
            removed_properties=unset,
            container=container,
        )
        return self._call(self._stub.UpdateGroup, request, QUICK)

    def scale_group(self, name: str, instances: int) -> pb.Group:
        return self._call(self._stub.ScaleGroup, pb.ScaleGroupRequest(name=name, instances=instances), QUICK)

    def remove_group(self, name: str) -> pb.RemoveGroupResponse:
        return self._call(self._stub.RemoveGroup, pb.RemoveGroupRequest(name=name), QUICK)

    def create_token(self, name: str, kind: str) -> pb.Token:
        return self._call(self._stub.CreateToken, pb.CreateTokenRequest(name=name, kind=kind), QUICK)

    def list_tokens(self, window: Window = ALL) -> Part[pb.Token]:
        def ask(limit: int, after: str) -> pb.ListTokensResponse:
            return self._call(self._stub.ListTokens, pb.ListTokensRequest(limit=limit, after=after), QUICK)

        return gather(window, ask, lambda answer: answer.tokens)[1]

    def revoke_token(self, name: str) -> pb.RevokeTokenResponse:
        return self._call(self._stub.RevokeToken, pb.RevokeTokenRequest(name=name), QUICK)

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Any, Answer]",
        request: Any,
        within: timedelta,
        late: type[AmoroError] = CoordinatorUnavailable,
    ) -> Answer:
        while True:
            try:
                return method(request, timeout=within.total_seconds(), metadata=self._metadata)
            except grpc.RpcError as error:
                again = self._elsewhere(method) if error.code() in _GONE else None
                if again is None:
                    reason = explained(self.address, error.details() or "", encrypted=self._encrypted)
                    raise reason or _translate(error, self.address, within, late) from error
                method = again

    def _elsewhere(
        self, method: "grpc.UnaryUnaryMultiCallable[Any, Answer]"
    ) -> "grpc.UnaryUnaryMultiCallable[Any, Answer] | None":
        """The same method where to go on, once the coordinator has ended; None when there is no such place."""
        endpoint = self._after(self._endpoint)
        if endpoint is None:
            return None
        name = next(name for name, known in vars(self._stub).items() if known is method)
        self._channel.close()
        self._open(endpoint)
        found: grpc.UnaryUnaryMultiCallable[Any, Answer] = getattr(self._stub, name)
        return found


def _translate(error: Any, address: str, within: timedelta, late: type[AmoroError]) -> AmoroError:
    status: grpc.StatusCode = error.code()
    message: str = error.details() or status.name
    sent = dict(error.trailing_metadata() or ())
    code, exit_status = _text(sent.get("amoro-code")), _text(sent.get("amoro-exit"))
    hint = _text(sent.get("amoro-hint-bin"))
    if status is grpc.StatusCode.UNAUTHENTICATED:
        return remote_error(code or NotAllowed.code, NotAllowed.exit_status, message, _WHERE_TOKENS_ARE)
    if code:
        return remote_error(code, int(exit_status) if exit_status.isdigit() else 1, message, hint)
    match status:
        case grpc.StatusCode.UNAVAILABLE:
            return CoordinatorUnavailable(
                f"The coordinator at {address} does not answer: {message}",
                hint="Start one with: amoro up. Or name another with --address or --home.",
            )
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return late(f"The coordinator at {address} did not answer within {within.total_seconds():g} s")
        case grpc.StatusCode.UNIMPLEMENTED:
            return WorkFailed(
                f"The coordinator at {address} cannot do this: {message}",
                hint="It may be older than this command line: compare the versions.",
            )
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAllowed(message, hint=_WHERE_TOKENS_ARE)
    return WorkFailed(f"The coordinator at {address} failed: {message}", hint="Its log says more.")


def _ms(duration: timedelta | None) -> int:
    return 0 if duration is None else duration // timedelta(milliseconds=1)


def _text(value: str | bytes | None) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""
