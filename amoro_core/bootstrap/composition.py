"""The services over one store, wired together: for a coordinator, or for a read-only command."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

from amoro_core.actions.registry import Actions
from amoro_core.admin.context import Program
from amoro_core.admin.dispatcher import Operations
from amoro_core.admin.history import event_message
from amoro_core.bootstrap.plugins import containers, event_listeners, more_actions, scheduling_policies, table_formats
from amoro_core.bootstrap.secrets import Passwords, signing_key_of
from amoro_core.bootstrap.settings import Settings, parse_size
from amoro_core.containers.base import Container
from amoro_core.documents.json_documents import encode
from amoro_core.errors import AccessDenied, CatalogUnavailable, GroupNotFound
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.tables import Formats, Tables, Vending
from amoro_core.iceberg.catalog.catalogs import pyiceberg_catalogs
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.metrics_registry import Meters
from amoro_core.model import metrics
from amoro_core.model.listeners import Listener, Webhook
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.task_payload import PROCEDURES, RewriteInput
from amoro_core.model.text_sanitizing import Secret
from amoro_core.model.verification import RowsDigest
from amoro_core.notifier import Changes
from amoro_core.protocol import codec, rewrite_pb2
from amoro_core.scheduling.policy import Policy
from amoro_core.scheduling.scaling import Member, missing_kinds_reason, no_optimizer_reason
from amoro_core.services.accounts import SessionService, TokenService, UserService
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService, InternalCatalogService
from amoro_core.services.committing import CommittingService
from amoro_core.services.containers import ContainerService, LaunchParameters
from amoro_core.services.discovery import ChangeNotificationService, DiscoveryService
from amoro_core.services.file_deletion import AckGuardService, SweepingService
from amoro_core.services.groups import GroupService
from amoro_core.services.history import (
    AuditService,
    HistoryService,
    JournalService,
    LateDeleteService,
    RepeatingService,
)
from amoro_core.services.listeners import ListenerService, Receive, posting
from amoro_core.services.listings import OverviewService, QueueService, StateService
from amoro_core.services.maintenance import MaintenanceService
from amoro_core.services.metrics import ConditionService, MeteringService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.planning import PlanningService, StartingService
from amoro_core.services.policies import PolicyService
from amoro_core.services.post_commit_cleanup import ClearingService
from amoro_core.services.scan_learning import LearningService
from amoro_core.services.snapshots import LeaseService, SnapshotService
from amoro_core.services.tables import InspectionService, TableService
from amoro_core.services.task_lifecycle import OptimizingService
from amoro_core.services.terminal import TerminalService, TerminalTerms
from amoro_core.services.time_series import SamplingService
from amoro_core.services.trash import TrashService
from amoro_core.services.verification import VerifyingService
from amoro_core.store import tables
from amoro_core.store.database import Store
from amoro_core.transactions.advance_process import Signals
from amoro_core.transactions.maintenance_schedule import MaintenanceSchedule
from amoro_optimizer.rewrite.engine import digest_rows

#: Memory of each running verification: delete keys beyond it are spilled to disk.
VERIFYING_BYTES = 512 * 1024 * 1024


def utc_now() -> datetime:
    """The wall clock, in whole milliseconds, the resolution of the store."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


