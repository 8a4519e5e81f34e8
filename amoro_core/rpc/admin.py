"""AdminService over gRPC: the same services beneath as everything else."""

import os
import threading
import time
from typing import TypeVar

import grpc

from amoro_core.errors import InvalidArgument
from amoro_core.model.paging import Window
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.rpc import comparisons, views
from amoro_core.rpc.administering import word
from amoro_core.rpc.blocking import BlockerCalls
from amoro_core.rpc.calls import wait_for
from amoro_core.rpc.resources import ResourceCalls
from amoro_core.services.overview import page_limit, wanted_tables

MAX_WAIT_S = 20.0
MAX_FILES = 10_000  # on a page: each reads the manifests of the table anew

T = TypeVar("T")


def _requested(type_: str, force: bool) -> OptimizingType | None:
    """The type that is wished for. Raises InvalidArgument, also for a force that would be passed over."""
    requested = word(OptimizingType, type_, "type")
    if force and requested is not OptimizingType.FULL:
        raise InvalidArgument("force needs the type full", hint="Ask for that type: --type full --force.")
    return requested


class AdminServicer(ResourceCalls, BlockerCalls):
    """Translates calls of people and their tools."""

    async def GetStatus(
        self,
        request: pb.GetStatusRequest,
        context: grpc.aio.ServicerContext[pb.GetStatusRequest, pb.GetStatusResponse],
    ) -> pb.GetStatusResponse:
        return await self._run(
            "GetStatus",
            context,
            lambda: pb.GetStatusResponse(
                version=self._version,
                started_ms=views.milliseconds(self._started),
                address=self._address(),
                tables=self._tables.count(),
                optimizers=len(self._optimizers.list_optimizers()),
                running_processes=self._overview.count_running(),
                pid=os.getpid(),
            ),
        )

    async def GetSettings(
        self,
        request: pb.GetSettingsRequest,
        context: grpc.aio.ServicerContext[pb.GetSettingsRequest, pb.GetSettingsResponse],
    ) -> pb.GetSettingsResponse:
        return await self._run(
            "GetSettings",
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

        return await self._run("GetTableProperties", context, work)

    async def GetTableHealth(
        self,
        request: pb.GetTableHealthRequest,
        context: grpc.aio.ServicerContext[pb.GetTableHealthRequest, pb.TableHealth],
    ) -> pb.TableHealth:
        def work() -> pb.TableHealth:
            identifier = self._catalogs.resolve(request.table)
            return views.table_health(identifier, self._inspection.health(identifier))

        return await self._run("GetTableHealth", context, work)

    async def ListTableFiles(
        self,
        request: pb.ListTableFilesRequest,
        context: grpc.aio.ServicerContext[pb.ListTableFilesRequest, pb.ListTableFilesResponse],
    ) -> pb.ListTableFilesResponse:
        def work() -> pb.ListTableFilesResponse:
            identifier = self._catalogs.resolve(request.table)
            window = Window(page_limit(request.limit, MAX_FILES), request.after)
            return views.table_files(self._inspection.files(identifier, window, request.snapshot_id or None))

        return await self._run("ListTableFiles", context, work)

    async def ListTables(
        self,
        request: pb.ListTablesRequest,
        context: grpc.aio.ServicerContext[pb.ListTablesRequest, pb.ListTablesResponse],
    ) -> pb.ListTablesResponse:
        def work() -> pb.ListTablesResponse:
            if request.catalog:
                self._catalogs.get(request.catalog)
            status = word(OptimizingStatus, request.status, "status")
            after = parse_table(request.after) if request.after else None
            page = self._overview.tables(wanted_tables(request.catalog, status, request.group), after, request.limit)
            return pb.ListTablesResponse(tables=self._all_tables(page.items), next=page.next, total=page.total)

        return await self._run("ListTables", context, work)

    async def SelectTables(
        self,
        request: pb.SelectTablesRequest,
        context: grpc.aio.ServicerContext[pb.SelectTablesRequest, pb.SelectTablesResponse],
    ) -> pb.SelectTablesResponse:
        return await self._run("SelectTables", context, lambda: views.selected(self._catalogs.select(request.names)))

    async def GetTable(
        self,
        request: pb.GetTableRequest,
        context: grpc.aio.ServicerContext[pb.GetTableRequest, pb.Table],
    ) -> pb.Table:
        return await self._run(
            "GetTable", context, lambda: self._table(self._tables.find(self._catalogs.resolve(request.table)))
        )

    async def ListSnapshots(
        self,
        request: pb.ListSnapshotsRequest,
        context: grpc.aio.ServicerContext[pb.ListSnapshotsRequest, pb.ListSnapshotsResponse],
    ) -> pb.ListSnapshotsResponse:
        def work() -> pb.ListSnapshotsResponse:
            window = Window(page_limit(request.limit), request.after)
            page = self._inspection.snapshots(self._catalogs.resolve(request.table), window)
            shown = [views.snapshot(item) for item in page.items]
            return pb.ListSnapshotsResponse(snapshots=shown, next=page.next, total=page.total)

        return await self._run("ListSnapshots", context, work)

    async def BackupState(
        self,
        request: pb.BackupStateRequest,
        context: grpc.aio.ServicerContext[pb.BackupStateRequest, pb.BackupStateResponse],
    ) -> pb.BackupStateResponse:
        return await self._run(
            "BackupState",
            context,
            lambda: pb.BackupStateResponse(path=request.path, bytes=self._state.backup(request.path)),
        )

    async def CheckState(
        self,
        request: pb.CheckStateRequest,
        context: grpc.aio.ServicerContext[pb.CheckStateRequest, pb.CheckStateResponse],
    ) -> pb.CheckStateResponse:
        return await self._run("CheckState", context, lambda: pb.CheckStateResponse(problems=self._state.check()))

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

        return await self._run("SetTableEnabled", context, work)

    async def PlanTable(
        self,
        request: pb.PlanTableRequest,
        context: grpc.aio.ServicerContext[pb.PlanTableRequest, pb.Plan],
    ) -> pb.Plan:
        def work() -> pb.Plan:
            requested = _requested(request.type, request.force)
            identifier = self._catalogs.resolve(request.table)
            return views.plan(self._tables.preview(identifier, requested, request.force, request.where))

        return await self._run("PlanTable", context, work)

    async def OptimizeTable(
        self,
        request: pb.OptimizeTableRequest,
        context: grpc.aio.ServicerContext[pb.OptimizeTableRequest, pb.OptimizeTableResponse],
    ) -> pb.OptimizeTableResponse:
        def work() -> pb.OptimizeTableResponse:
            requested = _requested(request.type, request.force)
            runtime = self._tables.wished(self._catalogs.resolve(request.table))
            begun = self._planning.begin(
                runtime.table_id, trigger="request", requested=requested, force=request.force, where=request.where
            )
            answer = pb.OptimizeTableResponse(plan=views.evaluated(runtime, begun.evaluation))
            if begun.process_id is not None:
                view = self._optimizing.find_process(begun.process_id)
                answer.plan.type, answer.plan.tasks = view.process.type.value, len(view.tasks)
                answer.process_id, answer.no_optimizer = begun.process_id, self._process(view).no_optimizer
            return answer

        return await self._run("OptimizeTable", context, work)

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
            return await self._run("VerifyTable", context, work)
        finally:
            gone.set()

    async def ListProcesses(
        self,
        request: pb.ListProcessesRequest,
        context: grpc.aio.ServicerContext[pb.ListProcessesRequest, pb.ListProcessesResponse],
    ) -> pb.ListProcessesResponse:
        def work() -> pb.ListProcessesResponse:
            status = word(ProcessStatus, request.status, "status")
            table_id = self._tables.id_of(self._catalogs.resolve(request.table)) if request.table else None
            window = Window(request.limit, request.after)
            page = self._overview.processes(window, self._optimizers.progress(), table_id, status)
            return pb.ListProcessesResponse(processes=self._summaries(page.items), next=page.next, total=page.total)

        return await self._run("ListProcesses", context, work)

    async def ListTasks(
        self,
        request: pb.ListTasksRequest,
        context: grpc.aio.ServicerContext[pb.ListTasksRequest, pb.ListTasksResponse],
    ) -> pb.ListTasksResponse:
        def work() -> pb.ListTasksResponse:
            status, progress = word(TaskStatus, request.status, "status"), self._optimizers.progress()
            window = Window(request.limit, request.after)
            found = self._overview.tasks(request.process_id, window, progress, status)
            (process,) = self._summaries([found.summary])
            tasks = [views.task(task, progress) for task in found.tasks.items]
            return pb.ListTasksResponse(process=process, tasks=tasks, next=found.tasks.next, total=found.tasks.total)

        return await self._run("ListTasks", context, work)

    async def GetProcess(
        self,
        request: pb.GetProcessRequest,
        context: grpc.aio.ServicerContext[pb.GetProcessRequest, pb.Process],
    ) -> pb.Process:
        def work() -> tuple[bool, pb.Process]:
            view = self._optimizing.find_process(request.process_id)
            waiting = view.process.status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)
            revertible = not waiting and self._optimizing.is_head(view)
            return waiting, self._process(view, revertible)

        deadline = time.monotonic() + min(request.wait_ms / 1000, MAX_WAIT_S)
        said: str | None = None
        while True:
            changed = self._changes.current()
            waiting, answer = await self._run("GetProcess", context, work)
            left = deadline - time.monotonic()
            # Who waits hears at once what the commit waits for.
            has_news = said is not None and answer.waiting not in ("", said)
            if not waiting or left <= 0 or has_news or self._changes.are_over:
                return answer
            said = answer.waiting
            await wait_for(changed, left)

    async def CancelProcess(
        self,
        request: pb.CancelProcessRequest,
        context: grpc.aio.ServicerContext[pb.CancelProcessRequest, pb.Process],
    ) -> pb.Process:
        return await self._run_named(
            "CancelProcess",
            context,
            lambda who: self._process(self._optimizing.cancel(request.process_id, f"cancelled by {who}")),
        )
