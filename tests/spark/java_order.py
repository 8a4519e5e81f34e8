"""Whether the rows of data files stand in the sort order that the files claim, in the comparison of Iceberg's Java."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .java_writer import JavaTable


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A data file of the head as Java plans it."""

    sort_order_id: int
    deletes: int  # files of any kind that are applied to it


def planned_files(java: JavaTable) -> dict[str, PlannedFile]:
    """The data files of the head, by location."""
    planned = java.table.newScan().planFiles()
    found, tasks = {}, planned.iterator()
    while tasks.hasNext():
        task = tasks.next()
        order_id = task.file().sortOrderId()
        found[str(task.file().location())] = PlannedFile(0 if order_id is None else int(order_id), len(task.deletes()))
    planned.close()
    return found


class RowsOfFiles:
    """The live rows of the head as Java's generic reader gives them, by file and in the order of their positions."""

    def __init__(self, java: JavaTable) -> None:
        """Reads all rows."""
        self._java = java
        columns = java.iceberg.MetadataColumns
        places = java.gateway.new_array(java.iceberg.types.Types.NestedField, 2)
        places[0], places[1] = columns.FILE_PATH, columns.ROW_POSITION
        self._schema = java.iceberg.types.TypeUtil.join(java.table.schema(), java.iceberg.Schema(places))
        self._files: dict[str, list[tuple[int, Any]]] = {}
        records = java.iceberg.data.IcebergGenerics.read(java.table).project(self._schema).build()
        struct, rows = self._schema.asStruct(), records.iterator()
        while rows.hasNext():
            row = rows.next()
            compared = java.iceberg.data.InternalRecordWrapper(struct).wrap(row)
            self._files.setdefault(str(row.getField("_file")), []).append((int(row.getField("_pos")), compared))
        records.close()

    def of(self, path: str) -> list[Any]:
        """The rows of one file, none for a file whose rows are all deleted."""
        return [row for _, row in sorted(self._files.get(path, []), key=lambda one: one[0])]

    def is_ordered(self, rows: list[Any], order_id: int) -> bool:
        """Whether each row is at most as great as the next in one of the table's sort orders."""
        java = self._java
        order = java.table.sortOrders().get(order_id)
        comparator = java.iceberg.SortOrderComparators.forSchema(self._schema, order)
        ordering = getattr(java.iceberg.relocated.com.google.common.collect.Ordering, "from")(comparator)
        listed = java.gateway.jvm.java.util.ArrayList()
        for row in rows:
            listed.add(row)
        return bool(ordering.isOrdered(listed))
