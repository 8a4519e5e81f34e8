"""Rewriting that leaves the order of clustered files alone: what lies in one group stays in it, sorted and marked."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from amoro_core.errors import AmoroError, AttemptAbandoned, TableRefused
from amoro_core.files.parquet.reading import read_layout
from amoro_core.files.schema.schemas import parse_rows_schema
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.clustering import ClusterInput, group_of
from amoro_core.model.files import FileFormat
from amoro_core.model.processes import Attempt
from amoro_core.model.task_payload import RewriteInput, RewriteOutput
from amoro_optimizer.cluster.engine import bounded_options, cluster, labels_of
from amoro_optimizer.cluster.sort_keys import Order
from amoro_optimizer.rewrite.engine import rewrite
from amoro_optimizer.rewrite.reading import WatchedAccess


def rewrite_in_order(
    work: RewriteInput,
    access: FileAccess,
    attempt: Attempt,
    *,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool],
    memory_limit_bytes: int,
) -> RewriteOutput:
    """Rewrite as `rewrite` does; where all rewritten files are of one group, its outputs are, too, in its order.

    They have the group's suffix, its layout in their footers, and the sort order id that all inputs have. A group
    whose columns are gone, or whose layout is not known here, is rewritten as any other files. Raises as `rewrite`.
    """

    def checkpoint() -> None:
        if is_cancelled():
            raise AttemptAbandoned(f"attempt {attempt} was cancelled")

    group = kept_group(work, WatchedAccess(access, checkpoint))
    if group is None or len(work.rewritten) == 1:
        return rewrite(
            work,
            access,
            attempt,
            on_progress=on_progress,
            is_cancelled=is_cancelled,
            memory_limit_bytes=memory_limit_bytes,
            # The rows of one file are in order already.
            labels=None if group is None else labels_of(group),
            options=None if group is None else bounded_options(_order(group), work.table.properties),
        )
    sorted_output = cluster(
        group,
        access,
        attempt,
        on_progress=on_progress,
        is_cancelled=is_cancelled,
        memory_limit_bytes=memory_limit_bytes,
    ).rewrite
    if not work.converted:
        return sorted_output
    try:
        converted = rewrite(
            replace(work, rewritten=()),
            access,
            attempt,
            on_progress=on_progress,
            is_cancelled=is_cancelled,
            memory_limit_bytes=memory_limit_bytes,
        )
    except BaseException:
        for file in sorted_output.data_files:
            with suppress(AmoroError):
                access.delete(file.path)
        raise
    return replace(
        sorted_output,
        delete_files=converted.delete_files,
        positions_written=converted.positions_written,
        bytes_read=sorted_output.bytes_read + converted.bytes_read,
        duration_ms=sorted_output.duration_ms + converted.duration_ms,
        peak_memory_bytes=max(sorted_output.peak_memory_bytes, converted.peak_memory_bytes),
    )


def kept_group(work: RewriteInput, access: FileAccess) -> ClusterInput | None:
    """The rewritten files as work on their group; None where they are of none, of several, or of one not known here.

    The seed is the group's id: the same files are sampled alike.
    """
    groups = {group_of(file.data.path) for file in work.rewritten}
    first = next(iter(work.rewritten), None)
    group_id = next(iter(groups), None)
    if len(groups) != 1 or group_id is None or first is None or first.data.file_format is not FileFormat.PARQUET:
        return None
    stored = read_layout(access, first.data.path)
    if stored is None or stored[0] != group_id:
        return None
    orders = {file.data.sort_order_id or 0 for file in work.rewritten}
    sort_order_id = orders.pop() if len(orders) == 1 else 0
    group = ClusterInput(replace(work, converted=()), stored[1], group_id, int(group_id, 16), sort_order_id)
    with suppress(TableRefused):
        _order(group)
        return group
    return None


def _order(group: ClusterInput) -> Order:
    return Order(parse_rows_schema(group.rewrite.table.schema_json), group.layout)
