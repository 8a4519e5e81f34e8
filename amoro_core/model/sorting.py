"""What a table says of the orders in which its rows may lie: columns, sort orders, and how bounds compare."""

from collections.abc import Callable

from amoro_core.model.clustering import LayoutKey
from amoro_core.model.plans import PartitionKey
from amoro_core.records import record

#: A value of a column or of a partition field in a form that compares as Iceberg compares the values themselves.
SortKey = int | bytes
#: The sort key of a bound as metadata has it; None for bytes that are no value of the column's type.
BoundKey = Callable[[bytes], SortKey | None]
#: What partitions of one spec are ordered by; nulls come first.
PartitionOrder = Callable[[PartitionKey], tuple[tuple[int, SortKey], ...]]


@record
class Column:
    """A column of the current schema, nested ones too."""

    field_id: int
    name: str  # with dots between the levels
    kind: str  # its type as Iceberg writes it
    problem: str = ""  # why rows can't be ordered by it; "" where they can


@record
class SortOrder:
    """A sort order of the metadata; 0 is the one of no order."""

    order_id: int
    keys: tuple[LayoutKey, ...] = ()
    problem: str = ""  # why rows can't be written in it; "" where they can


@record
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
        found = (one for one in self.orders if one.order_id == self.default_order_id)
        return next(found, SortOrder(self.default_order_id))

    def named(self, name: str) -> Column | None:
        """The column of that name."""
        return next((one for one in self.columns if one.name == name), None)

    def has(self, field_id: int) -> bool:
        """Whether the schema has the column."""
        return any(one.field_id == field_id for one in self.columns)

    def name_of(self, field_id: int) -> str:
        """The column's name; its id where the schema does not know it any more."""
        return next((one.name for one in self.columns if one.field_id == field_id), f"#{field_id}")
