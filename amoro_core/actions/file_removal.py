"""Removal of files in a snapshot: data files with only expired rows, and delete files that no live data file needs."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from amoro_core.actions.action_api import (
    OPTIMIZING_ROLES,
    ActionDefaults,
    Plan,
    PlanningContext,
    Prepare,
    Request,
    TriggerVerdict,
    staged_change,
    summary_of,
)
from amoro_core.documents.formatting import many
from amoro_core.errors import CommitConflict, misconfigured
from amoro_core.failpoints import failpoint
from amoro_core.formats.ports import AnyTable, Rewritable, Role
from amoro_core.maintenance.data_expiry import (
    DANGLING_SWITCH,
    SWITCH,
    BaseRule,
    DanglingConfig,
    DataExpiryConfig,
    Expired,
    Limit,
    expired,
    last_data_commit,
    still_expired,
)
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.model.commits import CommitContent, Operation
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.processes import FILES, Change, Figure, ProcessContext
from amoro_core.model.properties import parse_into, properties_of
from amoro_core.validation.removable_deletes import dangling_deletes, deletes_without

EXPIRE_DATA = "expire-data"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_AGAIN = "The next run plans it anew."
_KEYS = ("maintenance.zone", *(item.key for item in properties_of(DataExpiryConfig)))


class ExpireData(ActionDefaults):
    """The action of Amoro's data expiry: one snapshot for data files and deletes."""

    name = EXPIRE_DATA
    configuration = DataExpiryConfig
    lane = FILES
    roles = OPTIMIZING_ROLES | {Role.DATE}
    every = timedelta(days=1)
    switch = SWITCH
    needs_gc = True

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The expired files by the table's properties; on request also if switched off. Raises TableRefused."""
        config = parse_into(DataExpiryConfig, situation.properties)
        if not (config.enabled or request.name):
            return TriggerVerdict(False, f"{SWITCH} is false"), None
        if (why := table.skip_reason()) is not None:
            return TriggerVerdict(False, why), None
        retention = _required(config)
        base = _base(table, config, situation)
        if base is None:
            return TriggerVerdict(False, "it is not known when the last data were added to the table"), None
        until = base - retention
        limit = _limit(table, situation.properties, until)
        scan = table.scan()
        if scan is None:
            return TriggerVerdict(False, "the table has no snapshot"), None
        old = expired(scan, limit)
        if not old.files:
            return TriggerVerdict(False, f"nothing is older than {until:%Y-%m-%d %H:%M:%S} UTC"), None
        deletes = deletes_without(scan, (file.path for file in old.every))
        reason = (
            f"{many(len(old.every), 'data file')} with {many(old.rows, 'row')} older than "
            f"{until:%Y-%m-%d %H:%M:%S} UTC, {config.retention} before {base:%Y-%m-%d %H:%M:%S}"
        )
        properties = {key: situation.properties[key] for key in _KEYS if key in situation.properties}
        return self.planned(
            table,
            reason,
            {"until_us": limit.until, "properties": properties},
            held=f"{old.rows} of {old.total_rows} rows would go, more than half" if old.is_most else "",
            measures={"rows": old.rows, "data_files": len(old.every)},
            document=_document(table, old, deletes, until),
        )

    def preparing(self) -> Prepare:
        """A function that stages the planned removal, as far as the present head still has the files."""
        planned: list[Expired] = []  # files of a snapshot never change
        return lambda table, case, now: _change(table, case, now, planned)


def _required(config: DataExpiryConfig) -> timedelta:
    """The retention of rows."""
    retention = config.retention
    for key, value in (("data-expire.field", config.column), ("data-expire.retention-time", retention)):
        if not value:
            raise misconfigured(
                f"data expiry needs the property {key}",
                hint=f"Set it with ALTER TABLE … SET TBLPROPERTIES ('{key}' = '…').",
            )
    return retention or timedelta.max


def _base(table: AnyTable, config: DataExpiryConfig, situation: PlanningContext) -> datetime | None:
    """The time from which retention is counted back; None: unknown, and nothing expires."""
    if config.base is BaseRule.CURRENT_TIME:
        return situation.now
    commit = last_data_commit(table.snapshots(), table.facts.snapshot_id, situation.last_commit)
    # A writer whose clock is ahead must not make rows expire earlier.
    return None if commit is None else min(_EPOCH + timedelta(milliseconds=commit.committed_at_ms), situation.now)


