"""Condemned files as they are written down: batches of one kind, none too large."""

from __future__ import annotations

from datetime import UTC, datetime

from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.store.condemned import MOST_IN_A_BATCH, BatchStatus, batches_of

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
