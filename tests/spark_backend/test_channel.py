"""The line between driver and workers, the parts that speak over it, and the blocks of a shuffle."""

from __future__ import annotations

import os
import signal
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark import TaskContext

from amoro_core.errors import AttemptAbandoned, DataFileMissing, OptimizerError
from amoro_core.model.clustering import CLUSTER, ClusterInput
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.protocol import codec
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.codec import encode_cluster_input
from amoro_optimizer.backends.spark import shuffle, worker
from amoro_optimizer.backends.spark.driver_channel import Channel, Job, Superseded, WorkerLine, connected
from amoro_optimizer.backends.spark.shuffle import Blocks, rows_of
from amoro_optimizer.backends.spark.worker import Assignment, StageAttempt, in_part
from amoro_optimizer.work_kinds import Run
from tests.acceptance.processes import wait_until
from tests.bench.data import task
from tests.extension.conftest import install
from tests.spark_backend.groups import LINEAR

HOST = "127.0.0.1"
ATTEMPT = codec.encode_attempt(Attempt(TaskId("01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2", 1), 1)).SerializeToString()


class Wire:
    """A channel with one job, what was told of its progress, and workers' lines that are closed at the end."""

    def __init__(self, channel: Channel, name: str, job: Job, told: list[tuple[Any, ...]], lines: ExitStack) -> None:
        self.job, self.told, self.address, self.key, self.name = job, told, (HOST, channel.port), channel.key, name
        self.channel, self._lines, self.hang_up = channel, lines, lines.close

    def line(self, execution: int, part: str = "write 0") -> WorkerLine:
        return self._lines.enter_context(connected(self.address, self.key, self.name, part, execution))

    def assignment(self, kind: str, payload: bytes) -> Assignment:
        """What a worker is given of the job."""
        return Assignment(ATTEMPT, kind, payload, {}, 1 << 20, self.address, self.key, self.name)


@pytest.fixture
def wire() -> Iterator[Wire]:
    told: list[tuple[Any, ...]] = []
    with (
        closing(Channel(HOST)) as channel,
        channel.job(lambda *progress: told.append(progress[:3])) as (name, job),
        ExitStack() as lines,
    ):
        yield Wire(channel, name, job, told, lines)


def test_the_driver_knows_every_file_that_was_begun_and_how_far_the_work_is(wire: Wire) -> None:
    line = wire.line(1)
    line.announce("file:///a")
    line.announce("file:///b")
    line.progress(5, 10)
    wait_until(lambda: wire.told == [("write 0", 5, 10)], "progress is told")
    assert not line.is_stopped
    assert wire.job.is_running
    assert wire.job.settle(0.1) == ("file:///a", "file:///b")  # it waits for executions only so long
    wire.hang_up()
    assert wire.job.settle(10) == ("file:///a", "file:///b")


def test_executions_of_other_parts_go_on_beside_a_newer_one(wire: Wire) -> None:
    # Executions of several parts arrive in any order.
    other, first = wire.line(2, "write 1"), wire.line(1, "write 0")
    second = wire.line(3, "write 0")
    wait_until(lambda: first.is_stopped, "the first is told to stop")
    with pytest.raises(AttemptAbandoned):
        first.announce("file:///of the replaced one")
    other.announce("file:///other")
    second.announce("file:///second")
    assert first.is_superseded
    assert not any((second.is_superseded, second.is_stopped, other.is_stopped))
    with pytest.raises(Superseded, match="a newer execution of write 0 runs already"):
        wire.line(1, "write 0")
    late = wire.line(4, "write 1")
    late.announce("file:///late")
    wait_until(lambda: other.is_superseded or other.is_stopped, "the other is told to stop")
    second.announce("file:///third")
    wire.hang_up()
    assert wire.job.settle(10) == ("file:///other", "file:///second", "file:///late", "file:///third")


def test_after_the_end_of_a_job_nobody_begins_a_file(wire: Wire) -> None:
    line = wire.line(1)
    wire.job.stop()
    wait_until(lambda: line.is_stopped, "the execution is told to stop")
    assert not line.is_superseded
    with pytest.raises(AttemptAbandoned):
        line.announce("file:///late")
    with pytest.raises(AttemptAbandoned):
        wire.line(2)
    wire.hang_up()
    assert wire.job.settle(10) == ()


def test_what_a_part_concludes_with_is_known_of_its_newest_execution_alone(wire: Wire) -> None:
    first = wire.line(1, "split 0")
    wire.line(2, "split 1").conclude({"rows": 7})
    wire.line(3, "write 1").conclude({"rows": 9})
    second = wire.line(4, "split 0")
    with pytest.raises(AttemptAbandoned):
        first.conclude({"rows": 1})
    assert first.is_superseded
    second.conclude({"rows": 2})
    assert wire.job.facts("split") == {"split 0": {"rows": 2}, "split 1": {"rows": 7}}


