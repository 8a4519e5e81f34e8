"""What every method of the AdminService needs: the services, and a caller with the admin token."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import Any, TypeVar

import grpc

from amoro_core.errors import InvalidArgument, NotAllowed, TableNotFound, UnknownToken
from amoro_core.model.blockers import BlockedOperation
from amoro_core.model.processes import CatalogConfig, ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier, TableRuntime
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.admin_pb2_grpc import AdminServiceServicer
from amoro_core.rpc import views
from amoro_core.rpc.calls import Changes, bearer, off_loop, user_of
from amoro_core.rpc.errors import abort
from amoro_core.rpc.roles import ROLES
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.containers import ContainerService
from amoro_core.services.groups import GroupService
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.keeping import StateService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import OptimizingService, ProcessView
from amoro_core.services.overview import OverviewService, ProcessSummary, figures_of_tasks
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
        overview: OverviewService,
        tokens: TokenService,
        settings: Sequence[tuple[str, str, str]],
        nobody_works: Callable[[str], str],
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
        self._overview = overview
        self._tokens = tokens
        self._settings = settings
        self._nobody_works = nobody_works
        self._version = version
        self._started = started
        self._address = address
        self._explore = explore
        self._changes = changes
        self._pool = pool

    def _catalog(self, config: CatalogConfig) -> pb.Catalog:
        return views.catalog(config, self._catalogs.commits_refused(config), self._catalogs.shown)

    def _table(self, runtime: TableRuntime) -> pb.Table:
        (message,) = self._all_tables([runtime])
        message.failure = self._overview.last_failure(runtime.table_id)
        return message

    def _all_tables(self, runtimes: Sequence[TableRuntime]) -> list[pb.Table]:
        active = self._overview.active_on(runtime.table_id for runtime in runtimes)
        held = self._blockers.list_active()
        nobody = {group: self._nobody_works(group) for group in {runtime.group for runtime in runtimes}}
        by_table: dict[int, list[pb.Blocker]] = {}
        for item in held:
            by_table.setdefault(item.blocker.table_id, []).append(views.blocker(item))
        return [
            views.table(
                runtime, active.get(runtime.table_id), by_table.get(runtime.table_id, ()), nobody[runtime.group]
            )
            for runtime in runtimes
        ]

    def _process(self, view: ProcessView, revertible: bool = False) -> pb.Process:
        progress = self._optimizers.progress()
        (message,) = self._summaries([ProcessSummary(view.process, view.table, figures_of_tasks(view.tasks, progress))])
        if message.HasField("receipt"):
            message.receipt.revertible = revertible
        message.tasks.extend(views.task(task, progress) for task in view.tasks)
        return message

    def _summaries(self, summaries: Sequence[ProcessSummary]) -> list[pb.Process]:
        """The processes without their tasks."""
        waiting = {
            group
            for summary in summaries
            if summary.process.status is ProcessStatus.RUNNING
            for group in summary.figures.waiting_in
        }
        nobody = {group: self._nobody_works(group) for group in waiting}
        return [
            views.process(summary, "; ".join(filter(None, map(nobody.get, summary.figures.waiting_in))))
            for summary in summaries
        ]

    async def _run(self, method: str, context: grpc.aio.ServicerContext[Any, Any], work: Callable[[], T]) -> T:
        """Run the method's work for a caller whose token has its role; errors end the call with their status."""
        return await self._run_named(method, context, lambda who: work())

    async def _run_named(self, method: str, context: grpc.aio.ServicerContext[Any, Any], work: Callable[[str], T]) -> T:
        """As `_run`, for work that is told who calls: the token's name, and the user by his own word."""
        try:
            token, user = bearer(context), user_of(context)

            def checked() -> T:
                name = self._admitted(method, token)
                try:
                    return work(f"user {user} with the token {name}" if user else f"the token {name}")
                except TableNotFound as error:
                    self._suggest(error)
                    raise

            return await off_loop(self._pool, checked)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await abort(context, error)

    def _admitted(self, method: str, token: str) -> str:
        """The name of the token. Raises UnknownToken; NotAllowed for one whose role the method is not for."""
        found = self._tokens.find(token)
        if found is None:
            raise UnknownToken("the admin token is wrong", hint="It is in admin.token of the state directory.")
        (name, role), needed = found, ROLES[method]
        if not role.allows(needed):
            raise NotAllowed(
                f"the token {name} has the role {role}; {method} needs the role {needed}",
                hint=f"Give a token with the role {needed}: amoro token create NAME --role {needed}",
            )
        return name

    def _suggest(self, error: TableNotFound) -> None:
        if isinstance(error.table, TableIdentifier) and (similar := self._tables.similar(error.table)):
            error.hint = f"Did you mean {similar}?"


W = TypeVar("W", OptimizingStatus, OptimizingType, ProcessStatus, TaskStatus, Role, BlockedOperation)


def word(kind: type[W], text: str, name: str) -> W | None:
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError as error:
        known = ", ".join(item.value for item in kind)
        raise InvalidArgument(f"{text!r} is not a {name}", hint=f"One of: {known}.") from error
