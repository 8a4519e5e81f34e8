"""What the command line needs from the program around it: starting coordinators, optimizers and tools."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from amoro_core.model.principals import PLAIN, Trust
from amoro_core.model.text_sanitizing import Secret


@dataclass(frozen=True, slots=True)
class UpOptions:
    """What `amoro up` starts."""

    home: Path
    config: Path | None
    host: str | None  # None: as the settings say
    port: int | None  # 0: any free one
    threads: int | None  # None: as many as there are cores
    memory_bytes: int  # of each thread
    without_optimizer: bool


@dataclass(frozen=True, slots=True)
class SparkOptions:
    """The Spark application that an optimizer runs as."""

    master: str | None  # None: as Spark's own configuration says, else local[*]
    settings: tuple[tuple[str, str], ...] = ()  # take precedence over Spark's own configuration


@dataclass(frozen=True, slots=True)
class OptimizerOptions:
    """What `amoro optimizer` starts."""

    address: str
    group: str
    threads: int | None  # None: one for each core of the Spark application; always set for other backends
    memory_bytes: int  # of each thread
    token_file: Path | None  # with the enrolment token; None: the state directory's
    home: Path
    heartbeat_interval: timedelta
    resource_id: str | None
    spark: SparkOptions | None = None  # None: tasks run in its own threads
    trust: Trust = PLAIN


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What `amoro demo` shows."""

    seconds: int  # how long the writer goes on
    directory: Path | None  # None: a temporary one
    plain: bool  # lines instead of a live display


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of doctor."""

    name: str
    ok: bool
    detail: str
    fix: str = ""  # what to do when it is not ok


@dataclass(frozen=True, slots=True)
class PackageOptions:
    """What is packed for Spark's executors."""

    output: Path | None  # None: in the current directory, named after the platform it runs on
    include: tuple[str, ...]  # further distributions
    with_interpreter: bool


@dataclass(frozen=True, slots=True)
class Package:
    """An archive for Spark's executors."""

    path: Path
    size_bytes: int
    python: str  # the version that it runs on, such as 3.11
    has_interpreter: bool
    distributions: tuple[tuple[str, str], ...]  # names and versions


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a coordinator answers, and the admin token it takes."""

    address: str
    token: Secret = field(repr=False)
    trust: Trust = PLAIN
    passing: bool = False  # it serves one command, and ends with it


class Kind(StrEnum):
    """Kinds of names that a shell can complete."""

    TABLE = "table"
    CATALOG = "catalog"
    PROCESS = "process"
    OPTIMIZER = "optimizer"
    GROUP = "group"


class Launcher(Protocol):
    """Starts coordinators and optimizers for the command line; every method may raise AmoroError."""

    def up(self, options: UpOptions) -> None:
        """Run a coordinator, by default with an optimizer, until a signal ends it."""

    def optimizer(self, options: OptimizerOptions) -> None:
        """Run an optimizer until a signal ends it."""

    def package(self, options: PackageOptions) -> Package:
        """Pack what Spark's executors need to run tasks."""

    def demo(self, options: DemoOptions) -> None:
        """Show the main job on a warehouse made for it."""

    def doctor(self, home: Path, config: Path | None) -> list[Finding]:
        """Check the installation."""

    def names(self, kind: Kind, home: Path) -> Sequence[str]:
        """The names of that kind in the state directory, without delay; empty when they can't be read."""

    def reading(self, home: Path, config: Path | None) -> AbstractContextManager[Endpoint]:
        """A server in this process for read-only calls, from the state directory and the catalogs.

        It waits for no lock, and creates and changes nothing, the state directory included.
        """

    def embedded(self, home: Path, config: Path | None, wait: timedelta) -> AbstractContextManager[Endpoint]:
        """A coordinator with one optimizer in this process, under the state directory's lock.

        Raises StateDirectoryLocked when the lock is not free after `wait`.
        """
