"""What every method of the AdminService needs: the services, and a caller with the admin token."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, TypeVar

import grpc

from amoro_core.errors import InvalidArgument, TableNotFound, UnknownToken
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.model.tokens import TokenKind
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceServicer
from amoro_core.rpc import views
from amoro_core.rpc.calls import Changes, bearer, off_loop
from amoro_core.rpc.errors import abort
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.containers import ContainerService
from amoro_core.services.groups import GroupService
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.keeping import StateService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import OptimizingService
from amoro_core.services.planning import PlanningService
from amoro_core.services.tables import TableService
from amoro_core.services.tokens import TokenService
from amoro_core.services.verifying import VerifyingService

MAX_WAIT_S = 20.0

T = TypeVar("T")


class AdminCalls(AdminServiceServicer):
    """The services beneath the AdminService, which its parts share."""

    def __init__(
        self,
        catalogs: CatalogService,
        tables: TableService,
        planning: PlanningService,
        optimizing: OptimizingService,
        optimizers: OptimizerService,
        groups: GroupService,
        inspection: InspectionService,
        state: StateService,
        verifying: VerifyingService,
        blockers: BlockerService,
        containers: ContainerService,
        *,
        tokens: TokenService,
        settings: Sequence[tuple[str, str, str]],
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
        self._groups = groups
        self._inspection = inspection
        self._state = state
        self._verifying = verifying
        self._blockers = blockers
        self._containers = containers
        self._tokens = tokens
        self._settings = settings
        self._version = version
        self._started = started
        self._address = address
        self._explore = explore
        self._changes = changes
        self._pool = pool

    def _catalog(self, config: CatalogConfig) -> pb.Catalog:
        return views.catalog(config, self._catalogs.commits_refused(config), self._catalogs.shown)

    def _table(self, runtime: TableRuntime) -> pb.Table:
        return self._all_tables([runtime])[0]

    def _all_tables(self, runtimes: Sequence[TableRuntime]) -> list[pb.Table]:
        active, held = self._optimizing.active_processes(), self._blockers.list_active()
        by_table: dict[int, list[pb.Blocker]] = {}
        for item in held:
            by_table.setdefault(item.blocker.table_id, []).append(views.blocker(item))
        return [
            views.table(runtime, active.get(runtime.table_id), by_table.get(runtime.table_id, ()))
            for runtime in runtimes
        ]

    async def _as_admin(self, context: grpc.aio.ServicerContext[Any, Any], work: Callable[[], T]) -> T:
        """Run work for a caller with the admin token; errors end the call with their status."""
        try:
            token = bearer(context)

            def checked() -> T:
                if not self._tokens.holds(TokenKind.ADMIN, token):
                    raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
                try:
                    return work()
                except TableNotFound as error:
                    self._suggest(error)
                    raise

            return await off_loop(self._pool, checked)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await abort(context, error)

    def _suggest(self, error: TableNotFound) -> None:
        if isinstance(error.table, TableIdentifier) and (similar := self._tables.similar(error.table)):
            error.hint = f"Did you mean {similar}?"


W = TypeVar("W", OptimizingStatus, OptimizingType, ProcessStatus, TokenKind, BlockedOperation)


def word(kind: type[W], text: str, name: str) -> W | None:
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError as error:
        known = ", ".join(item.value for item in kind)
        raise InvalidArgument(f"{text!r} is not a {name}", hint=f"One of: {known}.") from error
