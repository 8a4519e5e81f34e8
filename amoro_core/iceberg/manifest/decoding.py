"""Decoding of large tables' manifests in other processes, so that it takes nothing from the coordinator's own threads.

Only the bytes of manifests go there. A process that ends is replaced, and what it had is decoded again.
"""

import os
import queue
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import Pipe

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.errors import TableRefused
from amoro_core.iceberg.manifest.columns import Listed, read_columns, read_here
from amoro_core.iceberg.manifest.decoding_worker import told
from amoro_core.iceberg.manifest.manifest_cache import LEAST_FILES
from amoro_core.iceberg.manifest.reading import read_bytes
from amoro_core.logger import get_logger
from amoro_core.scan.column_store import unpacked_part
from amoro_core.scan.columns import ColumnPart

log = get_logger("amoro.planning")

#: How often a manifest may end its worker, how long a worker may take for one, and how long workers wait for the next.
ENDINGS, PATIENCE_S, REST_S = 3, 120.0, 600.0
#: Manifests that wait for each worker, so that it never waits for storage.
_AHEAD = 2
#: All that a worker gets of the environment: it needs no secret.
_PASSED_ON = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
PROGRAM = (sys.executable, "-P", "-m", "amoro_core.iceberg.manifest.decoding_worker")


class WorkerEnded(Exception):
    """A worker has ended, or does not answer."""


class Worker:
    """A process that decodes one manifest at a time."""

    def __init__(self, program: Sequence[str]) -> None:
        """Raises OSError when it can't be started."""
        self._connection, theirs = Pipe()
        try:
            self.process = subprocess.Popen(  # noqa: S603 - a list, no shell
                [*program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                start_new_session=True,  # Ctrl-C is for the coordinator
            )
        finally:
            theirs.close()

    def decode(self, data: bytes, listed: Listed) -> ColumnPart | None:
        """As `read_columns`. Raises WorkerEnded."""
        try:
            self._connection.send_bytes(told(listed))
            self._connection.send_bytes(data)
            if not self._connection.poll(PATIENCE_S):
                raise WorkerEnded(f"process {self.process.pid} did not answer within {PATIENCE_S:.0f} s")
            found = self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerEnded(f"process {self.process.pid} has ended") from error
        return unpacked_part(found) if found else None

    def end(self) -> None:
        """End the process."""
        self._connection.close()
        self.process.kill()
        self.process.wait()


class DecodingWorkers:
    """Up to so many processes, which begin with the first large table and end when there was none for ten minutes.

    For several threads.
    """

    def __init__(self, most: int, least_files: int = LEAST_FILES, program: Sequence[str] = PROGRAM) -> None:
        """Fewer files than `least_files` at once are decoded in this process."""
        self._least_files, self._program = least_files, tuple(program)
        self._most = most
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="decode")
        self._free: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._resting: threading.Timer | None = None
        self._lock = threading.Lock()

    def read(self, io: FileIO, manifests: Sequence[tuple[ManifestFile, Listed]]) -> Iterator[ColumnPart | None]:
        """As `read_here`. Raises TableRefused("planning") for a manifest that has ended several workers."""
        if sum(listed.live_files or 0 for _, listed in manifests) < self._least_files:
            yield from read_here(io, manifests)
            return
        waiting: deque[Future[ColumnPart | None]] = deque()
        try:
            for manifest, listed in manifests:
                data = read_bytes(io, manifest)
                waiting.append(self._pool.submit(self._decode, manifest.manifest_path, data, listed))
                if len(waiting) > self._most * _AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()
            self._rest_later()

    @property
    def processes(self) -> list[int]:
        """The ids of the processes that wait for work."""
        return [worker.process.pid for worker in list(self._free.queue)]

    def rest(self) -> None:
        """End the processes that wait for work."""
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().end()

    def close(self) -> None:
        """End all that was begun; nothing is decoded any more."""
        with self._lock:
            if self._resting is not None:
                self._resting.cancel()
        self._pool.shutdown()
        self.rest()

    def _decode(self, path: str, data: bytes, listed: Listed) -> ColumnPart | None:
        for _ in range(ENDINGS):
            try:
                worker = self._taken()
            except OSError as error:
                log.warning("planning.worker_not_started", why=str(error))
                return read_columns(data, listed)
            try:
                found = worker.decode(data, listed)
            except WorkerEnded as error:
                worker.end()
                log.warning("planning.worker_ended", manifest=path, why=str(error))
            else:
                self._free.put(worker)
                return found
        raise TableRefused(
            f"decoding the manifest {path} has ended {ENDINGS} processes, or took each more than {PATIENCE_S:.0f} s",
            reason="planning",
            hint="If memory is short, add some; else rewrite the manifest with another engine.",
        )

    def _taken(self) -> Worker:
        try:
            return self._free.get_nowait()
        except queue.Empty:
            return Worker(self._program)

    def _rest_later(self) -> None:
        with self._lock:
            if self._resting is not None:
                self._resting.cancel()
            self._resting = threading.Timer(REST_S, self.rest)
            self._resting.daemon = True
            self._resting.start()
