"""What is told about the paths of a large part, for all at once, is what is told about each of them alone."""

import random

import pyarrow as pa
import pytest

from amoro_core.live.columns import SCHEMA, ColumnPart
from amoro_core.live.spelling import FEW, Paths, Shape, numbered, shape_of
from amoro_core.live.storing import packed_part, unpacked_part
from amoro_core.model.mixed_files import is_mixed
from amoro_core.model.paths import normalise
from tests.tiers import count

SPELLINGS = ("file:/t/", "file:///t/", "file://h/t/", "s3://b/k/", "S3A://b/", "hdfs:///")
BEGINS = ("", "/", "/t/", "/\n/", "a/../", "//", *SPELLINGS)
MIXED = "3-B-0-1-2-x"
ENDS = ("", "a", ".", "..", "...", "\n", "a\n", ".\n", "..\n", "a\0", "\0", "ä", MIXED, f"{MIXED}\n", f"x{MIXED}")


def in_one(shapes: list[Shape]) -> tuple[set[str], list[str], int]:
    directories = {one for shape in shapes for one in shape.directories}
    return directories, [one for shape in shapes for one in shape.odd], sum(shape.mixed for shape in shapes)


def check(paths: list[str]) -> Shape:
    assert len(paths) > FEW
    # A part may be a slice of a larger array.
    array = pa.array(["x/y", *paths, "\0"], pa.string()).slice(1, len(paths))
    found = shape_of(array)
    assert in_one([found]) == in_one([shape_of(pa.array([path])) for path in paths])
    assert len(set(found.directories)) == len(found.directories)
    assert found.first_mixed == next(filter(is_mixed, paths), None)
    assert numbered(Paths(array)).tolist() == [hash(normalise(path)) for path in paths]
    assert stored(paths).paths.shape == found
    return found


def stored(paths: list[str]) -> ColumnPart:
    """A part with these paths as it comes out of the cache, or from another process."""
    others = [pa.array([b"" if pa.types.is_binary(one.type) else 0] * len(paths), one.type) for one in list(SCHEMA)[1:]]
    batch = pa.RecordBatch.from_arrays([pa.array(paths, pa.string()), *others], schema=SCHEMA)
    return unpacked_part(packed_part(ColumnPart(((0, ()),), batch), "lz4"))


def test_every_spelling_beside_every_other() -> None:
    check([f"{begin}{end}" for begin in BEGINS for end in ENDS])


@pytest.mark.parametrize("begin", BEGINS)
def test_every_name_in_directories_spelled_alike(begin: str) -> None:
    for end in ENDS:
        check([*(f"{begin}d{at % 7}/{at}.parquet" for at in range(FEW)), f"{begin}{end}"])


@pytest.mark.parametrize(("directories", "is_stored"), [(1, True), (10, True), (11, False), (80, False)])
def test_how_paths_are_spelled_is_stored_with_them_where_many_share_a_directory(
    directories: int, is_stored: bool
) -> None:
    shape = stored([f"/t/{at % directories}/{at}.parquet" for at in range(80)]).shape
    assert (shape is not None) is is_stored


def test_random_paths() -> None:
    chance = random.Random(17)
    pieces = ("t", "data", "..", ".", "", "s3:", "b", "file:", "a\0", "\n", "ü", "1-I-2-3-4-5", "x.parquet", "d=%2F")
    for _ in range(count(40, 400)):
        usual = chance.choice(("/w/", "s3://b/", "file:///w/", "gs://b/"))
        paths = [f"{usual}d{chance.randrange(5)}/{at}" for at in range(FEW)]
        paths += ["/".join(chance.choices(pieces, k=chance.randrange(1, 5))) for _ in range(chance.choice((1, 2, 40)))]
        chance.shuffle(paths)
        check(paths)


@pytest.mark.parametrize(
    ("begin", "way"),
    [("/t/", ""), ("file:/t/", "file:"), ("file:///t/", "file://"), ("s3://b/t/", "s3://"), ("gcs://b/", "gcs://")],
)
def test_paths_in_a_usual_spelling_are_known_to_be_by_their_directories(begin: str, way: str) -> None:
    usual = [f"{begin}{at % 9}/{at}.parquet" for at in range(FEW + 1)]
    assert check(usual).way == way
    for other in ("x/y", "S3://b/y", f"{begin}a//", f"{begin}..", "file://h/y"):
        assert check([*usual, other]).way is None
