"""The arguments of operations: the services, the program around them, and the call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.containers import ContainerService
from amoro_core.services.groups import GroupService
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.leasing import LeaseService
from amoro_core.services.maintaining import MaintenanceService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import OptimizingService
from amoro_core.services.overview import OverviewService
from amoro_core.services.planning import PlanningService
from amoro_core.services.state import StateService
from amoro_core.services.tables import TableService
from amoro_core.services.tokens import TokenService
from amoro_core.services.trash import TrashService
from amoro_core.services.verifying import VerifyingService


@dataclass(frozen=True, slots=True)
class Program:
    """The coordinator as a program."""

    version: str
    started: datetime
    settings: Sequence[tuple[str, str, str]]  # key, value, origin
    address: Callable[[], str]  # where it listens
    explore: Callable[[], None]  # starts the discovery of tables in all catalogs now


@dataclass(frozen=True, slots=True)
class Call:
    """The caller, and whether the caller still waits for the answer."""

    caller: str
    is_given_up: Callable[[], bool] = lambda: False


class Services(Protocol):
    """Every service, by its subject."""

    catalogs: CatalogService
    tables: TableService
    planning: PlanningService
    maintaining: MaintenanceService
    trash: TrashService
    leasing: LeaseService
    optimizing: OptimizingService
    optimizers: OptimizerService
    groups: GroupService
    inspection: InspectionService
    overview: OverviewService
    state: StateService
    verifying: VerifyingService
    tokens: TokenService
    blockers: BlockerService
    containers: ContainerService
    program: Program

    def nobody_works(self, group: str) -> str:
        """Why nobody takes tasks of the group; "" when somebody does."""
