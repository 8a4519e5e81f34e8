from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amoro_core.errors import TableRefused
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    Partition,
    ScannedFile,
)
from amoro_core.model.paths import normalise
from amoro_core.scan import matching as in_columns
from amoro_core.validation import matching as one_by_one

PARTITIONED = 1
OTHER_SPEC = 2
UNPARTITIONED = 0
VOID = 3
ALL_UNPARTITIONED = frozenset((UNPARTITIONED, VOID))
A: Partition = (b"a",)
B: Partition = (b"b",)


def match(
    files: Sequence[DataFile], deletes: Sequence[DeleteFile], unpartitioned: frozenset[int]
) -> tuple[tuple[ScannedFile, ...], tuple[DeleteFile, ...]]:
    """What both matchers say, which has to be the same."""
    said = [said_of(matcher, files, deletes, unpartitioned) for matcher in (one_by_one.match, in_columns.match)]
    assert said[1] == said[0]
    return one_by_one.match(files, deletes, unpartitioned)


def said_of(matcher: Callable[..., Any], *arguments: object) -> Any:
    """What a matcher answers, or how it refuses."""
    try:
        return matcher(*arguments)
    except TableRefused as refusal:
        return refusal.reason, refusal.message


def data(path: str = "/t/d.parquet", sequence: int = 5, spec: int = PARTITIONED, partition: Partition = A) -> DataFile:
    return DataFile(path, FileFormat.PARQUET, spec, partition, 10, 100, sequence)


def equality(
    sequence: int, spec: int = PARTITIONED, partition: Partition = A, path: str = "/t/e.parquet"
) -> DeleteFile:
    return DeleteFile(path, DeleteKind.EQUALITY, FileFormat.PARQUET, spec, partition, 1, 10, sequence, (1,))


def position(
    sequence: int,
    bounds: tuple[bytes, bytes] | None = None,
    spec: int = PARTITIONED,
    partition: Partition = A,
    path: str = "/t/p.parquet",
    referenced: str | None = None,
) -> DeleteFile:
    metrics = ColumnMetrics()
    if bounds is not None:
        low, high = bounds
        metrics = ColumnMetrics(lower_bounds={DELETE_PATH_FIELD_ID: low}, upper_bounds={DELETE_PATH_FIELD_ID: high})
    plain = DeleteFile(path, DeleteKind.POSITION, FileFormat.PARQUET, spec, partition, 1, 10, sequence)
    return replace(plain, metrics=metrics, referenced_data_file=referenced)


def vector(
    sequence: int,
    referenced: str = "/t/d.parquet",
    spec: int = PARTITIONED,
    partition: Partition = A,
    path: str = "/t/v.puffin",
    offset: int = 4,
) -> DeleteFile:
    plain = position(sequence, None, spec, partition, path, referenced)
    return replace(plain, file_format=FileFormat.PUFFIN, content_offset=offset, content_size_bytes=40)


def applies(delete: DeleteFile, file: DataFile) -> bool:
    """Whether match says so; what does not apply must dangle."""
    files, dangling = match([file], [delete], ALL_UNPARTITIONED)
    assert (files, dangling) in (((ScannedFile(file, (delete,)),), ()), ((ScannedFile(file),), (delete,)))
    return not dangling


PLAIN_DATA, VOID_DATA = data(spec=UNPARTITIONED, partition=()), data(spec=VOID, partition=(None,))


