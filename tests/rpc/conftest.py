import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint
from amoro_core.bootstrap.coordinator_app import Coordinator
from amoro_core.bootstrap.launcher import LocalLauncher
from amoro_core.bootstrap.settings import Settings
from amoro_core.model.principals import PLAIN
from amoro_optimizer.client import Client
from amoro_optimizer.execution import Backend
from amoro_optimizer.runner import OptimizerConfig, Runner
from amoro_optimizer.session import Registration
from tests.acceptance import processes
from tests.acceptance.tables import config_of
from tests.cli.conftest import Cli, run_with
from tests.engine.writer import make_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    made = make_catalog(tmp_path)
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def coordinator(home: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    """A coordinator that listens, does nothing by itself, and knows one catalog."""
    monkeypatch.setenv("PYICEBERG_HOME", str(home.parent))
    settings = replace(Settings(), port=0, heartbeat_timeout=timedelta(seconds=30))
    made = Coordinator(home, settings, watch=False)
    made.start()
    made.catalogs.add(config_of(catalog))
    yield made
    made.stop()


@pytest.fixture
def command(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Cli:
    """`amoro` beside the coordinator of the state directory."""
    for name in ("AMORO_HOME", "AMORO_ADDRESS", "AMORO_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return lambda *words: run_with(LocalLauncher(), (*words, "--home", str(home)), capfd)


@pytest.fixture
def client(coordinator: Coordinator) -> Iterator[Client]:
    made = Client(coordinator.address, PLAIN, stopping=threading.Event())
    yield made
    made.close()


@pytest.fixture
def admin(coordinator: Coordinator) -> Iterator[AdminClient]:
    with closing(AdminClient(Endpoint(coordinator.address, coordinator.admin_token))) as made:
        yield made


def register(coordinator: Coordinator, client: Client, **changes: Any) -> Registration:
    values = {"group": "default", "threads": 1, "memory_bytes": 1, "labels": {}, "heartbeat_interval_s": 10.0}
    values |= {"running": (), "previous_optimizer_id": "", "work_kinds": ("rewrite",)}
    token = changes.pop("token", coordinator.enrolment_token)
    return client.register(token, **{**values, **changes})[0]


@contextmanager
def optimizer(
    coordinator: Coordinator, backend: Backend, threads: int = 2, heartbeat_s: float = 1
) -> Iterator[tuple[Runner, threading.Thread]]:
    """An optimizer that works by the backend in a thread until the block ends."""
    address, token = coordinator.address, coordinator.enrolment_token
    config = OptimizerConfig(address, "default", threads, 1 << 28, token, heartbeat_s, labels={})
    runner = Runner(config, backend)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield runner, thread
    finally:
        runner.stop()
        thread.join()


def wait_until(condition: Callable[[], object]) -> None:
    """Fail unless the condition holds soon."""
    processes.wait_until(condition, "it comes", 60)