def test_a_part_that_fails_ends_the_job_for_all_others(wire: Wire) -> None:
    replaced, other = wire.line(1, "split 0"), wire.line(2, "split 1")
    failing = wire.line(3, "split 0")
    assert not replaced.fail("AMORO-1", "nobody asks for this any more")
    assert (replaced.is_superseded, wire.job.failure, wire.job.is_over) == (True, None, False)
    assert failing.fail("AMORO-1002", "a file is gone")
    assert (wire.job.failure, wire.job.is_over) == (("AMORO-1002", "a file is gone"), True)
    wait_until(lambda: other.is_stopped, "the other part is told to stop")
    with pytest.raises(AttemptAbandoned):
        other.announce("file:///late")
    assert other.fail("AMORO-1", "too late")
    assert wire.job.failure == ("AMORO-1002", "a file is gone")
    with pytest.raises(AttemptAbandoned):
        wire.line(4, "write 0")


def test_the_time_that_parts_have_had_cores_goes_on_and_does_not_run_back(wire: Wire) -> None:
    wire.line(1, "split 0")
    wire.line(2, "split 1")
    wait_until(lambda: wire.job.core_ms > 0, "time is counted")
    wire.hang_up()
    wait_until(lambda: not wire.job.is_running, "both have hung up")
    taken = wire.job.core_ms
    assert taken > 0
    assert wire.job.core_ms == taken


def test_a_job_that_is_over_has_no_name_any_more(wire: Wire) -> None:
    with wire.channel.job(lambda *progress: None) as (name, _):
        pass
    with pytest.raises(AttemptAbandoned), connected(wire.address, wire.key, name, "task", 1):
        pass


def test_a_worker_whose_driver_is_gone_stops_and_knows_that_nobody_heard_its_failure() -> None:
    ours, theirs = socket.socketpair()
    with Connection(ours.detach()) as line:
        worker = WorkerLine(line)
        theirs.close()
        assert not worker.fail("AMORO-1", "nobody hears it")
        assert not worker.is_over
        assert worker.is_stopped
        with pytest.raises(AttemptAbandoned):
            worker.announce("file:///a")


def test_who_does_not_know_the_key_is_not_heard(wire: Wire) -> None:
    with pytest.raises(AttemptAbandoned), connected(wire.address, b"another", wire.name, "task", 1):
        pass
    with Connection(socket.create_connection(wire.address).detach()) as line:
        assert line.recv_bytes().startswith(b"#CHALLENGE#")
        line.send_bytes(b"no digest")
        assert line.recv_bytes() == b"#FAILURE#"
    wire.line(1).announce("file:///a")
    wire.hang_up()
    assert wire.job.settle(10) == ("file:///a",)


def test_a_driver_out_of_reach_is_named() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        port = closed.getsockname()[1]
        told = rf"can't reach the optimizer's driver at 127\.0\.0\.1:{port}"
        with pytest.raises(OptimizerError, match=told) as failed, connected((HOST, port), b"key", "job", "task", 1):
            pass
    assert "spark.driver.host" in failed.value.hint


class Doing:
    """A kind of work that is installed as a plug-in, and does what the test says."""

    do: ClassVar[Callable[[Run], bytes]]

    def open(self, payload: bytes, io_properties: Mapping[str, str]) -> object:
        return SimpleNamespace()

    def execute(self, payload: bytes, access: object, run: Run) -> bytes:
        return type(self).do(run)


Assigned = Callable[[Callable[[Run], bytes]], bytes]


