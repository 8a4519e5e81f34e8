"""The admin service as the command line calls it: a deadline on each call, errors as ours."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import grpc

from amoro_cli.launcher import Endpoint
from amoro_cli.remote import remote_error
from amoro_core.errors import AmoroError, CoordinatorUnavailable, NotAllowed, WaitTimeout, WorkFailed
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.protocol.channels import explained, is_encrypted, open_channel

Answer = TypeVar("Answer")

QUICK = timedelta(seconds=30)  # what the coordinator knows already
TOUCHING = timedelta(minutes=2)  # what reaches out to a catalog or a container
PLANNING = timedelta(minutes=10)  # what reads a table's manifests
SLACK = timedelta(seconds=15)  # the answer's way, on top of the time that the server may wait

_OPTIONS = [
    ("grpc.max_receive_message_length", -1),  # a long list from our own coordinator is no danger
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_reconnect_backoff_ms", 2000),  # a wait goes on soon after a coordinator's restart
]
_WHERE_TOKENS_ARE = (
    "On the coordinator's machine the token is read from STATE_DIRECTORY/admin.token (see --home); "
    "elsewhere give it with --token-file or AMORO_TOKEN."
)


class AdminClient:
    """A connection to one coordinator; every call may raise an AmoroError."""

    def __init__(self, endpoint: Endpoint) -> None:
        token = endpoint.token.reveal()
        if not (token.isascii() and token.isprintable()):
            raise NotAllowed("The admin token holds characters that no token has", hint=_WHERE_TOKENS_ARE)
        self.address = endpoint.address
        self._metadata = (("authorization", f"Bearer {token}"),)
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

    def list_catalogs(self) -> Sequence[pb.Catalog]:
        return self._call(self._stub.ListCatalogs, pb.ListCatalogsRequest(), QUICK).catalogs

    def list_tables(self, catalog: str = "", status: str = "") -> Sequence[pb.Table]:
        return self._call(self._stub.ListTables, pb.ListTablesRequest(catalog=catalog, status=status), QUICK).tables

    def get_table(self, table: str) -> pb.Table:
        return self._call(self._stub.GetTable, pb.GetTableRequest(table=table), TOUCHING)

    def get_settings(self) -> Sequence[pb.Setting]:
        return self._call(self._stub.GetSettings, pb.GetSettingsRequest(), QUICK).settings

    def get_table_properties(self, table: str) -> pb.GetTablePropertiesResponse:
        return self._call(self._stub.GetTableProperties, pb.GetTablePropertiesRequest(table=table), TOUCHING)

    def get_table_health(self, table: str) -> pb.TableHealth:
        return self._call(self._stub.GetTableHealth, pb.GetTableHealthRequest(table=table), PLANNING)

    def list_table_files(self, table: str, limit: int) -> pb.ListTableFilesResponse:
        return self._call(self._stub.ListTableFiles, pb.ListTableFilesRequest(table=table, limit=limit), PLANNING)

    def list_snapshots(self, table: str, limit: int) -> pb.ListSnapshotsResponse:
        return self._call(self._stub.ListSnapshots, pb.ListSnapshotsRequest(table=table, limit=limit), TOUCHING)

    def backup_state(self, path: str) -> pb.BackupStateResponse:
        return self._call(self._stub.BackupState, pb.BackupStateRequest(path=path), PLANNING)

    def check_state(self) -> Sequence[str]:
        return self._call(self._stub.CheckState, pb.CheckStateRequest(), PLANNING).problems

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

    def list_blockers(self, table: str = "") -> Sequence[pb.Blocker]:
        return self._call(self._stub.ListBlockers, pb.ListBlockersRequest(table=table), TOUCHING).blockers

    def plan_table(self, table: str, type_: str = "", force: bool = False) -> pb.Plan:
        request = pb.PlanTableRequest(table=table, type=type_, force=force)
        return self._call(self._stub.PlanTable, request, PLANNING)

    def optimize_table(self, table: str, type_: str, force: bool, within: timedelta) -> pb.OptimizeTableResponse:
        """The process that was planned. Raises WaitTimeout when planning takes longer than `within`."""
        request = pb.OptimizeTableRequest(table=table, type=type_, force=force)
        return self._call(self._stub.OptimizeTable, request, within, late=WaitTimeout)

    def verify_table(self, table: str, before: int, after: int, within: timedelta) -> pb.Verification:
        """Raises WaitTimeout when reading the table takes longer than `within`."""
        request = pb.VerifyTableRequest(table=table, before=before, after=after)
        return self._call(self._stub.VerifyTable, request, within, late=WaitTimeout)

    def list_processes(self, table: str = "", status: str = "", limit: int = 0) -> Sequence[pb.Process]:
        request = pb.ListProcessesRequest(table=table, status=status, limit=limit)
        return self._call(self._stub.ListProcesses, request, QUICK).processes

    def get_process(self, process_id: str, wait: timedelta = timedelta(0)) -> pb.Process:
        """The process, at its end or after `wait`, whichever is first."""
        request = pb.GetProcessRequest(process_id=process_id, wait_ms=round(wait.total_seconds() * 1000))
        return self._call(self._stub.GetProcess, request, wait + SLACK)

    def cancel_process(self, process_id: str) -> pb.Process:
        return self._call(self._stub.CancelProcess, pb.CancelProcessRequest(process_id=process_id), QUICK)

    def list_optimizers(self) -> Sequence[pb.Optimizer]:
        return self._call(self._stub.ListOptimizers, pb.ListOptimizersRequest(), QUICK).optimizers

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

    def list_groups(self) -> Sequence[pb.Group]:
        return self._call(self._stub.ListGroups, pb.ListGroupsRequest(), QUICK).groups

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

    def list_tokens(self) -> Sequence[pb.Token]:
        return self._call(self._stub.ListTokens, pb.ListTokensRequest(), QUICK).tokens

    def revoke_token(self, name: str) -> pb.RevokeTokenResponse:
        return self._call(self._stub.RevokeToken, pb.RevokeTokenRequest(name=name), QUICK)

    def _call(
        self,
        method: "grpc.UnaryUnaryMultiCallable[Any, Answer]",
        request: Any,
        within: timedelta,
        late: type[AmoroError] = CoordinatorUnavailable,
    ) -> Answer:
        try:
            return method(request, timeout=within.total_seconds(), metadata=self._metadata)
        except grpc.RpcError as error:
            reason = explained(self.address, error.details() or "", encrypted=self._encrypted)
            raise reason or _translate(error, self.address, within, late) from error


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
