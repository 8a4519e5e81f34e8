"""Clustering as a kind of work: by the messages of the contract, and what an optimizer tells of itself and of it."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.secrets import Secret
from amoro_core.model.trust import PLAIN
from amoro_core.model.work import Work
from amoro_core.protocol import optimizing_pb2 as pb
from amoro_core.protocol.cluster_codec import decode_cluster_output, encode_cluster_input
from amoro_optimizer.backends import standalone
from amoro_optimizer.backends.standalone import InProcess
from amoro_optimizer.client import Client
from amoro_optimizer.kinds import Kinds
from amoro_optimizer.running import Run
from amoro_optimizer.session import Running
from tests.unit.cluster.builders import files_of, group, linear, table_of, tables
from tests.unit.rewrite.builders import ATTEMPT, written_under

SCHEMA = Schema(NestedField(1, "number", LongType(), required=True))


def test_work_of_the_kind_is_executed_and_its_result_names_the_files(tmp_path: Path) -> None:
    files = files_of(tmp_path, SCHEMA, table_of(SCHEMA, [[3, 1, 2, 5, 4]]), 2)
    work = group(tmp_path, SCHEMA, linear(1), files, outputs=2)
    stages: list[str] = []
    run = Run(
        ATTEMPT,
        {},
        1 << 28,
        lambda done, total: None,
        lambda: False,
        on_stage=lambda stage, core_ms: stages.append(stage),
    )
    result = InProcess(Kinds()).execute(Work(CLUSTER, encode_cluster_input(work)), "db.t", run)
    output = decode_cluster_output(result.payload)
    assert [table.to_pydict()["number"] for table in tables(output)] == [[1, 2], [3, 4, 5]]
    assert result.kind == CLUSTER
    assert Kinds().of(CLUSTER).files(result.payload) == {file.path for file in output.rewrite.data_files}
    assert set(stages) == {"sample", "split", "write"}


def test_what_lies_outside_the_tables_locations_is_not_read(tmp_path: Path) -> None:
    inside, outside = tmp_path / "table", tmp_path / "other"
    files = files_of(outside, SCHEMA, table_of(SCHEMA, [[3, 1, 2]]), 1)
    payload = encode_cluster_input(group(inside, SCHEMA, linear(1), files))
    run = Run(ATTEMPT, {}, 1 << 28, lambda done, total: None, lambda: False)
    with pytest.raises(TableRefused, match="outside the locations"):
        Kinds().execute(Work(CLUSTER, payload), run)
    assert written_under(inside) == [] if (inside / "data").exists() else True


def test_an_optimizer_takes_groups_of_a_third_of_the_disk_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standalone, "free_disk", lambda root: 3000)
    assert InProcess(Kinds()).max_cluster_bytes == 1000


def test_a_registration_tells_the_largest_group_and_heartbeats_the_stage() -> None:
    told: list[Any] = []

    def register(request: pb.RegisterRequest, **_: Any) -> pb.RegisterResponse:
        told.append(request)
        return pb.RegisterResponse(optimizer_id="o", token="t", heartbeat_interval_ms=1, heartbeat_timeout_ms=2)

    def heartbeat(request: pb.HeartbeatRequest, **_: Any) -> pb.HeartbeatResponse:
        told.append(request)
        return pb.HeartbeatResponse()

    client = Client("127.0.0.1:1", PLAIN, stopping=Event())
    client._stub = SimpleNamespace(Register=register, Heartbeat=heartbeat)
    client.register(
        Secret("x"), group="default", threads=1, memory_bytes=1, labels={}, heartbeat_interval_s=1, running=(),
        previous_optimizer_id="", work_kinds=(CLUSTER,), max_cluster_bytes=77,
    )  # fmt: skip
    client.heartbeat(Secret("t"), [Running(ATTEMPT, 1, 5, 10, stage="split", core_ms=900)], 1)
    client.close()
    registered, beat = told
    assert registered.max_cluster_bytes == 77
    (progress,) = beat.running
    assert (progress.stage, progress.core_ms, progress.rows_done) == ("split", 900, 5)
