"""Condemned files, in `condemned_batch`: up to 1,000 of one kind in a row, compressed."""

import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from amoro_core.model.maintenance import Condemned, FileKind, Waiting
from amoro_core.store.connection import Connection, Row, RowMapping, from_ms_or_none, to_ms, to_ms_or_none

#: Of one batch, which is guarded and deleted as a whole.
MOST_IN_A_BATCH = 1000

_ORDER = tuple(FileKind)


class BatchStatus(StrEnum):
    """The state of a batch; stored and shown."""

    WRITTEN = "written"  # their process has not ended yet
    WAITING = "waiting"
    DELETING = "deleting"  # some may be gone: they can't be restored any more
    DELETED = "deleted"  # what is left of it could not be deleted
    RESTORED = "restored"
    MOVING = "moving"  # to a trash: some may lie there already
    MOVED = "moved"  # to a trash, where they wait
    RETURNING = "returning"  # from there: some may be back already


#: Of what is neither gone nor restored.
OPEN = (BatchStatus.WAITING, BatchStatus.MOVING, BatchStatus.MOVED, BatchStatus.RETURNING, BatchStatus.DELETING)
_OPEN_WORDS = json.dumps([status.value for status in OPEN])
#: Of what is swept: the first two once they are due, the others at once.
_SWEPT = (BatchStatus.WAITING, BatchStatus.MOVED, BatchStatus.MOVING, BatchStatus.DELETING)
_DUE = "(status IN ('moving', 'deleting') OR (status IN ('waiting', 'moved') AND purge_at_ms <= :now_ms))"


@dataclass(frozen=True, slots=True)
class Batch:
    """Condemned files of one process."""

    batch_id: int  # 0: not stored yet
    process_id: str
    table_id: int
    table_uuid: str
    kind: FileKind
    status: BatchStatus
    purge_at: datetime
    files: tuple[Condemned, ...] = field(repr=False)
    tries: int = 0
    moved_to: str = ""  # the folder in a trash; "": they are where they were


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """A batch without its files."""

    batch_id: int
    process_id: str
    table_id: int
    kind: FileKind
    status: BatchStatus
    purge_at: datetime
    files: int
    bytes: int
    tries: int
    moved_to: str


_BATCHES = RowMapping(Batch, without=["batch_id", "files"])
_FACTS = RowMapping(BatchFacts)


def batches_of(
    files: Iterable[Condemned], process_id: str, table_id: int, table_uuid: str, purge_at: datetime
) -> Iterator[Batch]:
    """The files in batches of one kind, to be written down; of no kind more than a batch is held at once."""
    waiting: dict[FileKind, list[Condemned]] = {}

    def batch_of(kind: FileKind) -> Batch:
        by_path = tuple(sorted(waiting.pop(kind), key=lambda item: item.path))
        return Batch(0, process_id, table_id, table_uuid, kind, BatchStatus.WRITTEN, purge_at, by_path)

    for file in files:
        waiting.setdefault(file.kind, []).append(file)
        if len(waiting[file.kind]) == MOST_IN_A_BATCH:
            yield batch_of(file.kind)
    for kind in sorted(waiting, key=_ORDER.index):
        yield batch_of(kind)


def add_many(db: Connection, batches: Iterable[Batch]) -> None:
    """Store batches. Raises Referenced for an unknown table."""
    for batch in batches:
        db.insert("condemned_batch", _to_row(batch))


def get(db: Connection, batch_id: int) -> Batch | None:
    """The batch with its files; None if there is none."""
    row = db.select_one("SELECT * FROM condemned_batch WHERE batch_id = :batch_id", {"batch_id": batch_id})
    return None if row is None else _from_row(row)


def save(db: Connection, batch: Batch) -> None:
    """Replace the stored batch."""
    db.update("condemned_batch", {**_to_row(batch), "batch_id": batch.batch_id}, "batch_id")


