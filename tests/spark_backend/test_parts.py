"""What becomes of a part that fails, is replaced, or loses its driver: told, or raised so that Spark repeats it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from amoro_core.errors import AttemptAbandoned, DataFileMissing, OptimizerError
from amoro_core.model.clustering import CLUSTER, ClusterInput
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.protocol import codec
from amoro_core.protocol.cluster_codec import encode_cluster_input
from amoro_optimizer.backends.spark import parts
from amoro_optimizer.backends.spark.channel import Channel, Job, Superseded, connected
from amoro_optimizer.backends.spark.parts import Part, in_part
from amoro_optimizer.backends.spark.worker import Assignment
from tests.acceptance.processes import wait_until
from tests.bench.data import task
from tests.spark_backend.groups import LINEAR

HOST = "127.0.0.1"


@dataclass
class Context:
    """What Spark tells a task of itself."""

    execution: int = 1

    def partitionId(self) -> int:
        return 3

    def taskAttemptId(self) -> int:
        return self.execution

    def cpus(self) -> int:
        return 1


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Context:
    made = Context()
    monkeypatch.setattr(parts.TaskContext, "get", lambda: made)
    return made


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel(HOST)
    yield made
    made.close()


@pytest.fixture
def job(channel: Channel) -> Iterator[tuple[str, Job]]:
    with channel.job(lambda part, done, total, core_ms: None) as made:
        yield made


@pytest.fixture
def run(channel: Channel, job: tuple[str, Job], tmp_path: Path, context: Context) -> Callable[..., list[int]]:
    attempt = codec.encode_attempt(Attempt(TaskId("01a1ffb2-9673-72ae-a0e1-9d22fdba0bc2", 1), 1)).SerializeToString()
    work = encode_cluster_input(ClusterInput(task(tmp_path, []), LINEAR, "0123456789ab", 1))
    assignment = Assignment(attempt, CLUSTER, work, {}, 1 << 20, (HOST, channel.port), channel.key, job[0])
    return lambda do: list(in_part("split", assignment, do))


def test_what_a_part_makes_comes_out_and_what_it_took_is_known(
    job: tuple[str, Job], run: Callable[..., list[int]]
) -> None:
    def do(part: Part) -> Iterator[int]:
        yield 1
        yield 2
        part.conclude({"rows": 2})

    assert run(do) == [1, 2]
    (told,) = job[1].facts("split").values()
    assert (set(job[1].facts("split")), set(told), told["rows"]) == ({"split 3"}, {"rows", "core_ms"}, 2)


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
def test_arrow_takes_its_memory_from_where_a_rewrite_has_it(
    run: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ARROW_DEFAULT_MEMORY_POOL", raising=False)
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        run(lambda part: iter(()))
        assert pa.default_memory_pool().backend_name == "jemalloc"
    finally:
        pa.set_memory_pool(before)


def test_a_failure_that_the_driver_has_heard_ends_the_job_and_is_not_raised_so_that_spark_repeats_nothing(
    job: tuple[str, Job], run: Callable[..., list[int]]
) -> None:
    def do(part: Part) -> Iterator[int]:
        yield 1
        raise DataFileMissing("a file is gone", hint="restore it")

    assert run(do) == [1]
    assert job[1].failure == (DataFileMissing.code, "a file is gone (restore it)")


def test_a_failure_that_nobody_has_heard_is_raised(channel: Channel, run: Callable[..., list[int]]) -> None:
    def do(part: Part) -> Iterator[int]:
        yield 1
        part._line._line.close()
        raise DataFileMissing("a file is gone")

    with pytest.raises(OptimizerError, match="the driver is not reached: a file is gone"):
        run(do)


def test_a_part_of_a_job_that_is_over_ends_quietly(job: tuple[str, Job], run: Callable[..., list[int]]) -> None:
    def do(part: Part) -> Iterator[int]:
        yield 1
        job[1].stop()
        wait_until(part.run.is_cancelled, "it is told to stop")
        raise AttemptAbandoned("it was told to stop")

    assert run(do) == [1]
    assert job[1].failure is None


def test_a_part_whose_executor_has_ended_does_not_end_the_job(
    job: tuple[str, Job], run: Callable[..., list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "hang_up_noted", lambda: nullcontext(lambda: True))

    def do(part: Part) -> Iterator[int]:
        yield 1
        assert part.run.is_cancelled()
        raise AttemptAbandoned("it was told to stop")

    with pytest.raises(AttemptAbandoned):
        run(do)
    assert (job[1].failure, job[1].is_over) == (None, False)


def test_a_part_that_a_newer_execution_has_replaced_is_no_result_and_no_failure(
    channel: Channel, job: tuple[str, Job], run: Callable[..., list[int]]
) -> None:
    def do(part: Part) -> Iterator[int]:
        yield 1
        with connected((HOST, channel.port), channel.key, job[0], "split 3", 2) as newer:
            wait_until(part.run.is_cancelled, "it is told to stop")
            assert not newer.is_stopped
        raise AttemptAbandoned("it was told to stop")

    with pytest.raises(Superseded):
        run(do)
    assert (job[1].failure, job[1].is_over) == (None, False)
