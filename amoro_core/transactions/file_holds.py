"""Condemned files that the table needs after all, and files in a trash."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from amoro_core.formats.ports import Sweepable
from amoro_core.logger import get_logger
from amoro_core.maintenance.trash import Trash, place_in
from amoro_core.model.maintenance import Ended
from amoro_core.store import pending_deletions
from amoro_core.store.database import Connection
from amoro_core.store.pending_deletions import Batch, BatchStatus

log = get_logger("amoro.sweeping")


def unmark_needed(db: Connection, batch: Batch, needed: Mapping[str, str]) -> None:
    """Take off what is needed, each with the reason; the rest of the batch waits as before, where it is."""
    for path in sorted({file.path for file in batch.files}.intersection(needed)):
        log.error("guard.spoke", process=batch.process_id, path=path, why=needed[path])
    status = BatchStatus.MOVING if batch.status is BatchStatus.MOVING else BatchStatus.MOVED
    spared = pending_deletions.without(replace(batch, status=status if batch.moved_to else BatchStatus.WAITING), needed)
    if not spared.files:
        pending_deletions.remove(db, batch.batch_id)
    else:
        pending_deletions.save_unless_restored(db, spared)


def needed_text(needed: Mapping[str, str]) -> str:
    """Why nothing of a batch was deleted, for people."""
    path, why = next(iter(sorted(needed.items())))
    more = f" and {len(needed) - 1} more" if len(needed) > 1 else ""
    return f"the table needs {path} ({why}){more}, which was marked for deletion"


_BACK = (Ended.MOVED, Ended.ABSENT)


def trash_paths(batch: Batch, folder: str = "") -> dict[str, str]:
    """Where each file of a batch lies, or will lie in that folder; in no trash that is its own path."""
    within = folder or batch.moved_to
    return {file.path: place_in(within, file.path) if within else file.path for file in batch.files}


def trash_path(batch: Batch, path: str) -> str:
    """Where a file lies in a trash; "" where it has not been moved yet."""
    is_there = batch.moved_to and batch.status is not BatchStatus.MOVING
    return place_in(batch.moved_to, path) if is_there else ""


def split_batch(db: Connection, batch: Batch, trash: Trash) -> Batch:
    """The part of a batch that goes to the trash; a rest beside it becomes a batch of its own."""
    takes = trash.takes([file.path for file in batch.files])
    files = tuple(file for file, is_taken in zip(batch.files, takes, strict=True) if is_taken)
    rest = tuple(file for file, is_taken in zip(batch.files, takes, strict=True) if not is_taken)
    if not files or not rest:
        return replace(batch, files=files)
    if pending_deletions.save_unless_restored(db, replace(batch, files=files)):
        pending_deletions.add_many(db, [replace(batch, files=rest)])
    return replace(batch, files=files)


def restore_batch(
    table: Sweepable, batch: Batch, needed: Collection[str] | None = None
) -> tuple[frozenset[str], dict[str, str]]:
    """Move the files of a batch, or of these those that are needed, back from a trash, never over a file: those that
    lie in none any more, and why others stay there, by path."""
    places = {path: place for path, place in trash_paths(batch).items() if needed is None or path in needed}
    moved = table.access(batch.moved_to).move_many({place: path for path, place in places.items()})
    failed = {path: moved[place].why for path, place in places.items() if moved[place].ended not in _BACK}
    return frozenset(places).difference(failed), failed
