"""Files of a real HDFS are listed, moved once to the trash of a table, and deleted.

Left out by `conftest` unless AMORO_HDFS names one (`hdfs://127.0.0.1:19000`): pyarrow reaches HDFS by Hadoop's native
client, which no package of Python brings along. It needs `libhdfs.so` in ARROW_LIBHDFS_DIR, JAVA_HOME, and in CLASSPATH
Hadoop's client jars. Those of Maven (`hadoop-client-minicluster`, `-api`, `-runtime`; `junit` and Spark's jars of slf4j
beside) have the cluster, too: `java org.apache.hadoop.test.MiniDFSClusterManager -nnport 19000 -datanodes 1 -format`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from pyarrow.fs import FileSystem, FileType

from amoro_core.files.storage.stores import ArrowStorage
from amoro_core.model.maintenance import ABSENT, DELETED, MOVED, Ended

HDFS = os.environ.get("AMORO_HDFS", "").rstrip("/")


@pytest.fixture
def hdfs() -> FileSystem:
    return FileSystem.from_uri(HDFS)[0]


@pytest.fixture
def place(hdfs: FileSystem) -> Iterator[str]:
    """A directory of the test's own."""
    path = f"/amoro-{uuid.uuid4()}"
    hdfs.create_dir(path)
    yield f"{HDFS}{path}"
    hdfs.delete_dir(path)


def write(hdfs: FileSystem, path: str, content: bytes) -> str:
    with hdfs.open_output_stream(path.removeprefix(HDFS)) as output:
        output.write(content)
    return path


def read(hdfs: FileSystem, path: str) -> bytes:
    with hdfs.open_input_stream(path.removeprefix(HDFS)) as source:
        content: bytes = source.read()
    return content


def test_a_file_is_moved_once_and_never_over_another_one(hdfs: FileSystem, place: str) -> None:
    storage = ArrowStorage(place, hdfs)
    one, other = write(hdfs, f"{place}/data/a", b"abc"), write(hdfs, f"{place}/data/b", b"defg")
    target, before = f"{place}/.trash/day/a", storage.stat(one)
    assert before is not None
    assert [storage.move(one, target), storage.move(one, target)] == [MOVED, MOVED]
    moved = storage.stat(target)
    assert (moved.size_bytes, moved.modified_at, storage.stat(one)) == (3, before.modified_at, None)
    assert storage.move(other, target).ended is Ended.CHANGED
    assert storage.move(f"{place}/data/none", f"{place}/data/c") == ABSENT
    assert (read(hdfs, target), read(hdfs, other)) == (b"abc", b"defg")


def test_only_files_are_deleted_and_listed(hdfs: FileSystem, place: str) -> None:
    storage = ArrowStorage(place, hdfs)
    path = write(hdfs, f"{place}/data/part=a/x", b"abc")
    assert [one.path for page in storage.pages(place) for one in page] == [path]
    said = storage.delete_many([path, f"{place}/data", f"{place}/none"])
    assert said == {path: DELETED, f"{place}/data": ABSENT, f"{place}/none": ABSENT}
    assert hdfs.get_file_info(f"{place}/data/part=a".removeprefix(HDFS)).type == FileType.Directory
