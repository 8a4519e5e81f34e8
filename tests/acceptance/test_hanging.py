"""A catalog that takes every request and never answers: commands and coordinators end when they are to."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.acceptance.processes import SETTINGS, Installation


@pytest.fixture
def silent(installation: Installation) -> Iterator[socket.socket]:
    """A catalog `silent` beside the other, which could hang for an hour."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (installation.directory / ".pyiceberg.yaml").open("a") as file:
            file.write(f"  silent:\n    type: rest\n    uri: {uri}\n")
        (installation.home / "amoro.yaml").write_text(f"{SETTINGS}catalog-timeout: 1h\n")
        yield listener


def test_a_coordinator_that_is_told_to_stop_ends_whatever_hangs(
    installation: Installation, silent: socket.socket
) -> None:
    coordinator = installation.up("--threads", "1")
    connection, _ = silent.accept()  # it looks for the catalog's tables
    with connection:
        assert coordinator.terminate() == 0
    assert '"event": "coordinator.cut"' in coordinator.output
    assert not (installation.home / "coordinator.json").exists()
    assert installation.run("process", "list").status == 0


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_command_ends_by_its_timeout_whatever_hangs(
    installation: Installation, silent: socket.socket, options: tuple[str, ...]
) -> None:
    ended = installation.run("optimize", "silent.db.t", "--timeout", "2s", *options)
    assert (ended.status, ended.stdout) == (124, ""), ended.stderr
    assert "[AMORO-8001]" in ended.stderr


def test_a_request_that_takes_too_long_is_told_with_the_catalog_and_the_time(
    installation: Installation, silent: socket.socket
) -> None:
    environment = {"AMORO_CATALOG_TIMEOUT": "1s"}
    ended = installation.run("plan", "silent.db.t", environment=environment)
    assert (ended.status, ended.stdout) == (1, "")
    assert "catalog silent" in ended.said[0]
    assert "no complete answer within 1 s (catalog-timeout)" in ended.said[0]
    found = installation.run("doctor", "-o", "json", environment=environment)
    answers = {item["name"]: item["ok"] for item in found.document["findings"]}
    assert (found.status, answers["catalog silent"], answers["catalog cat"]) == (1, False, True)
