"""Kinds of work that an optimizer can execute: rewriting, and what installed packages plug in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol

from amoro_core.errors import UnknownWork
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.files.io import FileAccess, open_access
from amoro_core.model.processes import Attempt
from amoro_core.model.rewrite import RewriteInput
from amoro_core.model.work import REWRITE, Work, WorkResult
from amoro_core.protocol import codec, rewrite_pb2
from amoro_optimizer.rewrite.engine import rewrite

#: An entry point of this group names a kind of work: a function without arguments that makes a `Kind`.
GROUP = "amoro.work_kinds"

log = get_logger("amoro.optimizer")


@dataclass(frozen=True, slots=True)
class Run:
    """One execution of an attempt."""

    attempt: Attempt
    io_properties: Mapping[str, str] = field(repr=False)  # vended; credentials among them
    memory_bytes: int
    on_progress: Callable[[int, int], None]  # rows done, rows in all
    is_cancelled: Callable[[], bool]


class Kind(Protocol):
    """How work of one kind is executed. Its messages are its own; names of files in them are the table's."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        """Access to the files of the work's table, within the locations that the work names."""

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        """Do the work and return the result's message.

        Every file that it creates is created through `access`. Raises AttemptAbandoned soon after `is_cancelled` says
        so, and AmoroError for what fails; files that were begun are removed then.
        """

    def files(self, result: bytes) -> frozenset[str]:
        """The files that a result names, and which must therefore stay."""


class RewriteKind:
    """Rewriting and converting files."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_for(_decoded(payload), io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        failpoint("task.before_write")
        output = rewrite(
            _decoded(payload),
            access,
            run.attempt,
            on_progress=run.on_progress,
            is_cancelled=run.is_cancelled,
            memory_limit_bytes=run.memory_bytes,
        )
        return codec.encode_output(output).SerializeToString(deterministic=True)

    def files(self, result: bytes) -> frozenset[str]:
        output = codec.decode_output(rewrite_pb2.RewriteOutput.FromString(result))
        return frozenset((*(file.path for file in output.data_files), *(file.path for file in output.delete_files)))


class Kinds:
    """All kinds that this installation knows, by name."""

    def __init__(self, more: Mapping[str, Kind] | None = None) -> None:
        """`more` are known beside our own, which nobody replaces."""
        self._known: Mapping[str, Kind] = {**(more or {}), REWRITE: RewriteKind()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._known))

    def of(self, name: str) -> Kind:
        """Raises UnknownWork, which names the kind."""
        kind = self._known.get(name)
        if kind is None:
            raise UnknownWork(
                f"work of the kind {name!r} is not known to this optimizer, which knows {', '.join(self.names)}",
                hint="Install the package that plugs the kind in where the optimizer runs.",
            )
        return kind

    def execute(self, work: Work, run: Run) -> WorkResult:
        """Do the work in this thread. Raises UnknownWork, and what the kind raises."""
        kind = self.of(work.kind)
        access = kind.open(work.payload, run.io_properties)
        return WorkResult(work.kind, kind.execute(work.payload, access, run))


def installed_kinds() -> Kinds:
    """Our own kinds and those of installed packages; one that can't be loaded is logged and left out."""
    found: dict[str, Kind] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found[point.name] = point.load()()
        except Exception as error:
            log.exception("plugin.failed", group=GROUP, name=point.name, why=str(error))
        else:
            log.info("plugin.loaded", group=GROUP, name=point.name, value=point.value)
    return Kinds(found)


def access_for(work: RewriteInput, io_properties: Mapping[str, str]) -> FileAccess:
    """Access to the files of the work's table."""
    table = work.table
    return open_access(
        io_properties,
        table.location,
        read_locations=table.read_locations,
        write_locations=(table.location, table.data_location),
    )


def _decoded(payload: bytes) -> RewriteInput:
    return codec.decode_input(rewrite_pb2.RewriteInput.FromString(payload))
