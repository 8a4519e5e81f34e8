"""Deletion vectors as bytes: what we write pyiceberg reads, and what is broken is told."""

import struct
import zlib
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file as theirs
from pyiceberg.table.puffin import PuffinFile

from amoro_core.errors import UnreadableFile
from amoro_core.files.vectors import packed, positions_in, vectors_file
from amoro_core.positions import NO_POSITIONS, PositionSet

sets = st.sets(st.integers(0, 2**33) | st.integers(0, 300), max_size=200)


@given(found=sets)
def test_positions_are_read_as_they_were_packed(found: set[int]) -> None:
    positions = PositionSet.of(found)
    assert positions_in(packed(positions), len(found), 2**33 + 1, "f at 4") == positions
    assert positions.ascending().tolist() == sorted(found)
    assert (len(positions), positions.last) == (len(found), max(found, default=-1))


@given(left=sets, right=sets)
def test_positions_are_sets(left: set[int], right: set[int]) -> None:
    one, other = PositionSet.of(left), PositionSet.of(np.array(sorted(right), dtype=np.uint64))
    assert one | other == PositionSet.of(left | right)
    assert one - other == PositionSet.of(left - right)
    assert (one <= other) == (left <= right)
    assert hash(one - NO_POSITIONS) == hash(one)


def test_the_first_positions_are_a_run_of_few_bytes() -> None:
    assert PositionSet.first(4_000_000) == PositionSet.of(np.arange(4_000_000))
    assert len(packed(PositionSet.first(4_000_000))) < 1000
    assert PositionSet.first(0) == NO_POSITIONS


def test_a_file_of_vectors_is_read_by_pyiceberg_and_by_range() -> None:
    vectors = (("s3://b/one.parquet", PositionSet.of([1, 5, 2**20])), ("s3://b/two.parquet", PositionSet.first(70_000)))
    content, parts = vectors_file(vectors)
    read = PuffinFile(content)
    assert [(found.referenced_data_file, found.to_vector().to_pylist()) for found in theirs(read)] == [
        (path, positions.ascending().tolist()) for path, positions in vectors
    ]
    for (path, positions), part, blob in zip(vectors, parts, read.footer.blobs, strict=True):
        assert (blob.offset, blob.length) == (part.offset, part.size_bytes)
        assert blob.properties == {"referenced-data-file": path, "cardinality": str(len(positions))}
        assert (blob.snapshot_id, blob.sequence_number, blob.compression_codec) == (-1, -1, None)
        found = content[part.offset : part.offset + part.size_bytes]
        assert positions_in(found, len(positions), 2**21, path) == positions


def _resealed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


GOOD = PositionSet.of([3, 7, 2**17])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda blob: blob[:-1], "another length"),
        (lambda blob: blob[:5], "another length"),
        (lambda blob: blob + b"\0", "another length"),
        (lambda blob: blob[:4] + b"\xd2" + blob[5:], "begins with d2d33964"),
        (lambda blob: blob[:-8] + bytes([blob[-8] ^ 1]) + blob[-7:], "another checksum"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "another checksum"),
        (lambda blob: _resealed(blob[4:20]), "can't be read"),
        (lambda blob: _resealed(blob[4:8]), "can't be read"),
        (lambda blob: packed(PositionSet.of([3, 7])), "has 2 positions, its manifest entry tells of 3"),
    ],
)
def test_a_broken_vector_is_told_with_its_place(broken: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(UnreadableFile, match=f"f.puffin at 4 .*{why}"):
        positions_in(broken(packed(GOOD)), 3, 2**18, "f.puffin at 4")


def test_a_position_beyond_the_file_is_told() -> None:
    with pytest.raises(UnreadableFile, match=r"deletes row 131072, the data file has 131072 rows"):
        positions_in(packed(GOOD), 3, 2**17, "f.puffin at 4")


@given(cut=st.integers(0, 60), flipped=st.integers(0, 60), mask=st.integers(1, 255))
def test_no_damage_below_a_right_checksum_ends_the_process(cut: int, flipped: int, mask: int) -> None:
    body = bytearray(packed(GOOD)[4:-4])
    body[4 + flipped % (len(body) - 4)] ^= mask
    with suppress(UnreadableFile):
        assert len(positions_in(_resealed(bytes(body[: len(body) - cut])), 3, 2**18, "f")) == 3
