"""The command `amoro`: starts coordinators, optimizers and the demo, each imported when its command runs."""

import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from amoro_cli.connection import Endpoint, Finding, Kind, OptimizerOptions, Package, UpOptions, recorded_address
from amoro_cli.output import tell
from amoro_core.documents.formatting import many
from amoro_core.errors import Fenced, StateDirectoryLocked
from amoro_core.model.principals import Role
from amoro_core.model.text_sanitizing import printable

if TYPE_CHECKING:
    from amoro_core.bootstrap.coordinator_app import Coordinator
    from amoro_core.model.processes import CatalogConfig
    from amoro_core.store.database import StateLock

#: How long `amoro up` waits for a command that works on its state directory.
COMMAND_WAIT = timedelta(seconds=30)
#: How long the first looks log before `amoro up` says what is to be read.
FIRST_LOOK_S = 1.0
#: How long running work may take to end: a silent catalog or storage is not awaited any longer.
ENDING = timedelta(seconds=10)
#: How long a thread may hold Python's lock while others wait for it: a call waits several times. During a scan of
#: 100,000 files p99 of calls was 51 ms with Python's own 5 ms, and 19 ms with this.
SWITCH_INTERVAL_S = 0.0005


class LocalLauncher:
    """Starts everything in this process, and imports it then: `amoro --help` needs neither pyarrow nor gRPC.

    `catalogs` are additional catalogs of embedded coordinators. A guest in another program changes nothing of it.
    """

    def __init__(self, catalogs: "Sequence[CatalogConfig]" = (), *, is_guest: bool = False) -> None:
        self._catalogs = tuple(catalogs)
        self._is_guest = is_guest

    def up(self, options: UpOptions) -> None:
        if recorded_address(options.home, lasting=True) is not None:  # seconds before everything is imported
            from amoro_core.store.database import StateLock

            StateLock.acquire(options.home).release()
        with self._prepared():
            from amoro_core.bootstrap import coordinator_app
            from amoro_core.bootstrap.process import on_signals
            from amoro_core.bootstrap.settings import load_settings

        sys.setswitchinterval(SWITCH_INTERVAL_S)
        settings = load_settings(options.home, options.config)
        if options.host is not None:
            settings = settings.with_values("flag --host", host=options.host)
        if options.port is not None:
            settings = settings.with_values("flag --port", port=options.port)
        settings = settings.checked()
        threads = 0 if options.without_optimizer else options.threads or os.cpu_count() or 1
        stop, lost = threading.Event(), list[Fenced]()

        def when_lost(error: Fenced) -> None:
            lost.append(error)
            stop.set()

        with (
            _lock_after_commands(options.home) as lock,  # before the signals are ours: they end the waiting
            on_signals(lambda again: stop.set()),
            coordinator_app.listening(settings) as listener,
            coordinator_app.running(
                options.home,
                settings,
                threads=threads,
                memory_bytes=options.memory_bytes,
                lock=lock,
                patience=ENDING,
                when_lost=when_lost,
            ) as coordinator,
            coordinator_app.serving(coordinator, listener),
        ):
            sys.stdout.write(f"amoro listens on {coordinator.address}, state in {options.home}\n")
            if listener is not None:
                sys.stdout.write(f"REST: {listener.address}/api/v1\n")
            sys.stdout.flush()
            stop.wait(FIRST_LOOK_S)
            for reason in _unstaffed(coordinator):
                sys.stdout.write(f"Tables wait: {reason}\n")
            if listener is not None and (link := _first_link(coordinator, listener.address)):
                sys.stdout.write(f"\nThe dashboard, once and within ten minutes:\n\n    {link}\n\n")
                sys.stdout.write("For another link: amoro login\n")
            sys.stdout.flush()
            stop.wait()
            if lost:
                raise lost[0]
            for line in _staying(coordinator):
                sys.stdout.write(f"{line}\n")

    def optimizer(self, options: OptimizerOptions) -> None:
        with self._prepared(with_pandas=options.spark is not None):  # PySpark may want it
            from amoro_core.bootstrap import optimizer_main

        optimizer_main.run(options)

    def package(self, output: Path | None, include: tuple[str, ...], *, with_interpreter: bool) -> Package:
        from amoro_optimizer.packaging import default_name, make_archive

        path = output or Path(default_name())
        archive = make_archive(path, include=include, with_interpreter=with_interpreter)
        return Package(archive.path, archive.size_bytes, archive.python, archive.has_interpreter, archive.distributions)

    def demo(self, seconds: int, directory: Path | None, *, plain: bool) -> None:
        with self._prepared(logging.ERROR):  # the demo shows itself what would be logged
            from amoro_core.demo.run import run_demo

        run_demo(seconds, directory, plain=plain)

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        with self._prepared(logging.ERROR):
            from amoro_core.bootstrap.doctor import diagnose

        return diagnose(home, config)

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        from amoro_core.store.completion import names_in

        return names_in(home, kind)

    @contextmanager
    def reading(self, home: Path, config: Path | None) -> Iterator[Endpoint]:
        with self._prepared(logging.ERROR):
            from amoro_core.bootstrap import coordinator_app
            from amoro_core.bootstrap.settings import load_settings

        with coordinator_app.reading(home, load_settings(home, config), self._catalogs) as (address, token):
            yield Endpoint(address, token)

    @contextmanager
    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> Iterator[Endpoint]:
        with self._prepared(logging.ERROR):
            from amoro_core.bootstrap import coordinator_app
            from amoro_core.bootstrap.settings import load_settings

        with coordinator_app.running(
            home,
            coordinator_app.embedded_settings(load_settings(home, config)),
            watch=False,
            lock_wait=wait,
            threads=os.cpu_count() or 1,
            catalogs=self._catalogs,
            passing=True,
            patience=ENDING,
        ) as coordinator:
            yield Endpoint(coordinator.local_address, coordinator.admin_token)

    @contextmanager
    def _prepared(self, log_level: int = logging.INFO, *, with_pandas: bool = False) -> Iterator[None]:
        """Set up logging and pyiceberg in this process, and import without pandas and without collecting garbage.

        A guest changes nothing of its process. Where pandas is installed, pyarrow and sqlite-utils would load it: 30 MB
        of an idle coordinator. Collecting among imported objects took 0.4 CPU seconds a command.
        """
        if self._is_guest:
            yield
            return
        gc.disable()
        finders = [] if with_pandas else [_WithoutPandas()]
        sys.meta_path[:0] = finders
        try:
            from amoro_core.bootstrap.process import configure_logs
            from amoro_core.iceberg.catalog.configuration import confine_pyiceberg

            configure_logs(log_level)
            confine_pyiceberg()  # before anything imports more of pyiceberg
            yield
        finally:
            for finder in finders:
                sys.meta_path.remove(finder)
            gc.freeze()
            gc.enable()