def _limit(table: AnyTable, properties: Mapping[str, str], until: datetime) -> Limit:
    config = parse_into(DataExpiryConfig, properties)
    column, zone = table.time_column(config.column), parse_into(MaintenanceConfig, properties).zone
    return Limit(column, config, zone, (until - _EPOCH) // timedelta(microseconds=1))


def _change(table: AnyTable, case: ProcessContext, now: datetime, planned: list[Expired]) -> Change:
    detail, process = case.detail, case.process
    if not planned:
        scan = table.scan_of(process.snapshot_id)
        if scan is None:
            raise CommitConflict(f"the planned snapshot {process.snapshot_id} is gone", hint=_AGAIN)
        until = _EPOCH + timedelta(microseconds=detail["until_us"])
        planned.append(expired(scan, _limit(table, detail["properties"], until)))
    head = table.head(process.snapshot_id, process.sequence_number)
    level = parse_into(DataExpiryConfig, detail["properties"]).level
    files = still_expired(planned[0], head.scan, level)
    if not files:
        raise CommitConflict("no expired file is in the table as it was planned", hint=_AGAIN)
    deletes = deletes_without(head.scan, (file.path for file in files))
    failpoint("commit.before_intent")
    content = CommitContent((), files, deletes, (), (), Operation.DELETE)
    staged = table.stage(head, content, summary_of(process, "DATA_EXPIRATION"))
    failpoint("commit.after_stage")
    rows = sum(file.record_count for file in files)
    words = f"removed {many(len(files), 'data file')} with {many(rows, 'expired row')}"
    if skipped := len(planned[0].every) - len(files):
        words += f"; left {many(skipped, 'planned file')} out, as the table had changed"
    figures = (
        Figure("removed_data_files", len(files), "files"),
        Figure("removed_delete_files", len(deletes), "files"),
        Figure("removed_rows", rows, "rows"),
        Figure("bytes", _bytes(files, deletes), "bytes"),
    )
    return staged_change(case, staged, words, figures, now)


def _bytes(files: tuple[DataFile, ...], deletes: tuple[DeleteFile, ...]) -> int:
    return sum(file.size_bytes for file in files) + sum(delete.size_bytes for delete in deletes)


def _document(table: AnyTable, old: Expired, deletes: tuple[DeleteFile, ...], until: datetime) -> dict[str, object]:
    return {
        "deleted_data_files_count": len(old.every),
        "deleted_delete_files_count": len(deletes),
        "rows": old.rows,
        "total_rows": old.total_rows,
        "bytes": _bytes(old.every, deletes),
        "older_than": until.isoformat(),
        "partitions": [
            {
                "partition": table.partition_path(key),
                "data_files": len(files),
                "rows": sum(file.record_count for file in files),
            }
            for key, files in old.files.items()
        ],
        "kept_data_files": dict(old.kept),
    }


DANGLING = "clean-dangling-delete-files"
_TOTAL = "total-delete-files"


class CleanDanglingDeletes(ActionDefaults):
    """The action that removes delete files which delete nothing.

    Whether a delete dangles is decided on the scan of the head that is committed on, by the rule of rewriting: by
    sequence number and partition alone, over all live data files.
    """

    name = DANGLING
    configuration = DanglingConfig
    lane = FILES
    roles = OPTIMIZING_ROLES
    every = timedelta(days=1)
    switch = DANGLING_SWITCH
    needs_gc = True

    def plan(
        self, table: Rewritable, situation: PlanningContext, request: Request
    ) -> tuple[TriggerVerdict, Plan | None]:
        """The deletes that dangle now. Raises InvalidArgument for any option."""
        if (why := table.skip_reason()) is not None:
            return TriggerVerdict(False, why), None
        # A scan reads every manifest; a total of 0 shows without it that there is nothing to find.
        scan = None if table.facts.snapshot_summary.get(_TOTAL) == "0" else table.scan()
        going = () if scan is None else dangling_deletes(scan)
        if scan is None or not going:
            return TriggerVerdict(False, "no dangling delete files"), None
        reason = f"{many(len(going), 'delete file')} without a data file to apply to"
        counts = {figure.name: figure.value for figure in _dangling_figures(going)}
        paths = [delete.path for delete in going]
        document = {"removed_delete_files_count": len(going), **counts, "delete_files": paths}
        return self.planned(table, reason, document=document)

    def change(self, table: Rewritable, case: ProcessContext, now: datetime) -> Change:
        """Stages the removal of deletes that dangle on the present head."""
        head = table.head(case.process.snapshot_id, case.process.sequence_number)
        going = dangling_deletes(head.scan)
        if not going:
            raise CommitConflict("no dangling delete files any more")
        failpoint("commit.before_intent")
        content, summary = CommitContent((), (), going, (), ()), summary_of(case.process, "CLEAN_DANGLING_DELETE")
        staged = table.stage(head, content, summary)
        failpoint("commit.after_stage")
        words = f"removed {many(len(going), 'dangling delete file')}"
        return staged_change(case, staged, words, _dangling_figures(going), now)


def _dangling_figures(going: tuple[DeleteFile, ...]) -> tuple[Figure, ...]:
    position = sum(delete.kind is DeleteKind.POSITION for delete in going)
    return (
        Figure("removed_position_delete_files", position, "files"),
        Figure("removed_equality_delete_files", len(going) - position, "files"),
        Figure("bytes", sum(delete.size_bytes for delete in going), "bytes"),
    )
