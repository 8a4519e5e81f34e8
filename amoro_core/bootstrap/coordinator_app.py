"""The coordinator on one state directory: its server, its optimizer, its pages, and a read-only server."""

import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amoro_core.bootstrap.composition import CoordinatorHooks, Services, installed
from amoro_core.bootstrap.secrets import ensure_token, secret_of, signing_key_of
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import AmoroError, Fenced, InvalidSettings, StorageFull, StoreFailed
from amoro_core.files.storage.io import is_full
from amoro_core.iceberg.catalog.timeouts import limit_requests
from amoro_core.iceberg.pyiceberg_sandbox import allow_classes
from amoro_core.logger import get_logger
from amoro_core.loops.coordinator import CoordinatorLoops, Limits, Loop
from amoro_core.metrics_registry import certificate_end, free_part
from amoro_core.model import metrics
from amoro_core.model.principals import Certificates, Role, hash_token, is_loopback
from amoro_core.model.processes import CatalogConfig, ResourceGroup
from amoro_core.model.text_sanitizing import Secret
from amoro_core.rpc.calls import Timing
from amoro_core.rpc.optimizing import OptimizingServicer
from amoro_core.rpc.server import STOP_GRACE_S, Server, admin_handler
from amoro_core.store import accounts, groups
from amoro_core.store.database import Connection, ReadingStore, StateLock, Store
from amoro_optimizer.runner import OptimizerConfig, Runner
from amoro_optimizer.work_kinds import InProcess

if TYPE_CHECKING:
    from amoro_core.web.app_context import AppContext
    from amoro_core.web.login import OidcLogin
    from amoro_core.web.oidc_client import OpenIdProvider
    from amoro_core.web.server import Listener


log = get_logger("amoro.app")