def save_unless_restored(db: Connection, batch: Batch) -> bool:
    """Replace the stored batch unless it was restored meanwhile; returns whether it was replaced."""
    stored = get(db, batch.batch_id)
    if stored is None or stored.status not in _SWEPT:
        return False
    save(db, batch)
    return True


def remove_written(db: Connection, process_id: str) -> None:
    """Delete the batches that the process has prepared, before it prepares them again."""
    db.execute(
        "DELETE FROM condemned_batch WHERE process_id = :process_id AND status = 'written'", {"process_id": process_id}
    )


def release(db: Connection, process_id: str) -> None:
    """Condemn the batches that the process has prepared."""
    db.execute(
        "UPDATE condemned_batch SET status = 'waiting' WHERE process_id = :process_id AND status = 'written'",
        {"process_id": process_id},
    )


def restore(db: Connection, process_id: str) -> int:
    """Restore what the process has condemned, but for batches whose deletion has begun; returns how many batches."""
    return db.execute(
        "UPDATE condemned_batch SET status = 'restored' WHERE process_id = :process_id AND status = 'waiting'",
        {"process_id": process_id},
    )


def restorable(db: Connection, process_id: str) -> Waiting | None:
    """What can be taken back of all that the process has condemned; None once any of it is being deleted, or moved."""
    batches = list_facts(db, process_id=process_id, statuses=tuple(BatchStatus))
    in_place = (BatchStatus.WRITTEN, BatchStatus.WAITING, BatchStatus.RESTORED)
    if any(batch.status not in in_place for batch in batches):
        return None
    return Waiting(len(batches), sum(batch.files for batch in batches), sum(item.bytes for item in batches))


def make_due(db: Connection, table_id: int, now: datetime, process_id: str = "") -> int:
    """Make the waiting batches of the table, or of one process on it, due now, moved ones too; returns how many."""
    return db.execute(
        "UPDATE condemned_batch SET purge_at_ms = :now_ms WHERE table_id = :table_id "
        "AND status IN ('waiting', 'moved') AND purge_at_ms > :now_ms "
        "AND (:process_id = '' OR process_id = :process_id)",
        {"now_ms": to_ms(now), "table_id": table_id, "process_id": process_id},
    )


def list_due(db: Connection, table_id: int, now: datetime) -> list[int]:
    """The batches of the table that are due to be deleted: by kind in order, then the longest written first."""
    rows = db.select(
        f"SELECT batch_id, kind FROM condemned_batch WHERE table_id = :table_id AND {_DUE} ORDER BY batch_id",
        {"table_id": table_id, "now_ms": to_ms(now)},
    )
    return [row["batch_id"] for row in sorted(rows, key=lambda row: _ORDER.index(FileKind(row["kind"])))]


def due(db: Connection, table_id: int, now: datetime) -> Waiting:
    """How much of the table is due to be deleted."""
    row = db.select(
        "SELECT count(*) AS batches, coalesce(sum(files), 0) AS files, coalesce(sum(bytes), 0) AS bytes "
        f"FROM condemned_batch WHERE table_id = :table_id AND {_DUE}",
        {"table_id": table_id, "now_ms": to_ms(now)},
    )[0]
    return Waiting(row["batches"], row["files"], row["bytes"])


def next_purge(db: Connection, table_id: int) -> datetime | None:
    """When the next batch of the table is due; None if none is waiting."""
    at_ms = db.value(
        "SELECT min(purge_at_ms) FROM condemned_batch "
        "WHERE table_id = :table_id AND status IN ('waiting', 'moved', 'moving', 'deleting')",
        {"table_id": table_id},
    )
    return from_ms_or_none(at_ms)


