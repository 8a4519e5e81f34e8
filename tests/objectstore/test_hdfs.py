"""Maintenance on a real HDFS: orphans are listed, moved to the table's trash, brought back, and deleted from there.

Left out by `conftest` unless AMORO_HDFS names one (`hdfs://127.0.0.1:19000`): pyarrow reaches HDFS by Hadoop's native
client, which no package of Python brings along. It needs `libhdfs.so` in ARROW_LIBHDFS_DIR, JAVA_HOME, and in CLASSPATH
Hadoop's client jars. Those of Maven (`hadoop-client-minicluster`, `-api`, `-runtime`; `junit` and Spark's jars of slf4j
beside) have the cluster, too: `java org.apache.hadoop.test.MiniDFSClusterManager -nnport 19000 -datanodes 1 -format`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyarrow.fs import FileSystem, FileType
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.files.storage.stores import ArrowStorage
from amoro_core.model.maintenance import ABSENT, DELETED, MOVED, Ended, Options
from amoro_core.model.processes import OptimizingProcess, ProcessStatus
from tests.engine import writer
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

HDFS = os.environ.get("AMORO_HDFS", "").rstrip("/")
PROPERTIES = {"maintenance.clean-orphan-files.trash-keep": "0", "table-trash.enabled": "true"}


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
    assert moved is not None
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


def test_orphans_go_to_the_trash_come_back_and_are_deleted_from_there(
    hdfs: FileSystem, place: str, tmp_path: Path
) -> None:
    catalog = SqlCatalog("cat", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=place)
    catalog.create_tables()
    world = World(tmp_path, catalog)
    world.now = datetime.now(UTC) + timedelta(days=5)
    table = writer.make_table(catalog, "db.t", SCHEMA, properties=PROPERTIES)
    for number in range(3):
        writer.append(table, [row(number)])
    rows = table.refresh().scan().to_arrow().to_pylist()
    files = {task.file.file_path for task in table.scan().plan_files()}
    orphan = write(hdfs, f"{table.location()}/data/orphan.parquet", b"nobody's")

    def run(action: str) -> OptimizingProcess:
        table_id, options = world.table().table_id, Options(confirmed=True)
        begun = world.maintaining.begin(table_id, action, trigger="request", options=options)
        world.committing.commit(begun.process_id)
        return world.optimizing.find_process(begun.process_id).process

    condemning, emptied = run("clean-orphan-files"), run("empty-trash")
    assert (condemning.status, emptied.status) == (ProcessStatus.SUCCESS, ProcessStatus.SUCCESS)
    assert emptied.receipt is not None
    assert emptied.receipt.words == "moved 1 file to the trash folder"
    storage = ArrowStorage(place, hdfs)
    assert storage.stat(orphan) is None
    assert world.trash.restore(condemning.process_id).files == 1
    assert read(hdfs, orphan) == b"nobody's"
    assert run("clean-orphan-files").status is ProcessStatus.SUCCESS
    run("empty-trash")
    world.later(8 * 86_400)
    deleted = run("empty-trash")
    assert deleted.receipt is not None
    assert {one.name: one.value for one in deleted.receipt.figures}["data_files_deleted"] == 1
    left = {one.path for page in storage.pages(place) for one in page}
    assert [path for path in left if path.endswith("orphan.parquet")] == []
    assert files <= left
    assert table.refresh().scan().to_arrow().to_pylist() == rows
    assert len(rows) == 3
    world.close()
    catalog.close()
