"""The layout of a table, and groups that keep an earlier one."""

import difflib
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from math import floor, log

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from amoro_core.errors import AmoroError, InvalidArgument, misconfigured
from amoro_core.model.clustering import MAX_CURVE_COLUMNS, Layout, LayoutKey, Sorting, SortOrder, Strategy, group_of
from amoro_core.model.files import DataFile
from amoro_core.planning.clustering.model import (
    AUTO,
    COLUMNS_KEY,
    STRATEGY_KEY,
    ClusterFacts,
    ClusteringConfig,
    ClusterRequest,
    GroupState,
)
from amoro_core.scan.columns import FEW, Numbers, Paths
from amoro_core.scan.live_files import LiveFiles

METRICS_KEY = "write.metadata.metrics.column."
#: What metrics say of a column whose bounds are not kept.
_WITHOUT_BOUNDS = ("none", "counts")


@dataclass(frozen=True, slots=True)
class Resolved:
    """A layout, with what people should know of how it came to be."""

    layout: Layout
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[int, ...]:
        """The columns by which files differ: all of a curve, the first of a linear layout."""
        ids = tuple(key.field_id for key in self.layout.keys)
        return ids[:1] if self.layout.strategy is Strategy.LINEAR else ids


def _wrong(by_request: bool, key: str, value: str, problem: str, hint: str) -> AmoroError:
    """The error for a value that can't be followed, `by_request` or of properties."""
    if by_request:
        return InvalidArgument(f"{value!r}: {problem}", hint=hint)
    return misconfigured(
        f"property {key} has the value {value!r}: {problem}",
        hint=f"{hint} Fix it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…').",
    )


