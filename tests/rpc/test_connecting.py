"""Where a coordinator listens, whom it lets in by TLS, whether it serves, and what Prometheus is told."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives import serialization as pem

from amoro_cli.client import AdminClient
from amoro_cli.connection import Endpoint, Finding, recorded_address
from amoro_core import connect, errors
from amoro_core.bootstrap.coordinator_app import Coordinator, embedded_settings, running
from amoro_core.bootstrap.doctor import diagnose
from amoro_core.bootstrap.settings import Settings
from amoro_core.errors import AddressInUse, AmoroError, InvalidArgument, InvalidSettings, Untrusted
from amoro_core.model.principals import PLAIN, Trust
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2
from amoro_optimizer.client import Client
from tests.rpc.certificates import Authority, Pair
from tests.rpc.conftest import register


def test_a_taken_port_is_an_error_that_names_its_holder_and_leaves_nothing_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        refused = Coordinator(tmp_path / "home", replace(Settings(), port=port), watch=False)
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{port} can't be listened on: process {os.getpid()} "):
            refused.start()
        assert not (tmp_path / "home" / "coordinator.json").exists()
        with running(tmp_path / "home", replace(Settings(), port=0), watch=False) as started:
            assert started.address.startswith("127.0.0.1:")


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


Start, Make = Callable[..., Coordinator], Callable[[str], Authority]
NOW = datetime.now(UTC)


@pytest.fixture
def authority(tmp_path: Path) -> Make:
    return lambda name: Authority(tmp_path / name)


@pytest.fixture
def ours(authority: Make) -> Authority:
    return authority("ours")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a coordinator that shows a certificate; it ends with the test."""
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    running: list[Coordinator] = []

    def started(pair: Pair, *, host: str = "127.0.0.1", client_ca: Path | str = "") -> Coordinator:
        tls = {"tls_certificate": str(pair.certificate), "tls_key": str(pair.key), "tls_client_ca": str(client_ca)}
        made = Coordinator(tmp_path / "home", Settings(host=host, port=0, **tls), watch=False)
        running.append(made)
        made.start()
        return made

    yield started
    for each in running:
        each.stop()


def found(home: Path) -> list[tuple[bool, str]]:
    """What doctor finds about the coordinator of the state directory."""
    return [(each.ok, each.detail) for each in diagnose(home, None) if each.name == "coordinator"]


def ask_by(coordinator: Coordinator, trust: Trust, address: str | None = None) -> str:
    """What the coordinator says of its settings' origin, as a sign that it answered."""
    endpoint = Endpoint(address or coordinator.address, coordinator.admin_token, trust)
    with closing(AdminClient(endpoint)) as client:
        settings = client.GetSettings(admin_pb2.GetSettingsRequest()).settings
        return next(each.value for each in settings if each.key == "tls-certificate")


def test_a_certificate_for_another_name_is_not_trusted_and_a_renewed_one_is_shown_without_a_restart(
    ours: Authority, start: Start
) -> None:
    coordinator = start(ours.issue("elsewhere.example", to="server"))
    with pytest.raises(Untrusted, match="its certificate has another name"):
        ask_by(coordinator, Trust(ours.file))
    # It would go on trying for ever otherwise.
    with (
        closing(Client(coordinator.address, Trust(ours.file), stopping=threading.Event())) as optimizer,
        pytest.raises(Untrusted, match="its certificate has another name"),
    ):
        register(coordinator, optimizer)
    pair = ours.issue("127.0.0.1", to="server")
    assert ask_by(coordinator, Trust(ours.file)) == str(pair.certificate)
    pair.key.write_text("half written")
    assert ask_by(coordinator, Trust(ours.file)) == str(pair.certificate)


def test_beyond_loopback_a_certificate_and_a_token_let_clients_and_optimizers_in(ours: Authority, start: Start) -> None:
    pair = ours.issue("127.0.0.1")
    coordinator = start(pair, host="0.0.0.0")
    there = coordinator.address.replace("0.0.0.0", "127.0.0.1")
    assert ask_by(coordinator, Trust(ours.file), there) == str(pair.certificate)
    assert ask_by(coordinator, Trust(ours.file), f"grpcs://{there}") == str(pair.certificate)
    endpoint = Endpoint(there, Secret("another-token"), Trust(ours.file))
    with closing(AdminClient(endpoint)) as client, pytest.raises(AmoroError) as error:
        client.GetSettings(admin_pb2.GetSettingsRequest())
    assert (error.value.code, error.value.exit_status) == ("AMORO-4002", 4)
    with connect(there, coordinator.admin_token.reveal(), ca_file=ours.file) as api:
        assert api.optimizers() == ()
    with closing(Client(there, Trust(ours.file), stopping=threading.Event())) as optimizer:
        optimizer_id = register(coordinator, optimizer).optimizer_id
    assert [each.optimizer_id for each, _ in coordinator.optimizers.list_optimizers()] == [optimizer_id]


