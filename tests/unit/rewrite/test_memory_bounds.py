"""Keys beyond the memory: spilled, found again, and gone afterwards; decoded deletes within a number of bytes."""

import os
import platform
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.errors import AttemptAbandoned
from amoro_optimizer.rewrite.cache import DECODED_DELETES, BoundedCache
from amoro_optimizer.rewrite.gathering import SpilledKeys, gather
from amoro_optimizer.rewrite.key_index import ABSENT
from amoro_optimizer.rewrite.memory import reuse_freed
from amoro_optimizer.rewrite.spilling import Partitions, spill_directory, sweep_spills

from .builders import col, context, data_file, equality_deletes, rows_of, run, task

SCHEMA = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))
COLUMNS = [col("n", pa.int64(), 1), col("s", pa.string(), 2)]


def numbered(start: int, end: int, step: int = 1) -> dict[str, list[Any]]:
    return {"n": list(range(start, end, step)), "s": [f"row {n}" for n in range(start, end, step)]}


@pytest.mark.parametrize("ids", [[1], [2], [1, 2]])
@pytest.mark.parametrize("outputs", [1, 3])
def test_more_keys_than_the_memory_holds_delete_exactly_their_rows(
    tmp_path: Path, ids: list[int], outputs: int
) -> None:
    files = [data_file(tmp_path, COLUMNS, numbered(start, start + 10_000)) for start in (0, 10_000)]
    chosen = [COLUMNS[number - 1] for number in ids]
    keys = [numbered(0, 200_000, 3), numbered(1, 200_000, 300)]
    deletes = [equality_deletes(tmp_path, ids, chosen, {c.name: one[c.name] for c in chosen}) for one in keys]
    spill_root = tmp_path / "spill"
    seen: list[int] = []

    output = run(
        task(context(tmp_path, SCHEMA), files, deletes, applicable={0: [0, 1], 1: [0]}, output_count=outputs),
        memory_limit_bytes=1 << 20,
        spill_root=str(spill_root),
        is_cancelled=lambda: seen.append(len(list(spill_root.rglob("*.arrow")))) is not None,
    )

    expected = [n for n in range(20_000) if n % 3 and not (n < 10_000 and n % 300 == 1)]
    assert [row["n"] for row in rows_of(output)] == expected
    assert max(seen) > 2
    assert list(spill_root.iterdir()) == []
    assert output.peak_memory_bytes > 1 << 20


def test_keys_that_come_again_and_again_stay_in_memory(tmp_path: Path) -> None:
    file = data_file(tmp_path, COLUMNS, numbered(0, 1000))
    keys = numbered(0, 10_000, 2)["n"]  # 320 kB of 1 MB, forty times over
    deletes = [equality_deletes(tmp_path, [1], COLUMNS[:1], {"n": keys}) for _ in range(40)]
    spill_root = tmp_path / "spill"

    output = run(
        task(context(tmp_path, SCHEMA), [file], deletes), memory_limit_bytes=8 << 20, spill_root=str(spill_root)
    )

    assert [row["n"] for row in rows_of(output)] == list(range(1, 1000, 2))
    assert not spill_root.exists()


def test_a_partition_of_few_keys_and_many_rows_takes_memory_by_its_keys(tmp_path: Path) -> None:
    def parts() -> Iterator[tuple[list[pa.Array], int]]:
        yield [pa.array(np.arange(50_000))], 5
        for level in range(25, 0, -1):
            yield [pa.array(np.full(200_000, 7))], level

    with ExitStack() as spills:
        keys = gather(parts(), 5_050_000, 1 << 20, str(tmp_path), spills)
        assert isinstance(keys, SpilledKeys)
        tracemalloc.start()
        indexes = [keys.index(partition) for partition in range(keys.partitions.count)]
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()

    assert sum(len(index.hashes) for index in indexes if index is not None) == 50_000
    asked = [pa.array([7, 8, 60_000])]
    assert [min(index.levels_of(asked)[at] for index in indexes if index is not None) for at in range(3)] == [
        1,
        5,
        ABSENT,
    ]
    assert peak < 100 << 20  # five million rows take more than 24 bytes each to be sorted


def test_converted_files_are_marked_from_spilled_keys_too(tmp_path: Path) -> None:
    file = data_file(tmp_path, COLUMNS, numbered(0, 1000))
    delete = equality_deletes(tmp_path, [1], COLUMNS[:1], {"n": list(range(500, 5000, 2))})

    output = run(
        task(context(tmp_path, SCHEMA), [], [delete], converted=[file]),
        memory_limit_bytes=1,
        spill_root=str(tmp_path / "spill"),
    )

    (made,) = output.delete_files
    assert pq.read_table(made.path).column("pos").to_pylist() == list(range(500, 1000, 2))


