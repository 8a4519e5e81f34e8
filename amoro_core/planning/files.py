"""What is to be done with one data file, by its size and its deletes."""

import re
from dataclasses import dataclass
from enum import StrEnum

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
    combinable: bool  # several position deletes would become fewer
    folded: int = -1  # the sequence number up to which its own position delete holds all others; −1 without one

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
    folded, positions = _counting(scanned)
    deleted = sum(delete.record_count for delete in positions)
    segment = file_class is not FileClass.FRAGMENT
    bearable = data.record_count * config.major_trigger_duplicate_ratio
    combinable = segment and _are_combinable(data, positions)
    convertible = combinable or (segment and _is_convertible(scanned, positions))
    return AssessedFile(
        scanned,
        file_class,
        _live_bytes(data, positions) if positions else data.size_bytes,
        duplicates=segment and deleted > bearable,
        convertible=convertible and bearable >= 1,
        too_short=convertible and bearable < 1,
        combinable=combinable,
        folded=folded,
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
    name = _name(delete.path)
    if name.startswith(f"{_stem(data.path)}-delete-"):
        return True
    return _OWN_NAME.match(name) is not None and is_file_scoped(delete, data.path)


def counting_position_deletes(scanned: ScannedFile) -> tuple[DeleteFile, ...]:
    """The position deletes of the file without those that its own newest one already holds.

    A delete that other files still need stays after the conversion. It must not count again, or the same
    conversion would be planned for ever.
    """
    return _counting(scanned)[1]


def _counting(scanned: ScannedFile) -> tuple[int, tuple[DeleteFile, ...]]:
    """The sequence number of the own position delete (−1: none), and the position deletes that count."""
    positions = [delete for delete in scanned.deletes if delete.kind is DeleteKind.POSITION]
    own = [delete for delete in positions if is_own(delete, scanned.data)]
    if not own:
        return -1, tuple(positions)
    folded = max(delete.sequence_number for delete in own)
    newest = [delete for delete in own if delete.sequence_number == folded][-1]
    return folded, (newest, *(delete for delete in positions if delete.sequence_number > folded))


def _is_convertible(scanned: ScannedFile, positions: tuple[DeleteFile, ...]) -> bool:
    """Whether it has deletes that other files are read with, too; one that names it alone is as good as converted."""
    return any(
        delete.kind is DeleteKind.EQUALITY or (delete in positions and not _is_of_file(delete, scanned.data))
        for delete in scanned.deletes
    )


def _are_combinable(data: DataFile, positions: tuple[DeleteFile, ...]) -> bool:
    """Whether one position delete in place of several is fewer: those that go by bounds alone stay (`removal`)."""
    staying = sum(delete.referenced_data_file is None and _is_of_file(delete, data) for delete in positions)
    return len(positions) - staying > 1


def _is_of_file(delete: DeleteFile, data: DataFile) -> bool:
    return is_file_scoped(delete, data.path) or is_own(delete, data)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    stem, dot, extension = _name(path).rpartition(".")
    return stem if dot else extension


def _live_bytes(data: DataFile, positions: tuple[DeleteFile, ...]) -> int:
    # Only deletes of this file alone: a shared one has an unknown number of rows here, and too large
    # an estimate of what is left only makes outputs smaller than the target, never larger.
    deleted = sum(delete.record_count for delete in positions if is_file_scoped(delete, data.path))
    if data.record_count <= 0:
        return data.size_bytes
    return data.size_bytes * max(0, data.record_count - deleted) // data.record_count
