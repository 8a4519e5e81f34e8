"""Work of large tables over real gRPC: blobs in pieces, and optimizers with threads of their own."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions import orphans as orphan_actions
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.errors import OptimizerError
from amoro_core.model.processes import Attempt, ProcessStatus
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import Secret
from amoro_core.store import pending_deletions as store_condemned
from amoro_core.store import tasks
from amoro_optimizer.client import Client
from amoro_optimizer.work_kinds import BlobName, InProcess, Kinds
from tests.acceptance.processes import Installation
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.large import count_as_large
from tests.rpc.conftest import optimizer, register, wait_until

NAME = "clean-orphan-files"
KINDS = InProcess(Kinds())


@pytest.fixture
def orphans(coordinator: Coordinator, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A table of a few files that counts as large, and files of nobody in it."""
    count_as_large(monkeypatch)
    keep = {"maintenance.clean-orphan-files.trash-keep": "0"}
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=keep)
    for number in range(3):
        writer.append(table, [row(number, "a"), row(number, "b")])
    root = Path(local_path(table.location()))
    made = [root / "data" / f"part={part}" / f"orphan-{number}.parquet" for part in "abc" for number in range(3)]
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"xyz")
    old = (datetime.now(UTC) - timedelta(days=5)).timestamp()
    for path in root.rglob("*"):
        os.utime(path, (old, old))
    return made


def begin(coordinator: Coordinator, action: str = NAME) -> str:
    table_id = coordinator.tables.ensure(parse_table("cat.db.t")).table_id
    begun = coordinator.services.maintaining.begin(table_id, action, trigger="request")
    assert begun.process_id, begun.reason
    return begun.process_id


def ended(coordinator: Coordinator, process_id: str) -> str:
    """Where a process stands once it does nothing any more."""
    final = (ProcessStatus.SUCCESS, ProcessStatus.FAILED, ProcessStatus.HELD, ProcessStatus.CLOSED)
    wait_until(lambda: coordinator.optimizing.find_process(process_id).process.status in final)
    return coordinator.optimizing.find_process(process_id).process.status


def test_two_optimizers_list_a_table(coordinator: Coordinator, catalog: SqlCatalog, orphans: list[Path]) -> None:
    before = oracle.live_rows(catalog.load_table("db.t"))
    with optimizer(coordinator, KINDS, 1), optimizer(coordinator, KINDS, 1):
        process_id = begin(coordinator)
        assert ended(coordinator, process_id) == ProcessStatus.SUCCESS
        receipt = coordinator.optimizing.find_process(process_id).process.receipt
        assert receipt.words.startswith(f"marked {len(orphans)} orphan files (")
        assert all(path.exists() for path in orphans)
        assert ended(coordinator, begin(coordinator, "empty-trash")) == ProcessStatus.SUCCESS
    assert not any(path.exists() for path in orphans)
    assert oracle.live_rows(catalog.load_table("db.t")) == before


@pytest.fixture
def handed(coordinator: Coordinator, client: Client, orphans: list[Path]) -> tuple[Secret, Attempt]:
    """An attempt that was acknowledged, with the token of its optimizer."""
    begin(coordinator)
    token = register(coordinator, client, work_kinds=Kinds().names).token
    (task,) = client.poll(token, [1], 0, (), 0).tasks
    assert client.ack(token, task.attempt) is not None
    return token, task.attempt


def keep(coordinator: Coordinator, attempt: Attempt, content: bytes, sha256: str = "") -> BlobName:
    name = BlobName(sha256 or hashlib.sha256(content).hexdigest(), len(content))
    process_id = attempt.task_id.process_id
    coordinator._store.write(lambda db: tasks.save_blobs(db, process_id, {name.sha256: content}))
    return name


def test_a_blob_comes_in_pieces_and_whole_and_one_that_is_cut_altered_or_gone_is_refused(
    coordinator: Coordinator, client: Client, handed: tuple[Secret, Attempt]
) -> None:
    content = os.urandom(2 * tasks.PIECE_BYTES + 17)
    for whole in (content, content[: tasks.PIECE_BYTES]):
        assert client.fetch_blob(*handed, keep(coordinator, handed[1], whole)) == whole
    content = content[: 2 * tasks.PIECE_BYTES]
    sha256 = hashlib.sha256(content).hexdigest()
    name = BlobName(sha256, len(content))
    altered = content[:-1] + bytes([content[-1] ^ 1])
    for wrong in (content[:-1], content[: tasks.PIECE_BYTES], altered, content + b"x"):
        keep(coordinator, handed[1], wrong, sha256)
        with pytest.raises(OptimizerError, match="is not what its work names"):
            client.fetch_blob(*handed, name)
    with pytest.raises(OptimizerError, match=r"NOT_FOUND: attempt .* has no blob"):
        client.fetch_blob(*handed, BlobName("0" * 64, 1))


