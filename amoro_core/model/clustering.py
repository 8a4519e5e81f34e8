"""Clustering: layouts, sort orders, the work of a group, and its result."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from amoro_core.model.plans import PartitionKey
from amoro_core.model.task_payload import RewriteInput, RewriteOutput
from amoro_core.model.text_sanitizing import briefly

#: The kind of the work.
CLUSTER = "cluster"
#: The way from values to places on a curve, as it is computed now.
CURVE_VERSION = 1
#: Characters of the bounds of clustering columns where the table's properties say nothing: many texts begin alike.
BOUND_CHARACTERS = 64
#: Columns that a curve takes at most; a single one is ordered linearly.
MAX_CURVE_COLUMNS = 4


class Strategy(StrEnum):
    """How several columns become one order; stored and sent."""

    LINEAR = "linear"  # by the first column, then the second, ...
    ZORDER = "zorder"
    HILBERT = "hilbert"


@dataclass(frozen=True, slots=True)
class LayoutKey:
    """A column of a layout; `transform` is named as in Iceberg's sort orders, and is `identity` on a curve."""

    field_id: int
    transform: str = "identity"
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """An order of rows."""

    strategy: Strategy
    keys: tuple[LayoutKey, ...]
    curve_version: int = CURVE_VERSION


#: The key of a plan's document that says whether writers which ask are refused until its process ends.
REJECTS = "rejects_writers"


@dataclass(frozen=True, slots=True)
class ClusteredGroup:
    """A group of files whose rows are ordered, as it was made."""

    group_id: str
    layout: Layout
    depths: Mapping[int, float] = field(default_factory=dict)  # that clustering reached, by field id


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Options of a request to cluster, beside the table's properties."""

    columns: tuple[str, ...] = ()  # (): as the properties say
    strategy: str = ""
    partitions: str = ""
    full: bool = False  # groups that are in order already, too
    schedule_only: bool = False  # it is planned and stored, and started later
    shows: bool = False  # where no columns are set, describes the clustered files and plans nothing


AS_CONFIGURED = ClusterOptions()


@dataclass(frozen=True, slots=True)
class ClusterInput:
    """Everything that clustering a group needs. `rewrite` converts nothing; its outputs are of even size."""

    rewrite: RewriteInput
    layout: Layout
    group_id: str  # 12 hexadecimal digits, the end of the outputs' names
    seed: int  # of the sample, below 2**64
    sort_order_id: int = 0  # that the outputs carry; 0: none


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What one stage of the work took; parts that were repeated count once."""

    name: str  # "sample", "split", "write"
    core_ms: int
    rows: int


@dataclass(frozen=True, slots=True)
class ClusterOutput:
    """What clustering a group made."""

    rewrite: RewriteOutput
    cuts: bytes  # the cut points between the outputs, an Arrow stream
    stages: tuple[StageFacts, ...]
    shuffle_bytes: int = 0
    spill_bytes: int = 0


#: A value of a column or of a partition field in a form that compares as Iceberg compares the values themselves.
SortKey = int | bytes
#: The sort key of a bound as metadata has it; None for bytes that are no value of the column's type.
BoundKey = Callable[[bytes], SortKey | None]
#: What partitions of one spec are ordered by; nulls come first.
PartitionOrder = Callable[[PartitionKey], tuple[tuple[int, SortKey], ...]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the current schema, nested ones too."""

    field_id: int
    name: str  # with dots between the levels
    kind: str  # its type as Iceberg writes it
    problem: str = ""  # why rows can't be ordered by it; "" where they can


@dataclass(frozen=True, slots=True)
class SortOrder:
    """A sort order of the metadata; 0 is the one of no order."""

    order_id: int
    keys: tuple[LayoutKey, ...] = ()
    problem: str = ""  # why rows can't be written in it; "" where they can


