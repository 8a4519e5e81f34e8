"""Messages with everything filled in."""

from collections.abc import Callable
from typing import Any

from amoro_core.protocol import admin_pb2 as pb

PROCESS = "01997a4c-7f3a-7000-8000-00000000000a"
NOON = 1_790_000_000_123  # 2026-09-21 14:13:20.123 UTC


def table(**changes: Any) -> pb.Table:
    values: dict[str, Any] = {
        "table": "sales.db.orders", "table_id": 7, "table_uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "format": "iceberg", "format_version": 2, "location": "file:///w/db/orders", "group": "default",
        "status": "pending", "status_reason": "minor: 12 small files", "status_since_ms": NOON,
        "enabled": True, "enabled_origin": "amoro table enable", "snapshot_id": 5120000000000000881,
        "files": pb.FileSummary(
            data_files=1054, data_bytes=310 * 2**20, fragment_files=48, undersized_files=6, equality_delete_files=9,
            position_delete_files=3, delete_bytes=2048, dangling_delete_files=1, records=9_812_104, coarse_files=2,
            coarse_bytes=220 * 2**20,
        ),
        "last_optimized_ms": 0, "evaluated_ms": NOON, "health_score": 61,
        "health_parts": pb.HealthParts(small_files=21, equality_deletes=30, position_deletes=10),
        "state": "due", "saved_files": 47, "saved_bytes": 48 * 2**20,
    }  # fmt: skip
    return pb.Table(**{**values, **changes})


def plan(**changes: Any) -> pb.Plan:
    minor = pb.PlannedPartition(
        partition="dt=2026-09-20", type="minor", reason="12 small files", data_files=48, equality_delete_files=9,
        position_delete_files=3, input_bytes=310 * 2**20, expected_files=4, tasks=3,
    )  # fmt: skip
    skipped = {"spec_id": 1, "reason": "below triggers"}
    values: dict[str, Any] = {
        "table": "sales.db.orders", "snapshot_id": 5120000000000000881, "type": "minor",
        "reason": "12 small files in dt=2026-09-20",
        "partitions": [
            minor,
            pb.PlannedPartition(partition="dt=2026-09-19", data_files=6, data_bytes=780 * 2**20, **skipped),
            pb.PlannedPartition(partition="dt=2026-09-18", **skipped),
        ],
        "tasks": 3, "files": pb.FileSummary(data_files=54), "health_score": 61,
        "enabled": False, "enabled_origin": "observed only: it was never enabled",
    }  # fmt: skip
    return pb.Plan(**{**values, **changes})


def nothing(**changes: Any) -> pb.Plan:
    values: dict[str, Any] = {
        "table": "sales.db.orders", "snapshot_id": 5120000000000000881, "next_at_ms": NOON, "health_score": 98,
        "reason": "below all triggers; next minor by interval", "enabled": True, "enabled_origin": "amoro table enable",
    }  # fmt: skip
    return pb.Plan(**{**values, **changes})


def receipt(**changes: Any) -> pb.Receipt:
    values: dict[str, Any] = {
        "data_files_before": 54, "data_files_after": 10, "delete_files_before": 14, "delete_files_after": 0,
        "bytes_before": 310 * 2**20, "bytes_after": 298 * 2**20, "rows_before": 9_812_004, "rows_after": 9_812_004,
        "snapshot_id": 5120000000000000902, "base_snapshot_id": 5120000000000000881, "duration_ms": 14_200,
        "revertible": True,
    }  # fmt: skip
    return pb.Receipt(**{**values, **changes})


def process(status: str = "success", **changes: Any) -> pb.Process:
    values: dict[str, Any] = {
        "process_id": PROCESS, "table": "sales.db.orders", "type": "minor", "status": status, "trigger": "request",
        "reason": "12 small files", "snapshot_id": 5120000000000000881, "created_ms": NOON, "tasks_total": 3,
        "tasks_done": 3,
    }  # fmt: skip
    if status in ("success", "partial", "failed", "closed"):
        values |= {"finished_ms": NOON + 15_000}
    if status == "success":
        values |= {"receipt": receipt()}
    return pb.Process(**{**values, **changes})


def listed(owner: pb.Process, *tasks: pb.TaskInfo) -> Callable[[pb.ListTasksRequest], pb.ListTasksResponse]:
    """What answers a request for the tasks of a process, as the coordinator would."""

    def answer(request: pb.ListTasksRequest) -> pb.ListTasksResponse:
        meant = [item for item in tasks if request.status in ("", item.status)]
        found = [item for item in meant if item.task_id > int(request.after or 0)]
        shown = found[: request.limit or None]
        following = str(shown[-1].task_id) if len(shown) < len(found) else ""
        return pb.ListTasksResponse(process=owner, tasks=shown, next=following, total=len(meant))

    return answer


def task(**changes: Any) -> pb.TaskInfo:
    values: dict[str, Any] = {
        "task_id": 1, "status": "acked", "attempt": 1, "optimizer_id": "o-1", "thread_id": 2,
        "partition": "dt=2026-09-20", "input_files": 18, "input_bytes": 100 * 2**20, "started_ms": NOON,
        "rows_done": 500, "rows_total": 1000,
    }  # fmt: skip
    return pb.TaskInfo(**{**values, **changes})
