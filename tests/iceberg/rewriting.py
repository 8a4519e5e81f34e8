"""A rewrite that is planned by hand, for tests of commits."""

from collections.abc import Collection, Sequence

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.iceberg.commit import committing, rewrite_files
from amoro_core.iceberg.commit.validation_history import read_head
from amoro_core.iceberg.manifest.manifest_cache import ManifestReader
from amoro_core.iceberg.manifest.reading import read_list, read_manifest
from amoro_core.iceberg.metadata import context, equality_ids, read_locations, write_locations
from amoro_core.iceberg.scan import scan
from amoro_core.model.commits import Group, Head, PlanRecord, StagedCommit, Validation
from amoro_core.model.files import Partition, ScannedFile, TableScan
from amoro_core.model.location_policy import Grant
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import InputFile, RewriteInput, TableContext
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from amoro_optimizer.rewrite.engine import rewrite

PROCESS = "0197c0de"


def scanned(table: Table, read: ManifestReader = read_manifest) -> TableScan:
    """The scan of the table as it was loaded, which has a snapshot."""
    found = scan(table, read_locations(table.metadata, Grant((table.metadata.location,))), read)
    assert found is not None
    return found


def loaded(table: Table) -> Table:
    """The table as it is now, as another object."""
    return table.catalog.load_table(table.name())


def current(table: Table) -> Snapshot:
    """The table's snapshot as it is now."""
    snapshot = loaded(table).current_snapshot()
    assert snapshot is not None
    return snapshot


def manifests(table: Table) -> list[ManifestFile]:
    """The manifests of the table's snapshot as it is now."""
    return read_list(table.io, current(table).manifest_list)


def head_of(table: Table, planned_snapshot_id: int) -> Head:
    """The table's head as it is now."""
    return read_head(loaded(table), planned_snapshot_id, scanned)


def access(table: Table) -> FileAccess:
    """The table's own files."""
    places = write_locations(table.metadata, Grant((table.metadata.location,)))
    return open_access({}, table.metadata.location, read_locations=places, write_locations=places)


def rewritten(table: Table, converted: Collection[str] = (), only: Collection[str] | None = None) -> PlanRecord:
    """Plan the table's head with one task for each partition, and rewrite the files (all, or only some paths)."""
    fresh = loaded(table)
    found, metadata = scanned(fresh), fresh.metadata
    places: dict[tuple[int, Partition], list[ScannedFile]] = {}
    for file in found.files:
        if only is None or file.data.path in (*only, *converted):
            places.setdefault((file.data.spec_id, file.data.partition), []).append(file)
    identifier = TableIdentifier("cat", table.name()[:-1], table.name()[-1])
    readable = read_locations(metadata, Grant((metadata.location,)))
    groups = []
    for number, ((spec_id, _), files) in enumerate(places.items(), 1):
        about = context(fresh, identifier, spec_id, equality_ids(found), readable)
        kept = [one for one in files if one.data.path in converted]
        gone = [one for one in files if one.data.path not in converted]
        groups.append(group_of(number, about, access(fresh), found, gone, kept))
    return PlanRecord(
        process_id=PROCESS,
        table_uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        snapshot_id=found.snapshot_id,
        sequence_number=found.sequence_number,
        last_column_id=metadata.last_column_id,
        groups=tuple(groups),
    )


def group_of(
    number: int,
    about: TableContext,
    access: FileAccess,
    found: TableScan,
    gone: Sequence[ScannedFile],
    kept: Sequence[ScannedFile],
) -> Group:
    """The files that go rewritten, and those that are kept with their deletes as positions."""
    deletes = tuple(dict.fromkeys(delete for file in (*gone, *kept) for delete in file.deletes))

    def inputs(files: Sequence[ScannedFile]) -> tuple[InputFile, ...]:
        return tuple(InputFile(one.data, tuple(map(deletes.index, one.deletes))) for one in files)

    count = 1 if gone else 0
    work = RewriteInput(about, inputs(gone), inputs(kept), deletes, found.sequence_number, 2**27, count)
    output = rewrite(
        work,
        access,
        Attempt(TaskId(PROCESS, number), 1),
        on_progress=lambda done, total: None,
        is_cancelled=lambda: False,
        memory_limit_bytes=2**28,
    )
    return Group(number, work, output)


def staged(table: Table, record: PlanRecord) -> tuple[Table, StagedCommit]:
    """The rewrite validated and staged on the head as it is now; the table it was staged on goes along."""
    fresh = loaded(table)
    head = read_head(fresh, record.snapshot_id, scanned)
    done = validate(build_view(record, head))
    assert done.conflict is None, done.conflict
    assert done.content is not None, done.dropped
    return fresh, rewrite_files.stage(fresh, head, done.content, {"amoro.process-id": record.process_id})


def optimized(table: Table, record: PlanRecord) -> Validation:
    """Validate the rewrite on the head as it is now and commit what may be; returns the verdict."""
    fresh = loaded(table)
    head = read_head(fresh, record.snapshot_id, scanned)
    done = validate(build_view(record, head))
    if done.content is not None:
        attempt = rewrite_files.stage(fresh, head, done.content, {"amoro.process-id": record.process_id})
        committing.send(fresh.catalog, fresh, attempt.payload)
    return done