def resolve(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> Resolved:
    """The layout that the table is to have. `auto` has chosen already, in `facts.choice`.

    Raises TableRefused("configuration"), with key and value, for what the table's properties or sort order say and rows
    can't be ordered by; InvalidArgument where a request says it.
    """
    if request.columns:
        return _named(facts, request.columns, request.strategy, by_request=True)
    strategy, by_request = request.strategy or config.strategy, request.strategy is not None
    if config.columns == AUTO:
        if facts.choice is None:
            raise ValueError("auto has chosen no columns yet")
        return _named(facts, facts.choice.columns, strategy or facts.choice.strategy, by_request=by_request)
    if config.columns:
        return _named(facts, config.columns, strategy, by_request=by_request)
    return _ordered(facts, strategy, by_request=by_request)


def names_columns(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> bool:
    """Whether the request, the properties or the table's sort order say by which columns rows are to be ordered."""
    order = facts.sorting.default_order
    return bool(request.columns or config.columns or order.keys or order.problem)


def sort_order_id(layout: Layout, orders: Iterable[SortOrder]) -> int:
    """The sort order that says the same as the layout: what its files may claim; 0: none does."""
    if layout.strategy is not Strategy.LINEAR:
        return 0
    same = (order.order_id for order in orders if order.order_id and not order.problem and order.keys == layout.keys)
    return min(same, default=0)


def _named(facts: ClusterFacts, names: Sequence[str], strategy: Strategy | None, *, by_request: bool) -> Resolved:
    value = ",".join(names)
    keys = []
    for name in names:
        column = facts.sorting.named(name)
        if column is None:
            close = difflib.get_close_matches(name, [column.name for column in facts.sorting.columns], n=1)
            hint = f"Did you mean {close[0]}?" if close else f"One of: {_orderable(facts.sorting)}."
            raise _wrong(by_request, COLUMNS_KEY, value, f"the table has no column {name}", hint)
        if column.problem:
            hint = f"One of: {_orderable(facts.sorting)}."
            raise _wrong(by_request, COLUMNS_KEY, value, f"column {name} {column.problem}", hint)
        keys.append(LayoutKey(column.field_id))
    layout_keys, notes = _without_partition_columns(facts.sorting, keys)
    if not layout_keys:
        problem = "each of them has one value in a whole partition"
        raise _wrong(by_request, COLUMNS_KEY, value, problem, "Name a column that does not.")
    return _laid_out(facts, layout_keys, notes, strategy, value, by_request=by_request)


def _ordered(facts: ClusterFacts, strategy: Strategy | None, *, by_request: bool) -> Resolved:
    order = facts.sorting.default_order
    if not order.keys and not order.problem:
        raise misconfigured(
            f"property {COLUMNS_KEY} names no columns, and the table has no sort order",
            hint=f"Name columns that queries filter by: ALTER TABLE … SET TBLPROPERTIES ('{COLUMNS_KEY}' = '…'), or "
            "amoro optimize --type cluster --columns.",
        )
    if order.problem:
        raise misconfigured(
            f"the table's sort order {order.order_id} {order.problem}",
            hint=f"Name columns with {COLUMNS_KEY}, or replace the sort order: ALTER TABLE … WRITE ORDERED BY ….",
        )
    keys, notes = _without_partition_columns(facts.sorting, order.keys)
    if not keys:
        raise misconfigured(
            f"the table's sort order {order.order_id} names only columns with one value in a whole partition",
            hint=f"Name columns with {COLUMNS_KEY}.",
        )
    if strategy is None and not _fits_curve(keys):
        strategy = Strategy.LINEAR
    return _laid_out(facts, keys, notes, strategy, f"sort order {order.order_id}", by_request=by_request)


def _laid_out(
    facts: ClusterFacts,
    keys: Sequence[LayoutKey],
    notes: Sequence[str],
    strategy: Strategy | None,
    value: str,
    *,
    by_request: bool,
) -> Resolved:
    for key in keys:
        _refuse_without_bounds(facts, key.field_id)
    many = len(keys) > MAX_CURVE_COLUMNS
    if strategy is None and many:
        raise _wrong(
            by_request,
            COLUMNS_KEY,
            value,
            f"a curve takes at most {MAX_CURVE_COLUMNS} columns, these are {len(keys)}",
            f"Name fewer, or say {STRATEGY_KEY}=linear.",
        )
    wanted = strategy or (Strategy.LINEAR if len(keys) == 1 else Strategy.HILBERT)
    if wanted is Strategy.LINEAR:
        return Resolved(Layout(wanted, tuple(keys)), tuple(notes))
    if len(keys) == 1 and keys[0].transform == "identity":
        return Resolved(Layout(Strategy.LINEAR, tuple(keys)), (*notes, f"one column is linear, whatever {wanted} says"))
    if not _fits_curve(keys):
        problem = (
            f"a curve takes at most {MAX_CURVE_COLUMNS} columns, {value} has {len(keys)}"
            if many
            else f"a curve takes no transforms, {value} has {', '.join(layout_key.transform for layout_key in keys)}"
        )
        hint = f"Say linear, or name columns with {COLUMNS_KEY}."
        raise _wrong(by_request, STRATEGY_KEY, wanted.value, problem, hint)
    return Resolved(Layout(wanted, tuple(LayoutKey(key.field_id) for key in keys)), tuple(notes))


def _fits_curve(keys: Sequence[LayoutKey]) -> bool:
    plain = all(key.transform == "identity" for key in keys)
    return plain and len({key.field_id for key in keys}) == len(keys) <= MAX_CURVE_COLUMNS


def _without_partition_columns(
    sorting: Sorting, keys: Sequence[LayoutKey]
) -> tuple[tuple[LayoutKey, ...], tuple[str, ...]]:
    left_out = dict.fromkeys(key.field_id for key in keys if key.field_id in sorting.partitioned_by)
    notes = tuple(
        f"column {sorting.name_of(item)} is left out: it has one value in a whole partition" for item in left_out
    )
    return tuple(key for key in keys if key.field_id not in left_out), notes


def _refuse_without_bounds(facts: ClusterFacts, field_id: int) -> None:
    name = facts.sorting.name_of(field_id)
    key = f"{METRICS_KEY}{name}"
    value = facts.properties.get(key, "").strip().lower()
    if value in _WITHOUT_BOUNDS:
        raise misconfigured(
            f"property {key} has the value {value!r}: without bounds of {name} readers skip no files by it",
            hint=f"Remove it: ALTER TABLE … UNSET TBLPROPERTIES ('{key}'), or cluster by another column.",
        )


def layout_name(layout: Layout, sorting: Sorting) -> str:
    """The layout as people write it, such as hilbert(a, b)."""
    names = (f"{sorting.name_of(key.field_id)}{' desc' if key.descending else ''}" for key in layout.keys)
    return f"{layout.strategy}({', '.join(names)})"


def _orderable(sorting: Sorting) -> str:
    return ", ".join(column.name for column in sorting.columns if not column.problem) or "the table has none"


#: As `group_of`, for many paths at once.
_GROUP = r"-g(?P<group>[0-9a-f]{12})\.[a-z]+$"
#: The prefix of our file names: the process id, a UUIDv7, which holds the time of planning.
_PROCESS = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4})-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-", re.ASCII)
#: A group counts for the next tier from this share of its size on: rows in order take less room than before.
_NEARLY = 0.8
_UNKNOWN = datetime.fromtimestamp(0, UTC)

