"""The command `amoro`: the command line, and what it starts, imported on demand."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from pathlib import Path

from amoro_cli.connection import recorded_address
from amoro_cli.launcher_protocol import (
    DemoOptions,
    Endpoint,
    Finding,
    Kind,
    Launcher,
    OptimizerOptions,
    Package,
    PackageOptions,
    UpOptions,
)
from amoro_cli.main import run
from amoro_core.importing import absent, deferred
from amoro_core.store.connect import StateLock
from amoro_core.store.database_info import names_in


class LazyLauncher:
    """Loads the parts behind a command only when it runs: `amoro --help` needs neither pyarrow nor gRPC."""

    def up(self, options: UpOptions) -> None:
        _refuse_second(options.home)
        _lean().up(options)

    def optimizer(self, options: OptimizerOptions) -> None:
        _optimizer(on_spark=options.spark is not None)(options)

    def package(self, options: PackageOptions) -> Package:
        return _local().package(options)

    def demo(self, options: DemoOptions) -> None:
        _local().demo(options)

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        return _local().doctor(home, config)

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        return names_in(home, kind)

    @contextmanager
    def reading(self, home: Path, config: Path | None) -> Iterator[Endpoint]:
        with _lean().reading(home, config) as endpoint:
            yield endpoint

    @contextmanager
    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> Iterator[Endpoint]:
        with _lean().embedded(home, config, wait) as endpoint:
            yield endpoint


def _lean() -> Launcher:
    """The launcher, without what is imported if installed and not needed: pandas by pyarrow, rich by structlog."""
    with absent("pandas", "rich"):
        return _local()


def _refuse_second(home: Path) -> None:
    """Raise StateDirectoryLocked at once if a coordinator runs there, before seconds of importing."""
    if recorded_address(home, lasting=True) is not None:
        StateLock.acquire(home).release()


#: Grammars that only a condition needs, and messages without their parser in C.
_RARELY_USED = ("pyiceberg.expressions.parser", "google.protobuf.internal.python_message")


@contextmanager
def _importing() -> Iterator[None]:
    """Import, without pyiceberg's reading of just any file, what lives as long as the process.

    Collecting garbage among imported objects, while importing and at the end, took half a CPU second.
    """
    gc.disable()
    try:
        with deferred(*_RARELY_USED):
            from amoro_core.iceberg.catalog.configuration import confine_pyiceberg

            confine_pyiceberg()
            yield
        from amoro_optimizer.rewrite.spilling import share_heaps

        share_heaps()
    finally:
        gc.freeze()
        gc.enable()


@cache
def _local() -> Launcher:
    with _importing():
        from amoro_core.bootstrap.launcher import LocalLauncher
    return LocalLauncher()


def _optimizer(*, on_spark: bool) -> Callable[[OptimizerOptions], None]:
    """What runs an optimizer, without the coordinator; PySpark may want pandas."""
    with nullcontext() if on_spark else absent("pandas", "rich"), _importing():
        from amoro_core.bootstrap.optimizer_main import run as run_optimizer
    return run_optimizer


def amoro() -> int:
    """Run the command given by the program's arguments, and return its exit status."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its errors reach us anyhow, and are told as ours
    # numpy's linear algebra, which nothing here uses, starts a thread for each core: 0.2 CPU seconds on four.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # pydantic would search all installed packages for plugins of its own, and run their code.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    if sys.platform == "linux":  # where Arrow has it; what reads and writes Parquet goes by what was named before
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "jemalloc")
        # It gives freed pages back within a second. Sooner takes CPU: rewrites use most of them again within that time.
        os.environ.setdefault("JE_ARROW_MALLOC_CONF", "dirty_decay_ms:1000,muzzy_decay_ms:0")
    return run(LazyLauncher())
