"""What the command line starts: coordinators, optimizers, the demo."""

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
from amoro_core import app
from amoro_core.diagnosis import diagnose
from amoro_core.errors import InvalidArgument, InvalidSettings, OptimizerError
from amoro_core.logs import configure_logs, quieten_logs
from amoro_core.model.containers import RESOURCE_LABEL
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.secrets import Secret
from amoro_core.naming import names_in
from amoro_core.settings_sources import load_settings
from amoro_core.tokens import read_token
from amoro_optimizer.packaging import default_name, make_archive
from amoro_optimizer.runner import OptimizerConfig, Runner


class LocalLauncher:
    """Starts everything in this process.

    `catalogs` are known to embedded coordinators beside all others. A guest in another program leaves the logging
    as it is, but for our own events below warnings where that has not set up structlog.
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
        threads = 0 if options.without_optimizer else options.threads or os.cpu_count() or 1
        stop = threading.Event()
        with (
            _on_signals(lambda again: stop.set()),
            app.running(options.home, settings, threads=threads, memory_bytes=options.memory_bytes) as coordinator,
        ):
            sys.stdout.write(f"amoro listens on {coordinator.address}, state in {options.home}\n")
            sys.stdout.flush()
            stop.wait()

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
        # Loaded only here: its data set costs seconds that no other command should pay.
        from amoro_core.demo import run_demo

        run_demo(seconds=options.seconds, directory=options.directory, plain=options.plain)

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        return [Finding(item.name, item.ok, item.detail, item.fix) for item in diagnose(home, config)]

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        return names_in(home, kind)

    @contextmanager
    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> Iterator[Endpoint]:
        if self._is_guest:
            quieten_logs()
        else:
            configure_logs(level=logging.ERROR)
        settings = app.embedded_settings(load_settings(home, config))
        threads = os.cpu_count() or 1
        with app.running(
            home, settings, watch=False, lock_wait=wait, threads=threads, catalogs=self._catalogs, passing=True
        ) as coordinator:
            yield Endpoint(coordinator.local_address, coordinator.admin_token)


def _optimizer_config(options: OptimizerOptions, threads: int, labels: Mapping[str, str]) -> OptimizerConfig:
    token = Secret(os.environ.get("AMORO_TOKEN", "")) if options.token_file is None else None
    if options.token_file is not None and not options.token_file.is_file():
        raise InvalidArgument(f"The token file {options.token_file} does not exist")
    return OptimizerConfig(
        address=options.address,
        group=options.group,
        threads=threads,
        memory_bytes=options.memory_bytes,
        enrolment_token=token or read_token(options.token_file or options.home / "enrolment.token"),
        heartbeat_interval_s=options.heartbeat_interval.total_seconds(),
        labels={"pid": str(os.getpid()), **labels}
        | ({RESOURCE_LABEL: options.resource_id} if options.resource_id else {}),
        trust=options.trust,
    )


def _optimize_on_spark(options: OptimizerOptions, spark: SparkOptions) -> None:
    """Run an optimizer in a Spark application until a signal ends it. Raises OptimizerError when that ends first."""
    try:
        # Only who asks for Spark needs it to be installed.
        from amoro_optimizer.backends.spark.driver import spark_backend
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j"):
            raise
        raise InvalidSettings(
            "PySpark is not installed", hint="Install it with: pip install 'amoro[spark]'; it needs Java 17 too."
        ) from error
    config = _optimizer_config(options, options.threads or 1, {"backend": "spark"})
    # Entered before the signals are ours: PySpark takes SIGINT when it starts.
    with spark_backend(spark.master, dict(spark.settings), options.memory_bytes) as backend:
        labels = {**config.labels, "application": backend.application, "master": backend.master}
        config = replace(config, labels=labels, threads=options.threads or max(1, backend.slots()))
        runner = Runner(config, backend.execute, None if options.threads else backend.slots)
        backend.when_lost(lambda: runner.stop(at_once=True))
        with _on_signals(lambda again: runner.stop(at_once=again)):
            runner.run()
        if backend.loss:
            raise OptimizerError(f"the Spark application {backend.application} has ended: {backend.loss}")


@contextmanager
def _on_signals(act: Callable[[bool], object]) -> Iterator[None]:
    """Call `act` on SIGTERM and SIGINT; its argument says whether it is not the first time."""
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
