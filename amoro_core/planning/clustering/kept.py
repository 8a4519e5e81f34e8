"""Groups of files that were clustered together, told by the ends of their names."""

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from math import floor, log

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.live.columns import Numbers
from amoro_core.live.files import LiveFiles
from amoro_core.live.spelling import FEW, Paths
from amoro_core.model.clustered_files import group_of
from amoro_core.model.clustering import Layout
from amoro_core.model.files import DataFile
from amoro_core.planning.clustering.facts import KeptGroup
from amoro_core.records import record

#: As `group_of`, for many paths at once.
_GROUP = r"-g(?P<group>[0-9a-f]{12})\.[a-z]+$"
#: What names of our files begin with: a process, whose UUIDv7 tells when it was planned.
_PROCESS = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-", re.ASCII)
#: A group counts for the next tier from this share of its size on: rows in order take less room than before.
_NEARLY = 0.8
_UNKNOWN = datetime.fromtimestamp(0, UTC)

GroupIds = npt.NDArray[np.object_]


def clustered_at(path: str) -> datetime | None:
    """When the process was planned that wrote a clustered file; None for another file."""
    found = _PROCESS.match(path.rpartition("/")[2])
    if found is None or group_of(path) is None:
        return None
    milliseconds = int(found[1].replace("-", ""), 16)
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def group_ids(paths: pa.ChunkedArray | pa.Array) -> GroupIds:
    """For each path the id of its group, or None."""
    ids = np.empty(len(paths), np.object_)
    if len(paths) <= FEW:
        ids[:] = [group_of(path) for path in paths.to_pylist()]
        return ids
    found = pc.struct_field(pc.extract_regex(paths, _GROUP), "group")
    array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    ids[:] = array.to_pylist()
    return ids


def kept_groups(parts: Iterable[Paths], known: Mapping[str, Layout], current: Layout | None) -> frozenset[str]:
    """The groups whose order others leave alone: all but those that are known to have another layout than the table.

    `current` None: it is not known which one the table has; then no order is lost for it.
    """
    named = frozenset[str]().union(*(part.once(_groups_named) for part in parts))
    return frozenset(one for one in named if current is None or known.get(one, current) == current)


def _groups_named(paths: pa.Array) -> frozenset[str]:
    return frozenset(one for one in set(group_ids(paths).tolist()) if one is not None)


class Layouts:
    """The layouts of groups: known ones, and those that a footer tells, each asked for once."""

    def __init__(self, known: Mapping[str, Layout], learn: Callable[[DataFile], Layout | None]) -> None:
        self._known = known
        self._learn = learn
        self._asked: dict[str, Layout | None] = {}

    def of(self, group_id: str, file: Callable[[], DataFile]) -> Layout | None:
        """The group's layout; None where not even its file tells. `file` is one of its files."""
        if group_id in self._known:
            return self._known[group_id]
        if group_id not in self._asked:
            self._asked[group_id] = self._learn(file())
        return self._asked[group_id]

    @property
    def learned(self) -> Mapping[str, Layout]:
        """What was not known before."""
        return {group_id: layout for group_id, layout in self._asked.items() if layout is not None}


def newest_layout(files: LiveFiles, layouts: Layouts, columns: Container[int]) -> Layout | None:
    """The layout of the group that was planned last, of those whose columns (field ids) there are; None: of none."""
    ids, paths = group_ids(files.columns.paths).tolist(), files.columns.paths
    first = {group_id: at for at, group_id in reversed(list(enumerate(ids))) if group_id is not None}
    times = {group_id: clustered_at(paths[at].as_py()) or _UNKNOWN for group_id, at in first.items()}
    for group_id in sorted(first, key=lambda one: (times[one], one), reverse=True):
        layout = layouts.of(group_id, partial(files.columns.row, first[group_id]))
        if layout is not None and all(key.field_id in columns for key in layout.keys):
            return layout
    return None


@record
class Sealing:
    """When a group is sealed, and which tier it is of then; bytes."""

    seal_bytes: int
    fanout: int  # 0: no tiers

    def is_open(self, stored_bytes: int, live_bytes: int) -> bool:
        """Whether new files join the group: it never was large enough, or rows were deleted until half of that."""
        return stored_bytes < self.seal_bytes or 2 * live_bytes < self.seal_bytes

    def tier(self, live_bytes: int) -> int:
        """How often so many groups became one."""
        if self.fanout < 2 or live_bytes <= self.seal_bytes:
            return 0
        return max(0, floor(log(live_bytes / (self.seal_bytes * _NEARLY), self.fanout) + 1e-9))


@record
class KeptFiles:
    """A kept group with the indexes of its files among those of the partition."""

    group: KeptGroup
    at: Numbers


@record
class PartitionGroups:
    """The files of one partition: those of kept groups, and those that are not clustered, by index."""

    kept: tuple[KeptFiles, ...]  # by group id
    unclustered: Numbers

    @property
    def open(self) -> tuple[KeptFiles, ...]:
        """The groups that new files join."""
        return tuple(one for one in self.kept if one.group.is_current and one.group.is_open)

    @property
    def sealed(self) -> tuple[KeptFiles, ...]:
        """The groups that stay as they are until several become one."""
        return tuple(one for one in self.kept if one.group.is_current and not one.group.is_open)


def groups_in(
    ids: Sequence[str | None] | GroupIds,
    sizes: tuple[Numbers, Numbers],
    layout_of: Callable[[str, int], Layout | None],
    current: Layout,
    sealing: Sealing,
    *,
    relayout: bool,
) -> PartitionGroups:
    """The groups among the files of a partition. `sizes` are stored and live bytes by file.

    `layout_of` says the layout of a group, given the index of one of its files. A group of which nothing tells the
    layout is not clustered; with `relayout` nor is one of another layout.
    """
    stored, live = sizes
    by_id: dict[str, list[int]] = {}
    loose: list[int] = []
    for at, group_id in enumerate(ids):
        if group_id is None:
            loose.append(at)
        else:
            by_id.setdefault(group_id, []).append(at)
    kept = []
    for group_id in sorted(by_id):
        files = np.array(by_id[group_id], np.int64)
        layout = layout_of(group_id, by_id[group_id][0])
        if layout is None or (relayout and layout != current):
            loose += by_id[group_id]
            continue
        here, there = int(stored[files].sum()), int(live[files].sum())
        is_current = layout == current
        is_open = is_current and sealing.is_open(here, there)
        tier = sealing.tier(there)
        kept.append(KeptFiles(KeptGroup(group_id, layout, is_current, is_open, tier, len(files), there), files))
    return PartitionGroups(tuple(kept), np.array(sorted(loose), np.int64))
