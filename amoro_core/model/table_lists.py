"""Lists of tables: what they are ordered by, and which tables they hold."""

from dataclasses import astuple
from datetime import datetime
from enum import StrEnum

from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier
from amoro_core.records import record


class TableKey(StrEnum):
    """What a list of tables is ordered by; ties by the tables' numbers."""

    NAME = "name"
    STATUS = "status"
    HEALTH = "health"  # tables that were not evaluated follow the healthy ones
    FILES = "files"
    SMALL_FILES = "small-files"  # fragments and undersized ones
    DELETES = "deletes"  # delete files
    SIZE = "size"  # of data files
    LAST_OPTIMIZED = "last-optimized"  # never is before every time
    NEXT_DUE = "next-due"  # tables that nothing is due for follow the others
    GROUP = "group"


class Order(StrEnum):
    """The direction of a list."""

    ASC = "asc"
    DESC = "desc"


@record
class WantedTables:
    """Which tables are listed; "" and None: any."""

    catalog: str = ""
    status: OptimizingStatus | None = None
    group: str = ""
    text: str = ""  # in the name, in any case
    namespace: tuple[str, ...] = ()  # exactly this one
    enabled: bool | None = None
    refusal: str = ""  # the word in REFUSED(word)
    health_below: int | None = None  # evaluated tables with a lower score

    @property
    def scope(self) -> tuple[object, ...]:
        """The filters as plain values, for a cursor."""
        return astuple(self)

    @property
    def is_all(self) -> bool:
        """Whether every table is listed."""
        return self == WantedTables()

    @property
    def is_all_of_catalog(self) -> bool:
        """Whether every table of one catalog is listed."""
        return bool(self.catalog) and self == WantedTables(self.catalog)


@record
class TableOrder:
    """The order of a list of tables."""

    key: TableKey = TableKey.NAME
    order: Order = Order.ASC


@record
class Turn:
    """What the place of a table that waits for a plan goes by."""

    table_id: int
    group: str
    quota: float
    last_optimized_at: datetime | None


@record
class Pending:
    """A table that waits for a plan."""

    table_id: int
    identifier: TableIdentifier
    group: str
    quota: float
    enabled: bool
    since: datetime
    reason: str
    type: OptimizingType | None
    last_optimized_at: datetime | None