def test_neither_the_clear_nor_another_authority_is_trusted(ours: Authority, authority: Make, start: Start) -> None:
    coordinator = start(ours.issue("127.0.0.1"))
    with pytest.raises(errors.CoordinatorUnavailable) as clear:
        ask_by(coordinator, PLAIN)
    assert clear.value.hint == "It may expect TLS: give the certificate of its authority with --ca-file."
    theirs = Trust(authority("theirs").file)
    for trust, address in ((theirs, coordinator.address), (PLAIN, f"grpcs://{coordinator.address}")):
        with pytest.raises(Untrusted, match="no known authority has signed its certificate") as error:
            ask_by(coordinator, trust, address)
        assert (error.value.code, error.value.exit_status) == ("AMORO-4003", 4)
        assert error.value.hint == "Give the certificate of its authority with --ca-file or AMORO_CA_FILE."


def test_who_may_read_the_state_directory_needs_no_certificate(ours: Authority, start: Start, tmp_path: Path) -> None:
    coordinator = start(ours.issue("elsewhere.example"), host="0.0.0.0")
    local = recorded_address(tmp_path / "home")
    assert local == coordinator.local_address
    assert local.startswith("127.0.0.1:")
    assert ask_by(coordinator, PLAIN, local).endswith("elsewhere.example.crt")
    assert found(tmp_path / "home") == [(True, f"{local} says SERVING")]
    record = json.loads((tmp_path / "home" / "coordinator.json").read_text())
    assert record == {"pid": os.getpid(), "address": coordinator.address, "local_address": local}


def test_only_clients_of_the_authority_named_are_let_in(ours: Authority, authority: Make, start: Start) -> None:
    clients, theirs = authority("clients"), authority("theirs")
    pair = ours.issue("127.0.0.1")
    coordinator = start(pair, client_ca=clients.file)
    known, stranger = clients.issue("client.example"), theirs.issue("client.example")
    assert ask_by(coordinator, Trust(ours.file, known.certificate, known.key)) == str(pair.certificate)
    for trust in (Trust(ours.file), Trust(ours.file, stranger.certificate, stranger.key)):
        with pytest.raises(errors.CoordinatorUnavailable) as error:
            ask_by(coordinator, trust)
        assert "ask for a client's certificate" in error.value.hint


def test_an_expired_certificate_is_refused_at_start_and_by_clients(
    ours: Authority, start: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    since, until = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    expired = ours.issue("127.0.0.1", since=since, until=until)
    with pytest.raises(InvalidSettings) as error:
        start(expired)
    assert error.value.message == f"tls-certificate {expired.certificate} has expired: 2026-01-02 03:04:05 UTC"
    # A client checks by itself: here a server without our checks shows it.
    server, shown = grpc.server(None), (expired.key.read_bytes(), expired.certificate.read_bytes())
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([shown]))
    server.start()
    try:
        endpoint = Endpoint(f"127.0.0.1:{port}", Secret("token"), Trust(ours.file))
        with closing(AdminClient(endpoint)) as client, pytest.raises(Untrusted, match="its certificate has expired"):
            client.GetSettings(admin_pb2.GetSettingsRequest())
    finally:
        server.stop(None).wait()


def test_a_client_for_tls_is_told_of_a_coordinator_in_the_clear(ours: Authority, coordinator: Coordinator) -> None:
    with pytest.raises(errors.CoordinatorUnavailable) as error:
        ask_by(coordinator, Trust(ours.file))
    assert error.value.hint == "It does not encrypt: leave out --ca-file and grpcs://."


def test_files_that_cannot_be_listened_with_are_named_at_start(
    ours: Authority, authority: Make, start: Start, tmp_path: Path
) -> None:
    good, other = ours.issue("127.0.0.1"), authority("theirs").issue("127.0.0.1")
    later = ours.issue("later.example", since=NOW + timedelta(days=1))
    missing, garbage, locked = tmp_path / "missing", tmp_path / "garbage", tmp_path / "locked"
    garbage.write_text("no PEM")
    key, encryption = pem.load_pem_private_key(good.key.read_bytes(), None), pem.BestAvailableEncryption(b"secret")
    locked.write_bytes(key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, encryption))
    said = {
        (missing, good.key): f"tls-certificate {missing} can't be read: No such file or directory",
        (garbage, good.key): f"tls-certificate {garbage} holds no certificate in PEM",
        (good.certificate, missing): f"tls-key {missing} can't be read: No such file or directory",
        (good.certificate, garbage): f"tls-key {garbage} can't be used: ",
        (good.certificate, locked): f"tls-key {locked} can't be used: ",
        (good.certificate, other.key): f"tls-key {other.key} is not the key of tls-certificate {good.certificate}",
        (later.certificate, later.key): f"tls-certificate {later.certificate} is not valid before ",
    }
    for (certificate, key_file), message in said.items():
        with pytest.raises(InvalidSettings) as error:
            start(Pair(certificate, key_file))
        assert error.value.message.startswith(message)
    with pytest.raises(InvalidSettings) as error:
        start(good, client_ca=garbage)
    assert error.value.message == f"tls-client-ca {garbage} holds no certificate in PEM"
    # Each refusal let go of the state directory.
    assert ask_by(start(good), Trust(ours.file)) == str(good.certificate)