@pytest.mark.parametrize(
    ("delete", "file", "expected"),
    [
        # An equality delete applies to strictly older data, a position delete to that of its own commit, too.
        *((equality(number), data(sequence=5), number > 5) for number in (4, 5, 6)),
        *((position(number), data(sequence=5), number >= 5) for number in (4, 5, 6)),
        *((vector(number), data(sequence=5), number >= 5) for number in (4, 5, 6)),
        (vector(9, "/t/other.parquet"), data(sequence=5), False),
        # Deletes of a partitioned spec hold in their partition of their spec only.
        *(
            (make(9), data(spec=spec, partition=partition), False)
            for make in (equality, position)
            for spec, partition in ((PARTITIONED, B), (OTHER_SPEC, A), (OTHER_SPEC, B), (PARTITIONED, (None,)))
        ),
        (equality(9), PLAIN_DATA, False),
        # Partitions compare by their bytes.
        *(
            (equality(6, partition=(value,)), data(partition=(value,)), True)
            for value in (b"\x00\x00\xc0\x7f", None, b"\x00\x00\x00\x80")
        ),
        # Equality deletes of an unpartitioned spec hold everywhere, position deletes in that spec only.
        *(
            (equality(6, spec, partition), file, expected)
            for spec, partition in ((UNPARTITIONED, ()), (VOID, (None,)))
            for file, expected in (
                (data(), True),
                (data(spec=OTHER_SPEC, partition=B), True),
                (PLAIN_DATA, True),
                (data(sequence=6), False),
            )
        ),
        (position(6, spec=UNPARTITIONED, partition=()), PLAIN_DATA, True),
        (position(6, spec=VOID, partition=(None,)), VOID_DATA, True),
        (position(6, spec=UNPARTITIONED, partition=()), data(), False),
        (position(6, spec=VOID, partition=(None,)), data(), False),
        # In format 1 everything has the number 0.
        (equality(0), data(sequence=0), False),
        (position(0), data(sequence=0), True),
        (equality(1), data(sequence=0), True),
        # A name wins over bounds; half of its bounds narrow nothing; bounds compare as bytes.
        (position(6, (b"/t/a", b"/t/z"), referenced="/t/other.parquet"), data(), False),
        (replace(position(6), metrics=ColumnMetrics(lower_bounds={DELETE_PATH_FIELD_ID: b"/z"})), data(), True),
        (position(6, ("/t/\uffff".encode(), "/t/\U0001f600b".encode())), data("/t/\U0001f600a"), True),
        # Older than the file that it names in another partition: no reason to refuse.
        (position(4, (b"/t/d.parquet", b"/t/d.parquet"), OTHER_SPEC, B), data(), False),
    ],
)
def test_a_delete_applies_by_number_spec_partition_and_name(delete: DeleteFile, file: DataFile, expected: bool) -> None:
    assert applies(delete, file) is expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (b"/t/d.parquet", b"/t/d.parquet", True),
        (b"/t/a.parquet", b"/t/z.parquet", True),
        (b"/t/a.parquet", b"/t/c.parquet", False),
        (b"/t/e.parquet", b"/t/z.parquet", False),
        (b"/t/d", b"/t/e", True),  # shortened: the lower one is a prefix, the upper one is raised
        (b"/t/a", b"/t/d", False),  # not raised: no path below begins with it
        (b"/t/\xff", b"/t/\xff\xff", False),
        (b"/t/", b"/t/\xc3", True),  # cut within a character
        (b"file:/t/d.parquet", b"file:/t/z", True),
        (b"file:/t/a", b"file:/t/d.parquet", True),
        (b"/t/e.parquet", b"file:/t/e.parquet", False),  # one file in two spellings
    ],
)
def test_path_bounds_narrow_position_deletes(low: bytes, high: bytes, expected: bool) -> None:
    assert applies(position(6, (low, high)), data("/t/d.parquet")) is expected


@pytest.mark.parametrize("named", ["file:/t/d.parquet", "file:///t/d.parquet", "/t/d.parquet"])
@pytest.mark.parametrize("path", ["file:/t/d.parquet", "file:///t/d.parquet", "/t/d.parquet"])
def test_spellings_of_one_local_path_are_one_file(named: str, path: str) -> None:
    assert applies(position(6, (named.encode(), named.encode())), data(path))
    assert applies(position(6, referenced=named), data(path))
    assert applies(position(6, (f"{named}0".encode()[:-2], f"{named}0".encode())), data(path))


@pytest.mark.parametrize(("spec", "partition"), [(PARTITIONED, B), (OTHER_SPEC, A), (UNPARTITIONED, ())])
def test_a_position_delete_that_names_a_live_file_of_another_partition_is_refused(
    spec: int, partition: Partition
) -> None:
    delete = position(6, (b"/t/d.parquet", b"/t/d.parquet"), spec, partition)
    with pytest.raises(TableRefused, match=r"/t/p\.parquet names /t/d\.parquet") as refused:
        match([data()], [delete], ALL_UNPARTITIONED)
    assert refused.value.reason == "position-delete-partition"


@pytest.mark.parametrize(
    "delete",
    [
        position(6),
        position(9, (b"/t/a", b"/t/z")),
        position(6, (b"/t/d.parquet", b"/t/d.parquet")),
        position(7, referenced="/t/d.parquet"),
    ],
)
def test_position_delete_files_do_not_apply_beside_a_vector(delete: DeleteFile) -> None:
    file, own = data(), vector(5)
    assert match([file], [delete, own], ALL_UNPARTITIONED) == ((ScannedFile(file, (own,)),), (delete,))


def test_a_position_delete_file_of_another_partition_is_no_reason_to_refuse_beside_a_vector() -> None:
    file, own = data(), vector(5)
    astray = position(6, (b"/t/d.parquet", b"/t/d.parquet"), OTHER_SPEC, B)
    assert match([file], [astray, own], ALL_UNPARTITIONED) == ((ScannedFile(file, (own,)),), (astray,))
    with pytest.raises(TableRefused, match=r"/t/v\.puffin names /t/d\.parquet"):
        match([file], [vector(5, spec=OTHER_SPEC, partition=B)], ALL_UNPARTITIONED)


