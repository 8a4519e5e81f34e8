"""Wiring: the one place that knows every part of the coordinator, and of an optimizer beside it."""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from amoro_core.errors import AmoroError, InvalidSettings
from amoro_core.files.io import FileAccess
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import pyiceberg_catalogs
from amoro_core.iceberg.guards import allow_classes
from amoro_core.loops.coordinator import CoordinatorLoops
from amoro_core.model.containers import RESOURCE_LABEL
from amoro_core.model.processes import CatalogConfig, ResourceGroup
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.secrets import masked
from amoro_core.model.tokens import TokenKind, hash_token
from amoro_core.model.trust import Certificates
from amoro_core.model.verification import RowsDigest
from amoro_core.plugins import containers, scheduling_policies
from amoro_core.rpc.admin import AdminServicer
from amoro_core.rpc.calls import Changes
from amoro_core.rpc.optimizing import OptimizingServicer
from amoro_core.rpc.server import Server
from amoro_core.scheduling.scaling import Hand
from amoro_core.services.blockers import BlockerService
from amoro_core.services.catalogs import CatalogService
from amoro_core.services.committing import CommittingService
from amoro_core.services.containers import ContainerService
from amoro_core.services.groups import GroupService
from amoro_core.services.history import HistoryService
from amoro_core.services.inspecting import InspectionService
from amoro_core.services.keeping import StateService
from amoro_core.services.metering import MeteringService
from amoro_core.services.optimizers import OptimizerService
from amoro_core.services.optimizing import OptimizingService, Signals
from amoro_core.services.planning import PlanningService
from amoro_core.services.tables import TableService
from amoro_core.services.tokens import TokenService
from amoro_core.services.verifying import VerifyingService
from amoro_core.settings import Settings
from amoro_core.store import groups, tokens
from amoro_core.store.database import Database, Store
from amoro_core.store.lock import StateLock
from amoro_core.tokens import ensure_token
from amoro_optimizer.backends.standalone import in_process
from amoro_optimizer.rewrite.digesting import digest_rows
from amoro_optimizer.rewrite.memory import resident_bytes
from amoro_optimizer.runner import OptimizerConfig, Runner

if TYPE_CHECKING:
    from amoro_core.rpc.scraping import MetricsServer

log = structlog.get_logger("amoro.app")

RPC_THREADS = 16
#: Of each verification that runs: delete keys beyond it wait on disk.
VERIFYING_BYTES = 512 * 1024 * 1024
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


