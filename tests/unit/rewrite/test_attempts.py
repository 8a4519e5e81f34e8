"""Attempts: they end at once when they are cancelled, read ahead, and stay within their memory and disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema

from amoro_core.errors import AttemptAbandoned, DataFileMissing
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.files import DataFile, FileFormat
from amoro_optimizer.rewrite.reading import ReadAhead
from amoro_optimizer.rewrite.spilling import choose_pool, spill_directory, sweep_spills

from .builders import (
    AVRO_NS,
    NS,
    NS_COLUMNS,
    ORC_NS,
    access_to,
    avro_file,
    context,
    data_file,
    equality_deletes,
    numbered,
    orc_file,
    position_deletes,
    rows_of,
    run,
    task,
    written_under,
)

N, N_COLUMNS = Schema(NS.fields[0]), NS_COLUMNS[:1]


def test_an_attempt_ends_in_the_middle_of_a_row_group_that_is_being_written(tmp_path: Path) -> None:
    rows = 1_000_000
    table = pa.table([np.random.default_rng(1).integers(0, 1 << 60, rows)], schema=pa.schema(N_COLUMNS))
    file = data_file(tmp_path, N_COLUMNS, table)
    asked: list[int] = []  # bytes of the output, each time after all rows were read
    done = threading.Event()

    def is_cancelled() -> bool:
        if done.is_set():
            asked.append(sum((tmp_path / path).stat().st_size for path in written_under(tmp_path)))
        return len(asked) >= 5

    with pytest.raises(AttemptAbandoned):
        run(
            task(context(tmp_path, N), [file]),
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
    return pa.table([np.random.default_rng(1).integers(0, 1 << 60, rows)], schema=pa.schema(N_COLUMNS))


@pytest.mark.parametrize("rows", [1, 300_000], ids=["at once", "stream"])
@pytest.mark.parametrize("which", ["data", "positions", "keys"])
def test_an_attempt_ends_while_a_read_hangs(tmp_path: Path, which: str, rows: int) -> None:
    file = data_file(tmp_path, N_COLUMNS, noise(rows), row_group_size=100_000)
    entries = [(file.path, position) for position in range(rows)]
    deletes = [
        position_deletes(tmp_path, entries, row_group_size=100_000),
        equality_deletes(tmp_path, [1], N_COLUMNS, noise(rows)),
    ]
    hanging = {"data": file, "positions": deletes[0], "keys": deletes[1]}[which]
    access = Hanging(tmp_path, hanging.path)
    work = task(context(tmp_path, N), [file], deletes)
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
        file = avro_file(tmp_path, AVRO_NS, rows)
    else:
        file = orc_file(tmp_path, pa.Table.from_pylist(rows, schema=ORC_NS))
    access = Hanging(tmp_path, file.path)
    try:
        with pytest.raises(AttemptAbandoned):
            run(
                task(context(tmp_path, NS), [replace(file, size_bytes=1 << 30)]),
                access,
                is_cancelled=access.asked.is_set,
            )
        assert not access.released.is_set()
    finally:
        access.released.set()
    assert access.closed.wait(90)


class Recording(FileAccess):
    """Tells which files were read, in their order."""

    def __init__(self, root: Path) -> None:
        super().__init__(PyArrowFileIO(), read_locations=[str(root)], write_locations=[f"{root}/data"])
        self.read: list[str] = []
        self.readers: list[threading.Thread] = []
        self.has_read = threading.Condition()

    def read_bytes(self, path: str) -> bytes:
        with self.has_read:
            self.read.append(path)
            self.readers.append(threading.current_thread())
            self.has_read.notify_all()
        return super().read_bytes(path)

    def wait_for(self, *files: DataFile) -> bool:
        """Whether these are read first; small ones after them may have been fetched together with the last."""
        paths = [file.path for file in files]
        with self.has_read:
            return self.has_read.wait_for(lambda: self.read[: len(paths)] == paths, timeout=90)


def content(file: DataFile) -> bytes:
    return Path(file.path).read_bytes()


def ahead(access: FileAccess, files: list[DataFile], **more: Any) -> ReadAhead:
    return ReadAhead(access, files, lambda: None, **{"memory_bytes": 1 << 30, **more})


def test_the_next_file_is_fetched_while_the_one_before_it_is_worked_on(tmp_path: Path) -> None:
    access, files = Recording(tmp_path), [numbered(tmp_path, 1, number) for number in range(3)]
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
    access, files = (
        Recording(tmp_path),
        [replace(file, size_bytes=600 << 10) for file in [numbered(tmp_path, 1, number) for number in range(5)]],
    )
    reads = ahead(access, files, memory_bytes=memory_bytes)

    assert [reads.take(file) for file in files] == [content(file) for file in files]
    assert access.read == [file.path for file in files]
    assert [reader is access.readers[1] for reader in access.readers[1:]] == [number < together for number in range(4)]


def test_a_missing_file_is_said_when_it_is_its_turn(tmp_path: Path) -> None:
    files = [numbered(tmp_path, 1, number) for number in range(2)]
    Path(files[1].path).unlink()
    reads = ahead(access_to(tmp_path), files)

    assert reads.take(files[0]) == content(files[0])
    with pytest.raises(DataFileMissing, match=files[1].path):
        reads.take(files[1])


def rows_between(start: int, end: int, step: int = 1) -> dict[str, list[Any]]:
    return {"n": list(range(start, end, step)), "s": [f"row {n}" for n in range(start, end, step)]}


@pytest.mark.parametrize(("ids", "outputs"), [([1], 3), ([2], 1), ([1, 2], 3)])
def test_more_keys_than_the_memory_holds_delete_exactly_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ids: list[int], outputs: int
) -> None:
    monkeypatch.setattr("amoro_optimizer.rewrite.spilling._COLLECTED_BYTES", 100_000)
    files = [data_file(tmp_path, NS_COLUMNS, rows_between(start, start + 10_000)) for start in (0, 10_000)]
    chosen = [NS_COLUMNS[number - 1] for number in ids]
    keys = [rows_between(0, 100_000, 3), rows_between(1, 100_000, 300)]
    deletes = [equality_deletes(tmp_path, ids, chosen, {c.name: one[c.name] for c in chosen}) for one in keys]
    spill_root = tmp_path / "spill"
    seen: list[int] = []

    output = run(
        task(context(tmp_path, NS), files, deletes, applicable={0: [0, 1], 1: [0]}, output_count=outputs),
        memory_limit_bytes=1 << 20,
        spill_root=str(spill_root),
        is_cancelled=lambda: seen.append(len(list(spill_root.rglob("*.arrow")))) is not None,
    )

    expected = [n for n in range(20_000) if n % 3 and not (n < 10_000 and n % 300 == 1)]
    assert [row["n"] for row in rows_of(output)] == expected
    assert max(seen) > 2
    assert list(spill_root.iterdir()) == []
    assert output.peak_memory_bytes > 1 << 20


def test_spilled_keys_are_gone_after_an_attempt_that_was_abandoned(tmp_path: Path) -> None:
    file = data_file(tmp_path, NS_COLUMNS, rows_between(0, 1000))
    delete = equality_deletes(tmp_path, [1], NS_COLUMNS[:1], {"n": list(range(1000))})
    spill_root = tmp_path / "spill"

    with pytest.raises(AttemptAbandoned):
        run(
            task(context(tmp_path, NS), [file], [delete]),
            memory_limit_bytes=1,
            spill_root=str(spill_root),
            is_cancelled=lambda: any(spill_root.rglob("*.arrow")),
        )

    assert list(spill_root.iterdir()) == []


def test_whoever_spills_next_deletes_what_killed_processes_left_and_nothing_else(tmp_path: Path) -> None:
    with spill_directory(str(tmp_path)) as own:
        left = left_behind(tmp_path)
        (tmp_path / "other").mkdir()
        with spill_directory(str(tmp_path)) as next_:
            assert not left.exists()
            names = [own.name, next_.name]
            kept = sorted(["other", *names, *(f"{name}.lock" for name in names)])
            assert sorted(path.name for path in tmp_path.iterdir()) == kept
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_whoever_starts_next_deletes_what_killed_processes_left(tmp_path: Path) -> None:
    left = left_behind(tmp_path / f"amoro-{os.getuid()}")
    starting = "from amoro_optimizer.work_kinds import InProcess; InProcess()"
    subprocess.run([sys.executable, "-c", starting], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert not left.exists()


def left_behind(root: Path) -> Path:
    """A file in the spill directory of a process that was killed; not swept while it lived."""
    holder = subprocess.Popen([sys.executable, "-c", _HOLDER, str(root)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    (name,) = holder.stdout.readline().split()
    assert sweep_spills(str(root)) == 0
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    return Path(name)


_HOLDER = """
import signal, sys
from amoro_optimizer.rewrite.spilling import spill_directory
with spill_directory(sys.argv[1]) as directory:
    (directory / "keys.arrow").write_bytes(b"x")
    print(directory / "keys.arrow", flush=True)
    signal.pause()
"""


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
@pytest.mark.parametrize(("named", "expected"), [(None, "jemalloc"), ("system", "system")])
def test_the_environment_decides_where_arrow_takes_its_memory(
    monkeypatch: pytest.MonkeyPatch, named: str | None, expected: str
) -> None:
    before = pa.default_memory_pool()
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    if named:
        monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", named)
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        choose_pool()
        assert pa.default_memory_pool().backend_name == expected
    finally:
        pa.set_memory_pool(before)
