"""Sort orders of a table's metadata: which one says what a layout says, and the change that adds one."""

import json
from collections.abc import Sequence

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import NullOrder, SortDirection, SortOrder

from amoro_core.model.clustering import LayoutKey
from amoro_core.model.commits import SortOrderAdded


def keys_of(order: SortOrder) -> tuple[LayoutKey, ...]:
    """The keys of a sort order, transforms as Iceberg spells them."""
    return tuple(
        LayoutKey(
            field.source_id,
            str(field.transform),
            field.direction is SortDirection.DESC,
            field.null_order is NullOrder.NULLS_LAST,
        )
        for field in order.fields
    )


def order_id_of(metadata: TableMetadata, keys: Sequence[LayoutKey]) -> int:
    """The id of the sort order with exactly these keys; 0: the metadata has none."""
    if not keys:
        return 0
    return next((one.order_id for one in metadata.sort_orders if keys_of(one) == tuple(keys)), 0)


def stage_sort_order(table: Table, keys: Sequence[LayoutKey], *, own_metadata: bool) -> tuple[bytes, SortOrderAdded]:
    """What adds a sort order and does not make it the default, of the table as loaded just now; with its evidence.

    `own_metadata`: whoever sends it writes the metadata file itself, and it applies to this state of the table alone,
    so that no two orders get one id.
    """
    metadata = table.metadata
    order = {
        "order-id": max((one.order_id for one in metadata.sort_orders), default=0) + 1,
        "fields": [
            {
                "source-id": key.field_id,
                "transform": key.transform,
                "direction": "desc" if key.descending else "asc",
                "null-order": "nulls-last" if key.nulls_last else "nulls-first",
            }
            for key in keys
        ],
    }
    request: dict[str, object] = {
        "requirements": [
            {"type": "assert-table-uuid", "uuid": str(metadata.table_uuid)},
            {"type": "assert-default-sort-order-id", "default-sort-order-id": metadata.default_sort_order_id},
        ],
        "updates": [{"action": "add-sort-order", "sort-order": order}],
    }
    place = table.metadata_location if own_metadata else ""
    if place:
        request["metadata-location"] = place
    told = tuple((key.field_id, key.transform, key.descending, key.nulls_last) for key in keys)
    return json.dumps(request, separators=(",", ":")).encode(), SortOrderAdded(told, place)


def layout_keys(evidence: SortOrderAdded) -> tuple[LayoutKey, ...]:
    """The keys that the evidence is about."""
    return tuple(LayoutKey(*key) for key in evidence.keys)
