"""Data expiry: files with only rows that are too old are removed, with the deletes that only they need."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    Plan,
    PlanningContext,
    Prepare,
    Request,
    TriggerVerdict,
    Untasked,
    staged_change,
    summary_of,
)
from amoro_core.errors import CommitConflict, TableRefused
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.maintenance.data_expiry import (
    SWITCH,
    BaseRule,
    DataExpiryConfig,
    Expired,
    Limit,
    expired,
    last_data_commit,
    still_expired,
)
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.model.commits import CommitContent, Operation
from amoro_core.model.files import DataFile, DeleteFile
from amoro_core.model.processes import FILES, Change, Figure, ProcessContext
from amoro_core.model.properties import parse_into, properties_of
from amoro_core.validation.removable_deletes import deletes_without

NAME = "expire-data"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGAIN = "The next run plans it anew."
_KEYS = ("maintenance.zone", *(known.key for known in properties_of(DataExpiryConfig)))


class ExpireData(Untasked):
    """The action of Amoro's data expiry: one snapshot for data files and deletes."""

    name = NAME
    names = (NAME,)
    configuration = DataExpiryConfig
    lane = FILES
    roles = OPTIMIZING_ROLES | {Role.DATE}
    every = timedelta(days=1)
    switch = SWITCH
    needs_gc = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """By its property, off without it."""
        return parse_into(DataExpiryConfig, properties).enabled

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The expired files by the table's properties; on request also if these do not switch it on.

        Raises InvalidArgument for any option, TableRefused("configuration") for a missing column or retention.
        """
        config = parse_into(DataExpiryConfig, situation.properties)
        if not (config.enabled or request.name):
            return TriggerVerdict(False, f"{SWITCH} is false"), None
        if (why := table.left_alone()) is not None:
            return TriggerVerdict(False, why), None
        retention = _required(config)
        base = _base(table, config, situation)
        if base is None:
            return TriggerVerdict(False, "it is not known when data last came to the table"), None
        until = base - retention
        limit = _limit(table, situation.properties, until)
        scan = table.scan()
        if scan is None:
            return TriggerVerdict(False, "the table has no snapshot"), None
        found = expired(scan, limit)
        if not found.files:
            return TriggerVerdict(False, f"nothing is older than {until:%Y-%m-%d %H:%M:%S} UTC"), None
        deletes = deletes_without(scan, (file.path for file in found.every))
        reason = (
            f"{len(found.every)} data files with {found.rows} rows are older than {until:%Y-%m-%d %H:%M:%S} UTC, "
            f"{config.retention} before {base:%Y-%m-%d %H:%M:%S}"
        )
        kept = {key: situation.properties[key] for key in _KEYS if key in situation.properties}
        plan = Plan(
            NAME,
            reason,
            scan.snapshot_id,
            scan.sequence_number,
            (),
            json.dumps({"until_us": limit.until, "properties": kept}),
            held=_held(found),
            measures={"rows": found.rows, "data_files": len(found.every)},
            document=_document(table, found, deletes, until),
        )
        return TriggerVerdict(True, reason), plan

    def preparing(self) -> Prepare:
        """A function that stages the planned removal, as far as the present head still has the files."""
        planned: list[Expired] = []  # files of a snapshot never change
        return lambda table, case, now: _change(table, case, now, planned)


def _required(config: DataExpiryConfig) -> timedelta:
    """The retention of rows."""
    retention = config.retention
    for key, said in (("data-expire.field", config.column), ("data-expire.retention-time", retention)):
        if not said:
            raise TableRefused(
                f"data expiry needs the property {key}",
                reason="configuration",
                hint=f"Set it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…').",
            )
    return retention or timedelta.max


def _base(table: AnyTable, config: DataExpiryConfig, situation: PlanningContext) -> datetime | None:
    """The time from which retention is counted back; None: unknown, and nothing expires."""
    if config.base is BaseRule.CURRENT_TIME:
        return situation.now
    found = last_data_commit(table.snapshots(), table.facts.snapshot_id, situation.last_commit)
    # A writer whose clock is ahead must not make rows expire earlier.
    return None if found is None else min(_EPOCH + timedelta(milliseconds=found.committed_at_ms), situation.now)


def _limit(table: AnyTable, properties: Mapping[str, str], until: datetime) -> Limit:
    config = parse_into(DataExpiryConfig, properties)
    column, zone = table.time_column(config.column), parse_into(MaintenanceConfig, properties).zone
    return Limit(column, config, zone, (until - _EPOCH) // timedelta(microseconds=1))


def _held(found: Expired) -> str:
    """Why it needs confirmation; "" when it does not."""
    if not found.is_most:
        return ""
    return f"{found.rows} of {found.total_rows} rows would go, more than half"


def _change(table: AnyTable, case: ProcessContext, now: datetime, planned: list[Expired]) -> Change:
    said, process = json.loads(case.process.detail), case.process
    if not planned:
        scan = table.scan_of(process.snapshot_id)
        if scan is None:
            raise CommitConflict(f"the planned snapshot {process.snapshot_id} is gone", hint=_AGAIN)
        until = _EPOCH + timedelta(microseconds=said["until_us"])
        planned.append(expired(scan, _limit(table, said["properties"], until)))
    head = table.head(process.snapshot_id, process.sequence_number)
    level = parse_into(DataExpiryConfig, said["properties"]).level
    files = still_expired(planned[0], head.scan, level)
    if not files:
        raise CommitConflict("nothing of what had expired is in the table as it was planned", hint=_AGAIN)
    deletes = deletes_without(head.scan, (file.path for file in files))
    failpoint("commit.before_intent")
    content = CommitContent((), files, deletes, (), (), Operation.DELETE)
    staged = table.stage(head, content, summary_of(process, "DATA_EXPIRATION"))
    failpoint("commit.after_stage")
    left_out = len(planned[0].every) - len(files)
    told = f"removed {len(files)} data files whose rows had expired"
    if left_out:
        told += f"; {left_out} others were left out since the table had changed"
    return staged_change(case, staged, told, _figures(files, deletes), now)


def _figures(files: tuple[DataFile, ...], deletes: tuple[DeleteFile, ...]) -> tuple[Figure, ...]:
    return (
        Figure("removed_data_files", len(files), "files"),
        Figure("removed_delete_files", len(deletes), "files"),
        Figure("removed_rows", sum(file.record_count for file in files), "rows"),
        Figure("bytes", _bytes(files, deletes), "bytes"),
    )


def _bytes(files: tuple[DataFile, ...], deletes: tuple[DeleteFile, ...]) -> int:
    return sum(file.size_bytes for file in files) + sum(delete.size_bytes for delete in deletes)


def _document(table: AnyTable, found: Expired, deletes: tuple[DeleteFile, ...], until: datetime) -> dict[str, object]:
    return {
        "deleted_data_files_count": len(found.every),
        "deleted_delete_files_count": len(deletes),
        "rows": found.rows,
        "total_rows": found.total_rows,
        "bytes": _bytes(found.every, deletes),
        "older_than": until.isoformat(),
        "partitions": [
            {
                "partition": table.partition_path(key),
                "data_files": len(files),
                "rows": sum(file.record_count for file in files),
            }
            for key, files in found.files.items()
        ],
        "kept_data_files": dict(found.kept),
    }
