"""Which deletes nothing needs where deletion vectors apply."""

from __future__ import annotations

from dataclasses import replace

from amoro_core.live.matching import match
from amoro_core.model.commits import Group
from amoro_core.model.files import DataFile, DeleteFile, FileFormat, TableScan
from amoro_core.validating.removal import dangling_deletes, deletes_without, removable_deletes
from tests.unit.test_validating import S, by_bounds, data, equality, group, position

A, B, C = data("a"), data("b"), data("c", 6)
#: The name of a Puffin file of one of our conversions.
OURS = "01890000-0000-7000-8000-000000000001-1-1-0123456789abcdef0123456789abcdef-deletes.puffin"


def vector(names: DataFile, sequence: int, offset: int = 4, path: str = "v.puffin", rows: int = 3) -> DeleteFile:
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


def test_a_position_delete_file_of_files_with_vectors_alone_goes() -> None:
    shared, named, bounds = position("p8", 8), position("p9", 9, names=A), by_bounds(position("pb", 9, names=A))
    assert dangling_deletes(scan([A], shared, named, bounds, vector(A, 5))) == (shared, named, bounds)
    assert dangling_deletes(scan([A], shared, named, bounds)) == ()
    newer = data("c", 9)
    assert dangling_deletes(scan([A, newer], bounds, vector(A, 5))) == (bounds,)


def test_a_position_delete_file_stays_for_a_file_without_a_vector() -> None:
    shared = position("p8", 8)
    with_bounds = position("pc", 9, names=C)  # by the matcher it is B's neighbour's
    now = scan([A, C], shared, with_bounds, vector(A, 9))
    assert dangling_deletes(now) == ()
    assert deletes_without(now, [C.path]) == (shared, with_bounds)
    assert deletes_without(now, [A.path]) == (vector(A, 9),)


def test_a_vector_that_names_a_live_file_stays() -> None:
    older = vector(C, 5)
    assert dangling_deletes(scan([C], older)) == ()  # whatever matching found
    own, gone = vector(A, 8), vector(B, 8, offset=60)
    assert dangling_deletes(scan([A], own, gone)) == (gone,)


def test_vectors_of_rewritten_and_converted_files_go_and_others_of_the_same_puffin_file_stay() -> None:
    of_a, of_b, of_c = vector(A, 8), vector(B, 8, 60), vector(C, 8, 120)
    now = scan([A, B, C], of_a, of_b, of_c)
    rewriting = group(rewritten=[now.files[0]])
    assert removable_deletes([rewriting], now, S) == (of_a,)
    new = vector(B, S, path=OURS)
    assert removable_deletes([converting(now, B, vectors=(new,))], now, S) == (of_b,)


def test_a_vector_newer_than_the_plan_stays_so_that_only_who_joined_it_removes_it() -> None:
    newer = vector(A, S + 1)
    planned, now = scan([A]), scan([A], newer)
    assert removable_deletes([converting(planned, A, vectors=(vector(A, S, path=OURS),))], now, S) == ()


def test_a_vector_of_a_rewritten_file_goes_though_it_is_newer_than_the_plan() -> None:
    newer, other = vector(A, S + 1), vector(B, S + 1, 60)
    planned = scan([A, B])
    assert removable_deletes([group(rewritten=[planned.files[0]])], scan([A, B], newer, other), S) == (newer,)


def test_a_position_delete_file_goes_once_every_file_has_its_vector_whatever_its_bounds() -> None:
    shared, old = position("p8", 8), equality("e7", 7)
    now = scan([A, B], shared, old)
    vectors = vector(A, S, path=OURS), vector(B, S, 60, OURS)
    assert removable_deletes([converting(now, A, B, vectors=vectors)], now, S) == (old, shared)
    assert removable_deletes([converting(now, A, vectors=vectors[:1])], now, S) == ()


def test_a_position_delete_file_that_was_not_planned_is_held_by_the_new_vector() -> None:
    # Its bounds leave A out, so it was not among A's deletes; B is rewritten.
    narrow = position("pb", 8, names=B)
    now = scan([A, B], narrow)
    both = group(
        rewritten=[one for one in now.files if one.data == B],
        converted=[one for one in now.files if one.data == A],
        new_deletes=(vector(A, S, path=OURS),),
    )
    unnamed = replace(narrow, referenced_data_file=None)
    with_unnamed = replace(both, work=replace(both.work, deletes=(unnamed,)))
    live = scan([A, B], unnamed)
    assert removable_deletes([with_unnamed], live, S) == (unnamed,)
    assert removable_deletes([replace(with_unnamed, output=replace(both.output, delete_files=()))], live, S) == ()


def test_an_empty_vector_stays_while_it_keeps_position_delete_files_away() -> None:
    mark, shared = vector(A, S - 1, path=OURS, rows=0), position("p8", 8)
    now = scan([A, B, C], mark, shared, vector(C, 8, path="c.puffin"))
    of_c = group(rewritten=[one for one in now.files if one.data == C])
    assert removable_deletes([of_c], now, S) == (vector(C, 8, path="c.puffin"),)


def test_an_empty_vector_goes_with_what_it_keeps_away() -> None:
    mark, shared = vector(A, S - 1, path=OURS, rows=0), position("p8", 8)
    now = scan([A, B], mark, shared)
    of_b = group(rewritten=[one for one in now.files if one.data == B])
    assert removable_deletes([of_b], now, S) == (mark, shared)