@pytest.fixture
def assigned(wire: Wire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Assigned:
    """A worker that is assigned work of this kind."""
    install(tmp_path, f"[amoro.work_kinds]\ndoing = {__name__}:Doing\n")
    monkeypatch.syspath_prepend(tmp_path)

    def run(do: Callable[[Run], bytes]) -> bytes:
        Doing.do = do
        return worker.run_assignment(wire.assignment("doing", b""), 1, lambda: False)

    return run


def test_an_unexpected_error_of_a_worker_is_told_and_logged_without_secrets(
    assigned: Assigned, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(run: Run) -> bytes:
        raise ValueError("no bucket at https://me:kanarienvogel@host/ with password=kanarienvogel")

    said = pb.TaskResult.FromString(assigned(broken)).failure.message
    logged = capsys.readouterr().err
    assert said.startswith("ValueError: no bucket at https://")
    assert "Traceback" in logged
    assert "ValueError: no bucket at" in logged
    assert "kanarienvogel" not in said + logged


def test_an_execution_that_a_newer_one_has_replaced_says_nothing_that_could_be_taken_for_a_result(
    wire: Wire, assigned: Assigned
) -> None:
    def replaced(run: Run) -> bytes:
        newer = wire.line(2, worker.WHOLE)
        wait_until(run.is_cancelled, "it is told to stop")
        assert not newer.is_stopped
        raise AttemptAbandoned("it was told to stop")

    for _ in range(2):
        with pytest.raises(Superseded):
            assigned(replaced)


PartOf = Callable[[Callable[[StageAttempt], Iterator[int]]], list[int]]


@pytest.fixture
def run(wire: Wire, tmp_path: Path) -> Iterator[PartOf]:
    """Has a worker execute the part "split 3"; a task knows of itself what Spark's own workers tell it."""
    context = TaskContext()
    context._partitionId, context._taskAttemptId, context._cpus = 3, 1, 1
    work = encode_cluster_input(ClusterInput(task(tmp_path, []), LINEAR, "0123456789ab", 1))
    yield lambda do: list(in_part("split", wire.assignment(CLUSTER, work), do))
    TaskContext._setTaskContext(None)  # type: ignore[arg-type]


def test_what_a_part_makes_comes_out_and_what_it_took_is_known(wire: Wire, run: PartOf) -> None:
    def do(part: StageAttempt) -> Iterator[int]:
        yield from (1, 2)
        part.conclude({"rows": 2})

    assert run(do) == [1, 2]
    ((part, told),) = wire.job.facts("split").items()
    assert (part, set(told), told["rows"]) == ("split 3", {"rows", "core_ms"}, 2)


def test_a_failure_that_the_driver_has_heard_ends_the_job_and_is_not_raised_so_that_spark_repeats_nothing(
    wire: Wire, run: PartOf
) -> None:
    def do(part: StageAttempt) -> Iterator[int]:
        yield 1
        raise DataFileMissing("a file is gone", hint="restore it")

    assert run(do) == [1]
    assert wire.job.failure == (DataFileMissing.code, "a file is gone (restore it)")


def test_a_failure_that_nobody_has_heard_is_raised(run: PartOf) -> None:
    def do(part: StageAttempt) -> Iterator[int]:
        yield 1
        part._line._line.close()
        raise DataFileMissing("a file is gone")

    with pytest.raises(OptimizerError, match="the driver is not reached: a file is gone"):
        run(do)


@pytest.fixture
def _hang_ups_pass() -> Iterator[None]:
    """SIGHUP, by which Spark's daemon ends its workers, does not end this process."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("_hang_ups_pass")
@pytest.mark.parametrize(
    ("stop", "raised"),
    [
        (lambda wire: wire.job.stop(), None),
        (lambda wire: os.kill(os.getpid(), signal.SIGHUP), AttemptAbandoned),
        (lambda wire: wire.line(2, "split 3"), Superseded),
    ],
    ids=["the job ends", "the executor ends", "another begins"],
)
def test_a_part_that_is_told_to_stop_is_no_result_and_no_failure_of_the_job(
    wire: Wire, run: PartOf, stop: Callable[[Wire], object], raised: type[Exception] | None
) -> None:
    """Of a job that is over it ends quietly; else Spark hears of it."""

    def do(part: StageAttempt) -> Iterator[int]:
        yield 1
        stop(wire)
        wait_until(part.run.is_cancelled, "it is told to stop")
        raise AttemptAbandoned("it was told to stop")

    with pytest.raises(raised) if raised else nullcontext():
        assert run(do) == [1]
    assert (wire.job.failure, wire.job.is_over) == (None, raised is None)


ROW_BYTES = 8


def piece(first: int, rows: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": pa.array(range(first, first + rows), pa.int64())})


def test_rows_arrive_in_their_order_in_blocks_of_at_most_that_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "BLOCK_BYTES", 10 * ROW_BYTES)
    collected, sent = Blocks(1000 * ROW_BYTES), []
    for number in range(9):
        sent += collected.add(number % 2, piece(number * 4, 4))
    assert [partition for partition, _ in sent] == [0, 1, 0]
    sent += collected.drain()
    found: defaultdict[int, list[int]] = defaultdict(list)
    for partition, block in sent:
        numbers = [number for batch in rows_of(block) for number in batch.column("number").to_pylist()]
        assert len(numbers) <= 10
        found[partition] += numbers
    assert found == {
        partition: [first + at for first in range(4 * partition, 36, 8) for at in range(4)] for partition in (0, 1)
    }
    assert collected.sent_bytes == sum(len(block) for _, block in sent)

    collected = Blocks(1000 * ROW_BYTES)  # a piece larger than a block is a block alone
    sent = [*collected.add(0, piece(0, 30)), *collected.add(0, piece(30, 1)), *collected.drain()]
    assert [sum(batch.num_rows for batch in rows_of(block)) for _, block in sent] == [30, 1]


def test_few_rows_of_many_batches_do_not_keep_these_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "BLOCK_BYTES", 10 * ROW_BYTES)
    collected, waited = Blocks(100 * ROW_BYTES), 0
    for number in range(20):
        batch = piece(number * 11, 11)
        sent = [*collected.add(0, batch.slice(0, 1)), *collected.add(1, batch.slice(1))]
        waited = 0 if 0 in [partition for partition, _ in sent] else waited + 1
        assert waited * 11 <= 100, "a row for the first keeps each batch of the second"
