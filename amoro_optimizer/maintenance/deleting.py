"""Deleting condemned files: each only if unchanged since, and none after the time limit to begin."""

from collections.abc import Mapping, Sequence

from amoro_core.errors import AttemptAbandoned, OptimizerError
from amoro_core.failpoints import failpoint
from amoro_core.files.io import FileAccess
from amoro_core.files.pace import Pace
from amoro_core.files.storage import PAGE
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.stored import ABSENT, Ended, Removal
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.protocol.times import from_us
from amoro_optimizer.maintenance.listing import access_within
from amoro_optimizer.running import Run

_OUTCOMES = {
    Ended.DELETED: pb.DELETE_OUTCOME_DELETED,
    Ended.ABSENT: pb.DELETE_OUTCOME_ABSENT,
    Ended.CHANGED: pb.DELETE_OUTCOME_CHANGED,
    Ended.FAILED: pb.DELETE_OUTCOME_FAILED,
}
_CHANGED = Removal(Ended.CHANGED)


class DeleteKind:
    """Work of the kind `delete`."""

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> FileAccess:
        return access_within(pb.DeleteWork.FromString(payload).locations, io_properties)

    def execute(self, payload: bytes, access: FileAccess, run: Run) -> bytes:
        """Delete the files. They were guarded at the ack, and the guard's answer is valid for a limited time only."""
        work = pb.DeleteWork.FromString(payload)
        files = [_condemned(one) for batch in work.batches for one in batch.files]
        pace = Pace(max(1, work.files_per_second))
        output = pb.DeleteOutput()
        for start in range(0, len(files), PAGE):
            if run.is_cancelled():
                raise AttemptAbandoned(f"attempt {run.attempt} was cancelled")
            for path, removal in _deleted(work, files[start : start + PAGE], access, run, pace).items():
                output.files.add(path=path, outcome=_OUTCOMES[removal.ended], why=removal.why)
            run.on_progress(min(start + PAGE, len(files)), len(files))
        return output.SerializeToString(deterministic=True)

    def files(self, result: bytes) -> frozenset[str]:
        return frozenset()


def _deleted(
    work: pb.DeleteWork, files: Sequence[Condemned], access: FileAccess, run: Run, pace: Pace
) -> Mapping[str, Removal]:
    """The outcome of each file. Raises OptimizerError, with none of them deleted, when it is too late."""
    found = access.stat_many(one.path for one in files)
    same = [one.path for one in files if one.is_still(found[one.path])]
    failpoint("task.before_delete")
    began = pace.begin()
    if run.age_s() * 1000 > work.begin_within_ms:
        raise OptimizerError(
            f"{len(files)} files were not begun to be deleted within {work.begin_within_ms / 1000:g} s of their ack: "
            "whether the table needs them must be checked again"
        )
    removals = access.delete_many(same) if same else {}
    failpoint("task.after_delete")
    pace.keep(removals, began)
    rest = {one.path: ABSENT if found[one.path] is None else _CHANGED for one in files}
    return {**rest, **removals}


def _condemned(one: pb.FileToDelete) -> Condemned:
    size = one.size_bytes if one.HasField("size_bytes") else None
    modified = from_us(one.modified_us) if one.HasField("modified_us") else None
    return Condemned(one.path, FileKind.OTHER, size, modified, "")