@dataclass(frozen=True, slots=True)
class Sorting:
    """What layouts are resolved by, as of one state of the table."""

    columns: tuple[Column, ...]
    orders: tuple[SortOrder, ...] = ()
    default_order_id: int = 0
    partitioned_by: frozenset[int] = frozenset()  # columns whose value is one in each partition of the current spec
    identifiers: tuple[int, ...] = ()  # fields that make a row's identity
    bound_key: Callable[[int], BoundKey] = lambda field_id: lambda bound: bound
    partition_order: PartitionOrder = lambda key: ()  # by those fields first that tell a time

    @property
    def default_order(self) -> SortOrder:
        """The table's sort order; one without keys where it has none."""
        orders = (sort_order for sort_order in self.orders if sort_order.order_id == self.default_order_id)
        return next(orders, SortOrder(self.default_order_id))

    def named(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def has(self, field_id: int) -> bool:
        """Whether the schema has the column."""
        return any(column.field_id == field_id for column in self.columns)

    def name_of(self, field_id: int) -> str:
        """The column's name; its id where the schema does not know it any more."""
        return next((column.name for column in self.columns if column.field_id == field_id), f"#{field_id}")


#: What names of such files end with, before the extension.
SUFFIX = "-copied"
#: The same with the extension.
ENDING = f"{SUFFIX}.parquet"


def is_copied(path: str) -> bool:
    """Whether the file at the path has small row groups that were copied."""
    return path.endswith(ENDING)


#: The name, for Arrow as for Python.
NAME = r"\.?[0-9]+-(B|I|ED|PD|IED|L)-[0-9]+-[0-9]+-[0-9]+-[^/\n]*"
_MIXED_NAME = re.compile(NAME)


def is_mixed(path: str) -> bool:
    """Whether the file at the path is named as one of Amoro's Mixed format."""
    return _MIXED_NAME.fullmatch(path.rpartition("/")[2]) is not None


#: How many reasons are told; files of the rarer ones are counted together.
MOST = 5
OTHERS = "other reasons"
#: Of files whose task's plan allows no copy.
PLANNED = "the plan copies nothing of their task"
#: Of files whose optimizer is of a version that does not tell.
UNTOLD = "the optimizer does not tell"
_LONGEST = 200  # characters of a reason: it comes from outside, and may name a column


@dataclass(frozen=True, slots=True)
class EncodedFiles:
    """How many files were encoded for one reason: of several that a file has, the first."""

    reason: str
    files: int


def commonest(counted: Iterable[tuple[str, int]]) -> tuple[EncodedFiles, ...]:
    """The commonest reasons with the files of each, equal ones summed, most files first; the rest as other reasons."""
    counts: Counter[str] = Counter()
    for reason, files in counted:
        if files > 0:
            counts[briefly(reason, _LONGEST) or UNTOLD] += files
    others = counts.pop(OTHERS, 0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    others += sum(files for _, files in ordered[MOST:])
    reasons = [*ordered[:MOST], *([(OTHERS, others)] if others else [])]
    return tuple(EncodedFiles(reason, files) for reason, files in reasons)


#: The key of a clustered file's metadata under which its group and layout stand.
METADATA_KEY = "amoro.cluster"

_GROUP_ID = re.compile(r"[0-9a-f]{12}")
_NAME = re.compile(r"-g([0-9a-f]{12})\.[a-z]+\Z")


def group_suffix(group_id: str) -> str:
    """The end of the names of a group's files, before the extension. Raises ValueError unless it is 12 hex digits."""
    if not _GROUP_ID.fullmatch(group_id):
        raise ValueError(f"{group_id!r} is not a group id: expected 12 lower-case hexadecimal digits")
    return f"-g{group_id}"


def group_of(path: str) -> str | None:
    """The group id in the file's name; None for a file that was not clustered."""
    match = _NAME.search(path)
    return match.group(1) if match else None


def layout_text(layout: Layout, group_id: str) -> str:
    """Group and layout as a file's metadata has them, the same text each time."""
    columns = [
        {
            "id": key.field_id,
            "transform": key.transform,
            "direction": "desc" if key.descending else "asc",
            "null-order": "nulls-last" if key.nulls_last else "nulls-first",
        }
        for key in layout.keys
    ]
    document = {
        "group": group_id,
        "strategy": layout.strategy.value,
        "columns": columns,
        "curve-version": layout.curve_version,
    }
    return json.dumps(document)


def parse_layout_text(text: str) -> tuple[str, Layout]:
    """Group and layout from a file's metadata. Raises ValueError for text that `layout_text` does not write."""
    try:
        document = json.loads(text)
        keys = tuple(
            LayoutKey(
                int(column["id"]),
                str(column["transform"]),
                column["direction"] == "desc",
                column["null-order"] == "nulls-last",
            )
            for column in document["columns"]
        )
        return str(document["group"]), Layout(Strategy(document["strategy"]), keys, int(document["curve-version"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"no description of a layout: {text[:200]}") from error