def utc_now() -> datetime:
    """The wall clock, in whole milliseconds, as everything is stored."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class Coordinator:
    """A coordinator on one state directory, from its lock to its address."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        watch: bool = True,
        lock_wait: timedelta = timedelta(0),
        catalogs: Sequence[CatalogConfig] = (),
        passing: bool = False,
    ) -> None:
        """`catalogs` are known beside those of the store and of pyiceberg, as long as this lives; `passing`: for one
        command only."""
        certificates = settings.certificates()
        _refuse_exposure(settings)
        allow_classes(settings.allowed_classes)
        self.home = home
        self.settings = settings
        self._passing = passing
        self._lock = _lock_home(home, lock_wait)
        try:
            self.admin_token = ensure_token(home / "admin.token")
            self.enrolment_token = ensure_token(home / "enrolment.token")
            self._store = Store.open(home / "amoro.db")
        except BaseException:
            self._lock.release()
            raise
        self._given_catalogs = tuple(catalogs)
        self._metrics: MetricsServer | None = None
        self._store.write(self._prepare)
        self._work, self._changes = Changes(), Changes()
        self._pool = ThreadPoolExecutor(RPC_THREADS, thread_name_prefix="rpc")
        try:
            self._wire(watch, certificates)
        except BaseException:
            self._close()
            raise

    @property
    def address(self) -> str:
        return self._server.address

    @property
    def local_address(self) -> str:
        """Where it answers in the clear on this machine."""
        return self._server.local_address

    def start(self) -> None:
        """Recover, listen, and begin to work. Raises AddressInUse; nothing is left running then."""
        try:
            self.optimizing.recover()
            self._server.start()
        except BaseException:
            self._close()
            raise
        self._announce()
        self._loops.start()
        if self._metrics:
            self._metrics.start()
        log.info("coordinator.started", address=self.address, home=str(self.home), pid=os.getpid())

    def stop(self) -> None:
        """Stop listening, finish what has begun, and let go of the state directory."""
        self._server.stop()
        self._loops.stop()
        (self.home / "coordinator.json").unlink(missing_ok=True)
        self._close()
        log.info("coordinator.stopped")

    def _wire(self, watch: bool, certificates: Certificates | None) -> None:
        store, settings = self._store, self.settings
        tables_of = IcebergFormat()
        self.catalogs = CatalogService(store, tables_of, lambda: [*pyiceberg_catalogs(), *self._given_catalogs], masked)
        find = self.catalogs.get
        self.tables = TableService(store, tables_of, find, utc_now)
        signals = Signals(
            work_planned=self._work.fire,
            commit_due=lambda process_id, catalog: self._loops.commit_due(process_id, catalog),
            left_over=lambda process_id, catalog: self._loops.left_over(process_id, catalog),
            changed=self._changes.fire,
        )
        self.planning = PlanningService(
            store, tables_of, find, utc_now, work_planned=self._work.fire, changed=self._changes.fire
        )
        self.optimizing = OptimizingService(store, tables_of, find, utc_now, signals)
        self.optimizers = OptimizerService(
            store, utc_now, time.monotonic, self.optimizing.adopt, settings.heartbeat_timeout
        )
        self.inspection = InspectionService(store, tables_of, find, utc_now)
        self.state = StateService(store)
        self.verifying = VerifyingService(tables_of, find, _digest)
        own_tokens = {TokenKind.ADMIN: self.admin_token, TokenKind.ENROLMENT: self.enrolment_token}
        self.tokens = TokenService(store, utc_now, own_tokens)
        self.containers = ContainerService(
            store,
            utc_now,
            containers(self.home),
            address=lambda: self.local_address,
            token_file=self.home.absolute() / "enrolment.token",
            heartbeat_interval=settings.heartbeat_interval,
            hands=self._hands,
            drain=self.optimizers.drain,
            dismiss=self._dismiss,
        )
        self.groups = GroupService(store, utc_now, scheduling_policies(), self.containers.check)
        self.blockers = BlockerService(store, utc_now, settings.blocker_timeout)
        self.committing = CommittingService(store, tables_of, find, utc_now, self._changes.fire)
        self._loops = CoordinatorLoops(
            self.catalogs,
            self.tables,
            self.planning,
            self.optimizing,
            self.committing,
            self.optimizers,
            self.groups,
            HistoryService(store, utc_now, settings.history_keep),
            self.blockers,
            self.containers,
            ack_timeout=settings.schedule_to_ack,
            start_to_close=settings.start_to_close,
            explore_interval=settings.explore_interval,
            explore_threads=settings.explore_threads,
            explore_queue=settings.explore_queue,
            watch=watch,
        )
        self._metrics = self._open_metrics() if settings.metrics_port else None
        self._server = Server(
            settings.host,
            settings.port,
            self._optimizing_servicer,
            self._admin_servicer,
            (self._work, self._changes),
            certificates,
        )

    def _open_metrics(self) -> "MetricsServer":
        # Prometheus's client is loaded where somebody wants it.
        from amoro_core.rpc.scraping import MetricsServer

        metering = MeteringService(self._store, utc_now, version("amoro"))
        return MetricsServer(
            self.settings.metrics_port, metering.read, lambda token: self.tokens.holds(TokenKind.ADMIN, token)
        )

    def _optimizing_servicer(self) -> OptimizingServicer:
        return OptimizingServicer(
            self.optimizing,
            self.optimizers,
            may_enrol=lambda token: self.tokens.holds(TokenKind.ENROLMENT, token),
            heartbeat_interval=self.settings.heartbeat_interval,
            heartbeat_timeout=self.settings.heartbeat_timeout,
            start_to_close=self.settings.start_to_close,
            work=self._work,
            pool=self._pool,
        )

    def _admin_servicer(self) -> AdminServicer:
        return AdminServicer(
            self.catalogs,
            self.tables,
            self.planning,
            self.optimizing,
            self.optimizers,
            self.groups,
            self.inspection,
            self.state,
            self.verifying,
            self.blockers,
            self.containers,
            tokens=self.tokens,
            settings=self.settings.described(),
            version=version("amoro"),
            started=utc_now(),
            address=lambda: self.address,
            explore=self._loops.explore_now,
            changes=self._changes,
            pool=self._pool,
        )

    def _hands(self) -> list[Hand]:
        """Registered optimizers that were started as a resource."""
        return [
            Hand(optimizer.optimizer_id, resource_id, len(life.progress), optimizer.draining)
            for optimizer, life in self.optimizers.list_optimizers()
            if (resource_id := dict(optimizer.labels).get(RESOURCE_LABEL, ""))
        ]

    def _dismiss(self, optimizer_id: str) -> None:
        self.optimizing.dismiss(optimizer_id, "the process of its optimizer has ended", lost=True)
        self.optimizers.forget(optimizer_id)

    def _prepare(self, db: Database) -> None:
        for name in self.settings.groups:
            groups.add(db, ResourceGroup(name))
        tokens.save(db, "admin", hash_token(self.admin_token.reveal()))
        tokens.save(db, "enrolment", hash_token(self.enrolment_token.reveal()))

    def _announce(self) -> None:
        """Say in the state directory who runs and where; written whole or not at all."""
        target = self.home / "coordinator.json"
        draft = self.home / f".coordinator.{os.getpid()}"
        # What serves one command goes with it: others leave their work to somebody who stays.
        passing = {"passing": True} if self._passing else {}
        record = {"pid": os.getpid(), "address": self.address, "local_address": self.local_address, **passing}
        draft.write_text(json.dumps(record))
        draft.chmod(0o600)
        draft.replace(target)

    def _close(self) -> None:
        if self._metrics:
            self._metrics.stop()
        self._pool.shutdown()
        self._store.close()
        self._lock.release()