def list_facts(
    db: Connection, table_id: int | None = None, process_id: str = "", statuses: Sequence[BatchStatus] = OPEN
) -> list[BatchFacts]:
    """Batches without their files, the next to be deleted first; of the table, of the process, where given."""
    return _FACTS.select(
        db,
        f"SELECT {', '.join(_FACTS.columns)} "
        "FROM condemned_batch WHERE (:table_id IS NULL OR table_id = :table_id) "
        "AND (:process_id = '' OR process_id = :process_id) "
        "AND status IN (SELECT value FROM json_each(:statuses)) ORDER BY purge_at_ms, batch_id",
        {"table_id": table_id, "process_id": process_id, "statuses": json.dumps([status.value for status in statuses])},
    )


def list_processes(
    db: Connection, table_id: int | None, after: tuple[int, str] | None, limit: int
) -> list[tuple[int, str]]:
    """When files of a process go first, in ms, and the process: at most `limit` after one of these; of the table if
    given. The next to be deleted are first."""
    at_ms, id_ = after or (-1, "")
    rows = db.select(
        "SELECT min(purge_at_ms) AS at_ms, process_id FROM condemned_batch WHERE status IN "
        "(SELECT value FROM json_each(:statuses)) AND (:table_id IS NULL OR table_id = :table_id) GROUP BY process_id "
        "HAVING (min(purge_at_ms), process_id) > (:after_ms, :after_id) ORDER BY at_ms, process_id LIMIT :most",
        {"statuses": _OPEN_WORDS, "table_id": table_id, "after_ms": at_ms, "after_id": id_, "most": limit},
    )
    return [(row["at_ms"], row["process_id"]) for row in rows]


def count_processes(db: Connection, table_id: int | None) -> int:
    """How many processes have condemned files that are not deleted yet; of the table if given."""
    counted = db.value(
        "SELECT count(DISTINCT process_id) FROM condemned_batch WHERE status IN "
        "(SELECT value FROM json_each(:statuses)) AND (:table_id IS NULL OR table_id = :table_id)",
        {"statuses": _OPEN_WORDS, "table_id": table_id},
    )
    return int(counted)


def count_kinds(db: Connection, process_id: str) -> dict[FileKind, int]:
    """How many files of each kind the process has condemned, of those that are not gone yet."""
    rows = db.select(
        "SELECT kind, sum(files) AS files FROM condemned_batch WHERE process_id = :process_id GROUP BY kind",
        {"process_id": process_id},
    )
    return {FileKind(row["kind"]): row["files"] for row in rows}


def paths(db: Connection, table_id: int, own: str = "") -> frozenset[str]:
    """Every file of the table that is to be deleted, or about to be condemned by another process than `own`.

    Not what was restored, nor what was given up: that is an orphan again. Nor the earlier name of what lies in a trash.
    """
    rows = db.select(
        "SELECT content FROM condemned_batch WHERE table_id = :table_id AND status NOT IN ('restored', 'deleted') "
        "AND (moved_to = '' OR status IN ('moving', 'returning')) AND (process_id <> :own OR status <> 'written')",
        {"table_id": table_id, "own": own},
    )
    return frozenset(item[0] for row in rows for item in _unpacked(row["content"]))


def paths_of_others(db: Connection, table_id: int, process_id: str) -> dict[str, bool]:
    """Every file of the table that another process has condemned, and whether its deletion or move has begun."""
    rows = db.select(
        "SELECT content, status FROM condemned_batch WHERE table_id = :table_id AND process_id <> :process_id "
        "AND status NOT IN ('written', 'deleted', 'restored') ORDER BY status = 'waiting' DESC, batch_id",
        {"table_id": table_id, "process_id": process_id},
    )
    return {item[0]: row["status"] != "waiting" for row in rows for item in _unpacked(row["content"])}


