"""The layout of a table: from its properties or a request, its schema and its sort order."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from amoro_core.errors import AmoroError, InvalidArgument, TableRefused
from amoro_core.model.clustering import MAX_CURVE_COLUMNS, Layout, LayoutKey, Strategy
from amoro_core.model.sorting import Sorting, SortOrder
from amoro_core.planning.clustering.facts import ClusterFacts, ClusterRequest
from amoro_core.planning.clustering.properties import AUTO, COLUMNS_KEY, STRATEGY_KEY, ClusteringConfig
from amoro_core.records import record

_METRICS_KEY = "write.metadata.metrics.column."
#: What metrics say of a column whose bounds are not kept.
_WITHOUT_BOUNDS = ("none", "counts")


@record
class Resolved:
    """A layout, with what people should know of how it came to be."""

    layout: Layout
    notes: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[int, ...]:
        """The columns by which files are told apart: all of a curve, the first of a linear layout."""
        ids = tuple(key.field_id for key in self.layout.keys)
        return ids[:1] if self.layout.strategy is Strategy.LINEAR else ids


@record
class Source:
    """Who named columns and strategy: a request or properties; what is wrong is said to them."""

    asked: bool

    def wrong(self, key: str, value: str, problem: str, hint: str) -> AmoroError:
        """The error for a value that can't be followed."""
        if self.asked:
            return InvalidArgument(f"{value!r}: {problem}", hint=hint)
        return TableRefused(
            f"property {key} has the value {value!r}: {problem}",
            reason="configuration",
            hint=f"{hint} Fix it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…').",
        )


def resolve(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> Resolved:
    """The layout that the table is to have. `auto` has chosen already, in `facts.choice`.

    Raises TableRefused("configuration"), with key and value, for what the table's properties or sort order say and rows
    can't be ordered by; InvalidArgument where a request says it.
    """
    if request.columns:
        return _named(facts, request.columns, request.strategy, Source(True))
    strategy = request.strategy or config.strategy
    source = Source(request.strategy is not None)
    if config.columns == AUTO:
        if facts.choice is None:
            raise ValueError("auto has chosen no columns yet")
        return _named(facts, facts.choice.columns, strategy or facts.choice.strategy, source)
    if config.columns:
        return _named(facts, config.columns, strategy, source)
    return _ordered(facts, strategy, source)


def names_columns(facts: ClusterFacts, config: ClusteringConfig, request: ClusterRequest) -> bool:
    """Whether the request, the properties or the table's sort order say by which columns rows are to be ordered."""
    order = facts.sorting.default_order
    return bool(request.columns or config.columns or order.keys or order.problem)


def sort_order_id(layout: Layout, orders: Iterable[SortOrder]) -> int:
    """The sort order that says the same as the layout: what its files may claim; 0: none does."""
    if layout.strategy is not Strategy.LINEAR:
        return 0
    same = (one.order_id for one in orders if one.order_id and not one.problem and one.keys == layout.keys)
    return min(same, default=0)


def _named(facts: ClusterFacts, names: Sequence[str], strategy: Strategy | None, source: Source) -> Resolved:
    value = ",".join(names)
    keys = []
    for name in names:
        column = facts.sorting.named(name)
        if column is None:
            close = difflib.get_close_matches(name, [one.name for one in facts.sorting.columns], n=1)
            hint = f"Did you mean {close[0]}?" if close else f"One of: {_orderable(facts.sorting)}."
            raise source.wrong(COLUMNS_KEY, value, f"the table has no column {name}", hint)
        if column.problem:
            hint = f"One of: {_orderable(facts.sorting)}."
            raise source.wrong(COLUMNS_KEY, value, f"column {name} {column.problem}", hint)
        keys.append(LayoutKey(column.field_id))
    kept, notes = _without_partition_columns(facts.sorting, keys)
    if not kept:
        raise source.wrong(
            COLUMNS_KEY, value, "each of them has one value in a whole partition", "Name a column that does not."
        )
    return _laid_out(facts, kept, notes, strategy, source, value)


def _ordered(facts: ClusterFacts, strategy: Strategy | None, source: Source) -> Resolved:
    order = facts.sorting.default_order
    if not order.keys and not order.problem:
        raise TableRefused(
            f"property {COLUMNS_KEY} names no columns, and the table has no sort order",
            reason="configuration",
            hint=f"Name columns that queries filter by: ALTER TABLE … SET TBLPROPERTIES ('{COLUMNS_KEY}' = '…'), or "
            "amoro optimize --type cluster --columns.",
        )
    if order.problem:
        raise TableRefused(
            f"the table's sort order {order.order_id} {order.problem}",
            reason="configuration",
            hint=f"Name columns with {COLUMNS_KEY}, or replace the sort order: ALTER TABLE … WRITE ORDERED BY ….",
        )
    keys, notes = _without_partition_columns(facts.sorting, order.keys)
    if not keys:
        raise TableRefused(
            f"the table's sort order {order.order_id} names only columns with one value in a whole partition",
            reason="configuration",
            hint=f"Name columns with {COLUMNS_KEY}.",
        )
    if strategy is None and not _fits_curve(keys):
        strategy = Strategy.LINEAR
    return _laid_out(facts, keys, notes, strategy, source, f"sort order {order.order_id}")


def _laid_out(
    facts: ClusterFacts,
    keys: Sequence[LayoutKey],
    notes: Sequence[str],
    strategy: Strategy | None,
    source: Source,
    value: str,
) -> Resolved:
    for key in keys:
        _refuse_without_bounds(facts, key.field_id)
    many = len(keys) > MAX_CURVE_COLUMNS
    if strategy is None and many:
        raise source.wrong(
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
        what = (
            f"a curve takes at most {MAX_CURVE_COLUMNS} columns, {value} has {len(keys)}"
            if many
            else f"a curve takes no transforms, {value} has {', '.join(one.transform for one in keys)}"
        )
        raise source.wrong(STRATEGY_KEY, wanted.value, what, f"Say linear, or name columns with {COLUMNS_KEY}.")
    return Resolved(Layout(wanted, tuple(LayoutKey(key.field_id) for key in keys)), tuple(notes))


def _fits_curve(keys: Sequence[LayoutKey]) -> bool:
    plain = all(key.transform == "identity" for key in keys)
    return plain and len({key.field_id for key in keys}) == len(keys) <= MAX_CURVE_COLUMNS


def _without_partition_columns(
    sorting: Sorting, keys: Sequence[LayoutKey]
) -> tuple[tuple[LayoutKey, ...], tuple[str, ...]]:
    left_out = dict.fromkeys(key.field_id for key in keys if key.field_id in sorting.partitioned_by)
    notes = tuple(
        f"column {sorting.name_of(one)} is left out: it has one value in a whole partition" for one in left_out
    )
    return tuple(key for key in keys if key.field_id not in left_out), notes


def _refuse_without_bounds(facts: ClusterFacts, field_id: int) -> None:
    name = facts.sorting.name_of(field_id)
    key = f"{_METRICS_KEY}{name}"
    value = _value(facts.properties, key)
    if value in _WITHOUT_BOUNDS:
        raise TableRefused(
            f"property {key} has the value {value!r}: without bounds of {name} readers skip no files by it",
            reason="configuration",
            hint=f"Remove it: ALTER TABLE … UNSET TBLPROPERTIES ('{key}'), or cluster by another column.",
        )


def _value(properties: Mapping[str, str], key: str) -> str:
    return properties.get(key, "").strip().lower()


def _orderable(sorting: Sorting) -> str:
    return ", ".join(one.name for one in sorting.columns if not one.problem) or "the table has none"