@contextmanager
def running(
    home: Path,
    settings: Settings,
    *,
    watch: bool = True,
    lock_wait: timedelta = timedelta(0),
    threads: int = 0,
    memory_bytes: int = 512 * 1024 * 1024,
    catalogs: Sequence[CatalogConfig] = (),
    passing: bool = False,
) -> Iterator[Coordinator]:
    """A coordinator with an optimizer of so many threads (0: none) in this process, for the time of the block."""
    coordinator = Coordinator(home, settings, watch=watch, lock_wait=lock_wait, catalogs=catalogs, passing=passing)
    coordinator.start()
    try:
        if not threads:
            yield coordinator
            return
        with optimizer_beside(coordinator, threads, memory_bytes):
            yield coordinator
    finally:
        coordinator.stop()


@contextmanager
def optimizer_beside(coordinator: Coordinator, threads: int, memory_bytes: int) -> Iterator[Runner]:
    """A standalone optimizer in this process, which talks to the coordinator over gRPC like any other."""
    config = OptimizerConfig(
        address=coordinator.local_address,
        group=coordinator.settings.groups[0],
        threads=threads,
        memory_bytes=memory_bytes,
        enrolment_token=coordinator.enrolment_token,
        # So that who watches sees a process move: a heartbeat within this process costs next to nothing.
        heartbeat_interval_s=min(coordinator.settings.heartbeat_interval.total_seconds(), 1.0),
        labels={"pid": str(os.getpid()), "backend": "standalone", "beside": "coordinator"},
    )
    runner = Runner(config, in_process(memory_bytes))
    ready = threading.Event()
    failed: list[AmoroError] = []

    def run() -> None:
        try:
            runner.run(ready.set)
        except AmoroError as error:
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=run, name="optimizer")
    thread.start()
    ready.wait()
    try:
        if failed:
            raise failed[0]
        yield runner
    finally:
        runner.stop()
        thread.join()


def run_optimizer(config: OptimizerConfig, until: Callable[[Runner], None]) -> None:
    """Run an optimizer on its own; `until` is told how to stop it. Raises what makes registering hopeless."""
    runner = Runner(config, in_process(config.memory_bytes))
    until(runner)
    # Resident memory stays below this base plus threads times the limit.
    log.info("optimizer.started", base_bytes=resident_bytes(), limit_bytes=config.memory_bytes, threads=config.threads)
    runner.run()


def _digest(work: RewriteInput, access: FileAccess, is_cancelled: Callable[[], bool]) -> RowsDigest:
    return digest_rows(work, access, memory_limit_bytes=VERIFYING_BYTES, is_cancelled=is_cancelled)


def _refuse_exposure(settings: Settings) -> None:
    """Raise InvalidSettings when tokens and vended credentials would leave the machine in the clear unasked."""
    if settings.host in _LOOPBACK or settings.tls_certificate or settings.insecure:
        return
    raise InvalidSettings(
        f"host {settings.host} is beyond loopback, where tokens and credentials would travel unencrypted",
        hint="Name a certificate and its key with tls-certificate and tls-key in amoro.yaml, or listen on 127.0.0.1 "
        "and tunnel to it; insecure: true accepts it in a network you trust.",
    )


def embedded_settings(settings: Settings) -> Settings:
    """Settings of a coordinator that serves one command: any port, on loopback."""
    clear = {"metrics_port": 0, "tls_certificate": "", "tls_key": "", "tls_client_ca": ""}
    return settings.with_values("this command", host="127.0.0.1", port=0, **clear)


def _lock_home(home: Path, wait: timedelta) -> StateLock:
    """The lock on the state directory, which is made if need be. Raises InvalidSettings, StateDirectoryLocked."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        return StateLock.acquire(home, wait)
    except OSError as error:
        raise InvalidSettings(
            f"the state directory {home} can't be used: {error.strerror}",
            hint="Make it writable, or name another with --home or AMORO_HOME.",
        ) from error
