"""Kinds of work that an optimizer can execute, our own and plugged in, and their execution in this process."""

from collections.abc import Mapping, Sequence

from amoro_core.errors import UnknownWork
from amoro_core.failpoints import failpoint
from amoro_core.files.storage.io import FileAccess
from amoro_core.logger import get_logger
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.entry_points import extensions
from amoro_core.model.task_payload import DELETE, LIST, REWRITE, SKETCH, RewriteInput, RewriteOutput, Work, WorkResult
from amoro_core.protocol import codec, rewrite_pb2
from amoro_optimizer.cluster.engine import ClusterKind, rewrite_in_order
from amoro_optimizer.cluster.writing import free_disk
from amoro_optimizer.execution import BlobName, Fetching, Kind, Run, access_for
from amoro_optimizer.maintenance_tasks import DeleteKind, ListKind, SketchKind
from amoro_optimizer.rewrite.spilling import default_spill_root, sweep_spills

__all__ = ["BlobName", "Fetching", "Kind", "Kinds", "RewriteKind", "Run", "access_for", "installed_kinds"]

#: An entry point of this group names a kind of work: a function without arguments that makes a `Kind`.
GROUP = "amoro.work_kinds"

log = get_logger("amoro.optimizer")


class RewriteKind:
    """Rewriting and converting files."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_for(_decoded(payload), io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        failpoint("task.before_write")
        work = _decoded(payload)
        output = rewrite_in_order(
            work,
            access,
            run.attempt,
            on_progress=run.on_progress,
            is_cancelled=run.is_cancelled,
            memory_limit_bytes=run.memory_bytes,
        )
        if work.copy is not None:
            encoded = len(work.rewritten) - output.files_copied
            why = {"because": output.encoded_because} if encoded else {}
            log.info("files.copied", task=str(run.attempt), copied=output.files_copied, encoded=encoded, **why)
        return codec.encode(rewrite_pb2.RewriteOutput, output).SerializeToString(deterministic=True)

    def files(self, result: bytes) -> frozenset[str]:
        output = codec.decode(RewriteOutput, rewrite_pb2.RewriteOutput.FromString(result))
        return frozenset((*(file.path for file in output.data_files), *(file.path for file in output.delete_files)))


class Kinds:
    """All kinds that this installation knows, by name."""

    def __init__(self, more: Mapping[str, Kind] | None = None) -> None:
        """`more` are added to our own, which can't be replaced."""
        own: dict[str, Kind] = {
            REWRITE: RewriteKind(),
            LIST: ListKind(),
            DELETE: DeleteKind(),
            SKETCH: SketchKind(),
            CLUSTER: ClusterKind(),
        }
        self._known: Mapping[str, Kind] = {**(more or {}), **own}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._known))

    def of(self, name: str) -> Kind:
        """The kind of that name. Raises UnknownWork, naming the kind."""
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
    result: dict[str, Kind] = {}
    for point in extensions(GROUP):
        try:
            result[point.name] = point.load()()
        except Exception as error:
            log.exception("plugin.failed", group=GROUP, name=point.name, why=str(error))
        else:
            log.info("plugin.loaded", group=GROUP, name=point.name, value=point.value)
    return Kinds(result)


def _decoded(payload: bytes) -> RewriteInput:
    return codec.decode_input(rewrite_pb2.RewriteInput.FromString(payload))


#: How many times the size of a group's files its rows may take while they are sorted.
_SPILL_FACTOR = 3


class InProcess:
    """A backend that works in the calling thread; removes spill files of killed processes first."""

    def __init__(self, kinds: Kinds | None = None) -> None:
        """`kinds`: by default those of this installation."""
        sweep_spills(default_spill_root())
        self._kinds = installed_kinds() if kinds is None else kinds

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of work that it can execute."""
        return self._kinds.names

    @property
    def max_cluster_bytes(self) -> int:
        """A third of the disk that is free for spill: sorting takes more bytes than the files have."""
        return free_disk(default_spill_root()) // _SPILL_FACTOR

    def execute(self, work: Work, table: str, run: Run) -> WorkResult:
        """Do the work. Raises UnknownWork, and what the kind raises."""
        return self._kinds.execute(work, run)
