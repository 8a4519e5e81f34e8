"""The promise about memory: a process stays below what it takes at rest plus the limit for each thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SCRIPT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from threading import Thread
from amoro_core.files.storage.io import open_access
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.clustering import ClusterInput
from amoro_core.model.task_payload import CopyRule
from amoro_optimizer.cluster.engine import cluster
from amoro_optimizer.rewrite.engine import rewrite
from amoro_optimizer.rewrite.spilling import resident_bytes
from tests.bench.data import LAYOUTS, task, write_files

def run(number, part):
    work = task(root, part, kind=kind)
    work = replace(work, table=replace(work.table, properties={}), copy=CopyRule(8 << 20, 1024, True))
    access = open_access({}, str(root), read_locations=[str(root)], write_locations=[str(root)])
    attempt = Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", number), 1)
    options = dict(on_progress=lambda done, all: None, is_cancelled=lambda: False, memory_limit_bytes=limit)
    if layout is None:
        told.append(rewrite(work, access, attempt, **options).peak_memory_bytes)
    else:
        group = ClusterInput(replace(work, output_count=3), layout, "0123456789ab", 7)
        output = cluster(group, access, attempt, spill_root=str(root / "spill"), **options)
        assert output.spill_bytes > 0
        told.append(output.rewrite.peak_memory_bytes)

def peak():
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

root, threads, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
layout, kind = LAYOUTS.get(sys.argv[4]), sys.argv[5]
files, told = write_files(kind, root, 40), []
if threads:
    base = resident_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    workers = [Thread(target=run, args=(number, files[number::threads])) for number in range(threads)]
    for worker in workers: worker.start()
    for worker in workers: worker.join()
    print(json.dumps([base, peak(), max(told), len(told)]))
"""
LIMIT = 128 << 20


def measured(root: Path, threads: int, limit: int, what: str, kind: str = "mixed") -> tuple[int, int, int]:
    """The bytes resident before and at most, and what a result states; without threads the files are made."""
    # Arrow goes by what `amoro` puts into the environment.
    command = [sys.executable, "-c", _SCRIPT, str(root), str(threads), str(limit), what, kind]
    environment = {"ARROW_DEFAULT_MEMORY_POOL": "jemalloc", **os.environ}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    if not threads:
        return 0, 0, 0
    base, peak, told, tasks = json.loads(done.stdout)
    print(f"{threads} threads: base {base >> 20} MB, peak {peak >> 20} MB")
    assert tasks == threads
    return base, peak, told


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read where Linux tells it")
@pytest.mark.parametrize("what", ["rewrite", "sort", "hilbert"])
def test_resident_memory_stays_below_its_base_plus_the_limit_of_each_thread(tmp_path: Path, what: str) -> None:
    (tmp_path / "out").mkdir()
    measured(tmp_path, 0, 0, what)  # makes the files: the next process has not touched their making
    for threads in (1, 2):
        base, peak, told = measured(tmp_path, threads, LIMIT, what)
        assert peak <= base + threads * LIMIT
        # What a result states as its peak is that of the process, looked at with each batch and each page.
        assert told > base
        assert abs(told - peak) < LIMIT // 4


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read where Linux tells it")
def test_a_rewrite_of_texts_takes_little_more_than_the_rows_of_a_row_group(tmp_path: Path) -> None:
    """46 MB under the default limit: what is encoded is not held, and of the inputs a few only."""
    (tmp_path / "out").mkdir()
    measured(tmp_path, 0, 0, "rewrite", "text")
    base, peak, _ = measured(tmp_path, 1, 512 << 20, "rewrite", "text")
    assert peak - base < 140 << 20
