"""What functions of operations share: the services, the program, the call, and parts of messages."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import Enum, StrEnum
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from amoro_core.errors import InvalidArgument, NotAllowed
from amoro_core.metrics_registry import Meters
from amoro_core.model.principals import Principal, Role, is_pattern
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol.operations import Target
from amoro_core.services.accounts import SessionService, TokenService, UserService
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService, InternalCatalogService
from amoro_core.services.containers import ContainerService
from amoro_core.services.discovery import ChangeNotificationService
from amoro_core.services.groups import GroupService
from amoro_core.services.history import AuditService, JournalService
from amoro_core.services.listeners import ListenerService
from amoro_core.services.listings import OverviewService, QueueService, StateService
from amoro_core.services.maintenance import MaintenanceService
from amoro_core.services.metrics import ConditionService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.planning import PlanningService, StartingService
from amoro_core.services.policies import PolicyService
from amoro_core.services.scan_learning import LearningService
from amoro_core.services.snapshots import LeaseService, SnapshotService
from amoro_core.services.tables import InspectionService, TableService
from amoro_core.services.task_lifecycle import OptimizingService
from amoro_core.services.terminal import TerminalService
from amoro_core.services.time_series import SamplingService
from amoro_core.services.trash import TrashService
from amoro_core.services.verification import VerifyingService

Kept = TypeVar("Kept")

#: The role of a coordinator that holds the lock on its state directory.
LEADER = "leader"


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Call:
    """Who calls, and whether the caller still waits for the answer."""

    principal: Principal
    is_given_up: Callable[[], bool] = lambda: False
    #: Raises Conflict unless what is to be changed is, as a message, what the caller has seen; None: whatever it is.
    require_seen: Callable[[Message], None] | None = None

    def condition(self, message_of: Callable[[Kept], Message]) -> Callable[[Kept], None] | None:
        """The same over the kept value that `message_of` makes the message of: for the transaction that changes it."""
        require = self.require_seen
        return None if require is None else lambda record: require(message_of(record))

    @property
    def caller(self) -> str:
        """Who calls, in words."""
        return self.principal.caller


class Services(Protocol):
    """Every service, by its subject."""

    catalogs: CatalogService
    own_catalogs: InternalCatalogService
    tables: TableService
    planning: PlanningService
    maintaining: MaintenanceService
    starting: StartingService
    learning: LearningService
    change_notifications: ChangeNotificationService
    trash: TrashService
    leasing: LeaseService
    listening: ListenerService
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
    terminal: TerminalService
    tokens: TokenService
    auditing: AuditService
    users: UserService
    sessions: SessionService
    blockers: BlockerService
    policies: PolicyService
    containers: ContainerService
    conditions: ConditionService
    meters: Meters
    program: Program

    def no_optimizer_reason(self, group: str, kinds: Iterable[str] = ()) -> str:
        """Why no optimizer takes tasks of the group, or those of these kinds of work; "" when one does."""


def target_table(services: Services, target: Target, request: Any) -> TableIdentifier:
    """The table that the request acts on. Raises what the operation itself would raise for a wrong name or id."""
    match target:
        case "table":
            return services.catalogs.resolve(request.table)
        case "process_id":
            return services.overview.process(request.process_id, services.optimizers.progress()).table
        case "blocker_id":
            return services.blockers.find(request.blocker_id).table
        case "lease_id":
            return services.leasing.find(request.lease_id).table


def table_id(services: Services, table: str) -> int | None:
    """The id of the table that limits a list; None for "". Raises TableNotFound."""
    return services.tables.id_of(services.catalogs.resolve(table)) if table else None


def table_ids(services: Services, text: str) -> Collection[int] | None:
    """The ids of the tables that a name or pattern limits a list to; None for "". Raises TableNotFound."""
    if is_pattern(text):
        return services.catalogs.select_ids(text)
    return None if (number := table_id(services, text)) is None else [number]


def require(principal: Principal, method: str, needed: Role, acted: Callable[[], TableIdentifier] | None) -> None:
    """Raise NotAllowed unless the account may call the method; `acted` gives the table, which is asked if it matters.

    The error names the role that would do.
    """
    if not principal.role.allows(needed):
        raise NotAllowed(
            f"{principal.title} has the role {principal.role}; {method} needs the role {needed}",
            hint=f"Give a token with the role {needed}: amoro token create NAME --role {needed}",
        )
    if acted is not None and principal.pattern and not principal.may_act_on(table := acted()):
        raise NotAllowed(
            f"{principal.title} acts on {principal.pattern} alone; {method} on {table} needs the role {Role.OPERATOR} "
            f"for that table, or {Role.ADMIN}",
            hint="Ask an administrator for another pattern: amoro token create NAME --role operator --on PATTERN",
        )


def milliseconds(moment: datetime | None) -> int:
    """UTC milliseconds since the epoch; 0 for never."""
    return 0 if moment is None else round(moment.timestamp() * 1000)


def moment(since_epoch_ms: int) -> datetime:
    """The time in UTC. Raises InvalidArgument for one that no calendar has."""
    try:
        if since_epoch_ms < 0:
            raise OverflowError
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=since_epoch_ms)
    except OverflowError as error:
        raise InvalidArgument(f"{since_epoch_ms} ms since 1970 is no time") from error


def period(request: Any, end: datetime | None = None) -> tuple[datetime | None, datetime | None]:
    """The beginning and the end of the time in a request; None: it is not bound. Raises InvalidArgument."""
    since = moment(request.since_ms) if request.since_ms else None
    until = moment(request.until_ms) if request.until_ms else end
    if since and until and until <= since:
        raise InvalidArgument("the end of the time is not after its beginning")
    return since, until


Filled = TypeVar("Filled", bound=Message)


def as_message(kind: type[Filled], /, *values: object, **more: Any) -> Filled:
    """The message of that kind, its fields from `more`, else from the first value with an attribute of the same name.

    A time in milliseconds (`created_ms`) is read from `created_at` or `created`, a flag (`sound`) from `is_sound`;
    values within the values become messages in the same way. Raises AttributeError for a field that nothing gives.
    """
    for described in kind.DESCRIPTOR.fields:
        if described.name not in more:
            more[described.name] = _plain(described, _attribute(described.name, values))
    return kind(**more)


def _attribute(name: str, values: Iterable[object]) -> Any:
    stem = name.removesuffix("_ms")
    for value in values:
        for source in (name, f"{stem}_at", stem, f"is_{name}"):
            if hasattr(value, source):
                return getattr(value, source)
    raise AttributeError(f"no value has {name}")


def _plain(field: Any, value: Any) -> Any:
    """The value as the field takes it; None leaves the field at its default."""
    kind = field.message_type
    if value is None or (kind is not None and kind.GetOptions().map_entry):
        return value if value is None else dict(value)
    if kind is not None:
        message = GetMessageClass(kind)
        return [as_message(message, item) for item in value] if field.is_repeated else as_message(message, value)
    match value:
        case datetime():
            return milliseconds(value)
        case Enum():
            return value.value
        case TableIdentifier():
            return str(value)
    return value


Word = TypeVar("Word", bound=StrEnum)


def word(kind: type[Word], text: str, name: str) -> Word | None:
    """The value that the text stands for, in any case; None for "". Raises InvalidArgument with those known."""
    if not text:
        return None
    try:
        return kind(text.lower())
    except ValueError as error:
        words = [item.value for item in kind]
        close = get_close_matches(text.lower(), words, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise InvalidArgument(f"{text!r} is not a {name}", hint=f"{meant}One of: {', '.join(words)}.") from error


def duration(milliseconds: int) -> timedelta | None:
    """The duration; None for 0. Raises InvalidArgument for one beyond what a date can be moved by."""
    try:
        return timedelta(milliseconds=milliseconds) if milliseconds else None
    except OverflowError as error:
        raise InvalidArgument(f"{milliseconds} ms is not a duration", hint="Give at most ten years.") from error
