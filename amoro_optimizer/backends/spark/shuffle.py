"""A shuffle of bytes: Spark moves them from the parts that made them to the partitions that want them, and reads none.

PySpark's own `partitionBy` collects a thousand elements before it passes any on, each of which is a block here, and
pickles them; the JVM's side of it takes any bytes as they come.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pyspark import RDD, SparkContext
from pyspark.serializers import NoOpSerializer

from amoro_core.events import get_logger
from amoro_optimizer.backends.spark.application import reason_of

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
        _forget(context, moved.rdd().dependencies().head().shuffleId())


def _forget(context: SparkContext, shuffle: int) -> None:
    try:
        cleaner = context._jsc.sc().cleaner()
        if cleaner.isDefined():
            cleaner.get().doCleanupShuffle(shuffle, False)
    except Exception as error:
        log.warning("shuffle.left_over", shuffle=shuffle, error=reason_of(error))
