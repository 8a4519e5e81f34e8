"""Compares the rows of snapshots that must be equal: a rewrite's and the one before it."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from amoro_core.errors import AttemptAbandoned, IllegalState, InvalidArgument, SnapshotNotFound, WorkFailed
from amoro_core.files.storage.io import FileAccess
from amoro_core.formats.ports import Comparable, Readable, Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.model.commits import PROCESS_ID
from amoro_core.model.files import DataFile, DeleteFile, ScannedFile, TableScan
from amoro_core.model.tables import SnapshotFacts, TableIdentifier, ancestors
from amoro_core.model.task_payload import RewriteInput, TableContext
from amoro_core.model.verification import (
    ComparedPartition,
    Comparison,
    ComparisonSelection,
    RowsDigest,
    Span,
    Verification,
)
from amoro_core.scan.live_files import LiveFiles, by_partition, reading_works
from amoro_core.services.snapshots import LeaseService
from amoro_optimizer.rewrite.engine import digest_of

#: The operation of a commit that changes files but no row (Iceberg's specification, snapshots).
_REPLACE = "replace"


def select(snapshots: Sequence[SnapshotFacts], head: int, before: int | None, after: int | None) -> ComparisonSelection:
    """The snapshots to compare, of those that the metadata still has.

    Without `before` and `after`: the last optimizing commit in the head's history and its parent, regardless of other
    writers. With `after` alone: that and its parent. With `before`: all up to `after`, or to the head; if others wrote
    in between, each rewrite with its own parent, directly before it.
    Raises SnapshotNotFound, InvalidArgument when `before` does not come before `after`.
    """
    by_id = {item.snapshot_id: item for item in snapshots}
    for wanted in (before, after):
        if wanted is not None and wanted not in by_id:
            raise SnapshotNotFound(
                f"snapshot {wanted} is not one of those that the table has", hint="See: amoro table snapshots TABLE"
            )
    end = head if after is None else after
    chain = list(ancestors(by_id, end))
    if before is not None:
        return _between(chain, before, end)
    if after is None:
        ours = next((item for item in chain if PROCESS_ID in item.summary), None)
        if ours is None:
            return ComparisonSelection(head, (), note="no snapshot of its history was made by an optimizing process")
        chain = list(ancestors(by_id, ours.snapshot_id))
    if len(chain) < 2:
        parent = "none" if chain[0].parent_id is None else f"{chain[0].parent_id}, which has expired"
        return ComparisonSelection(end, (), note=f"the parent of snapshot {chain[0].snapshot_id} is {parent}")
    return ComparisonSelection(end, (_span(chain[:1], chain[1].snapshot_id),))


def _between(chain: list[SnapshotFacts], before: int, end: int) -> ComparisonSelection:
    steps = [item.snapshot_id for item in chain]
    if before not in steps[1:]:
        raise InvalidArgument(
            f"snapshot {before} is not an ancestor of snapshot {end}",
            hint="Name the older one with --before. See: amoro table snapshots TABLE",
        )
    later = chain[: steps.index(before)]
    others = tuple(item.snapshot_id for item in reversed(later) if item.operation != _REPLACE)
    if not others:
        return ComparisonSelection(end, (_span(later, before),))
    spans = tuple(
        _span([item], item.parent_id)
        for item in reversed(later)
        if item.operation == _REPLACE and item.parent_id is not None
    )
    note = "" if spans else f"nothing was rewritten between snapshots {before} and {end}"
    return ComparisonSelection(end, spans, others, note)


def _span(snapshots: Sequence[SnapshotFacts], before: int) -> Span:
    processes = tuple(item.summary[PROCESS_ID] for item in reversed(snapshots) if PROCESS_ID in item.summary)
    return Span(before, snapshots[0].snapshot_id, processes)


#: Digests the live rows of a task's rewritten files. The last arguments tell whether with lineage, and whether to stop.
Digest = Callable[[RewriteInput, FileAccess, bool, Callable[[], bool]], RowsDigest]

_HOLDER = "amoro verify"
_LOOKERS = 8
#: The maximum of one kind; a table that lost its directory must not fill the answer.
_MAX_PROBLEMS = 100


@dataclass
class VerifyingService:
    """Compares snapshots of tables."""

    tables: Tables
    digest: Digest
    leasing: LeaseService

    def verify(
        self, identifier: TableIdentifier, before: int | None, after: int | None, is_cancelled: Callable[[], bool]
    ) -> Verification:
        """Compare the rows of the snapshots that `select` names, and look at every live file.

        Data files that both snapshots have with the same deletes have the same rows and are not read. Where all rows
        have ids, these and the rows' last updates are compared, too. An unreadable file is a problem of the
        verification, not an error. Expiry keeps the snapshots meanwhile. Raises what loading the table, taking a lease
        and reading a manifest raise, SnapshotNotFound, InvalidArgument, AttemptAbandoned.
        """
        opened = self.tables.open(identifier)
        if isinstance(opened, Comparable):
            return _compared_by_reader(opened, before, after, is_cancelled)
        table = with_roles(opened, (Role.READ,), "verifying")
        table.refuse_unsupported(for_commit=False)
        head = table.facts.snapshot_id
        if head is None:
            return Verification(ComparisonSelection(0, (), note="the table has no snapshot"), (), 0, 0, ())
        selection = select(table.snapshots(), head, before, after)
        read = {selection.snapshot_id, *(item for span in selection.spans for item in (span.before, span.after))}
        with self.leasing.reading(identifier, read, _HOLDER, is_cancelled) as keep:

            def still_cancelled() -> bool:
                keep()
                return is_cancelled()

            return self._verified(table, selection, still_cancelled)

    def _verified(
        self, table: Readable, selection: ComparisonSelection, is_cancelled: Callable[[], bool]
    ) -> Verification:
        problems: list[str] = []
        comparisons = tuple(self._compare(table, span, problems, is_cancelled) for span in selection.spans)
        scan = _scanned(table, selection.snapshot_id)
        deletes = {delete.identity: delete for delete in LiveFiles.of(scan.files).applied}
        files: list[DataFile | DeleteFile] = [*(file.data for file in scan.files), *deletes.values(), *scan.dangling]
        problems += _absent(table.access(), files)
        problems += [
            f"{file.path} has the sequence number {file.sequence_number}, above the snapshot's {scan.sequence_number}"
            for file in files
            if file.sequence_number > scan.sequence_number
        ][:_MAX_PROBLEMS]
        return Verification(selection, comparisons, len(files), len(scan.dangling), tuple(dict.fromkeys(problems)))

    def _compare(
        self, table: Readable, span: Span, problems: list[str], is_cancelled: Callable[[], bool]
    ) -> Comparison:
        scans = _scanned(table, span.before), _scanned(table, span.after)
        keys = [{_rows_of(file) for file in scan.files} for scan in scans]
        both = keys[0] & keys[1]
        problems += _other_ids(span, scans, both)
        sides = [by_partition(file for file in scan.files if _rows_of(file) not in both) for scan in scans]
        contexts: dict[int, TableContext] = {}
        partitions = []
        for place in sorted(
            sides[0].keys() | sides[1].keys(), key=lambda key: (key.spec_id, table.partition_path(key))
        ):
            if place.spec_id not in contexts:
                contexts[place.spec_id] = table.reading(place.spec_id, scans)
            here = [side.get(place, []) for side in sides]
            context, lineage = contexts[place.spec_id], has_lineage([*here[0], *here[1]])
            digests = [self._read(table, context, files, lineage, problems, is_cancelled) for files in here]
            if lineage and digests[0] != digests[1]:
                rows = [self._read(table, context, files, False, problems, is_cancelled) for files in here]
                if rows[0] == rows[1]:
                    problems.append(
                        f"the rows of {table.partition_path(place) or 'the table'} are the same in snapshots"
                        f" {span.before} and {span.after}, but not their ids or last updates"
                    )
            partitions.append(
                ComparedPartition(table.partition_path(place), place.spec_id, len(here[0]), len(here[1]), *digests)
            )
        replaced = (file for files in sides[0].values() for file in files)
        return Comparison(span, len(both), tuple(partitions), len(table.disputed_deletes(replaced)))

    def _read(
        self,
        table: Readable,
        context: TableContext,
        files: Sequence[ScannedFile],
        lineage: bool,
        problems: list[str],
        is_cancelled: Callable[[], bool],
    ) -> RowsDigest:
        digest = RowsDigest()
        for work in reading_works(context, files):
            try:
                digest += self.digest(work, table.access(), lineage, is_cancelled)
            except AttemptAbandoned:
                raise
            except WorkFailed as error:
                problems.append(error.message)
        return digest


def _compared_by_reader(
    table: Comparable, before: int | None, after: int | None, is_cancelled: Callable[[], bool]
) -> Verification:
    """Two states of a table whose format's own engine rewrites it; by default those around its last rewrite."""
    last = table.last_rewrite() if before is None or after is None else (before, after)
    if last is None:
        return Verification(
            ComparisonSelection(0, (), note="its timeline has no service that kept all rows"), (), 0, 0, ()
        )
    span = Span(last[0] if before is None else before, last[1] if after is None else after, ())
    digests = []
    for state in (span.before, span.after):
        digest = RowsDigest()
        for batch in table.rows(state):
            if is_cancelled():
                raise AttemptAbandoned("nobody waits for the comparison any more")
            digest += digest_of(batch)
        digests.append(digest)
    compared = Comparison(span, 0, (ComparedPartition("", 0, 0, 0, *digests),))
    return Verification(ComparisonSelection(span.after, (span,)), (compared,), 0, 0, ())


