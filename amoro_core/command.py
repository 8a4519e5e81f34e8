"""What the command `amoro` is made of: the command line, and what it starts, loaded when it is needed."""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

from amoro_cli.connection import recorded_address
from amoro_cli.launcher import (
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
from amoro_core.store.lock import StateLock
from amoro_core.store.naming import names_in


class LazyLauncher:
    """Loads the parts behind a command only when it runs: `amoro --help` needs neither pyarrow nor gRPC."""

    def up(self, options: UpOptions) -> None:
        _refuse_second(options.home)
        _local().up(options)

    def optimizer(self, options: OptimizerOptions) -> None:
        _local().optimizer(options)

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
    """The launcher, without pandas, which pyarrow loads wherever it is installed, for what no command does."""
    with _absent("pandas"):
        return _local()


def _refuse_second(home: Path) -> None:
    """Say at once that a coordinator runs there, before the seconds that loading takes. Raises StateDirectoryLocked."""
    if recorded_address(home, lasting=True) is not None:
        StateLock.acquire(home).release()


class _Absent:
    """Says of a module that it is not installed."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == self._module:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


@contextmanager
def _absent(module: str) -> Iterator[None]:
    """As if the module were not installed, for what is loaded within the block."""
    finder = _Absent(module)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@cache
def _local() -> Launcher:
    # What is loaded lives as long as the process: searching it for garbage, while it is loaded and at the end, took
    # half a CPU second.
    gc.disable()
    try:
        from amoro_core.iceberg.configuration import confine_pyiceberg

        confine_pyiceberg()
        from amoro_core.launcher import LocalLauncher
    finally:
        gc.freeze()
        gc.enable()
    return LocalLauncher()


def amoro() -> int:
    """Run the command that the program's arguments name and return its exit status."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its errors reach us anyhow, and are told as ours
    return run(LazyLauncher())