#: Threads for calls of optimizers.
RPC_THREADS = 16
#: Threads for users and their tools: however many calls they make, an optimizer's ack gets a thread.
PEOPLE_THREADS = 16
PASSING_GRACE_S = 10.0
#: With the end of the process itself, these two take less than five seconds.
GUARD_INTERVAL_S = 0.5
LOST_PATIENCE = timedelta(seconds=1)


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
        lock: StateLock | None = None,
        when_lost: Callable[[Fenced], None] = lambda why: None,
    ) -> None:
        """`catalogs` are added to those of the store and of pyiceberg; `passing`: it serves one command; `lock`: the
        state directory's, if it is held already; `when_lost` is called once if another coordinator takes the state
        directory over: this one then reads, writes and commits nothing more."""
        certificates = settings.certificates()
        for listener in settings.listeners if watch else ():
            signing_key_of(listener)  # report what is wrong with it before anything starts
        refuse_exposure(settings, "host", settings.host)
        allow_classes(settings.allowed_classes)
        limit_requests(settings.catalog_timeout)
        self.home = home
        self.settings = settings
        self._passing = passing
        self.lost: Fenced | None = None
        self._when_lost = when_lost
        self._guard = Loop("guard", self._check_ownership, GUARD_INTERVAL_S)
        self._lock = lock or lock_home(home, lock_wait, passing=passing)
        try:
            self.admin_token = ensure_token(home / "admin.token")
            self.enrolment_token = ensure_token(home / "enrolment.token")
            self._store = Store.open(home / "amoro.db")
        except BaseException:
            self._lock.release()
            raise
        self._given_catalogs = tuple(catalogs)
        self._store.write(self._prepare)
        self._pool = ThreadPoolExecutor(RPC_THREADS, thread_name_prefix="rpc")
        self.people_pool = ThreadPoolExecutor(PEOPLE_THREADS, thread_name_prefix="people")
        self.http_address = ""  # while pages and REST are served
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
        """The unencrypted address on this machine."""
        return self._server.local_address

    def start(self) -> None:
        """Recover, listen, and start working. Raises AddressInUse, InvalidSettings; nothing is left running then."""
        try:
            self.optimizing.recover()
            self._server.start()
            self._announce()
        except BaseException:
            self._server.stop()
            self._close()
            raise
        self._guard.start()
        self._loops.start()
        log.info("coordinator.started", address=self.address, home=str(self.home), pid=os.getpid())

    def stop(self) -> None:
        """Stop listening, finish what has begun, and release the state directory."""
        _withdraw(self.home)  # first, so that no client connects any more
        self._guard.stop()
        # Calls that arrive while a command ends are answered, not refused.
        self._server.stop(PASSING_GRACE_S if self._passing else STOP_GRACE_S)
        self._loops.stop()
        self._close()
        log.info("coordinator.stopped")

    def _check_ownership(self) -> None:
        """Check whether the state directory still belongs to this coordinator."""
        if self.lost is not None:
            return
        try:
            self._lock.require_own(self.home)
            self._store.require_own()
        except Fenced as error:
            self.lost = error
            log.critical("coordinator.lost", home=str(self.home), code=error.code, why=error.message)
            self._store.fence(error)
            self.services.changes.fire()  # wake waiting callers
            self._when_lost(error)
        except StoreFailed:
            return  # reported by whoever needs the database

    def _wire(self, watch: bool, certificates: Certificates | None) -> None:
        settings = self.settings
        hooks = CoordinatorHooks(
            commit_due=lambda process_id, catalog: self._loops.commit_due(process_id, catalog),
            left_over=lambda process_id, catalog: self._loops.clean_up_due(process_id, catalog),
            explore=lambda: self._loops.explore_now(),
            look=lambda table_id, catalog: self._loops.look_at(table_id, catalog),
            address=lambda: self.address,
            local_address=lambda: self.local_address,
            http_address=lambda: self.http_address,
        )
        own_tokens = {Role.ADMIN: self.admin_token, Role.ENROLMENT: self.enrolment_token}
        parts = installed(self.home, self._given_catalogs, settings.planning_bytes, settings.listeners)
        services = self.services = Services(self._store, self.home, settings, own_tokens, hooks, parts)
        self.catalogs, self.tables, self.planning = services.catalogs, services.tables, services.planning
        self.optimizing, self.optimizers, self.groups = services.optimizing, services.optimizers, services.groups
        self.tokens, self.blockers, self.verifying = services.tokens, services.blockers, services.verifying
        limits = Limits(
            settings.schedule_to_ack,
            settings.start_to_close,
            settings.explore_interval,
            settings.explore_threads,
            settings.explore_queue,
            settings.maintenance_threads,
        )
        meters = services.meters
        meters.ask(metrics.LEADER, lambda: {(): float(self.lost is None)})
        meters.ask_all("listeners", services.listening.gauges)
        meters.ask(metrics.POLICY_TABLES, services.policies.count_tables)
        meters.ask(metrics.DISK_FREE, lambda: free_part(self.home))
        if certificates is not None:
            meters.ask(metrics.CERTIFICATE_END, lambda: certificate_end(certificates))
        self._loops = CoordinatorLoops(services, limits, watch=watch)
        self._server = Server(
            settings.host,
            settings.port,
            admin_handler(services.operations(self.people_pool)),
            self._optimizing_servicer,
            changes=(services.work, services.changes),
            certificates=certificates,
            interceptors=(Timing(meters),),
        )

    def _optimizing_servicer(self) -> OptimizingServicer:
        return OptimizingServicer(
            self.optimizing,
            self.optimizers,
            may_enrol=lambda token: self.tokens.holds(Role.ENROLMENT, token),
            heartbeat_interval=self.settings.heartbeat_interval,
            heartbeat_timeout=self.settings.heartbeat_timeout,
            start_to_close=self.settings.start_to_close,
            work=self.services.work,
            pool=self._pool,
        )

    def _prepare(self, db: Connection) -> None:
        for name in self.settings.groups:
            groups.add(db, ResourceGroup(name))
        accounts.save_builtin_token(db, "admin", hash_token(self.admin_token.reveal()))
        accounts.save_builtin_token(db, "enrolment", hash_token(self.enrolment_token.reveal()))

    def _announce(self) -> None:
        """Write process and address to the state directory, atomically."""
        target = self.home / "coordinator.json"
        draft = self.home / f".coordinator.{os.getpid()}"
        passing = {"passing": True} if self._passing else {}
        record = {"pid": os.getpid(), "address": self.address, "local_address": self.local_address, **passing}
        try:
            draft.write_text(json.dumps(record))
            draft.chmod(0o600)
            draft.replace(target)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise _unusable(self.home, error, f"{target.name}: ") from error

    def _close(self) -> None:
        self._pool.shutdown()
        self.people_pool.shutdown()
        self._store.close()
        self._lock.release()


