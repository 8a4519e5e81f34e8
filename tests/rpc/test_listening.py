import asyncio
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from amoro_core.app import Coordinator, running
from amoro_core.errors import AddressInUse, InvalidSettings
from amoro_core.rpc.listening import holder_of
from amoro_core.settings import Settings
from tests.acceptance.processes import free_port


def test_a_taken_port_is_an_error_that_names_its_holder_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with socket.socket() as listener:
        port = free_port()  # nobody gets it between the listener and the coordinator
        listener.bind(("127.0.0.1", port))
        listener.listen()
        assert holder_of(port).startswith(f": process {os.getpid()} (")
        refused = Coordinator(tmp_path / "home", replace(Settings(), port=port), watch=False)
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} can't be listened on: process {os.getpid()} "):
            refused.start()
    assert not (tmp_path / "home" / "coordinator.json").exists()
    assert holder_of(port) == ""
    started = Coordinator(tmp_path / "home", replace(Settings(), port=port), watch=False)
    started.start()
    assert started.address == f"127.0.0.1:{port}"
    started.stop()


def test_what_the_servers_loop_has_under_way_ends_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with running(tmp_path / "home", replace(Settings(), port=0), watch=False) as coordinator:
        # As a round of reports whose callers hung up.
        waiting = asyncio.run_coroutine_threadsafe(asyncio.sleep(3600), coordinator._server._loop)
    assert waiting.cancelled()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.7"])
def test_a_host_that_is_not_this_machines_is_told_as_that(tmp_path: Path, host: str) -> None:
    refused = Coordinator(tmp_path / "home", replace(Settings(), host=host, port=0, insecure=True), watch=False)
    with pytest.raises(InvalidSettings, match=f"host {host} can't be listened on: ") as error:
        refused.start()
    assert type(error.value) is InvalidSettings
    assert "--host" in error.value.hint


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_address_of_ipv6_needs_no_brackets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with running(tmp_path / "home", replace(Settings(), host=host, port=0), watch=False) as coordinator:
        assert coordinator.address.startswith("[::1]:")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_listening_beyond_loopback_is_refused_unless_somebody_accepts_it(tmp_path: Path, host: str) -> None:
    with pytest.raises(InvalidSettings, match=f"host {host} is beyond loopback"):
        Coordinator(tmp_path / "home", replace(Settings(), host=host, port=0), watch=False)
    assert not (tmp_path / "home").exists()