def unmark_files(db: Connection, table_id: int, paths: Iterable[str]) -> None:
    """Restore these files from batches whose deletion has not begun, whichever process condemned them."""
    wanted = frozenset(paths)
    for facts in list_facts(db, table_id, statuses=(BatchStatus.WAITING,)) if wanted else ():
        batch = get(db, facts.batch_id)
        spared = () if batch is None else tuple(file for file in batch.files if file.path in wanted)
        if batch is None or not spared:
            continue
        if files := without(batch, wanted).files:
            save(db, replace(batch, files=files))
            add_many(db, [replace(batch, files=spared, status=BatchStatus.RESTORED)])
        else:
            save(db, replace(batch, status=BatchStatus.RESTORED))


def without(batch: Batch, removed: Iterable[str]) -> Batch:
    """The batch without these paths."""
    gone_paths = frozenset(removed)
    return replace(batch, files=tuple(file for file in batch.files if file.path not in gone_paths))


def begun(batch: Batch) -> Batch:
    """The batch as it is being deleted: it can't be restored any more."""
    return replace(batch, status=BatchStatus.DELETING, tries=batch.tries + 1)


def settle(db: Connection, batch: Batch, tries: int) -> None:
    """Keep what is left of a batch after it was deleted: it waits for another try, unless it has had them all."""
    if not batch.files:
        remove(db, batch.batch_id)
        return
    given_up = batch.tries >= tries and not batch.moved_to  # nobody would find it in a trash
    save(db, replace(batch, status=BatchStatus.DELETED if given_up else BatchStatus.DELETING))


def settle_moved(db: Connection, batch: Batch, moved: Iterable[str], remaining: Iterable[str], tries: int) -> None:
    """Keep what a move to the batch's folder has brought there, until `purge_at`; what is left behind waits as before
    for another try, unless it has had them all."""
    there, here = frozenset(moved), frozenset(remaining)
    if files := tuple(file for file in batch.files if file.path in there):
        add_many(db, [replace(batch, files=files, status=BatchStatus.MOVED, tries=0)])
    stored = get(db, batch.batch_id)
    if stored is None or not here:
        remove(db, batch.batch_id)
        return
    status = BatchStatus.DELETED if batch.tries >= tries else BatchStatus.WAITING
    files = tuple(file for file in batch.files if file.path in here)
    save(db, replace(batch, files=files, status=status, moved_to="", purge_at=stored.purge_at))


def settle_returned(db: Connection, batch: Batch, back: Iterable[str]) -> None:
    """Restore what has come back from the batch's folder; the rest of it stays there."""
    if returned := tuple(file for file in batch.files if file.path in frozenset(back)):
        add_many(db, [replace(batch, files=returned, status=BatchStatus.RESTORED, moved_to="")])
    rest = without(batch, (file.path for file in returned))
    if rest.files:
        save(db, replace(rest, status=BatchStatus.MOVED))
    else:
        remove(db, batch.batch_id)


def remove(db: Connection, batch_id: int) -> None:
    """Delete a batch that has no file left."""
    db.execute("DELETE FROM condemned_batch WHERE batch_id = :batch_id", {"batch_id": batch_id})


def _to_row(batch: Batch) -> Row:
    return {
        **_BATCHES.to_row(batch),
        "files": len(batch.files),
        "bytes": sum(file.size_bytes or 0 for file in batch.files),
        "content": _packed(batch.files),
    }


def _packed(files: Iterable[Condemned]) -> bytes:
    rows = [[file.path, file.size_bytes, to_ms_or_none(file.modified_at), file.reason] for file in files]
    return zlib.compress(json.dumps(rows, separators=(",", ":")).encode())


def _unpacked(content: bytes) -> list[tuple[str, int | None, int | None, str]]:
    return [tuple(load) for load in json.loads(zlib.decompress(content))]


def _from_row(row: Row) -> Batch:
    kind = FileKind(row["kind"])
    files = tuple(
        Condemned(path, kind, size, from_ms_or_none(modified), reason)
        for path, size, modified, reason in _unpacked(row["content"])
    )
    return _BATCHES.from_row(row, batch_id=row["batch_id"], files=files)
