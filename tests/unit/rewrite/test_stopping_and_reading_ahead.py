"""An attempt that is cancelled ends at once, whatever it does just then; files are fetched one ahead."""

import itertools
import os
import threading
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import AttemptAbandoned, DataFileMissing, TableRefused
from amoro_core.files import confining
from amoro_core.files.io import FileAccess
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.rewrite import RewriteOutput
from amoro_optimizer.rewrite.cache import DECODED_DELETES
from amoro_optimizer.rewrite.reading import ReadAhead

from .builders import (
    access_to,
    col,
    context,
    data_file,
    equality_deletes,
    position_deletes,
    run,
    task,
    written_under,
)
from .test_other_formats import NAMES, TWO, avro_file, orc_col, orc_file

SCHEMA = Schema(NestedField(1, "n", LongType()))
COLUMNS = [col("n", pa.int64(), 1)]


def test_an_attempt_ends_in_the_middle_of_a_row_group_that_is_being_written(tmp_path: Path) -> None:
    rows = 1_000_000
    table = pa.table([np.random.default_rng(1).integers(0, 1 << 60, rows)], schema=pa.schema(COLUMNS))
    file = data_file(tmp_path, COLUMNS, table)
    asked: list[int] = []  # bytes of the output, each time after all rows were read
    done = threading.Event()

    def is_cancelled() -> bool:
        if done.is_set():
            asked.append(sum((tmp_path / path).stat().st_size for path in written_under(tmp_path)))
        return len(asked) >= 5

    with pytest.raises(AttemptAbandoned):
        run(
            task(context(tmp_path, SCHEMA), [file]),
            on_progress=lambda rows_done, total: done.set() if rows_done == total else None,
            is_cancelled=is_cancelled,
        )

    assert len(asked) >= 5
    assert asked[-1] < 4 * rows  # the whole row group has seven and a half bytes for each of these numbers
    assert written_under(tmp_path) == []


class Hanging(FileAccess):
    """Files that come only when they are released: those whose path ends so, as a whole and as streams."""

    def __init__(self, root: Path, path: str) -> None:
        super().__init__(PyArrowFileIO(), read_locations=[str(root)], write_locations=[f"{root}/data"])
        self.path = path
        self.asked = threading.Event()
        self.released = threading.Event()
        self.closed = threading.Event()

    def read_bytes(self, path: str) -> bytes:
        if path.endswith(self.path):
            self.wait()
        return super().read_bytes(path)

    def read_cached(self, path: str) -> bytes | None:
        return None if path.endswith(self.path) else super().read_cached(path)

    def open_input(self, path: str) -> Any:
        stream = super().open_input(path)
        return HangingStream(self, stream) if path.endswith(self.path) else stream

    def wait(self) -> None:
        self.asked.set()
        assert self.released.wait(60)


class HangingStream:
    """The head and the foot of a file come at once, what lies between waits."""

    def __init__(self, access: Hanging, stream: Any) -> None:
        self._access = access
        self._stream = stream

    def read(self, size: int) -> bytes:
        if 100 < self._stream.tell() < self._stream.size() // 2:
            self._access.wait()
        return bytes(self._stream.read(size))

    def seek(self, position: int, whence: int = 0) -> int:
        return int(self._stream.seek(position, whence))

    def tell(self) -> int:
        return int(self._stream.tell())

    def close(self) -> None:
        assert self._access.released.is_set()
        self._stream.close()
        self._access.closed.set()


def noise(rows: int) -> pa.Table:
    return pa.table([np.random.default_rng(1).integers(0, 1 << 60, rows)], schema=pa.schema(COLUMNS))


@pytest.mark.parametrize("rows", [1, 300_000], ids=["at once", "stream"])
@pytest.mark.parametrize("which", ["data", "positions", "keys"])
def test_an_attempt_ends_while_a_read_hangs(tmp_path: Path, which: str, rows: int) -> None:
    file = data_file(tmp_path, COLUMNS, noise(rows), row_group_size=100_000)
    entries = [(file.path, position) for position in range(rows)]
    deletes = [
        position_deletes(tmp_path, entries, row_group_size=100_000),
        equality_deletes(tmp_path, [1], COLUMNS, noise(rows)),
    ]
    hanging = {"data": file, "positions": deletes[0], "keys": deletes[1]}[which]
    access = Hanging(tmp_path, hanging.path)
    work = task(context(tmp_path, SCHEMA), [file], deletes)
    if rows > 1:  # larger than what is read at once
        work = replace(
            work,
            deletes=tuple(replace(one, size_bytes=1 << 30) for one in deletes),
            rewritten=tuple(replace(one, data=replace(one.data, size_bytes=1 << 30)) for one in work.rewritten),
        )
    try:
        with pytest.raises(AttemptAbandoned):
            run(work, access, is_cancelled=access.asked.is_set, spill_root=str(tmp_path / "spill"))
        assert not access.released.is_set()
    finally:
        access.released.set()
    if rows > 1:
        assert access.closed.wait(90)


