"""The Spark application's settings, and shuffles of a group that is clustered by all executors."""

import os
import re
import shutil
import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import RDD, SparkConf, SparkContext
from pyspark.serializers import NoOpSerializer

from amoro_core.errors import InvalidSettings
from amoro_core.logger import get_logger
from amoro_optimizer.cluster.writing import free_disk
from amoro_optimizer.rewrite.spilling import COMPRESSED

DEFAULT_MASTER = "local[*]"

#: Settings that override Spark's configuration.
FIXED = {
    # Tasks of many tables share the cores; under FIFO a one-task job would wait behind a long one.
    "spark.scheduler.mode": "FAIR",
    # Speculative copies are wasted work; only the newest execution may write anyway.
    "spark.speculation": "false",
}
#: The largest group of files that the application clusters, such as 64g; 0: none.
MOST_CLUSTERED = "spark.amoro.maxClusterBytes"
#: On a cluster, whose disks the driver does not see: the largest group that is planned unless a table says otherwise.
_MOST_ON_CLUSTER = 64 << 30
#: How many times the size of a group's files its rows may take on disk: shuffled, and while they are sorted.
_DISK_FACTOR = 3
DEFAULTS = {
    "spark.app.name": "amoro-optimizer",
    "spark.log.level": "WARN",
    "spark.ui.showConsoleProgress": "false",
    # What is shuffled is compressed already.
    "spark.shuffle.compress": "false",
    # Blocks for this many outputs go to disk as they come, neither sorted nor held by the JVM.
    "spark.shuffle.sort.bypassMergeThreshold": "512",
}


def open_context(master: str | None, settings: Mapping[str, str]) -> SparkContext:
    """Start the application or join spark-submit's, whose settings `settings` override. Raises InvalidSettings."""
    if clashing := sorted(key for key, value in settings.items() if FIXED.get(key, value) != value):
        text = ", ".join(f"{key}={FIXED[key]}" for key in clashing)
        raise InvalidSettings(f"an optimizer on Spark needs {text}", hint="Leave these settings out.")
    under_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if not under_submit:
        require_java()
    # Properties of a job, such as its group, belong to the thread that starts it.
    os.environ["PYSPARK_PIN_THREAD"] = "true"
    conf = SparkConf()
    for key, value in DEFAULTS.items():
        conf.setIfMissing(key, value)
    for key, value in {**settings, **FIXED}.items():
        conf.set(key, value)
    if not conf.get("spark.submit.pyFiles"):
        # The daemon is started before files of --py-files are on its path.
        conf.setIfMissing("spark.python.daemon.module", "amoro_optimizer.backends.spark.daemon")
    if master is not None:
        conf.setMaster(master)
    elif not under_submit:
        conf.setIfMissing("spark.master", DEFAULT_MASTER)
    max_cluster_bytes(conf)  # refuses a malformed setting before anything is started
    # Only spark-submit reads this setting.
    os.environ.setdefault("PYSPARK_PYTHON", conf.get("spark.pyspark.python") or sys.executable)
    try:
        return SparkContext(conf=conf)
    except Exception as error:
        raise InvalidSettings(
            f"Spark does not start with master {conf.get('spark.master')}: {reason_of(error)}",
            hint="Spark's own messages above say more; amoro runs on Java 17.",
        ) from error


def max_cluster_bytes(conf: SparkConf) -> int:
    """The largest group in bytes that is clustered: by its setting, else by the disk. Raises InvalidSettings."""
    value = conf.get(MOST_CLUSTERED)
    if value is not None:
        size = _SIZE.fullmatch(value.lower())
        if size is None:
            raise InvalidSettings(
                f"{MOST_CLUSTERED} has the malformed value {value!r}",
                hint="Give a size such as 64g; 0 clusters nothing.",
            )
        return int(size[1]) << (10 * " kmgtp".index(size[2] or " "))
    if not re.match(r"local(\[|$)", str(conf.get("spark.master"))):
        return _MOST_ON_CLUSTER
    directories = os.environ.get("SPARK_LOCAL_DIRS") or conf.get("spark.local.dir") or gettempdir()
    return min(free_disk(directory) for directory in directories.split(",")) // _DISK_FACTOR


#: A size as Spark's settings have it.
_SIZE = re.compile(r"(\d+)([kmgtp]?)b?")