@pytest.mark.parametrize("names", ["/t/d.parquet", "/t/gone.parquet"])
def test_two_vectors_that_name_one_data_file_are_refused_and_both_are_named(names: str) -> None:
    spelled = f"file:{names}"
    deletes = [
        vector(6, names, offset=4),
        vector(7, spelled, path="/t/w.puffin", offset=90),
        vector(6, "/t/e", offset=60),
    ]
    with pytest.raises(TableRefused) as refused:
        in_columns.refuse_several_vectors(deletes)
    assert refused.value.reason == "deletion-vector"
    assert refused.value.message == f"two deletion vectors name {spelled}: /t/v.puffin at 4 and /t/w.puffin at 90"
    in_columns.refuse_several_vectors([deletes[0], deletes[2], position(6, referenced=names)])


def test_vectors_in_one_file_come_by_their_offset() -> None:
    files = [data("/t/a"), data("/t/b")]
    first, second = vector(6, "/t/a", offset=4), vector(6, "/t/b", offset=60)
    assert match(files, [second, first], ALL_UNPARTITIONED) == (
        (ScannedFile(files[0], (first,)), ScannedFile(files[1], (second,))),
        (),
    )
    assert match([], [second, first], ALL_UNPARTITIONED) == ((), (first, second))


PATHS = st.sampled_from(["/t/a", "file:/t/b", "file:///t/c", "/t/d\u00e9"])
SPECS = st.sampled_from([(UNPARTITIONED, ()), (VOID, (None,)), (PARTITIONED, A), (PARTITIONED, B), (OTHER_SPEC, A)])
NUMBERS = st.integers(0, 4)


@st.composite
def data_files(draw: st.DrawFn) -> list[DataFile]:
    chosen = draw(st.lists(st.tuples(PATHS, NUMBERS, SPECS), max_size=4, unique_by=lambda one: one[0]))
    return [data(path, number, *place) for path, number, place in chosen]


@st.composite
def delete_files(draw: st.DrawFn) -> list[DeleteFile]:
    done = []
    for at in range(draw(st.integers(0, 8))):
        number, (spec, partition) = draw(NUMBERS), draw(SPECS)
        kind = draw(st.sampled_from(["equality", "free", "bounded", "referenced", "vector"]))
        path = f"/t/delete-{draw(st.integers(0, 9))}-{at}"
        if kind == "equality":
            done.append(equality(number, spec, partition, path))
        elif kind == "free":
            done.append(position(number, None, spec, partition, path))
        elif kind == "bounded":
            low, high = sorted(one.encode() for one in (draw(PATHS), draw(PATHS)))
            done.append(position(number, (low, high), spec, partition, path))
        elif kind == "vector":
            done.append(vector(number, draw(PATHS), spec, partition, path))
        else:
            done.append(position(number, None, spec, partition, path, draw(PATHS)))
    return done


def naive(files: list[DataFile], deletes: list[DeleteFile]) -> tuple[tuple[ScannedFile, ...], tuple[DeleteFile, ...]]:
    """The rules read off one pair at a time; TableRefused as by match."""
    done, used = [], set()
    for file in sorted(files, key=lambda one: (one.sequence_number, one.path)):
        every = deletes
        if any(one.is_vector and naively_applies(one, file) for one in deletes):
            every = [one for one in deletes if one.is_vector or one.kind is DeleteKind.EQUALITY]
        found = [one for one in every if naively_applies(one, file)]
        used |= {one.path for one in found}
        done.append(ScannedFile(file, tuple(sorted(found, key=lambda one: (one.sequence_number, one.path)))))
    rest = sorted((one for one in deletes if one.path not in used), key=lambda one: (one.sequence_number, one.path))
    return tuple(done), tuple(rest)


def naively_applies(delete: DeleteFile, file: DataFile) -> bool:
    same_place = (delete.spec_id, delete.partition) == (file.spec_id, file.partition)
    if delete.kind is DeleteKind.EQUALITY:
        everywhere = delete.spec_id in ALL_UNPARTITIONED
        return delete.sequence_number > file.sequence_number and (same_place or everywhere)
    if delete.sequence_number < file.sequence_number:
        return False
    if (bounds := delete.path_bounds) is None:
        return same_place
    low, high = bounds
    if low == high:
        named = normalise(low) == normalise(file.path)
        if named and not same_place:
            raise TableRefused("elsewhere", reason="position-delete-partition")
        return named
    plain = low.encode() <= file.path.encode() <= high.encode()
    one_spelling = normalise(low).encode() <= normalise(file.path).encode() <= normalise(high).encode()
    out_of_order = normalise(low).encode() > normalise(high).encode()
    return same_place and (plain or one_spelling or out_of_order)


@given(data_files(), delete_files())
def test_match_says_what_the_rules_say_pair_by_pair(files: list[DataFile], deletes: list[DeleteFile]) -> None:
    try:
        expected = naive(files, deletes)
    except TableRefused:
        with pytest.raises(TableRefused):
            match(files, deletes, ALL_UNPARTITIONED)
    else:
        assert match(files, deletes, ALL_UNPARTITIONED) == expected