def test_spilled_keys_are_gone_after_an_attempt_that_was_abandoned(tmp_path: Path) -> None:
    file = data_file(tmp_path, COLUMNS, numbered(0, 1000))
    delete = equality_deletes(tmp_path, [1], COLUMNS[:1], {"n": list(range(1000))})
    spill_root = tmp_path / "spill"

    with pytest.raises(AttemptAbandoned):
        run(
            task(context(tmp_path, SCHEMA), [file], [delete]),
            memory_limit_bytes=1,
            spill_root=str(spill_root),
            is_cancelled=lambda: any(spill_root.rglob("*.arrow")),
        )

    assert list(spill_root.iterdir()) == []


def test_a_sweep_deletes_what_killed_processes_left_and_nothing_else(tmp_path: Path) -> None:
    with spill_directory(str(tmp_path)) as own:
        left = left_behind(tmp_path)
        (tmp_path / "other").mkdir()
        assert left.exists()

        assert sweep_spills(str(tmp_path)) == 1

        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([own.name, f"{own.name}.lock", "other"])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_whoever_spills_next_and_whoever_starts_next_deletes_what_killed_processes_left(tmp_path: Path) -> None:
    root = tmp_path / f"amoro-{os.getuid()}"
    first = left_behind(root)
    with spill_directory(str(root)):
        assert not first.exists()
    second = left_behind(root)
    starting = "from amoro_optimizer.backends.standalone import InProcess; InProcess()"
    subprocess.run([sys.executable, "-c", starting], env={**os.environ, "TMPDIR": str(tmp_path)}, check=True)
    assert not second.exists()


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


def test_a_sweep_of_a_directory_that_does_not_exist_finds_nothing(tmp_path: Path) -> None:
    assert sweep_spills(str(tmp_path / "none")) == 0


def test_each_row_is_in_the_partition_of_its_hash_in_the_order_it_came(tmp_path: Path) -> None:
    partitions = Partitions(tmp_path, "some", pa.schema([("n", pa.int64())]), 4)
    for start in range(0, 100, 10):
        numbers = np.arange(start, start + 10)
        partitions.add(numbers.astype(np.uint64), [pa.array(numbers)])
    partitions.close()

    found = [[n for batch in partitions.batches(at) for n in batch.column(0).to_pylist()] for at in range(4)]

    assert found == [list(range(at, 100, 4)) for at in range(4)]
    assert os.listdir(tmp_path) == []


def test_a_delete_file_is_decoded_once_for_all_tasks(tmp_path: Path) -> None:
    DECODED_DELETES.clear()
    files = [data_file(tmp_path, COLUMNS, numbered(0, 10)) for _ in range(2)]
    delete = equality_deletes(tmp_path, [1], COLUMNS[:1], {"n": [3]})

    first, second = (run(task(context(tmp_path, SCHEMA), [file], [delete])) for file in files)

    assert first.bytes_read - files[0].size_bytes == delete.size_bytes
    assert second.bytes_read == files[1].size_bytes
    assert [row["n"] for row in rows_of(second)] == [n for n in range(10) if n != 3]


def test_the_cache_forgets_the_least_recently_used_first() -> None:
    cache = BoundedCache()
    for key in "abc":
        cache.put(key, key.upper(), 10, 30)
    assert cache.get("a") == "A"

    cache.put("d", "D", 10, 30)
    cache.put("e", "too large", 31, 30)

    assert [cache.get(key) for key in "abcde"] == ["A", None, "C", "D", None]
    assert cache.nbytes == 30


def test_threads_that_ask_at_once_make_a_value_once() -> None:
    cache, made, ready = BoundedCache(), [], threading.Barrier(4)

    def make() -> tuple[str, int]:
        made.append(1)
        return "value", 5

    def ask() -> None:
        ready.wait()
        assert cache.get_or_make("key", make, 100, lambda: None) == "value"

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert cache.nbytes == 5


def test_a_value_that_could_not_be_made_is_made_by_the_next(tmp_path: Path) -> None:
    cache = BoundedCache()

    def fail() -> tuple[str, int]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        cache.get_or_make("key", fail, 100, lambda: None)
    assert cache.get_or_make("key", lambda: ("value", 5), 100, lambda: None) == "value"


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
        reuse_freed()
        assert pa.default_memory_pool().backend_name == expected
    finally:
        pa.set_memory_pool(before)


_HEAPS = """
import os, threading
from amoro_optimizer.rewrite.memory import share_heaps

def work():
    held.append(bytes(100_000))
    everybody.wait()

def heaps():
    with open("/proc/self/maps") as maps:
        places = [int(line.partition("-")[0], 16) for line in maps if line.split()[1] in ("rw-p", "---p")]
    return sum(place % (64 << 20) == 0 for place in places)

cores, held = os.cpu_count(), []
before = heaps()
share_heaps()
everybody = threading.Barrier(3 * cores + 1)
for _ in range(3 * cores):
    threading.Thread(target=work).start()
everybody.wait()
print(heaps() - before, cores)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives threads heaps of their own")
def test_threads_share_as_many_heaps_as_there_are_cores() -> None:
    done = subprocess.run([sys.executable, "-c", _HEAPS], stdout=subprocess.PIPE, text=True, check=True)
    heaps, cores = map(int, done.stdout.split())
    assert heaps <= cores
