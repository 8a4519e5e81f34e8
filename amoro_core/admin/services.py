"""The arguments of operations: the services, the program around them, and the call."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from amoro_core.meters import Meters
from amoro_core.model.principals import Principal
from amoro_core.records import record
from amoro_core.services.auditing import AuditService
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalog_looks import CatalogLookService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.conditions import ConditionService
from amoro_core.services.containers import ContainerService
from amoro_core.services.groups import GroupService
from amoro_core.services.hearing import HearingService
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.journal import JournalService
from amoro_core.services.known_actions import KnownActionService
from amoro_core.services.learning import LearningService
from amoro_core.services.leasing import LeaseService
from amoro_core.services.maintaining import MaintenanceService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import OptimizingService
from amoro_core.services.overview import OverviewService
from amoro_core.services.planning import PlanningService
from amoro_core.services.queue import QueueService
from amoro_core.services.sampling import SamplingService
from amoro_core.services.saved_plans import SavedPlanService
from amoro_core.services.sessions import SessionService
from amoro_core.services.snapshots import SnapshotService
from amoro_core.services.starting import StartingService
from amoro_core.services.state import StateService
from amoro_core.services.tables import TableService
from amoro_core.services.tokens import TokenService
from amoro_core.services.trash import TrashService
from amoro_core.services.upgrading import UpgradeService
from amoro_core.services.users import UserService
from amoro_core.services.verifying import VerifyingService

Kept = TypeVar("Kept")

#: The role of a coordinator that holds the lock on its state directory.
LEADER = "leader"


@record
class Program:
    """The coordinator as a program."""

    version: str
    started: datetime
    settings: Sequence[tuple[str, str, str]]  # key, value, origin
    address: Callable[[], str]  # where it listens
    explore: Callable[[], None]  # starts the discovery of tables in all catalogs now
    http_address: Callable[[], str] = str  # where it serves pages and REST; "": nowhere
    defaults: Mapping[str, str] = field(default_factory=dict)  # of settings, by key
    role: str = LEADER  # reading: it answers one command from the state directory


@record
class Call:
    """Who calls, and whether the caller still waits for the answer."""

    principal: Principal
    is_given_up: Callable[[], bool] = lambda: False
    #: Raises Conflict unless what is to be changed is, as a message, what the caller has seen; None: whatever it is.
    require_seen: Callable[[Message], None] | None = None

    def condition(self, shown: Callable[[Kept], Message]) -> Callable[[Kept], None] | None:
        """The same over the kept value that `shown` makes the message of: for the transaction that changes it."""
        require = self.require_seen
        return None if require is None else lambda kept: require(shown(kept))

    @property
    def caller(self) -> str:
        """Who calls, in words."""
        return self.principal.caller


class Services(Protocol):
    """Every service, by its subject."""

    catalogs: CatalogService
    catalog_looks: CatalogLookService
    tables: TableService
    planning: PlanningService
    saved_plans: SavedPlanService
    known_actions: KnownActionService
    maintaining: MaintenanceService
    starting: StartingService
    learning: LearningService
    hearing: HearingService
    trash: TrashService
    leasing: LeaseService
    optimizing: OptimizingService
    optimizers: OptimizerService
    groups: GroupService
    inspection: InspectionService
    journal: JournalService
    snapshots: SnapshotService
    sampling: SamplingService
    overview: OverviewService
    queue: QueueService
    state: StateService
    verifying: VerifyingService
    tokens: TokenService
    auditing: AuditService
    upgrading: UpgradeService
    users: UserService
    sessions: SessionService
    blockers: BlockerService
    containers: ContainerService
    conditions: ConditionService
    meters: Meters
    program: Program

    def nobody_works(self, group: str, kinds: Iterable[str] = ()) -> str:
        """Why no optimizer takes tasks of the group, or those of these kinds of work; "" when one does."""