@pytest.mark.parametrize("kind", [FileFormat.AVRO, FileFormat.ORC])
def test_an_attempt_ends_while_a_stream_of_another_format_hangs(tmp_path: Path, kind: FileFormat) -> None:
    rows = [{"n": number, "s": f"row {number * 7919}"} for number in range(150_000)]
    if kind is FileFormat.AVRO:
        file = avro_file(tmp_path, NAMES, rows)
    else:
        columns = pa.schema([orc_col("n", pa.int64(), 1), orc_col("s", pa.string(), 2)])
        file = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=columns))
    access = Hanging(tmp_path, file.path)
    try:
        with pytest.raises(AttemptAbandoned):
            run(
                task(context(tmp_path, TWO), [replace(file, size_bytes=1 << 30)]),
                access,
                is_cancelled=access.asked.is_set,
            )
        assert not access.released.is_set()
    finally:
        access.released.set()
    assert access.closed.wait(90)


def test_an_attempt_ends_while_it_waits_for_what_another_decodes(tmp_path: Path) -> None:
    DECODED_DELETES.clear()
    files = [data_file(tmp_path, COLUMNS, {"n": [1, 2]}) for _ in range(2)]
    delete = equality_deletes(tmp_path, [1], COLUMNS, {"n": [1]})
    access = Hanging(tmp_path, delete.path)
    first, second = (task(context(tmp_path, SCHEMA), [file], [delete]) for file in files)
    outputs: list[RewriteOutput] = []
    other = threading.Thread(target=lambda: outputs.append(run(first, access)))
    other.start()
    try:
        assert access.asked.wait(90)
        looks = itertools.count()
        with pytest.raises(AttemptAbandoned):
            run(second, access, is_cancelled=lambda: next(looks) > 20)
        assert not access.released.is_set()
    finally:
        access.released.set()
        other.join()
    assert outputs[0].rows_deleted == 1


class Recording(FileAccess):
    """Tells which files were read, in their order; those `cached` are in memory."""

    def __init__(self, root: Path, cached: Collection[str] = ()) -> None:
        super().__init__(PyArrowFileIO(), read_locations=[str(root)], write_locations=[f"{root}/data"])
        self.cached = cached
        self.read: list[str] = []
        self.readers: list[threading.Thread] = []
        self.has_read = threading.Condition()

    def read_bytes(self, path: str) -> bytes:
        with self.has_read:
            self.read.append(path)
            self.readers.append(threading.current_thread())
            self.has_read.notify_all()
        return super().read_bytes(path)

    def read_cached(self, path: str) -> bytes | None:
        return self.read_bytes(path) if path in self.cached else None

    def wait_for(self, *files: DataFile) -> bool:
        """Whether these are read first; small ones after them may have been fetched together with the last."""
        paths = [file.path for file in files]
        with self.has_read:
            return self.has_read.wait_for(lambda: self.read[: len(paths)] == paths, timeout=90)


def files_of(root: Path, count: int) -> list[DataFile]:
    return [data_file(root, COLUMNS, {"n": [number]}) for number in range(count)]


def content(file: DataFile) -> bytes:
    return Path(file.path).read_bytes()


def ahead(access: FileAccess, files: list[DataFile], **more: Any) -> ReadAhead:
    return ReadAhead(access, files, lambda: None, **{"memory_bytes": 1 << 30, **more})


def test_the_next_file_is_fetched_while_the_one_before_it_is_worked_on(tmp_path: Path) -> None:
    access, files = Recording(tmp_path), files_of(tmp_path, 3)
    reads = ahead(access, files)

    assert reads.take(files[0]) == content(files[0])
    assert access.wait_for(files[0], files[1])
    assert reads.take(files[1]) == content(files[1])
    assert access.wait_for(*files)
    assert reads.take(files[2]) == content(files[2])
    assert access.read == [file.path for file in files]


@pytest.mark.parametrize(("memory_bytes", "together"), [(1, 1), (32 << 20, 3), (1 << 40, 4)])
def test_small_files_are_fetched_together_within_the_memory(tmp_path: Path, memory_bytes: int, together: int) -> None:
    # Of a sixteenth of the memory, and of 8 MiB at most; never less than one file.
    access, files = Recording(tmp_path), [replace(file, size_bytes=600 << 10) for file in files_of(tmp_path, 5)]
    reads = ahead(access, files, memory_bytes=memory_bytes)

    assert [reads.take(file) for file in files] == [content(file) for file in files]
    assert access.read == [file.path for file in files]
    assert [reader is access.readers[1] for reader in access.readers[1:]] == [number < together for number in range(4)]