def require_java() -> None:
    """Raise InvalidSettings unless Spark will find a Java runtime."""
    home = os.environ.get("JAVA_HOME")
    result = (Path(home) / "bin" / "java").exists() if home else shutil.which("java") is not None
    if not result:
        raise InvalidSettings(
            f"Spark needs Java, and {f'JAVA_HOME={home} has no bin/java' if home else 'there is none on the PATH'}",
            hint="Install JDK 17, such as openjdk-17-jre-headless, and set JAVA_HOME where it is not on the PATH.",
        )


def reason_of(error: Exception) -> str:
    """Spark's reason of a failure in one line, without stack traces.

    If that line only introduces what follows (a traceback, Python's output), the first error below it is added.
    """
    java = getattr(error, "java_exception", None)
    text = str(java.getMessage() or java.toString()) if java is not None else str(error)
    first, *rest = text.split("most recent failure: ")[-1].strip().splitlines() or [type(error).__name__]
    below = next((result for line in rest if (result := _ERROR.search(line))), None)
    return f"{first.rstrip()} {below.group()}" if below and first.rstrip().endswith(":") else first


#: An error's class and message, without parentheses that Python may put around them.
_ERROR = re.compile(r"\b[A-Za-z]\w*(?:Error|Exception): .*[^\s)]")


#: What a block has of rows at most, as they are in memory: Spark holds some of them at once.
BLOCK_BYTES = 32 << 20
_READ = pa.ipc.IpcReadOptions(use_threads=False)


class Blocks:
    """Collects rows of one schema until they are worth a block, or the memory is full."""

    def __init__(self, memory_bytes: int) -> None:
        """About this many bytes of rows are held."""
        self.sent_bytes = 0
        self._memory_bytes = memory_bytes
        self._waiting: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
        self._sizes: defaultdict[int, int] = defaultdict(int)
        # Pieces share their batch: it is freed with the last of them.
        self._held_bytes = 0

    def add(self, partition: int, piece: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
        """Add rows for the partition; the blocks that are to be sent now."""
        size = int(piece.nbytes)
        if self._sizes[partition] and self._sizes[partition] + size > BLOCK_BYTES:
            yield self._block(partition)
        self._waiting[partition].append(piece)
        self._sizes[partition] += size
        self._held_bytes += size
        if self._held_bytes > self._memory_bytes:
            yield from self.drain()

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Blocks of all that is left."""
        for partition in sorted(self._waiting):
            yield self._block(partition)
        self._held_bytes = 0

    def _block(self, partition: int) -> tuple[int, bytes]:
        pieces = self._waiting.pop(partition)
        del self._sizes[partition]
        block = stream_of(pa.Table.from_batches(pieces).combine_chunks(), COMPRESSED)
        self.sent_bytes += len(block)
        return partition, block


def stream_of(table: pa.Table, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """The table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def rows_of(block: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a block."""
    with pa.ipc.open_stream(block, options=_READ) as stream:
        yield from stream


log = get_logger("amoro.spark")

Made = TypeVar("Made")

#: A partition's number, and bytes for it.
Addressed = Iterator[tuple[int, bytes]]


@contextmanager
def shuffled(
    context: SparkContext, source: "RDD[Made]", split: Callable[[Iterable[Made]], Addressed], partitions: int
) -> Iterator["RDD[bytes]"]:
    """What `split` makes of each partition of the source, by the partition that it is for, in no certain order.

    What executors keep of it is given up when the block ends: Spark itself waits until its driver collects garbage.
    """

    def addressed(elements: Iterable[Made]) -> Iterator[bytes]:
        for number, block in split(elements):
            yield struct.pack("!q", number)
            yield block

    keyed: Any = source.mapPartitions(addressed, preservesPartitioning=True)
    keyed._bypass_serializer = True  # as PySpark does for its own shuffles
    jvm: Any = context._jvm
    pairs = jvm.PairwiseRDD(keyed._jrdd.rdd()).asJavaPairRDD()
    moved = pairs.partitionBy(jvm.PythonPartitioner(partitions, id(split)))
    try:
        yield RDD(jvm.PythonRDD.valueOfPair(moved), context, NoOpSerializer())
    finally:
        try:
            shuffle, cleaner = moved.rdd().dependencies().head().shuffleId(), context._jsc.sc().cleaner()
            if cleaner.isDefined():
                cleaner.get().doCleanupShuffle(shuffle, False)
        except Exception as error:
            log.warning("shuffle.left_over", error=reason_of(error))