@contextmanager
def running(
    home: Path,
    settings: Settings,
    *,
    threads: int = 0,
    memory_bytes: int = 512 * 1024 * 1024,
    patience: timedelta | None = None,
    **options: Any,
) -> Iterator[Coordinator]:
    """A coordinator with an optimizer of `threads` threads (0: none) in this process, during the block.

    `options` are those of `Coordinator`. At the end, running work may take `patience` (None: any time); what takes
    longer continues in threads that are not awaited, and ends with the process. A restart resumes it. After the state
    directory was lost, little is awaited.
    """
    coordinator = Coordinator(home, settings, **options)
    coordinator.start()
    ending = ExitStack()
    ending.callback(coordinator.stop)
    try:
        if threads:
            ending.enter_context(embedded_optimizer(coordinator, threads, memory_bytes))
        yield coordinator
    finally:
        _end(ending.close, home, patience if coordinator.lost is None else LOST_PATIENCE)


def _end(end: Callable[[], None], home: Path, patience: timedelta | None) -> None:
    """Stop what runs on the state directory; after `patience` it is abandoned, and its address withdrawn."""
    if patience is None:
        end()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            end()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="ending", daemon=True)
    thread.start()
    thread.join(patience.total_seconds())
    if thread.is_alive():
        _withdraw(home)
        busy = sorted({other.name for other in threading.enumerate()} - {"MainThread", "ending"})
        log.warning("coordinator.cut", after_s=patience.total_seconds(), threads=busy)
    elif failed:
        raise failed[0]


def _withdraw(home: Path) -> None:
    """Remove what `_announce` wrote, unless it is another coordinator's."""
    announced = home / "coordinator.json"
    try:
        if json.loads(announced.read_text(encoding="utf-8")).get("pid") == os.getpid():
            announced.unlink()
    except (OSError, ValueError, AttributeError):
        return


@contextmanager
def embedded_optimizer(coordinator: Coordinator, threads: int, memory_bytes: int) -> Iterator[Runner]:
    """A standalone optimizer in this process, which talks to the coordinator over gRPC like any other."""
    config = OptimizerConfig(
        address=coordinator.local_address,
        group=coordinator.settings.groups[0],
        threads=threads,
        memory_bytes=memory_bytes,
        enrolment_token=coordinator.enrolment_token,
        # For timely progress: a heartbeat within this process costs next to nothing.
        heartbeat_interval_s=min(coordinator.settings.heartbeat_interval.total_seconds(), 1.0),
        labels={"pid": str(os.getpid()), "backend": "standalone", "beside": "coordinator"},
        is_beside=True,
    )
    runner = Runner(config, InProcess())
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
        runner.stop(at_once=coordinator.lost is not None)
        thread.join()


def refuse_exposure(settings: Settings, key: str, host: str) -> None:
    """Raise InvalidSettings if tokens and vended credentials would leave the machine unencrypted without consent.

    `key` is the setting that gives the host to listen on.
    """
    if is_loopback(host) or settings.tls_certificate or settings.insecure:
        return
    raise InvalidSettings(
        f"{key} {host} is beyond loopback, where tokens and credentials would travel unencrypted",
        hint="Name a certificate and its key with tls-certificate and tls-key in amoro.yaml, or listen on 127.0.0.1 "
        "and tunnel to it; insecure: true accepts it in a network you trust.",
    )


def embedded_settings(settings: Settings) -> Settings:
    """Settings of a coordinator that serves one command: any port, on loopback."""
    clear = {"http_port": 0, "tls_certificate": "", "tls_key": "", "tls_client_ca": ""}
    return settings.with_values("this command", host="127.0.0.1", port=0, **clear)


