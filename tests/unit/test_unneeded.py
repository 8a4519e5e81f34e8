"""Which deletes nothing needs: without any group, and where data files go without a successor."""

from __future__ import annotations

import pytest

from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.validating.removal import dangling_deletes, deletes_without
from tests.unit.test_validating import bounded, data, equality, position, scan_of, scanned

A, B, C = data("a"), data("b", 6), data("c")


def dangling(live: DataFile, *deletes: DeleteFile) -> tuple[DeleteFile, ...]:
    """Of deletes that no file was matched with, those that nothing needs beside one live file."""
    return dangling_deletes(TableScan(7, 9, (scanned(live),), deletes))


@pytest.mark.parametrize(
    "needless",
    [
        equality("older", 5),
        position("older", 4),
        equality("elsewhere", 9, partition=(b"x",)),
        equality("other spec", 9, spec=1, partition=(b"x",)),
        position("names another", 9, names=B),
        bounded("bounds of one", 9, B, B),
    ],
    ids=lambda one: one.path,
)
def test_a_delete_that_no_live_file_can_need_goes(needless: DeleteFile) -> None:
    assert dangling(A, needless) == (needless,)


@pytest.mark.parametrize(
    "needed",
    [
        equality("newer", 6),
        equality("everywhere", 6, spec=1),
        position("as new", 5),
        bounded("bounds that leave it out", 9, B, C),
        position("names it", 9, names=A),
    ],
    ids=lambda one: one.path,
)
def test_a_delete_that_a_live_file_may_need_stays_whatever_matching_found(needed: DeleteFile) -> None:
    assert dangling(A, needed) == ()


def test_of_the_deletes_of_files_that_go_those_stay_that_others_need() -> None:
    shared, own, newer, named = equality("s", 8), position("o", 5, names=A), equality("n", 6), position("m", 9, names=C)
    live = scan_of(scanned(A, own, newer, shared), scanned(B, shared), scanned(C, named, newer, shared))
    assert deletes_without(live, [A.path]) == (own,)
    assert deletes_without(live, [A.path, C.path]) == (named, newer, own)
    assert deletes_without(live, [A.path, B.path, C.path]) == (named, newer, own, shared)
    assert deletes_without(live, []) == ()


def test_what_dangles_already_is_not_taken_along() -> None:
    scan = TableScan(7, 9, (scanned(A),), (equality("d", 1),))
    assert deletes_without(scan, [A.path]) == ()