class _WithoutPandas:
    """A finder of modules that refuses pandas."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _lock_after_commands(home: Path) -> "StateLock":
    """The lock on the state directory; waits, with a message, while a command holds it.

    Raises StateDirectoryLocked at once for another coordinator, after half a minute for a command.
    """
    from amoro_core.bootstrap.coordinator_app import lock_home

    try:
        return lock_home(home, timedelta(0))
    except StateDirectoryLocked as locked:
        if not locked.passing:
            raise
        tell(f"Waiting up to {COMMAND_WAIT.total_seconds():g} s: {printable(locked.message)}")
        return lock_home(home, COMMAND_WAIT)


def _first_link(coordinator: "Coordinator", address: str) -> str:
    """A link that logs in with the admin token, while there is no user; "" afterwards."""
    services = coordinator.services
    if services.users.list_users("", 1).total:
        return ""
    code, _ = services.sessions.make_link(Role.ADMIN.value)
    return f"{address}/login/link?code={code}"


def _staying(coordinator: "Coordinator") -> Iterator[str]:
    """For each group whose optimizers outlive the coordinator, how many stay, and how to end them."""
    running = coordinator.services.containers.list_running()
    for group in sorted({resource.group for resource in running}):
        own = [resource for resource in running if resource.group == group]
        pids = " ".join(resource.handle for resource in own if resource.container == "local" and resource.handle)
        how = f"kill {pids}" if pids else f"amoro group scale {group} 0, while a coordinator runs"
        yield f"Still running for the next amoro up: {many(len(own), 'optimizer')} of group {group}. To end: {how}"


def _unstaffed(coordinator: "Coordinator") -> list[str]:
    """For each group with tables but without optimizers, why and what to do; for all groups if none has tables."""
    services = coordinator.services
    groups = services.groups.list_groups()
    needed = [group for group in groups if group.tables] or groups
    reasons = (services.no_optimizer_reason(group.group.name) for group in needed if not group.optimizers)
    return list(filter(None, reasons))


def amoro() -> int:
    """Run the command given by the program's arguments, and return its exit status."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its errors are reported as ours
    # numpy's linear algebra, which nothing here uses, starts a thread for each core: 0.2 CPU seconds on four.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic would search all installed packages for plugins of its own, and run their code.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.platform == "linux":  # where Arrow has it; what reads and writes Parquet goes by the environment
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
        # It gives freed pages back within a second. Sooner takes CPU: rewrites use most of them again within that time.
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0")
    from amoro_cli.main import run

    return run(LocalLauncher())
