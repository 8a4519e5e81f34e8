"""Starting coordinators, optimizers and the demo for the command line."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import FrameType

from amoro_cli.launcher import (
    DemoOptions,
    Endpoint,
    Finding,
    Kind,
    OptimizerOptions,
    Package,
    PackageOptions,
    SparkOptions,
    UpOptions,
)
from amoro_cli.streams import tell
from amoro_core import app, reader
from amoro_core.diagnosis import diagnose
from amoro_core.errors import Fenced, InvalidArgument, InvalidSettings, OptimizerError, StateDirectoryLocked
from amoro_core.logs import configure_logs
from amoro_core.model.containers import RESOURCE_LABEL
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.secrets import Secret
from amoro_core.model.texts import printable
from amoro_core.model.tokens import Role
from amoro_core.protocol import tokens
from amoro_core.settings_sources import load_settings
from amoro_core.store.lock import StateLock
from amoro_core.store.naming import names_in
from amoro_core.tokens import read_token
from amoro_core.wiring import Services
from amoro_optimizer.packaging import default_name, make_archive
from amoro_optimizer.runner import OptimizerConfig, Runner

#: How long `amoro up` waits for a command that works on its state directory.
COMMAND_WAIT = timedelta(seconds=30)
#: How long what has begun may take to end: a silent catalog or storage is not awaited any longer.
ENDING = timedelta(seconds=10)


class LocalLauncher:
    """Starts everything in this process.

    `catalogs` are additional catalogs of embedded coordinators. A guest in another program leaves its logging alone.
    """

    def __init__(self, catalogs: Sequence[CatalogConfig] = (), *, is_guest: bool = False) -> None:
        self._catalogs = tuple(catalogs)
        self._is_guest = is_guest

    def up(self, options: UpOptions) -> None:
        configure_logs()
        settings = load_settings(options.home, options.config)
        if options.host is not None:
            settings = settings.with_values("flag --host", host=options.host)
        if options.port is not None:
            settings = settings.with_values("flag --port", port=options.port)
        settings = settings.checked()
        # Loaded only where people are served.
        from amoro_core import web

        threads = 0 if options.without_optimizer else options.threads or os.cpu_count() or 1
        stop, lost = threading.Event(), list[Fenced]()

        def when_lost(why: Fenced) -> None:
            lost.append(why)
            stop.set()

        with (
            _lock_after_commands(options.home) as lock,  # before the signals are ours: they end the waiting
            _on_signals(lambda again: stop.set()),
            web.listening(settings) as listener,
            app.running(
                options.home,
                settings,
                threads=threads,
                memory_bytes=options.memory_bytes,
                lock=lock,
                patience=ENDING,
                when_lost=when_lost,
            ) as coordinator,
            web.serving(coordinator, listener),
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
        configure_logs()
        if options.spark is not None:
            _optimize_on_spark(options, options.spark)
            return
        config = _optimizer_config(options, options.threads or os.cpu_count() or 1, {"backend": "standalone"})
        runners: list[Runner] = []

        def stop(again: bool) -> None:
            for runner in runners:
                runner.stop(at_once=again)

        with _on_signals(stop):
            app.run_optimizer(config, runners.append)

    def package(self, options: PackageOptions) -> Package:
        path = options.output or Path(default_name())
        made = make_archive(path, include=options.include, with_interpreter=options.with_interpreter)
        return Package(made.path, made.size_bytes, made.python, made.has_interpreter, made.distributions)

    def demo(self, options: DemoOptions) -> None:
        # Imported only here: its data set takes seconds to load.
        from amoro_core.demo import run_demo

        run_demo(seconds=options.seconds, directory=options.directory, plain=options.plain)

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        return [Finding(item.name, item.ok, item.detail, item.fix) for item in diagnose(home, config)]

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        return names_in(home, kind)

    @contextmanager
    def reading(self, home: Path, config: Path | None) -> Iterator[Endpoint]:
        self._quieten()
        with reader.reading(home, load_settings(home, config), self._catalogs) as answering:
            yield Endpoint(answering.address, answering.token)

    @contextmanager
    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> Iterator[Endpoint]:
        self._quieten()
        settings = app.embedded_settings(load_settings(home, config))
        threads = os.cpu_count() or 1
        with app.running(
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
        return app.lock_home(home, timedelta(0))
    except StateDirectoryLocked as locked:
        if not locked.passing:
            raise
        tell(f"Waiting up to {COMMAND_WAIT.total_seconds():g} s: {printable(locked.message)}")
        return app.lock_home(home, COMMAND_WAIT)


def _optimizer_config(options: OptimizerOptions, threads: int, labels: Mapping[str, str]) -> OptimizerConfig:
    return OptimizerConfig(
        address=options.address,
        group=options.group,
        threads=threads,
        memory_bytes=options.memory_bytes,
        enrolment_token=_enrolment_token(options),
        heartbeat_interval_s=options.heartbeat_interval.total_seconds(),
        labels={"pid": str(os.getpid()), **labels}
        | ({RESOURCE_LABEL: options.resource_id} if options.resource_id else {}),
        trust=options.trust,
    )


def _first_link(coordinator: app.Coordinator, address: str) -> str:
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
    return [services.nobody_works(group.group.name) for group in needed if not group.optimizers]


def _enrolment_token(options: OptimizerOptions) -> Secret:
    """The token of the given file, else the environment's, else the state directory's."""
    said = "AMORO_TOKEN" if options.token_file is None else f"The token file {options.token_file}"
    try:
        if options.token_file is not None:
            return tokens.read_token(options.token_file)
        if given := os.environ.get("AMORO_TOKEN"):
            return tokens.parse_token(given)
    except (OSError, ValueError) as error:
        why = f"{said} can't be used: {tokens.told(error)}"
        raise InvalidArgument(why, hint="It must hold the enrolment token and nothing else.") from error
    return read_token(options.home / "enrolment.token")


def _optimize_on_spark(options: OptimizerOptions, spark: SparkOptions) -> None:
    """Run an optimizer in a Spark application until a signal ends it. Raises OptimizerError when that ends first."""
    try:
        # Spark needs to be installed only if requested.
        from amoro_optimizer.backends.spark.driver import spark_backend
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise InvalidSettings(
            "PySpark is not installed", hint="Install it with: pip install 'amoro[spark]'; it needs Java 17 too."
        ) from error
    config = _optimizer_config(options, options.threads or 1, {"backend": "spark"})
    # Entered before our signal handlers: PySpark replaces SIGINT's when it starts.
    with spark_backend(spark.master, dict(spark.settings)) as backend:
        labels = {**config.labels, "application": backend.application, "master": backend.master}
        config = replace(config, labels=labels, threads=options.threads or max(1, backend.slots()))
        runner = Runner(config, backend, None if options.threads else backend.slots)
        backend.when_lost(lambda: runner.stop(at_once=True))
        with _on_signals(lambda again: runner.stop(at_once=again)):
            runner.run()
        if backend.loss:
            raise OptimizerError(f"the Spark application {backend.application} has ended: {backend.loss}")


@contextmanager
def _on_signals(act: Callable[[bool], object]) -> Iterator[None]:
    """Call `act` on SIGTERM and SIGINT; its argument is True from the second signal on."""
    seen: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        act(len(seen) > 1)

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