@dataclass(frozen=True, slots=True)
class CoordinatorHooks:
    """What the services know about the program around them."""

    address: Callable[[], str]  # where it listens
    local_address: Callable[[], str]  # where it answers in the clear on this machine
    commit_due: Callable[[str, str], None] = lambda *_: None  # a process is COMMITTING; its id and its table's catalog
    left_over: Callable[[str, str], None] = lambda *_: None  # a process ended without commit: its outputs are to go
    explore: Callable[[], None] = lambda: None  # starts the discovery of tables in all catalogs now
    http_address: Callable[[], str] = str  # where it serves pages and REST; "": nowhere
    look: Callable[[int, str], bool] = lambda table_id, catalog: True  # looks at a table of the catalog now
    joining: Mapping[str, int] = field(default_factory=dict)  # threads that optimizing would add to a group


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The parts from which services are built; tests replace some of them."""

    formats: Formats
    containers: Mapping[str, Container]
    policies: Mapping[str, Policy]
    catalogs: Callable[[], Sequence[CatalogConfig]]  # known beside those of the store
    actions: Actions = field(default_factory=Actions)
    clock: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic
    work: Changes = field(default_factory=Changes)  # there are planned tasks
    changes: Changes = field(default_factory=Changes)  # a process or a table is in another state
    meters: Meters = field(default_factory=Meters)
    background: Callable[[Callable[[], None]], None] = lambda work: work()  # runs work that no caller waits for
    listeners: Mapping[Listener, Receive] = field(default_factory=dict)


def installed(
    home: Path, given_catalogs: Sequence[CatalogConfig], planning_bytes: int = 0, listeners: Sequence[Webhook] = ()
) -> Dependencies:
    """The installed parts, for that state directory; `given_catalogs` are added to those of pyiceberg.

    What was decoded of manifests is kept in memory in up to `planning_bytes`.
    """
    tables = TableManifestCache(planning_bytes) if planning_bytes else None
    return Dependencies(
        Formats(table_formats(tables)),
        containers(home),
        scheduling_policies(),
        lambda: [*pyiceberg_catalogs(), *given_catalogs],
        Actions(more_actions()),
        # It only reads, and ends with the process.
        background=lambda work: threading.Thread(target=work, name="guard", daemon=True).start(),
        listeners={
            **{listener: posting(listener, partial(signing_key_of, listener)) for listener in listeners},
            **event_listeners({listener.name for listener in listeners}),
        },
    )


class Services:
    """Every service, by its subject."""

    def __init__(
        self,
        store: Store,
        home: Path,
        settings: Settings,
        own_tokens: Mapping[Role, Secret],
        hooks: CoordinatorHooks,
        parts: Dependencies,
    ) -> None:
        self._around = hooks
        self.work, self.changes, self.actions, self.meters = parts.work, parts.changes, parts.actions, parts.meters
        formats, clock, meters = parts.formats, parts.clock, parts.meters
        self.catalogs = CatalogService(store, formats, parts.catalogs, clock, settings.rules_of)

        def heard(catalog: str, error: CatalogUnavailable | None) -> None:
            """A catalog that denies access to something answers."""
            self.catalogs.note_answer(catalog, error)
            meters.set(metrics.CATALOG_UP, float(error is None or isinstance(error, AccessDenied)), catalog)
            meters.count(metrics.CATALOG_ERRORS, catalog, by=float(error is not None))

        tables_of = self.tables_of = Tables(
            formats, self.catalogs.get, lambda name: store.read(lambda db: tables.find(db, name)), heard
        )
        self.listening = ListenerService(store, clock, parts.listeners, lambda event: encode(event_message(event)))
        self.discovery = DiscoveryService(store, tables_of, clock, parts.monotonic)
        self.change_notifications = ChangeNotificationService(self.discovery.find, hooks.look, meters=meters)
        find_action = self.actions.of
        schedule = MaintenanceSchedule(self.actions.every, settings.action_intervals())
        self.tables = TableService(
            store,
            tables_of,
            clock,
            hooks.joining,
            schedule,
            find_action,
            settings.table_series,
            LateDeleteService(store, clock, meters),
            self.listening.asks_for,
            self.change_notifications.note_changes,
        )
        vending = Vending(lambda item: tables_of.open(item).io_properties(), clock)
        signals = Signals(self.work.fire, hooks.commit_due, hooks.left_over, self.changes.fire, meters)
        self.planning = PlanningService(store, tables_of, self.actions.optimizing, find_action, clock, vending, signals)
        self.ack_guarding = AckGuardService(store, tables_of, find_action, clock, signals, parts.background)
        self.optimizers = OptimizerService(store, clock, parts.monotonic, settings.heartbeat_timeout, self.work.fire)
        self.optimizing = OptimizingService(
            store, vending, clock, signals, find_action, self.ack_guarding, self.optimizers
        )
        self.maintaining = MaintenanceService(
            store, tables_of, self.actions, clock, signals, schedule, settings.start_to_close, settings.delete_rate
        )
        self.starting = StartingService(store, tables_of, find_action, clock, signals)
        self.own_catalogs = InternalCatalogService(self.catalogs, self.change_notifications.committed)
        self.learning = LearningService(store, tables_of, clock)
        self.inspection = InspectionService(store, tables_of, clock)
        self.overview, self.journal = OverviewService(store), JournalService(store)
        self.snapshots = SnapshotService(store, tables_of, find_action, clock)
        self.sampling = SamplingService(store, clock)
        self.state = StateService(store)
        self.repeating, self.auditing = RepeatingService(store, clock), AuditService(store, clock)
        self.tokens = TokenService(store, clock, own_tokens)
        self.users = UserService(store, clock, Passwords())
        terms = settings.provider_terms()
        self.sessions = SessionService(store, clock, self.tokens, terms.fingerprint if terms else "")
        self.containers = ContainerService(
            store,
            clock,
            parts.containers,
            LaunchParameters(hooks.local_address, home.absolute() / "enrolment.token", settings.heartbeat_interval),
            self.optimizers,
            self.optimizing,
            parts.monotonic,
        )
        self.groups = GroupService(store, clock, parts.policies, self.containers)
        self.queue = QueueService(store, clock, self.optimizing.accounts, parts.policies, parts.monotonic)
        self.policies, self.blockers = (
            PolicyService(store, self.catalogs.list_catalogs, clock),
            BlockerService(store, tables_of, clock, signals, settings.blocker_timeout),
        )
        self.sweeping = SweepingService(store, tables_of, find_action, clock, meters, settings.delete_rate)
        self.trash = TrashService(store, tables_of, clock)
        self.leasing = LeaseService(store, tables_of, clock)
        self.verifying, self.terminal = (
            VerifyingService(tables_of, _digest, self.leasing),
            TerminalService(tables_of, self.leasing, _terminal_terms(settings), self.catalogs.resolve, _encoded),
        )
        self.clearing = ClearingService(store, tables_of, find_action, clock, self.changes.fire, self.sweeping)
        self.committing = CommittingService(
            store, tables_of, find_action, clock, self.changes.fire, self.clearing, self.maintaining, meters
        )
        self.history = HistoryService(store, clock, settings.history_keep)
        store.when_written = MeteringService(store, clock, version("amoro"), self.actions.names, meters).note_write
        self.conditions = ConditionService(meters.samples, clock, self.listening.note_condition)
        self.program = Program(
            version("amoro"),
            clock(),
            settings.described(),
            hooks.address,
            hooks.explore,
            hooks.http_address,
            {key: value for key, value, _ in Settings().described()},
            role="reading" if store.only_reads else "leader",
        )

    def operations(self, pool: Executor) -> Operations:
        """The operations over these services; they run in threads of the pool."""
        return Operations(self, self.changes, pool)

    def no_optimizer_reason(self, group: str, kinds: Iterable[str] = ()) -> str:
        """Why no optimizer takes tasks of the group, or those of these kinds of work; "" when one does."""
        if self._around.joining:
            return ""
        members = [
            Member(optimizer.draining, life.touched_at is not None, optimizer.kinds)
            for optimizer, life in self.optimizers.list_optimizers()
            if optimizer.group == group
        ]
        missing = missing_kinds_reason(group, members, kinds)
        if any(member.takes_tasks for member in members):
            return missing
        try:
            container, view = self.groups.find(group).container, self.containers.find(group)
        except GroupNotFound as error:
            return f"{error.message}: create it with amoro group create {group}"
        if missing and set(kinds) <= set(PROCEDURES.values()) and not (view.most and view.wanted):
            return missing
        return no_optimizer_reason(group, container, members, view)


def _terminal_terms(settings: Settings) -> TerminalTerms:
    return TerminalTerms(
        settings.terminal_enabled,
        parse_size(settings.terminal_memory),
        settings.terminal_timeout,
        settings.terminal_max_sessions,
        settings.terminal_result_limit,
        settings.terminal_spark_connect,
    )


def _encoded(work: RewriteInput) -> bytes:
    return codec.encode(rewrite_pb2.RewriteInput, work).SerializeToString()


def _digest(work: RewriteInput, access: FileAccess, lineage: bool, is_cancelled: Callable[[], bool]) -> RowsDigest:
    return digest_rows(work, access, memory_limit_bytes=VERIFYING_BYTES, is_cancelled=is_cancelled, lineage=lineage)
