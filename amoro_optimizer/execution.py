"""One execution of an attempt, and what executes it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Protocol, runtime_checkable

from amoro_core.errors import OptimizerError
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import RewriteInput, Work, WorkResult


@dataclass(frozen=True, slots=True)
class BlobName:
    """The name of a blob that the coordinator keeps for a task: its SHA-256 in hexadecimal digits, and its size."""

    sha256: str
    size_bytes: int


def no_blob(name: BlobName) -> bytes:
    """Raises OptimizerError: there is no coordinator to fetch from."""
    raise OptimizerError(f"the blob {name.sha256} can't be fetched here")


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an attempt."""

    attempt: Attempt
    io_properties: Mapping[str, str] = field(repr=False)  # vended; credentials among them
    memory_bytes: int
    on_progress: Callable[[int, int], None]  # rows done, rows in all
    is_cancelled: Callable[[], bool]
    fetch: Callable[[BlobName], bytes] = no_blob  # what the coordinator keeps for the task; raises OptimizerError
    age_s: Callable[[], float] = lambda: 0.0  # since the ack was sent, seconds; at the least what is true
    on_stage: Callable[[str, int], None] = lambda stage, core_ms: None  # the stage, all core time so far in ms
    #: Until when, by `steady_s`, the coordinator surely counts the optimizer as alive: as it answered last.
    held_until_s: Callable[[], float] = lambda: inf


class Kind(Protocol):
    """Executes work of one kind. Its messages are its own; names of files in them are the table's."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        """Access to the files of the work's table, within the locations that the work names."""

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        """Do the work and return the result's message.

        Every file must be created through `access`. Raises AttemptAbandoned soon after `is_cancelled` returns True, and
        AmoroError on failure; files that were begun are then removed.
        """

    def files(self, result: bytes) -> frozenset[str]:
        """The files named by a result, which must therefore stay."""
        return frozenset()


@runtime_checkable
class Fetching(Kind, Protocol):
    """A kind whose work needs a blob from the coordinator."""

    def blob(self, payload: bytes) -> BlobName:
        """The name of the blob."""


class Backend(Protocol):
    """Executes work."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work that it can execute."""

    @property
    def max_cluster_bytes(self) -> int:
        """The largest group of files, in bytes, that it clusters; 0: none."""

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """Do the work. Raises UnknownWork before anything has begun, AttemptAbandoned when cancelled, AmoroError."""


def access_for(work: RewriteInput, io_properties: Mapping[str, str]) -> FileAccess:
    """Access to the files of the work's table."""
    table = work.table
    return open_access(
        io_properties,
        table.location,
        read_locations=table.read_locations,
        write_locations=(table.location, table.data_location),
    )


def steady_s() -> float:
    """A clock in seconds that also runs while this process or machine is suspended, and that can't be set."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
