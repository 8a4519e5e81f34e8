"""A table that a worker gets stuck with, a file under way; and calls that go on meanwhile."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.acceptance.processes import PATIENCE_S, wait_until
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.spark_backend.spark import opens_a_pipe, writers

_COPYING = "self-optimizing.rewrite.use-parquet-row-group-merge"
#: Rows that are encoded are held in memory until they fill a row group; small row groups are copied at once.
_COPIES = {f"{_COPYING}.enabled": "true", f"{_COPYING}.min-avg-row-group-size-bytes": "0"}


@dataclass(frozen=True, slots=True)
class StuckTable:
    """Two files of ten rows; the last file is a pipe that never says a word, until it is mended."""

    table: Table
    pipe: Path
    kept: Path

    @property
    def directory(self) -> Path:
        return self.pipe.parent

    def mend(self) -> None:
        """Put the file back; who reads the pipe goes on waiting."""
        self.kept.replace(self.pipe)

    def writers(self) -> set[int]:
        """The workers below this process that have begun a file."""
        return {pid for pid, _ in writers(self.directory, os.getpid())}

    def wait_for_writer(self) -> tuple[int, Path]:
        """The worker below this process that has begun a file and is stuck, and the file."""
        return wait_until(self._stuck_writer, "a worker has begun a file and opens the pipe")

    def _stuck_writer(self) -> tuple[int, Path] | None:
        found = writers(self.directory, os.getpid())
        return next(((pid, file) for pid, file in found if opens_a_pipe(pid)), None)


def stuck_table(catalog: Catalog) -> StuckTable:
    """The new table `db.stuck`."""
    table = writer.make_table(catalog, "db.stuck", SCHEMA, properties=_COPIES)
    for first in (0, 10):
        writer.append(table, [row(first + number) for number in range(10)])
    last = Path(local_path(oracle.live_files(table)[-1].path))
    kept = last.rename(last.with_suffix(".kept"))
    os.mkfifo(last)
    return StuckTable(table, last, kept)


class Call(threading.Thread):
    """A call in a thread of its own, with what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        super().__init__(daemon=True)  # one that hangs fails its test, and does not keep pytest
        self._call = call
        self.raised: Exception | None = None

    def run(self) -> None:
        try:
            self._call()
        except Exception as error:
            self.raised = error

    def wait(self) -> None:
        """Until it has ended, however busy the machine is."""
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the call goes on"


@contextmanager
def in_thread(call: Callable[[], object], end: Callable[[], object] = lambda: None) -> Iterator[Call]:
    """The call going on; it is told to end with the block and waited for, but not forever."""
    made = Call(call)
    made.start()
    try:
        yield made
    finally:
        end()
        made.wait()
