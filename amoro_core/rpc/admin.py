"""AdminService over gRPC: the same services beneath as everything else."""

import os
import threading
import time
from typing import TypeVar

import grpc

from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.rpc import comparisons, views
from amoro_core.rpc.administering import word
from amoro_core.rpc.blocking import BlockerCalls
from amoro_core.rpc.calls import wait_for
from amoro_core.rpc.resources import ResourceCalls

MAX_WAIT_S = 20.0
MAX_LISTED = 1000

T = TypeVar("T")


def _requested(type_: str, force: bool) -> OptimizingType | None:
    """The type that is wished for. Raises InvalidArgument, also for a force that would be passed over."""
    requested = word(OptimizingType, type_, "type")
    if force and requested is not OptimizingType.FULL:
        raise InvalidArgument("force belongs to the type full", hint="Ask for that type: --type full --force.")
    return requested


class AdminServicer(ResourceCalls, BlockerCalls):
    """Translates calls of people and their tools."""

    async def GetStatus(
        self,
        request: pb.GetStatusRequest,
        context: grpc.aio.ServicerContext[pb.GetStatusRequest, pb.GetStatusResponse],
    ) -> pb.GetStatusResponse:
        return await self._as_admin(
            context,
            lambda: pb.GetStatusResponse(
                version=self._version,
                started_ms=views.milliseconds(self._started),
                address=self._address(),
                tables=self._tables.count(),
                optimizers=len(self._optimizers.list_optimizers()),
                running_processes=len(self._optimizing.list_processes(status=ProcessStatus.RUNNING)),
                pid=os.getpid(),
            ),
        )

    async def GetSettings(
        self,
        request: pb.GetSettingsRequest,
        context: grpc.aio.ServicerContext[pb.GetSettingsRequest, pb.GetSettingsResponse],
    ) -> pb.GetSettingsResponse:
        return await self._as_admin(
            context,
            lambda: pb.GetSettingsResponse(
                settings=[pb.Setting(key=key, value=value, origin=origin) for key, value, origin in self._settings]
            ),
        )

    async def GetTableProperties(
        self,
        request: pb.GetTablePropertiesRequest,
        context: grpc.aio.ServicerContext[pb.GetTablePropertiesRequest, pb.GetTablePropertiesResponse],
    ) -> pb.GetTablePropertiesResponse:
        def work() -> pb.GetTablePropertiesResponse:
            identifier = self._catalogs.resolve(request.table)
            return views.table_properties(identifier, *self._inspection.properties(identifier))

        return await self._as_admin(context, work)

    async def GetTableHealth(
        self,
        request: pb.GetTableHealthRequest,
        context: grpc.aio.ServicerContext[pb.GetTableHealthRequest, pb.TableHealth],
    ) -> pb.TableHealth:
        def work() -> pb.TableHealth:
            identifier = self._catalogs.resolve(request.table)
            return views.table_health(identifier, self._inspection.health(identifier))

        return await self._as_admin(context, work)

    async def ListTableFiles(
        self,
        request: pb.ListTableFilesRequest,
        context: grpc.aio.ServicerContext[pb.ListTableFilesRequest, pb.ListTableFilesResponse],
    ) -> pb.ListTableFilesResponse:
        def work() -> pb.ListTableFilesResponse:
            identifier = self._catalogs.resolve(request.table)
            return views.table_files(self._inspection.files(identifier, request.limit or MAX_LISTED))

        return await self._as_admin(context, work)

    async def ListTables(
        self,
        request: pb.ListTablesRequest,
        context: grpc.aio.ServicerContext[pb.ListTablesRequest, pb.ListTablesResponse],
    ) -> pb.ListTablesResponse:
        def work() -> pb.ListTablesResponse:
            if request.catalog:
                self._catalogs.get(request.catalog)
            status = word(OptimizingStatus, request.status, "status")
            listed = self._tables.list_tables(request.catalog or None, status)
            return pb.ListTablesResponse(tables=self._all_tables(listed))

        return await self._as_admin(context, work)

    async def GetTable(
        self,
        request: pb.GetTableRequest,
        context: grpc.aio.ServicerContext[pb.GetTableRequest, pb.Table],
    ) -> pb.Table:
        return await self._as_admin(
            context, lambda: self._table(self._tables.find(self._catalogs.resolve(request.table)))
        )

    async def ListSnapshots(
        self,
        request: pb.ListSnapshotsRequest,
        context: grpc.aio.ServicerContext[pb.ListSnapshotsRequest, pb.ListSnapshotsResponse],
    ) -> pb.ListSnapshotsResponse:
        def work() -> pb.ListSnapshotsResponse:
            found = self._inspection.snapshots(self._catalogs.resolve(request.table))
            shown = found[: request.limit or MAX_LISTED]
            return pb.ListSnapshotsResponse(snapshots=[views.snapshot(item) for item in shown], total=len(found))

        return await self._as_admin(context, work)

    async def BackupState(
        self,
        request: pb.BackupStateRequest,
        context: grpc.aio.ServicerContext[pb.BackupStateRequest, pb.BackupStateResponse],
    ) -> pb.BackupStateResponse:
        return await self._as_admin(
            context, lambda: pb.BackupStateResponse(path=request.path, bytes=self._state.backup(request.path))
        )

    async def CheckState(
        self,
        request: pb.CheckStateRequest,
        context: grpc.aio.ServicerContext[pb.CheckStateRequest, pb.CheckStateResponse],
    ) -> pb.CheckStateResponse:
        return await self._as_admin(context, lambda: pb.CheckStateResponse(problems=self._state.check()))

    async def SetTableEnabled(
        self,
        request: pb.SetTableEnabledRequest,
        context: grpc.aio.ServicerContext[pb.SetTableEnabledRequest, pb.Table],
    ) -> pb.Table:
        def work() -> pb.Table:
            runtime = self._tables.set_enabled(self._catalogs.resolve(request.table), request.enabled)
            if self._optimizing.cancel_unwanted(runtime.table_id) is not None:
                runtime = self._tables.find(runtime.identifier)
            return self._table(runtime)

        return await self._as_admin(context, work)

    async def PlanTable(
        self,
        request: pb.PlanTableRequest,
        context: grpc.aio.ServicerContext[pb.PlanTableRequest, pb.Plan],
    ) -> pb.Plan:
        def work() -> pb.Plan:
            requested = _requested(request.type, request.force)
            identifier = self._catalogs.resolve(request.table)
            return views.plan(self._tables.preview(identifier, requested, request.force))

        return await self._as_admin(context, work)

    async def OptimizeTable(
        self,
        request: pb.OptimizeTableRequest,
        context: grpc.aio.ServicerContext[pb.OptimizeTableRequest, pb.OptimizeTableResponse],
    ) -> pb.OptimizeTableResponse:
        def work() -> pb.OptimizeTableResponse:
            requested = _requested(request.type, request.force)
            runtime = self._tables.wished(self._catalogs.resolve(request.table))
            begun = self._planning.begin(runtime.table_id, trigger="request", requested=requested, force=request.force)
            plan = views.evaluated(runtime, begun.evaluation)
            if begun.process_id is not None:
                view = self._optimizing.find_process(begun.process_id)
                plan.type, plan.tasks = view.process.type.value, len(view.tasks)
            return pb.OptimizeTableResponse(process_id=begun.process_id or "", plan=plan)

        return await self._as_admin(context, work)

    async def VerifyTable(
        self,
        request: pb.VerifyTableRequest,
        context: grpc.aio.ServicerContext[pb.VerifyTableRequest, pb.Verification],
    ) -> pb.Verification:
        gone = threading.Event()  # the caller: reading a large table for nobody would hold a thread for long

        def work() -> pb.Verification:
            identifier = self._catalogs.resolve(request.table)
            found = self._verifying.verify(identifier, request.before or None, request.after or None, gone.is_set)
            return comparisons.verification(identifier, found)

        try:
            return await self._as_admin(context, work)
        finally:
            gone.set()

    async def ListProcesses(
        self,
        request: pb.ListProcessesRequest,
        context: grpc.aio.ServicerContext[pb.ListProcessesRequest, pb.ListProcessesResponse],
    ) -> pb.ListProcessesResponse:
        def work() -> pb.ListProcessesResponse:
            status = word(ProcessStatus, request.status, "status")
            table_id = self._tables.find(self._catalogs.resolve(request.table)).table_id if request.table else None
            listed = self._optimizing.list_processes(table_id, status, request.limit or 100)
            progress = self._optimizers.progress()
            return pb.ListProcessesResponse(processes=[views.process(view, progress, False) for view in listed])

        return await self._as_admin(context, work)

    async def GetProcess(
        self,
        request: pb.GetProcessRequest,
        context: grpc.aio.ServicerContext[pb.GetProcessRequest, pb.Process],
    ) -> pb.Process:
        def work() -> tuple[bool, pb.Process]:
            view = self._optimizing.find_process(request.process_id)
            waiting = view.process.status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)
            revertible = not waiting and self._optimizing.is_head(view)
            return waiting, views.process(view, self._optimizers.progress(), revertible)

        deadline = time.monotonic() + min(request.wait_ms / 1000, MAX_WAIT_S)
        while True:
            changed = self._changes.current()
            waiting, answer = await self._as_admin(context, work)
            left = deadline - time.monotonic()
            if not waiting or left <= 0:
                return answer
            await wait_for(changed, left)

    async def CancelProcess(
        self,
        request: pb.CancelProcessRequest,
        context: grpc.aio.ServicerContext[pb.CancelProcessRequest, pb.Process],
    ) -> pb.Process:
        return await self._as_admin(
            context,
            lambda: views.process(
                self._optimizing.cancel(request.process_id, "somebody cancelled it"), self._optimizers.progress(), False
            ),
        )
