"""AdminService over gRPC: the same services beneath as everything else."""

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, TypeVar

import grpc

from amoro_core.errors import InvalidArgument, UnknownToken
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableRuntime
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceServicer
from amoro_core.rpc import views
from amoro_core.rpc.calls import Changes, bearer, off_loop, same_secret, wait_for
from amoro_core.rpc.errors import abort
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.optimizers import OptimizerService, hash_token
from amoro_core.services.optimizing import OptimizingService
from amoro_core.services.planning import PlanningService
from amoro_core.services.tables import TableService

MAX_WAIT_S = 20.0

T = TypeVar("T")


class AdminServicer(AdminServiceServicer):
    """Translates calls of people and their tools."""

    def __init__(
        self,
        catalogs: CatalogService,
        tables: TableService,
        planning: PlanningService,
        optimizing: OptimizingService,
        optimizers: OptimizerService,
        *,
        admin_hash: str,
        version: str,
        started: datetime,
        address: Callable[[], str],
        explore: Callable[[], None],
        changes: Changes,
        pool: Executor,
    ) -> None:
        self._catalogs = catalogs
        self._tables = tables
        self._planning = planning
        self._optimizing = optimizing
        self._optimizers = optimizers
        self._admin_hash = admin_hash
        self._version = version
        self._started = started
        self._address = address
        self._explore = explore
        self._changes = changes
        self._pool = pool

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
                tables=len(self._tables.list_tables()),
                optimizers=len(self._optimizers.list_optimizers()),
                running_processes=len(self._optimizing.list_processes(status=ProcessStatus.RUNNING)),
                pid=os.getpid(),
            ),
        )

    async def AddCatalog(
        self,
        request: pb.AddCatalogRequest,
        context: grpc.aio.ServicerContext[pb.AddCatalogRequest, pb.Catalog],
    ) -> pb.Catalog:
        config = CatalogConfig(
            request.name, tuple(sorted(request.properties.items())), tuple(request.allowed_locations)
        )

        def work() -> pb.Catalog:
            added = self._catalogs.add(config)
            self._explore()
            return self._catalog(added)

        return await self._as_admin(context, work)

    async def ListCatalogs(
        self,
        request: pb.ListCatalogsRequest,
        context: grpc.aio.ServicerContext[pb.ListCatalogsRequest, pb.ListCatalogsResponse],
    ) -> pb.ListCatalogsResponse:
        return await self._as_admin(
            context,
            lambda: pb.ListCatalogsResponse(
                catalogs=[self._catalog(config) for config in self._catalogs.list_catalogs()]
            ),
        )

    async def ListTables(
        self,
        request: pb.ListTablesRequest,
        context: grpc.aio.ServicerContext[pb.ListTablesRequest, pb.ListTablesResponse],
    ) -> pb.ListTablesResponse:
        def work() -> pb.ListTablesResponse:
            if request.catalog:
                self._catalogs.get(request.catalog)
            status = _word(OptimizingStatus, request.status, "status")
            listed = self._tables.list_tables(request.catalog or None, status)
            return pb.ListTablesResponse(tables=[self._table(runtime) for runtime in listed])

        return await self._as_admin(context, work)

    async def GetTable(
        self,
        request: pb.GetTableRequest,
        context: grpc.aio.ServicerContext[pb.GetTableRequest, pb.Table],
    ) -> pb.Table:
        return await self._as_admin(
            context, lambda: self._table(self._tables.find(self._catalogs.resolve(request.table)))
        )

    async def SetTableEnabled(
        self,
        request: pb.SetTableEnabledRequest,
        context: grpc.aio.ServicerContext[pb.SetTableEnabledRequest, pb.Table],
    ) -> pb.Table:
        return await self._as_admin(
            context,
            lambda: self._table(self._tables.set_enabled(self._catalogs.resolve(request.table), request.enabled)),
        )

    async def PlanTable(
        self,
        request: pb.PlanTableRequest,
        context: grpc.aio.ServicerContext[pb.PlanTableRequest, pb.Plan],
    ) -> pb.Plan:
        def work() -> pb.Plan:
            requested = _word(OptimizingType, request.type, "type")
            identifier = self._catalogs.resolve(request.table)
            return views.plan(self._tables.preview(identifier, requested, request.force, self._threads()))

        return await self._as_admin(context, work)

    async def OptimizeTable(
        self,
        request: pb.OptimizeTableRequest,
        context: grpc.aio.ServicerContext[pb.OptimizeTableRequest, pb.OptimizeTableResponse],
    ) -> pb.OptimizeTableResponse:
        def work() -> pb.OptimizeTableResponse:
            requested = _word(OptimizingType, request.type, "type")
            runtime = self._tables.wished(self._catalogs.resolve(request.table))
            begun = self._planning.begin(runtime.table_id, trigger="request", requested=requested, force=request.force)
            return pb.OptimizeTableResponse(
                process_id=begun.process_id or "", plan=views.evaluated(runtime, begun.evaluation)
            )

        return await self._as_admin(context, work)

    async def ListProcesses(
        self,
        request: pb.ListProcessesRequest,
        context: grpc.aio.ServicerContext[pb.ListProcessesRequest, pb.ListProcessesResponse],
    ) -> pb.ListProcessesResponse:
        def work() -> pb.ListProcessesResponse:
            status = _word(ProcessStatus, request.status, "status")
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

    async def ListOptimizers(
        self,
        request: pb.ListOptimizersRequest,
        context: grpc.aio.ServicerContext[pb.ListOptimizersRequest, pb.ListOptimizersResponse],
    ) -> pb.ListOptimizersResponse:
        return await self._as_admin(
            context,
            lambda: pb.ListOptimizersResponse(
                optimizers=[
                    views.optimizer(item, life, self._optimizing.running_tasks(item.optimizer_id))
                    for item, life in self._optimizers.list_optimizers()
                ]
            ),
        )

    def _catalog(self, config: CatalogConfig) -> pb.Catalog:
        return views.catalog(config, self._catalogs.commits_refused(config), self._catalogs.shown(config))

    def _table(self, runtime: TableRuntime) -> pb.Table:
        active = self._optimizing.active_process(runtime.table_id)
        return views.table(runtime, active.process_id if active else None)

    def _threads(self) -> int:
        return max(1, sum(item.threads for item, _ in self._optimizers.list_optimizers()))

    async def _as_admin(self, context: grpc.aio.ServicerContext[Any, Any], work: Callable[[], T]) -> T:
        """Run work for a caller with the admin token; errors end the call with their status."""
        try:
            if not same_secret(hash_token(bearer(context)), self._admin_hash):
                raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
            return await off_loop(self._pool, work)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await abort(context, error)


W = TypeVar("W", OptimizingStatus, OptimizingType, ProcessStatus)


def _word(kind: type[W], text: str, name: str) -> W | None:
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError as error:
        known = ", ".join(item.value for item in kind)
        raise InvalidArgument(f"{text!r} is not a {name}", hint=f"One of: {known}.") from error
