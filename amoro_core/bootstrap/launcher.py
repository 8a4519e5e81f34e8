"""Starting coordinators, optimizers and the demo for the command line."""

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from amoro_cli.launcher_protocol import (
    DemoOptions,
    Endpoint,
    Finding,
    Kind,
    OptimizerOptions,
    Package,
    PackageOptions,
    UpOptions,
)
from amoro_cli.stdio import tell
from amoro_core.bootstrap import coordinator_app, optimizer_main, readonly_server
from amoro_core.bootstrap.composition import Services
from amoro_core.bootstrap.logs import configure_logs
from amoro_core.bootstrap.settings import load_settings
from amoro_core.bootstrap.signals import on_signals
from amoro_core.errors import Fenced, StateDirectoryLocked
from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.text_sanitizing import printable
from amoro_core.store.connect import StateLock
from amoro_core.store.database_info import names_in

#: How long `amoro up` waits for a command that works on its state directory.
COMMAND_WAIT = timedelta(seconds=30)
#: How long what has begun may take to end: a silent catalog or storage is not awaited any longer.
ENDING = timedelta(seconds=10)


#: How long a thread may hold Python's lock while others wait for it: a call waits several times. Beside a look at
#: 100,000 files p99 of calls was 51 ms with Python's own 5 ms, and 19 ms with this.
SWITCH_INTERVAL_S = 0.0005


class LocalLauncher:
    """Starts everything in this process; what a single command needs is imported by it.

    `catalogs` are additional catalogs of embedded coordinators. A guest in another program leaves its logging alone.
    """

    def __init__(self, catalogs: Sequence[CatalogConfig] = (), *, is_guest: bool = False) -> None:
        self._catalogs = tuple(catalogs)
        self._is_guest = is_guest

    def up(self, options: UpOptions) -> None:
        configure_logs()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        settings = load_settings(options.home, options.config)
        if options.host is not None:
            settings = settings.with_values("flag --host", host=options.host)
        if options.port is not None:
            settings = settings.with_values("flag --port", port=options.port)
        settings = settings.checked()
        from amoro_core.bootstrap import http

        threads = 0 if options.without_optimizer else options.threads or os.cpu_count() or 1
        stop, lost = threading.Event(), list[Fenced]()

        def when_lost(why: Fenced) -> None:
            lost.append(why)
            stop.set()

        with (
            _lock_after_commands(options.home) as lock,  # before the signals are ours: they end the waiting
            on_signals(lambda again: stop.set()),
            http.listening(settings) as listener,
            coordinator_app.running(
                options.home,
                settings,
                threads=threads,
                memory_bytes=options.memory_bytes,
                lock=lock,
                patience=ENDING,
                when_lost=when_lost,
            ) as coordinator,
            http.serving(coordinator, listener),
        ):
            sys.stdout.write(f"amoro listens on {coordinator.address}, state in {options.home}\n")
            if listener is not None:
                sys.stdout.write(f"REST: {listener.address}/api/v1\n")
                if link := _first_link(coordinator, listener.address):
                    sys.stdout.write(f"Log in within ten minutes: {link}\n")
            for reason in _unstaffed(coordinator.services):
                sys.stdout.write(f"Tables wait: {reason}\n")
            sys.stdout.flush()
            stop.wait()
            if lost:
                raise lost[0]

    def optimizer(self, options: OptimizerOptions) -> None:
        optimizer_main.run(options)

    def package(self, options: PackageOptions) -> Package:
        from amoro_optimizer.packaging import default_name, make_archive

        path = options.output or Path(default_name())
        made = make_archive(path, include=options.include, with_interpreter=options.with_interpreter)
        return Package(made.path, made.size_bytes, made.python, made.has_interpreter, made.distributions)

    def demo(self, options: DemoOptions) -> None:
        from amoro_core.demo import run_demo

        run_demo(seconds=options.seconds, directory=options.directory, plain=options.plain)

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        from amoro_core.bootstrap.doctor import diagnose

        return [Finding(item.name, item.ok, item.detail, item.fix) for item in diagnose(home, config)]

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        return names_in(home, kind)

    @contextmanager
    def reading(self, home: Path, config: Path | None) -> Iterator[Endpoint]:
        self._quieten()
        with readonly_server.reading(home, load_settings(home, config), self._catalogs) as answering:
            yield Endpoint(answering.address, answering.token)

    @contextmanager
    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> Iterator[Endpoint]:
        self._quieten()
        settings = coordinator_app.embedded_settings(load_settings(home, config))
        threads = os.cpu_count() or 1
        with coordinator_app.running(
            home,
            settings,
            watch=False,
            lock_wait=wait,
            threads=threads,
            catalogs=self._catalogs,
            passing=True,
            patience=ENDING,
        ) as coordinator:
            yield Endpoint(coordinator.local_address, coordinator.admin_token)

    def _quieten(self) -> None:
        if not self._is_guest:
            configure_logs(level=logging.ERROR)


def _lock_after_commands(home: Path) -> StateLock:
    """The lock on the state directory; waits, with a message, while a command holds it.

    Raises StateDirectoryLocked at once for another coordinator, after half a minute for a command.
    """
    try:
        return coordinator_app.lock_home(home, timedelta(0))
    except StateDirectoryLocked as locked:
        if not locked.passing:
            raise
        tell(f"Waiting up to {COMMAND_WAIT.total_seconds():g} s: {printable(locked.message)}")
        return coordinator_app.lock_home(home, COMMAND_WAIT)


def _first_link(coordinator: coordinator_app.Coordinator, address: str) -> str:
    """A link that logs in with the admin token, while there is no user; "" afterwards."""
    services = coordinator.services
    if services.users.list_users("", 1).total:
        return ""
    code, _ = services.sessions.make_link(Role.ADMIN.value)
    return f"{address}/login/link?code={code}"


def _unstaffed(services: Services) -> list[str]:
    """For each group with tables but without optimizers, why and what to do; for all groups if none has tables."""
    groups = services.groups.list_groups()
    needed = [group for group in groups if group.tables] or groups
    return [services.no_optimizer_reason(group.group.name) for group in needed if not group.optimizers]
