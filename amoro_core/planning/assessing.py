"""Amoro's per-file rules evaluated for all live files in columns; `planning.files` evaluates them file by file."""

from collections.abc import Iterator, Set
from dataclasses import fields

import numpy as np
import numpy.typing as npt

from amoro_core.live.columns import Ids, Mask, Numbers
from amoro_core.live.files import LiveFiles
from amoro_core.model.config import OptimizingConfig
from amoro_core.planning.clustering.kept import group_ids
from amoro_core.planning.files import AssessedFile, FileClass, assess
from amoro_core.records import record

_CLASSES = tuple(FileClass)
_FRAGMENT, _UNDERSIZED, _TARGET_SIZE = range(len(_CLASSES))


@record
class AssessedColumns:
    """The columns of `AssessedFile` for some of the live files, whose indexes are `ids`."""

    files: LiveFiles
    ids: Ids
    sizes: Numbers
    file_class: npt.NDArray[np.int8]
    live_bytes: Numbers
    has_deletes: Mask
    duplicates: Mask
    convertible: Mask
    too_short: Mask
    combinable: Mask
    in_order: Mask
    coarse: Mask

    @property
    def all(self) -> Mask:
        """Every file."""
        return np.ones(len(self), np.bool_)

    @property
    def is_fragment(self) -> Mask:
        """Which files are fragments."""
        return np.equal(self.file_class, _FRAGMENT)

    @property
    def is_undersized(self) -> Mask:
        """Which files are undersized."""
        return np.equal(self.file_class, _UNDERSIZED)

    @property
    def is_target_size(self) -> Mask:
        """Which files have at least the target size."""
        return np.equal(self.file_class, _TARGET_SIZE)

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, chosen: Ids | Mask | slice) -> "AssessedColumns":
        """Some of the files, by index in these columns or by mask."""
        return AssessedColumns(
            self.files, **{one.name: getattr(self, one.name)[chosen] for one in fields(self) if one.name != "files"}
        )

    def pick(self, chosen: Mask) -> tuple[AssessedFile, ...]:
        """The files of the mask as rows, sorted by sequence number and path."""
        return tuple(sorted(self.part(chosen).rows(), key=lambda file: (file.data.sequence_number, file.data.path)))

    def rows(self) -> Iterator[AssessedFile]:
        """Every file as a row."""
        asked = (self.duplicates, self.convertible, self.too_short, self.combinable)
        flags = (self.in_order, self.coarse)
        columns = (self.file_class, self.live_bytes, *asked, self.files.carried_through[self.ids], *flags)
        rows = zip(self.files.rows(self.ids), *(column.tolist() for column in columns), strict=True)
        return (AssessedFile(row, _CLASSES[number], *answers) for row, number, *answers in rows)


def assess_all(
    files: LiveFiles,
    config: OptimizingConfig,
    kept: Set[str] = frozenset(),
    ids: Ids | None = None,
    *,
    folds: bool = False,
) -> AssessedColumns:
    """Every file, or those at these indexes, with the answers that `assess` gives, most of them without a row.

    Those of the `kept` groups are in order; `folds` as for `assess`. A file has equality deletes alone, or one position
    delete that names it, too, or it is asked by row.
    """
    columns = files.columns
    ids = np.arange(len(columns)) if ids is None else ids
    sizes, records, position = columns.sizes[ids], columns.records[ids], files.position_delete[ids]
    last_equality_delete = files.last_equality_delete[ids]
    has_position, has_equality = position >= 0, last_equality_delete >= 0
    file_class = np.full(len(ids), _TARGET_SIZE, np.int8)
    file_class[sizes <= config.min_target_size] = _UNDERSIZED
    file_class[sizes <= config.fragment_size] = _FRAGMENT
    in_order = np.isin(group_ids(columns.paths_of(ids)), list(kept)) if kept else np.zeros(len(ids), np.bool_)
    file_class[in_order] = _TARGET_SIZE
    segment = file_class != _FRAGMENT
    rows_of = np.array([*(delete.record_count for delete in files.deletes), 0], np.int64)
    deleted = rows_of[position]  # −1, without one, is the last of these
    bearable = records * config.major_trigger_duplicate_ratio
    # A single position delete that names the file is as good as a conversion; newer equality deletes are not in it.
    to_convert = segment & has_equality & (last_equality_delete > files.carried_through[ids])
    if folds:
        to_convert |= segment & files.has_position_file[ids]
    done = AssessedColumns(
        files,
        ids,
        sizes,
        file_class,
        live_bytes=sizes.copy(),
        has_deletes=has_position | has_equality,
        duplicates=segment & (deleted > bearable),
        convertible=to_convert & (bearable >= 1),
        too_short=to_convert & (bearable < 1),
        combinable=np.zeros(len(ids), np.bool_),
        in_order=in_order,
        coarse=columns.copied[ids] & (file_class == _TARGET_SIZE) & config.knows_coarse,
    )
    for at in np.flatnonzero(has_position).tolist():
        # As Python integers: bytes times rows may exceed 64 bits.
        size, rows = int(sizes[at]), int(records[at])
        if rows > 0:
            done.live_bytes[at] = size * max(0, rows - int(deleted[at])) // rows
    by_row = np.flatnonzero(files.by_row[ids])
    for at, row in zip(by_row.tolist(), files.rows(ids[by_row]), strict=True):
        _put(done, at, assess(row, config, is_in_order=bool(in_order[at]), folds=folds))
    return done


def _put(columns: AssessedColumns, at: int, file: AssessedFile) -> None:
    columns.live_bytes[at] = file.live_bytes
    columns.has_deletes[at] = bool(file.deletes)
    columns.duplicates[at] = file.duplicates
    columns.convertible[at] = file.convertible
    columns.too_short[at] = file.too_short
    columns.combinable[at] = file.combinable
