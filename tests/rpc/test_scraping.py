"""What Prometheus is told, over HTTP from a real coordinator's store."""

import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from amoro_core.app import Coordinator, running
from amoro_core.errors import AddressInUse
from amoro_core.meters import Meters
from amoro_core.model import metrics
from amoro_core.model.metrics import METRICS, MetricKind, Sample
from amoro_core.model.tokens import Role
from amoro_core.protocol import admin_pb2
from amoro_core.protocol.admin_pb2_grpc import AdminServiceStub
from amoro_core.rpc.scraping import MetricsServer, exposed
from amoro_core.settings import Settings
from tests.acceptance.processes import free_port


def ask(port: int, path: str, token: str = "") -> tuple[int, str]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=90)) as connection:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def values(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    labels = {metric.name: metric.labels for metric in METRICS}
    return {
        (sample.name, tuple(sample.labels[label] for label in labels[sample.name])): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.type != "histogram"
    }


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Coordinator, int]]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    port = free_port()
    with running(tmp_path / "home", Settings(port=0, metrics_port=port), watch=False) as coordinator:
        yield coordinator, port


def test_only_who_may_look_is_told(served: tuple[Coordinator, int]) -> None:
    coordinator, port = served
    admin = coordinator.admin_token.reveal()
    assert ask(port, "/metrics")[0] == 401
    assert ask(port, "/metrics", "amo_wrong") == (401, "a token with the role viewer is needed\n")
    assert ask(port, "/metrics", coordinator.enrolment_token.reveal())[0] == 401
    status, text = ask(port, "/metrics", admin)
    assert (status, admin in text) == (200, False)
    told = values(text)
    assert told["amoro_build_info", ("0.1.0",)] == 1
    assert told["amoro_data_files_removed_total", ()] == 0
    assert told["amoro_optimizer_threads", ("default",)] == 0
    _, created = coordinator.tokens.create("prometheus", Role.VIEWER)
    assert ask(port, "/metrics?x=1", created)[0] == 200


def test_probes_need_no_token_and_nothing_else_is_there(served: tuple[Coordinator, int]) -> None:
    _, port = served
    assert [ask(port, path) for path in ("/livez", "/readyz")] == [(200, "ok\n"), (200, "ok\n")]
    assert ask(port, "/")[0] == 404
    assert ask(port, "/../admin.token")[0] == 404


def test_a_port_that_is_taken_names_its_holder_and_leaves_nothing_running(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with (
            pytest.raises(AddressInUse, match=f"127.0.0.1:{port} can't be listened on: process"),
            running(tmp_path / "home", Settings(port=0, metrics_port=port), watch=False),
        ):
            pass
    with running(tmp_path / "home", Settings(port=0), watch=False):
        """The state directory's lock is free again."""


def test_a_failing_read_is_an_error_of_the_server() -> None:
    def broken() -> list[Sample]:
        raise ZeroDivisionError

    port = free_port()
    server = MetricsServer(port, broken, lambda token: True)
    server.start()
    try:
        assert ask(port, "/metrics", "x")[0] == 500
        assert ask(port, "/livez")[0] == 200
    finally:
        server.stop()


def test_every_metric_is_told_by_its_name_and_labels() -> None:
    plain = [metric for metric in METRICS if metric.kind is not MetricKind.HISTOGRAM]
    samples = [Sample(metric.name, 7.0, tuple(f"a {label}" for label in metric.labels)) for metric in plain]
    told = values(exposed(samples).decode())
    assert told == {(sample.name, sample.labels): 7.0 for sample in samples}


def test_a_histogram_is_told_by_its_buckets_sum_and_number() -> None:
    meters = Meters()
    for seconds in (0.001, 0.3, 7200.0):
        meters.observe(metrics.RPC_TIME, seconds, "Poll")
    (family,) = [
        family for family in text_string_to_metric_families(exposed(meters.histograms()).decode()) if family.samples
    ]
    assert (family.name, family.type) == ("amoro_rpc_seconds", "histogram")
    told = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert {sample.labels["method"] for sample in family.samples} == {"Poll"}
    assert told["amoro_rpc_seconds_bucket", "0.001"] == 1
    assert told["amoro_rpc_seconds_bucket", "0.1"] == 1
    assert told["amoro_rpc_seconds_bucket", "0.5"] == 2
    assert told["amoro_rpc_seconds_bucket", "3600"] == 2
    assert told["amoro_rpc_seconds_bucket", "+Inf"] == told["amoro_rpc_seconds_count", None] == 3
    assert told["amoro_rpc_seconds_sum", None] == 7200.301


def test_calls_and_the_disk_of_a_coordinator_are_measured(served: tuple[Coordinator, int]) -> None:
    coordinator, port = served
    with grpc.insecure_channel(coordinator.address) as channel:
        metadata = [("authorization", f"Bearer {coordinator.admin_token.reveal()}")]
        AdminServiceStub(channel).GetStatus(admin_pb2.GetStatusRequest(), metadata=metadata, timeout=60)
    text = ask(port, "/metrics", coordinator.admin_token.reveal())[1]
    assert 'amoro_rpc_seconds_count{method="GetStatus"} 1.0' in text
    told = values(text)
    assert told["amoro_leader", ()] == told["amoro_store_up", ()] == 1
    assert told["amoro_coordinator_epoch", ()] == 1
    assert 0 < told["amoro_state_disk_free_ratio", ()] < 1