def test_half_of_what_tls_needs_and_files_that_cannot_be_used_are_named(tmp_path: Path, ours: Authority) -> None:
    pair = ours.issue("client.example")
    halves = (
        (Settings(tls_certificate=str(pair.certificate)), "TLS needs tls-key too"),
        (Settings(tls_key=str(pair.key)), "TLS needs tls-certificate too"),
        (Settings(tls_client_ca=str(ours.file)), "TLS needs tls-certificate too"),
    )
    for settings, message in halves:
        with pytest.raises(InvalidSettings) as refused:
            Coordinator(tmp_path / "home", settings)
        assert refused.value.message == message
    missing = tmp_path / "missing"
    wrong = (
        (Trust(missing), f"{missing} can't be read: No such file or directory"),
        (Trust(pair.key), f"{pair.key} holds no certificate in PEM"),
        (Trust(ours.file, pair.certificate, pair.certificate), f"{pair.certificate} holds no private key in PEM"),
        (Trust(ours.file, pair.certificate), "a client's certificate and its key belong together"),
    )
    for trust, message in wrong:
        with pytest.raises(InvalidArgument) as error:
            AdminClient(Endpoint("127.0.0.1:1", Secret("token"), trust))
        assert error.value.message == message


def test_doctor_says_how_long_the_certificate_is_valid(ours: Authority, tmp_path: Path) -> None:
    def tls(settings: str) -> list[Finding]:
        (tmp_path / "amoro.yaml").write_text(settings)
        return [each for each in diagnose(tmp_path, None) if each.name == "tls"]

    pair = ours.issue("coordinator.example", until=NOW + timedelta(days=15))
    named = f"tls-certificate: {pair.certificate}\ntls-key: {pair.key}\n"
    (finding,) = tls(named)
    assert (finding.ok, finding.detail) == (True, f"valid until {NOW + timedelta(days=15):%F %T} UTC")
    ours.issue("coordinator.example", until=NOW + timedelta(days=13))
    (finding,) = tls(named)
    assert (finding.ok, finding.fix) == (False, "Renew it: amoro up takes the new files by itself.")
    pair.key.unlink()
    (finding,) = tls(named)
    assert (finding.ok, finding.detail) == (False, f"tls-key {pair.key} can't be read: No such file or directory")
    assert tls("port: 1261\n") == tls("prot: 1\n") == []


def test_a_coordinator_for_one_command_shows_no_certificate(ours: Authority) -> None:
    pair = ours.issue("elsewhere.example")
    settings = Settings(host="0.0.0.0", tls_certificate=str(pair.certificate), tls_key=str(pair.key))
    embedded = embedded_settings(settings)
    assert (embedded.host, embedded.tls_certificate, embedded.tls_key) == ("127.0.0.1", "", "")


def probe(home: Path) -> tuple[int, str]:
    """How the image's probe ends, and what it says."""
    command = [sys.executable, "-m", "amoro_core.bootstrap.health"]
    environment = {**os.environ, "AMORO_HOME": str(home), "GRPC_VERBOSITY": "NONE"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_a_coordinator_that_serves_is_healthy(coordinator: Coordinator) -> None:
    said = f"{coordinator.address} says SERVING"
    assert probe(coordinator.home) == (0, f"{said}\n")
    assert found(coordinator.home) == [(True, said)]


def test_one_that_runs_and_does_not_answer_is_not_and_where_none_runs_there_is_nothing_to_ask(tmp_path: Path) -> None:
    assert probe(tmp_path) == (0, "no coordinator runs here\n")
    assert found(tmp_path) == []
    with socket.socket() as held:  # bound, so that nobody else gets it, and not listening
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        (tmp_path / "coordinator.json").write_text(json.dumps({"pid": os.getpid(), "address": address}))
        status, said = probe(tmp_path)
        assert (status, said.startswith(f"{address} does not answer: ")) == (1, True)
        assert [is_ok for is_ok, _ in found(tmp_path)] == [False]