def lock_home(home: Path, wait: timedelta, *, passing: bool = False) -> StateLock:
    """The lock on the state directory, which is made if need be. Raises InvalidSettings, StateDirectoryLocked."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        home.chmod(0o700)
        return StateLock.acquire(home, wait, passing=passing)
    except OSError as error:
        raise _unusable(home, error) from error


def _unusable(home: Path, error: OSError, file: str = "") -> AmoroError:
    why = "it is not a directory" if home.is_file() else f"{file}{error.strerror}"
    message = f"the state directory {home} can't be used: {why}"
    if is_full(error):
        return StorageFull(message)
    return InvalidSettings(message, hint="Make it writable, or name another with --home or AMORO_HOME.")


@contextmanager
def listening(settings: Settings) -> "Iterator[Listener | None]":
    """The port of pages and REST, taken during the block; None where the settings have none.

    Raises AddressInUse, which names the holder of the port, and InvalidSettings.
    """
    if not settings.http_port:
        yield None
        return
    from amoro_core.web.server import Listener

    refuse_exposure(settings, "http-host", settings.http_host)
    provider_of(settings)  # report what is wrong with it before anything starts
    listener = Listener(settings.http_host, settings.http_port, settings.certificates())
    try:
        yield listener
    finally:
        listener.close()


def provider_of(settings: Settings) -> "OpenIdProvider | None":
    """The OpenID provider of the settings; None without one. Raises InvalidSettings."""
    terms = settings.provider_terms()
    if terms is None:
        return None
    try:
        # Authlib comes with an extra.
        from amoro_core.web.oidc_client import OpenIdProvider
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.partition(".")[0] not in ("authlib", "joserfc"):
            raise
        raise InvalidSettings(
            f"oidc-issuer {terms.issuer} needs the package {missing.name}",
            hint="Install it with: pip install 'amoro[oidc]', or leave oidc-issuer out.",
        ) from missing
    return OpenIdProvider(terms, secret_of(settings.oidc_client_secret))


def oidc_login_of(settings: Settings, port: int) -> "OidcLogin | None":
    """The login by the settings' OpenID provider, for a server on that port; None without one.

    Raises InvalidSettings.
    """
    provider, terms = provider_of(settings), settings.provider_terms()
    if provider is None or terms is None:
        return None
    from amoro_core.web.login import OidcLogin, OwnAddress

    address = OwnAddress(
        (*settings.http_hosts, settings.http_host),
        port,
        is_encrypted=settings.certificates() is not None,
        has_proxies=bool(settings.trusted_proxies),
    )
    return OidcLogin(provider, terms, address)


def offer(services: Services, pool: Executor) -> "AppContext":
    """The context of pages and REST over these services; their blocking work runs in the pool."""
    from amoro_core.web.app_context import AppContext
    from amoro_core.web.login import LoginService

    return AppContext(
        services.operations(pool),
        services.meters.exposed,
        lambda token: services.tokens.holds(Role.VIEWER, token),
        pool,
        services.repeating,
        LoginService(services.users, services.sessions, services.auditing, pool, services.tokens.state),
        terminal=services.terminal.terms.enabled,
        meters=services.meters,
    )


@contextmanager
def serving(coordinator: Coordinator, listener: "Listener | None") -> Iterator[None]:
    """Pages and REST over the coordinator's operations during the block."""
    if listener is None:
        yield
        return
    from amoro_core.web.app import make_app
    from amoro_core.web.server import WebServer

    services, settings, pool = coordinator.services, coordinator.settings, coordinator.people_pool
    oidc = oidc_login_of(settings, listener.port)
    context = replace(offer(services, pool), oidc=oidc, mcp_writes=settings.mcp_writes)
    app = make_app(context, (settings.http_host, *settings.http_hosts))
    server = WebServer(listener, app, proxies=settings.trusted_proxies, changes=(services.changes,))
    server.start()
    coordinator.http_address = listener.address
    try:
        yield
    finally:
        coordinator.http_address = ""
        server.stop()
        if oidc is not None:
            oidc.close()


READER_THREADS = 4


@contextmanager
def reading(home: Path, settings: Settings, catalogs: Sequence[CatalogConfig] = ()) -> Iterator[tuple[str, Secret]]:
    """Serve the AdminService on loopback for one read-only command, during the block; address and admin token.

    It takes no lock, creates and changes no file, and runs no loop and no optimizer: it may run beside a coordinator,
    and resumes nothing that an earlier one left. The state directory need not exist; `catalogs` are added to those of
    the store and of pyiceberg. Raises StoreFailed, InvalidSettings.
    """
    try:
        with suppress(FileNotFoundError):
            os.listdir(home)
    except OSError as error:
        raise _unusable(home, error) from error
    allow_classes(settings.allowed_classes)
    limit_requests(settings.catalog_timeout)
    tokens = {role: Secret(secrets.token_urlsafe(32)) for role in (Role.ADMIN, Role.ENROLMENT)}
    hooks = CoordinatorHooks(
        address=lambda: server.address,
        local_address=lambda: server.address,
        joining={settings.groups[0]: os.cpu_count() or 1},
    )
    with closing(ReadingStore.open(home / "amoro.db")) as store:
        services = Services(store, home, settings, tokens, hooks, installed(home, catalogs, 0, settings.listeners))
        pool = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="rpc")
        handler = admin_handler(services.operations(pool))
        server = Server("127.0.0.1", 0, handler, None, changes=(services.work, services.changes))
        try:
            server.start()
            yield server.address, tokens[Role.ADMIN]
        finally:
            server.stop()
            pool.shutdown(wait=False, cancel_futures=True)  # calls may wait for a silent catalog