GroupIds = npt.NDArray[np.object_]


def clustered_at(path: str) -> datetime | None:
    """When the process was planned that wrote a clustered file; None for another file."""
    match = _PROCESS.match(path.rpartition("/")[2])
    if match is None or group_of(path) is None:
        return None
    milliseconds = int(match[1].replace("-", ""), 16)
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def group_ids(paths: pa.ChunkedArray | pa.Array) -> GroupIds:
    """For each path the id of its group, or None."""
    ids = np.empty(len(paths), np.object_)
    if len(paths) <= FEW:
        ids[:] = [group_of(path) for path in paths.to_pylist()]
        return ids
    groups = pc.struct_field(pc.extract_regex(paths, _GROUP), "group")
    array = groups.combine_chunks() if isinstance(groups, pa.ChunkedArray) else groups
    ids[:] = array.to_pylist()
    return ids


def preserved_groups(parts: Iterable[Paths], layouts: Mapping[str, Layout], current: Layout | None) -> frozenset[str]:
    """The groups whose order others leave alone: all but those that are known to have another layout than the table.

    `current` None: it is not known which one the table has; then no order is lost for it.
    """
    named = frozenset[str]().union(*(part.once(_groups_named) for part in parts))
    return frozenset(group for group in named if current is None or layouts.get(group, current) == current)


def _groups_named(paths: pa.Array) -> frozenset[str]:
    return frozenset(group for group in set(group_ids(paths).tolist()) if group is not None)


class Layouts:
    """The layouts of groups: known ones, and those read from a footer, once each."""

    def __init__(self, layouts: Mapping[str, Layout], learn: Callable[[DataFile], Layout | None]) -> None:
        self._known = layouts
        self._learn = learn
        self._asked: dict[str, Layout | None] = {}

    def of(self, group_id: str, file: Callable[[], DataFile]) -> Layout | None:
        """The group's layout; None where its file has none either. `file` is one of its files."""
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
    for group_id in sorted(first, key=lambda item: (times[item], item), reverse=True):
        layout = layouts.of(group_id, partial(files.columns.row, first[group_id]))
        if layout is not None and all(key.field_id in columns for key in layout.keys):
            return layout
    return None


@dataclass(frozen=True, slots=True)
class Sealing:
    """When a group is sealed, and which tier it is of then; bytes."""

    seal_bytes: int
    fanout: int  # 0: no tiers

    def is_open(self, stored_bytes: int, live_bytes: int) -> bool:
        """Whether new files join the group: it never was large enough, or rows were deleted until half of that."""
        return stored_bytes < self.seal_bytes or 2 * live_bytes < self.seal_bytes

    def tier(self, live_bytes: int) -> int:
        """How often that many groups became one."""
        if self.fanout < 2 or live_bytes <= self.seal_bytes:
            return 0
        return max(0, floor(log(live_bytes / (self.seal_bytes * _NEARLY), self.fanout) + 1e-9))


@dataclass(frozen=True, slots=True)
class GroupFiles:
    """A kept group with the indexes of its files among those of the partition."""

    group: GroupState
    at: Numbers


@dataclass(frozen=True, slots=True)
class PartitionGroups:
    """The files of one partition: those of kept groups, and those that are not clustered, by index."""

    kept: tuple[GroupFiles, ...]  # by group id
    unclustered: Numbers

    @property
    def open(self) -> tuple[GroupFiles, ...]:
        """The groups that new files join."""
        return tuple(files for files in self.kept if files.group.is_current and files.group.is_open)

    @property
    def sealed(self) -> tuple[GroupFiles, ...]:
        """The groups that stay as they are until several become one."""
        return tuple(files for files in self.kept if files.group.is_current and not files.group.is_open)


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
    groups = []
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
        groups.append(GroupFiles(GroupState(group_id, layout, is_current, is_open, tier, len(files), there), files))
    return PartitionGroups(tuple(groups), np.array(sorted(loose), np.int64))