def test_files_in_memory_are_read_when_they_are_wanted_by_whoever_wants_them(tmp_path: Path) -> None:
    files = files_of(tmp_path, 4)
    access = Recording(tmp_path, {file.path for file in files})
    reads = ahead(access, files)

    for number, file in enumerate(files, start=1):
        assert reads.take(file) == content(file)
        assert access.read == [one.path for one in files[:number]]
    # The first one is asked for in a thread of its own, in which a file system may hang.
    assert [reader is threading.current_thread() for reader in access.readers] == [False, True, True, True]


def test_files_are_fetched_ahead_again_after_one_that_is_not_in_memory(tmp_path: Path) -> None:
    files = files_of(tmp_path, 5)
    access = Recording(tmp_path, {file.path for file in files} - {files[2].path})
    reads = ahead(access, files)

    assert [reads.take(file) == content(file) for file in files[:3]] == [True] * 3
    assert access.wait_for(*files)  # the last two were begun before they are wanted
    assert [reads.take(file) == content(file) for file in files[3:]] == [True] * 2
    here = threading.current_thread()
    assert [reader is here for reader in access.readers] == [False, True, False, False, False]


def answered(path: Path, at: int) -> bool:
    """Whether this system's file system gives a byte that it has in memory without waiting."""
    with path.open("rb") as file:
        try:
            return os.preadv(file.fileno(), [bytearray(1)], at, os.RWF_NOWAIT) == 1
        except OSError:
            return False


def test_the_system_tells_which_files_are_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access, path, pipe = access_to(tmp_path), tmp_path / "file", tmp_path / "pipe"
    path.write_bytes(b"x" * 100_000)
    os.mkfifo(pipe)
    assert access.read_cached(str(path)) == (path.read_bytes() if answered(path, 99_999) else None)
    with pytest.raises(DataFileMissing):
        access.read_cached(str(tmp_path / "none"))
    for other in (tmp_path, pipe):
        with pytest.raises(TableRefused, match="is not a regular file"):
            access.read_cached(str(other))

    read: list[int] = []

    def preadv(handle: int, buffers: list[bytearray], at: int, flags: int) -> int:
        read.append(at)
        if at in absent:
            raise BlockingIOError
        return len(buffers[0])

    monkeypatch.setattr(os, "preadv", preadv)
    for absent in ({0}, {99_999}, set[int]()):
        assert access.read_cached(str(path)) == (None if absent else path.read_bytes())
    assert set(read) == {0, 99_999}


def test_no_file_of_an_object_store_is_in_memory() -> None:
    access = FileAccess(PyArrowFileIO(), read_locations=["s3://b"], write_locations=[])
    assert access.read_cached("s3://b/file") is None


def test_a_file_in_memory_is_read_where_it_may_be_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, outside = tmp_path / "allowed", tmp_path / "outside"
    allowed.mkdir()
    outside.write_bytes(b"secret")
    access, link = access_to(allowed), allowed / "link"
    with pytest.raises(TableRefused, match="outside the locations"):
        access.read_cached(str(outside))
    link.symlink_to(outside)
    with pytest.raises(TableRefused, match="links lead to"):
        access.read_cached(str(link))
    # As if the link had come between the look and the opening.
    monkeypatch.setattr(confining, "require_real", lambda *_: None)
    with pytest.raises(TableRefused, match="links lead to"):
        access.read_cached(str(link))


def test_a_file_that_comes_out_of_turn_has_its_own_content(tmp_path: Path) -> None:
    access, files = Recording(tmp_path), files_of(tmp_path, 4)
    reads = ahead(access, files)

    assert reads.take(files[0]) == content(files[0])
    assert reads.take(files[2]) == content(files[2])
    assert reads.take(files[0]) == content(files[0])


def test_large_files_are_left_to_be_streamed_within_little_memory(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 1 << 60, 200_000)
    large = data_file(tmp_path, COLUMNS, pa.table([noise], schema=pa.schema(COLUMNS)))
    assert 1 << 20 < large.size_bytes < 2 << 20

    assert ahead(access_to(tmp_path), [large], memory_bytes=1).take(large) is None
    assert ahead(access_to(tmp_path), [large], memory_bytes=32 << 20).take(large) == content(large)


def test_a_missing_file_is_said_when_it_is_its_turn(tmp_path: Path) -> None:
    files = files_of(tmp_path, 2)
    Path(files[1].path).unlink()
    reads = ahead(access_to(tmp_path), files)

    assert reads.take(files[0]) == content(files[0])
    with pytest.raises(DataFileMissing, match=files[1].path):
        reads.take(files[1])
