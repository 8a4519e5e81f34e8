"""Evaluation of one data file, by its size and its deletes."""

from dataclasses import replace
from enum import StrEnum

from amoro_core.model.config import OptimizingConfig
from amoro_core.model.copied_files import is_copied
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, ScannedFile
from amoro_core.model.paths import normalise
from amoro_core.records import record


class FileClass(StrEnum):
    """The size class of a data file relative to the table's target size."""

    FRAGMENT = "fragment"
    UNDERSIZED = "undersized"
    TARGET_SIZE = "target-size"


@record
class AssessedFile:
    """A scanned file with everything that planning needs to know about it."""

    scanned: ScannedFile
    file_class: FileClass
    live_bytes: int  # data bytes minus those of rows known to be deleted
    duplicates: bool  # position deletes cover more of its rows than the ratio allows
    convertible: bool  # its deletes can be replaced by one position delete file or vector
    too_short: bool  # a single position in that file would already exceed the ratio
    combinable: bool  # several position deletes would become fewer
    carried_through: int = -1  # up to which sequence number its own position delete holds equality deletes
    is_in_order: bool = False  # it was clustered: of whatever size it is left alone, or rewritten by itself
    is_coarse: bool = False  # of target size, of many small row groups that minor copied: major and full encode it

    @property
    def data(self) -> DataFile:
        """The data file."""
        return self.scanned.data

    @property
    def deletes(self) -> tuple[DeleteFile, ...]:
        """The delete files that apply to it."""
        return self.scanned.deletes

    @property
    def is_fragment(self) -> bool:
        """Whether its size makes it a fragment."""
        return self.file_class is FileClass.FRAGMENT

    @property
    def is_undersized(self) -> bool:
        """Whether its size is above a fragment's and below the target."""
        return self.file_class is FileClass.UNDERSIZED


def classify(size_bytes: int, config: OptimizingConfig) -> FileClass:
    """The class of a data file of that size."""
    if size_bytes <= config.fragment_size:
        return FileClass.FRAGMENT
    if size_bytes <= config.min_target_size:
        return FileClass.UNDERSIZED
    return FileClass.TARGET_SIZE


def assess(
    scanned: ScannedFile, config: OptimizingConfig, *, is_in_order: bool = False, folds: bool = False
) -> AssessedFile:
    """The file with the answers to Amoro's per-file rules; one that is in order is small for none of them.

    `folds`: position delete files are to be folded into deletion vectors, as from format 3 on.
    """
    data = scanned.data
    file_class = FileClass.TARGET_SIZE if is_in_order else classify(data.size_bytes, config)
    is_coarse = file_class is FileClass.TARGET_SIZE and config.knows_coarse and is_copied(data.path)
    if not scanned.deletes:
        assessed = AssessedFile(scanned, file_class, data.size_bytes, False, False, False, False)
        return replace(assessed, is_in_order=is_in_order, is_coarse=is_coarse)
    positions = counting_position_deletes(scanned)
    carried_through = scanned.carried_through
    deleted = sum(delete.record_count for delete in positions)
    segment = file_class is not FileClass.FRAGMENT
    bearable = data.record_count * config.major_trigger_duplicate_ratio
    combinable = segment and len(positions) > 1 and not folds
    to_fold = segment and folds and any(is_position_file(delete) for delete in scanned.deletes)
    convertible = combinable or to_fold or (segment and _is_convertible(scanned, positions, carried_through))
    return AssessedFile(
        scanned,
        file_class,
        _live_bytes(data, positions) if positions else data.size_bytes,
        duplicates=segment and deleted > bearable,
        convertible=convertible and bearable >= 1,
        too_short=convertible and bearable < 1,
        combinable=combinable,
        carried_through=carried_through,
        is_in_order=is_in_order,
        is_coarse=is_coarse,
    )


def is_position_file(delete: DeleteFile) -> bool:
    """Whether it deletes by position, and is no vector."""
    return delete.kind is DeleteKind.POSITION and not delete.is_vector


def is_file_scoped(delete: DeleteFile, path: str) -> bool:
    """Whether the position delete names that data file and no other."""
    named = delete.named_file
    return named is not None and (named == path or normalise(named) == normalise(path))


def is_own(delete: DeleteFile, data: DataFile) -> bool:
    """Whether an earlier conversion of that data file, ours or Amoro's, wrote the position delete."""
    if delete.kind is not DeleteKind.POSITION:
        return False
    if _name(delete.path).startswith(f"{_stem(data.path)}-delete-"):
        return True
    return delete.is_converted and is_file_scoped(delete, data.path)


def counting_position_deletes(scanned: ScannedFile) -> tuple[DeleteFile, ...]:
    """The position deletes of the file without those already folded into its own newest one.

    A delete that other files still need stays after the conversion. It must not count again, or the same conversion
    would be planned for ever.
    """
    positions = [delete for delete in scanned.deletes if delete.kind is DeleteKind.POSITION]
    own = [delete for delete in positions if is_own(delete, scanned.data)]
    if not own:
        return tuple(positions)
    latest = max(delete.sequence_number for delete in own)
    newest = [delete for delete in own if delete.sequence_number == latest][-1]
    return (newest, *(delete for delete in positions if delete.sequence_number > latest))


def _is_convertible(scanned: ScannedFile, positions: tuple[DeleteFile, ...], carried_through: int) -> bool:
    """Whether it has deletes that are shared with other files; one that names it alone is as good as converted.

    An equality delete that stayed for other files when this one was converted does not count again.
    """
    return any(
        delete.sequence_number > carried_through
        if delete.kind is DeleteKind.EQUALITY
        else delete in positions and not _is_of_file(delete, scanned.data)
        for delete in scanned.deletes
    )


def _is_of_file(delete: DeleteFile, data: DataFile) -> bool:
    return is_file_scoped(delete, data.path) or is_own(delete, data)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _stem(path: str) -> str:
    stem, dot, extension = _name(path).rpartition(".")
    return stem if dot else extension


def _live_bytes(data: DataFile, positions: tuple[DeleteFile, ...]) -> int:
    # Only deletes of this file alone: a shared one has an unknown number of rows here, and overestimating
    # what is left only makes outputs smaller than the target, never larger.
    deleted = sum(delete.record_count for delete in positions if is_file_scoped(delete, data.path))
    if data.record_count <= 0:
        return data.size_bytes
    return data.size_bytes * max(0, data.record_count - deleted) // data.record_count