def test_work_whose_blob_was_altered_fails_and_finds_nothing(coordinator: Coordinator, orphans: list[Path]) -> None:
    process_id = begin(coordinator)
    change = "UPDATE work_blob SET content = zeroblob(length(content))"
    coordinator._store.write(lambda db: db.execute(change, {}))
    with optimizer(coordinator, KINDS):
        assert ended(coordinator, process_id) == ProcessStatus.FAILED
    assert "is not what its work names" in coordinator.optimizing.find_process(process_id).process.failure


@pytest.fixture
def condemned(coordinator: Coordinator, orphans: list[Path]) -> list[Path]:
    """Files that are due to be deleted."""
    with optimizer(coordinator, KINDS):
        assert ended(coordinator, begin(coordinator)) == ProcessStatus.SUCCESS
    return orphans


@pytest.fixture
def installation(tmp_path: Path, catalog: SqlCatalog) -> Iterator[Installation]:
    """Where optimizers are started as processes of their own."""
    made = Installation(tmp_path, catalog)
    yield made
    for process in made.processes:
        process.popen.send_signal(signal.SIGCONT)
        process.kill()


def test_an_optimizer_that_was_stopped_between_ack_and_delete_deletes_nothing_past_its_lease(
    coordinator: Coordinator, installation: Installation, condemned: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has done its work, and the very same files are there again, which nobody has guarded for it."""
    mark = installation.directory / "mark"
    with monkeypatch.context() as patch:
        patch.setattr(orphan_actions, "BEGIN_WITHIN", timedelta(seconds=3))
        stopped = installation.optimizer(coordinator.address, failpoints=f"task.before_delete=hold:{mark}")
        process_id = begin(coordinator, "empty-trash")
        wait_until(mark.exists)
        lease_ends_s = time.monotonic() + 3.1
        stopped.popen.send_signal(signal.SIGSTOP)
    (task,) = coordinator.optimizing.find_process(process_id).tasks
    coordinator.optimizing.dismiss(task.thread.optimizer_id, "it is silent", lost=True)
    before = {path: path.stat() for path in condemned}
    with optimizer(coordinator, KINDS):
        ended(coordinator, process_id)
    assert not any(path.exists() for path in condemned)
    for path, was in before.items():
        path.write_bytes(b"xyz")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    threading.Event().wait(max(0.0, lease_ends_s - time.monotonic()))
    mark.unlink()
    stopped.popen.send_signal(signal.SIGCONT)
    stopped.wait_for("were not begun to be deleted within 3 s of their ack")
    assert all(path.exists() for path in condemned)


def test_an_optimizer_that_is_killed_while_it_deletes_has_its_batch_guarded_again(
    coordinator: Coordinator, installation: Installation, condemned: list[Path]
) -> None:
    killed = installation.optimizer(coordinator.address, failpoints="task.after_delete=kill")
    process_id = begin(coordinator, "empty-trash")
    killed.popen.wait()
    assert not any(path.exists() for path in condemned)
    (task,) = coordinator.optimizing.find_process(process_id).tasks
    coordinator.optimizing.dismiss(task.thread.optimizer_id, "it is silent", lost=True)
    with optimizer(coordinator, KINDS):
        assert ended(coordinator, process_id) == ProcessStatus.SUCCESS
    receipt = coordinator.optimizing.find_process(process_id).process.receipt
    assert {one.name: one.value for one in receipt.more}["files_absent"] == len(condemned)


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """To be asked for before files are condemned."""
    monkeypatch.setattr(orphan_actions, "FILES_OF_A_DELETE_TASK", 1)
    monkeypatch.setattr(store_condemned, "MOST_IN_A_BATCH", 1)


@pytest.mark.usefixtures("small_batches")
def test_an_ack_waits_for_the_guard_without_a_thread(coordinator: Coordinator, condemned: list[Path]) -> None:
    """One kind of files in many tasks, of which one guard answers for one at a time."""
    with optimizer(coordinator, KINDS, 4):
        process_id = begin(coordinator, "empty-trash")
        assert ended(coordinator, process_id) == ProcessStatus.SUCCESS
    assert len(coordinator.optimizing.find_process(process_id).tasks) == len(condemned)
    assert not any(path.exists() for path in condemned)