def has_lineage(files: Sequence[ScannedFile]) -> bool:
    """Whether the rows of all files have ids, so that their lineage can be compared.

    Rows of files from before format 3 get theirs with a commit, and earlier rewrites kept no last updates.
    """
    return bool(files) and all(file.data.first_row_id is not None for file in files)


def _scanned(table: Readable, snapshot_id: int) -> TableScan:
    scan = table.scan_of(snapshot_id)
    if scan is None:
        raise IllegalState(f"snapshot {snapshot_id} is no longer known", hint="Run it again.")
    return scan


def _rows_of(file: ScannedFile) -> tuple[object, ...]:
    """A key of the rows of a file: two files with equal keys have the same live rows."""
    data = file.data
    return data.path, data.size_bytes, data.record_count, data.spec_id, data.partition, file.deletes


def _other_ids(span: Span, scans: Sequence[TableScan], both: Collection[tuple[object, ...]]) -> list[str]:
    """Problems of files of both snapshots whose rows had ids before and have others, or none, after."""
    first_ids = [
        {file.data.path: file.data.first_row_id for file in scan.files if _rows_of(file) in both} for scan in scans
    ]
    return [
        f"the first row id of {path} is {number} in snapshot {span.before}, and {first_ids[1][path]} in {span.after}"
        for path, number in first_ids[0].items()
        if number is not None and first_ids[1][path] != number
    ][:_MAX_PROBLEMS]


def _absent(access: FileAccess, files: Sequence[DataFile | DeleteFile]) -> list[str]:
    """Problems of files that the metadata references: missing, or of another size."""

    def look(file: DataFile | DeleteFile) -> str:
        try:
            size = access.size(file.path)
        except WorkFailed as error:
            return error.message
        same = size == file.size_bytes
        return "" if same else f"{file.path} has {size} bytes, but the manifest says {file.size_bytes}"

    with ThreadPoolExecutor(_LOOKERS, thread_name_prefix="verify") as pool:
        return [text for text in pool.map(look, files) if text][:_MAX_PROBLEMS]
