"""What is to be done with one data file, by its size and its deletes."""

import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, ScannedFile
from amoro_core.model.paths import normalise

# {process}-{task}-{attempt}-{uuid}-deletes: the name that a conversion gives its position deletes.
_OWN_NAME = re.compile(r"[0-9a-f-]{36}-\d+-\d+-[0-9a-f-]{32,36}(-\d+)?-deletes\.")


class FileClass(StrEnum):
    """How large a data file is, measured by the table's target."""

    FRAGMENT = "fragment"
    UNDERSIZED = "undersized"
    TARGET_SIZE = "target-size"


@dataclass(frozen=True, slots=True)
class AssessedFile:
    """A scanned file with everything that planning asks about it."""

    scanned: ScannedFile
    file_class: FileClass
    live_bytes: int  # data bytes less those of rows known to be deleted
    duplicates: bool  # position deletes cover more of its rows than the ratio allows
    convertible: bool  # one position delete file would say the same as its deletes
    too_short: bool  # the first position in that file would already be too much for the ratio
    combinable: bool  # several position deletes would become one

    @property
    def data(self) -> DataFile:
        return self.scanned.data

    @property
    def deletes(self) -> tuple[DeleteFile, ...]:
        return self.scanned.deletes

    @property
    def is_fragment(self) -> bool:
        return self.file_class is FileClass.FRAGMENT

    @property
    def is_undersized(self) -> bool:
        return self.file_class is FileClass.UNDERSIZED


def classify(size_bytes: int, config: OptimizingConfig) -> FileClass:
    """The class of a data file of that size."""
    if size_bytes <= config.fragment_size:
        return FileClass.FRAGMENT
    if size_bytes <= config.min_target_size:
        return FileClass.UNDERSIZED
    return FileClass.TARGET_SIZE


def assess(scanned: ScannedFile, config: OptimizingConfig) -> AssessedFile:
    """The file with the answers to Amoro's per-file rules."""
    data = scanned.data
    file_class = classify(data.size_bytes, config)
    if not scanned.deletes:
        return AssessedFile(scanned, file_class, data.size_bytes, False, False, False, False)
    positions = counting_position_deletes(scanned)
    deleted = sum(delete.record_count for delete in positions)
    segment = file_class is not FileClass.FRAGMENT
    bearable = data.record_count * config.major_trigger_duplicate_ratio
    convertible = segment and _is_convertible(scanned, positions)
    return AssessedFile(
        scanned,
        file_class,
        _live_bytes(data, positions),
        duplicates=segment and deleted > bearable,
        convertible=convertible and bearable >= 1,
        too_short=convertible and bearable < 1,
        combinable=segment and len(positions) > 1,
    )


def is_file_scoped(delete: DeleteFile, path: str) -> bool:
    """Whether the position delete names that data file and no other."""
    bounds = delete.path_bounds
    return (
        bounds is not None and bounds[0] == bounds[1] and (bounds[0] == path or normalise(bounds[0]) == normalise(path))
    )


def is_own(delete: DeleteFile, data: DataFile) -> bool:
    """Whether an earlier conversion of that data file, ours or Amoro's, wrote the position delete."""
    if delete.kind is not DeleteKind.POSITION:
        return False
    name = PurePosixPath(delete.path).name
    if name.startswith(f"{PurePosixPath(data.path).stem}-delete-"):
        return True
    return _OWN_NAME.match(name) is not None and is_file_scoped(delete, data.path)


def folding_sequence(scanned: ScannedFile) -> int:
    """The sequence number up to which the file's own position delete holds all others; −1 without one.

    A delete that other files still need stays after the conversion. It must not count again, or the same
    conversion would be planned for ever.
    """
    return max((delete.sequence_number for delete in scanned.deletes if is_own(delete, scanned.data)), default=-1)


def counting_position_deletes(scanned: ScannedFile) -> tuple[DeleteFile, ...]:
    """The position deletes of the file without those that its own newest one already holds."""
    folded = folding_sequence(scanned)
    positions = [delete for delete in scanned.deletes if delete.kind is DeleteKind.POSITION]
    own = [delete for delete in positions if is_own(delete, scanned.data) and delete.sequence_number == folded]
    return (*own[-1:], *(delete for delete in positions if delete.sequence_number > folded))


def _is_convertible(scanned: ScannedFile, positions: tuple[DeleteFile, ...]) -> bool:
    if len(positions) > 1 or any(delete.kind is DeleteKind.EQUALITY for delete in scanned.deletes):
        return True
    return len(positions) == 1 and not is_own(positions[0], scanned.data)


def _live_bytes(data: DataFile, positions: tuple[DeleteFile, ...]) -> int:
    # Only deletes of this file alone: a shared one has an unknown number of rows here, and too large
    # an estimate of what is left only makes outputs smaller than the target, never larger.
    deleted = sum(delete.record_count for delete in positions if is_file_scoped(delete, data.path))
    if data.record_count <= 0:
        return data.size_bytes
    return data.size_bytes * max(0, data.record_count - deleted) // data.record_count
