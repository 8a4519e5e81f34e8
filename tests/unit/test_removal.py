"""Which delete files a commit removes because no live file needs them, deletion vectors included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from amoro_core.errors import TableRefused
from amoro_core.iceberg.table_support import refuse_twice_live
from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity, FileFormat, ScannedFile, TableScan
from amoro_core.protocol import codec, rewrite_pb2
from amoro_core.scan.matching import match
from amoro_core.validation.removable_deletes import dangling_deletes, deletes_without, removable_deletes
from tests.unit.planning.builders import MIB, position_delete
from tests.unit.planning.builders import data as sized_data
from tests.unit.test_validating import S, bounded, by_bounds, data, equality, group, position, scan_of, scanned

A, B, C = data("a"), data("b", 6), data("c")


def dangling(live: DataFile, *deletes: DeleteFile) -> tuple[DeleteFile, ...]:
    """Of deletes that no file was matched with, those that nothing needs beside one live file."""
    return dangling_deletes(TableScan(7, 9, (scanned(live),), deletes))


@pytest.mark.parametrize(
    ("delete", "is_needless"),
    [
        (equality("older", 5), True),
        (position("older", 4), True),
        (equality("elsewhere", 9, partition=(b"x",)), True),
        (equality("other spec", 9, spec=1, partition=(b"x",)), True),
        (position("names another", 9, names=B), True),
        (bounded("bounds of one", 9, B, B), True),
        (equality("newer", 6), False),
        (equality("everywhere", 6, spec=1), False),
        (position("as new", 5), False),
        (bounded("bounds that leave it out", 9, B, C), False),
        (position("names it", 9, names=A), False),
    ],
    ids=lambda one: getattr(one, "path", None),
)
def test_a_delete_goes_that_no_live_file_can_need_whatever_matching_found(
    delete: DeleteFile, is_needless: bool
) -> None:
    assert dangling(A, delete) == ((delete,) if is_needless else ())


def test_deletes_of_files_that_go_stay_where_others_need_them_or_they_dangle_already() -> None:
    shared, own, newer, named = equality("s", 8), position("o", 5, names=A), equality("n", 6), position("m", 9, names=C)
    live = scan_of(scanned(A, own, newer, shared), scanned(B, shared), scanned(C, named, newer, shared))
    assert deletes_without(live, [A.path]) == (own,)
    assert deletes_without(live, [A.path, C.path]) == (named, newer, own)
    assert deletes_without(live, [A.path, B.path, C.path]) == (named, newer, own, shared)
    assert deletes_without(live, []) == ()
    scan = TableScan(7, 9, (scanned(A),), (equality("d", 1),))
    assert deletes_without(scan, [A.path]) == ()


def test_a_file_that_is_live_under_another_spelling_keeps_its_deletes() -> None:
    """It does not go with the input: files are removed by their path, letter by letter."""
    delete, other = equality("e8", 8), replace(A, path=A.path.replace("file:///", "file:/"))
    assert removable_deletes([group(1, [scanned(A, delete)])], scan_of(scanned(other, delete)), S) == ()
    assert removable_deletes([group(1, [scanned(A, delete)])], scan_of(scanned(A, delete)), S) == (delete,)


# Where deletion vectors apply


B5, C6 = data("b"), data("c", 6)
#: The name of a Puffin file of one of our conversions.
OURS = "01890000-0000-7000-8000-000000000001-1-1-0123456789abcdef0123456789abcdef-deletes.puffin"


def vector(names: DataFile, sequence: int = 8, offset: int = 4, path: str = "v.puffin", rows: int = 3) -> DeleteFile:
    plain = position(path, sequence, names.spec_id, names.partition, names)
    return replace(
        plain, file_format=FileFormat.PUFFIN, record_count=rows, content_offset=offset, content_size_bytes=40
    )


def scan(files: list[DataFile], *deletes: DeleteFile) -> TableScan:
    """The files with what the matcher finds."""
    live, dangling = match(files, deletes, frozenset({0}))
    return TableScan(7, 20, live, dangling, frozenset({0}))


def converting(now: TableScan, *paths: DataFile, vectors: tuple[DeleteFile, ...]) -> Group:
    files = [one for one in now.files if one.data in paths]
    return group(converted=files, new_deletes=vectors)


def test_a_position_delete_file_goes_once_each_of_its_files_has_a_vector() -> None:
    shared, named, bounds = (position("p8", 8), position("p9", 9, names=A), by_bounds(position("pb", 9, names=A)))
    assert dangling_deletes(scan([A], shared, named, bounds, vector(A, 5))) == (shared, named, bounds)
    assert dangling_deletes(scan([A], shared, named, bounds)) == ()
    newer = data("c", 9)
    assert dangling_deletes(scan([A, newer], bounds, vector(A, 5))) == (bounds,)
    shared = position("p8", 8)
    with_bounds = position("pc", 9, names=C6)  # by the matcher it is B's neighbour's
    now = scan([A, C6], shared, with_bounds, vector(A, 9))
    assert dangling_deletes(now) == ()
    assert deletes_without(now, [C6.path]) == (shared, with_bounds)
    assert deletes_without(now, [A.path]) == (vector(A, 9),)


def test_a_vector_that_names_a_live_file_stays() -> None:
    older = vector(C6, 5)
    assert dangling_deletes(scan([C6], older)) == ()  # whatever matching found
    own, gone = vector(A, 8), vector(B5, 8, offset=60)
    assert dangling_deletes(scan([A], own, gone)) == (gone,)


def test_vectors_of_rewritten_and_converted_files_go_and_others_of_the_same_puffin_file_stay() -> None:
    of_a, of_b, of_c = (vector(A, 8), vector(B5, 8, 60), vector(C6, 8, 120))
    now = scan([A, B5, C6], of_a, of_b, of_c)
    rewriting = group(rewritten=[now.files[0]])
    assert removable_deletes([rewriting], now, S) == (of_a,)
    new = vector(B5, S, path=OURS)
    assert removable_deletes([converting(now, B5, vectors=(new,))], now, S) == (of_b,)


def test_a_vector_newer_than_the_plan_goes_with_a_rewritten_file_and_else_by_who_joined_it() -> None:
    newer, other = vector(A, S + 1), vector(B5, S + 1, 60)
    converted = converting(scan([A]), A, vectors=(vector(A, S, path=OURS),))
    assert removable_deletes([converted], scan([A], newer), S) == ()
    planned = scan([A, B5])
    assert removable_deletes([group(rewritten=[planned.files[0]])], scan([A, B5], newer, other), S) == (newer,)


def test_a_position_delete_file_goes_once_every_file_has_its_vector_whatever_its_bounds() -> None:
    shared, old = position("p8", 8), equality("e7", 7)
    now = scan([A, B5], shared, old)
    vectors = vector(A, S, path=OURS), vector(B5, S, 60, OURS)
    assert removable_deletes([converting(now, A, B5, vectors=vectors)], now, S) == (old, shared)
    assert removable_deletes([converting(now, A, vectors=vectors[:1])], now, S) == ()


def test_a_position_delete_file_that_was_not_planned_is_held_by_the_new_vector() -> None:
    # Its bounds leave A out, so it was not among A's deletes; B is rewritten.
    narrow = position("pb", 8, names=B5)
    now = scan([A, B5], narrow)
    both = group(
        rewritten=[one for one in now.files if one.data == B5],
        converted=[one for one in now.files if one.data == A],
        new_deletes=(vector(A, S, path=OURS),),
    )
    unnamed = replace(narrow, referenced_data_file=None)
    with_unnamed = replace(both, work=replace(both.work, deletes=(unnamed,)))
    live = scan([A, B5], unnamed)
    assert removable_deletes([with_unnamed], live, S) == (unnamed,)
    assert removable_deletes([replace(with_unnamed, output=replace(both.output, delete_files=()))], live, S) == ()


def test_an_empty_vector_stays_while_it_keeps_position_delete_files_away_and_goes_with_them() -> None:
    mark, shared = vector(A, S - 1, path=OURS, rows=0), position("p8", 8)
    own = vector(C6, 8, path="c.puffin")
    now = scan([A, B5, C6], mark, shared, own)
    of_c = group(rewritten=[one for one in now.files if one.data == C6])
    assert removable_deletes([of_c], now, S) == (own,)
    last = scan([A, B5], mark, shared)
    of_b = group(rewritten=[one for one in last.files if one.data == B5])
    assert removable_deletes([of_b], last, S) == (mark, shared)


# Deletion vectors of one Puffin file share its path


LARGE_A, LARGE_B = (sized_data("a", 100 * MIB), sized_data("b", 100 * MIB))
WHOLE = position_delete("d", LARGE_A)


def part_of_puffin(offset: int, size: int = 40) -> DeleteFile:
    """A part of the one Puffin file, for the file that it was told to be for."""
    name = LARGE_A if offset == 4 else LARGE_B
    return replace(WHOLE, content_offset=offset, content_size_bytes=size, referenced_data_file=name.path)


OF_A, OF_B = part_of_puffin(4), part_of_puffin(44)
SCAN = TableScan(1, 2, (ScannedFile(LARGE_A, (OF_A,)), ScannedFile(LARGE_B, (OF_B,))))


def test_a_vector_is_a_part_of_its_file_and_live_once() -> None:
    assert WHOLE.identity == DeleteIdentity("/t/data/d.parquet", 0, 1000)
    assert OF_A.identity == DeleteIdentity("/t/data/d.parquet", 4, 40)
    assert OF_A.numbered == (OF_A.identity, 2)
    assert len({WHOLE.identity, OF_A.identity, OF_B.identity, part_of_puffin(44, 41).identity}) == 4
    refuse_twice_live(SCAN)
    with pytest.raises(TableRefused, match="live more than once"):
        refuse_twice_live(replace(SCAN, dangling=(replace(OF_A, path=f"file:{OF_A.path}"),)))


@pytest.mark.parametrize("delete", [WHOLE, OF_A])
def test_the_identity_is_kept_between_processes(delete: DeleteFile) -> None:
    assert codec.decode(DeleteFile, codec.encode(rewrite_pb2.DeleteFile, delete)) == delete
