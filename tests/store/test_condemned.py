"""Condemned files as they are written down: batches of one kind, none too large."""

from __future__ import annotations

from datetime import UTC, datetime

from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.store import condemned, processes, tables
from amoro_core.store.condemned import MOST_IN_A_BATCH, Batch, BatchStatus, batches_of
from amoro_core.store.database import Store
from tests.store.builders import process, runtime

WHEN = datetime(2026, 6, 1, tzinfo=UTC)


def test_a_batch_has_one_kind_and_at_most_a_thousand_files() -> None:
    kinds = (FileKind.MANIFEST, FileKind.DATA)
    files = [Condemned(f"{number:05}", kinds[number % 2], 1, None, "") for number in range(2 * MOST_IN_A_BATCH + 3)]
    batches = list(batches_of(files, "p", 1, "uuid", WHEN))
    assert [(one.kind, len(one.files)) for one in batches] == [
        (FileKind.MANIFEST, MOST_IN_A_BATCH),
        (FileKind.DATA, MOST_IN_A_BATCH),
        (FileKind.DATA, 1),
        (FileKind.MANIFEST, 2),
    ]
    assert sorted(file.path for one in batches for file in one.files) == [one.path for one in files]
    assert {(one.status, one.purge_at) for one in batches} == {(BatchStatus.WRITTEN, WHEN)}


def test_what_is_spared_is_restored_and_the_others_of_its_batch_wait(store: Store) -> None:
    owner = store.write(lambda db: tables.add(db, runtime("t")))
    made = process(owner, "0199aaaa-0001-7000-8000-000000000001")
    store.write(lambda db: processes.add(db, made))
    files = tuple(Condemned(name, FileKind.DATA, 1, None, "") for name in ("a", "b", "c", "d"))
    for some in (files[:3], files[3:]):
        one = Batch(0, made.process_id, owner.table_id, "uuid", FileKind.DATA, BatchStatus.WAITING, WHEN, some)
        store.write(lambda db, one=one: condemned.add_many(db, [one]))
    store.write(lambda db: condemned.spare(db, owner.table_id, ["b", "d", "unknown"]))

    def paths(status: BatchStatus) -> list[list[str]]:
        facts = store.read(lambda db: condemned.list_facts(db, owner.table_id, statuses=(status,)))
        batches = [store.read(lambda db, one=one: condemned.get(db, one.batch_id)) for one in facts]
        return sorted([file.path for file in one.files] for one in batches if one is not None)

    assert paths(BatchStatus.WAITING) == [["a", "c"]]
    assert paths(BatchStatus.RESTORED) == [["b"], ["d"]]
