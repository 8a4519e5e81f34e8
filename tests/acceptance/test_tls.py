"""A coordinator beyond loopback with its optimizer and its users elsewhere, all by TLS."""

from __future__ import annotations

from tests.acceptance.processes import STEADY, Installation, address_of
from tests.acceptance.tables import assert_optimized_once, look, name_of, small_table
from tests.rpc.certificates import Authority


def test_everything_works_by_tls_and_nothing_beyond_loopback_without(installation: Installation) -> None:
    refused = installation.run("up", "--host", "0.0.0.0", "--port", "0", "--without-optimizer")
    assert (refused.status, refused.stdout) == (2, "")
    assert "host 0.0.0.0 is beyond loopback" in refused.stderr

    ours, users = Authority(installation.directory / "ours"), Authority(installation.directory / "users")
    server, user = ours.issue("localhost"), users.issue("client.example")
    files = (f"tls-certificate: {server.certificate}", f"tls-key: {server.key}", f"tls-client-ca: {users.file}")
    (installation.home / "amoro.yaml").write_text("\n".join((STEADY, *files)))
    coordinator = installation.up("--host", "0.0.0.0")
    port = address_of(coordinator).rpartition(":")[2]
    address = f"localhost:{port}"
    trust = ("--ca-file", str(ours.file), "--certificate-file", str(user.certificate), "--key-file", str(user.key))
    installation.optimizer(address, *trust, "--token-file", str(installation.home / "enrolment.token"))

    elsewhere = {
        "AMORO_HOME": str(installation.directory / "elsewhere"),
        "AMORO_ADDRESS": address,
        "AMORO_TOKEN": (installation.home / "admin.token").read_text(),
        "AMORO_CA_FILE": str(ours.file),
        "AMORO_CERTIFICATE_FILE": str(user.certificate),
        "AMORO_KEY_FILE": str(user.key),
    }
    table = small_table(installation.catalog)
    before = look(table)
    done = installation.run("optimize", name_of(table), "--type", "full", "--wait", environment=elsewhere)
    assert done.status == 0, done.stderr
    assert_optimized_once(table, before, files=1)

    unknown = {
        key: value for key, value in elsewhere.items() if key not in ("AMORO_CERTIFICATE_FILE", "AMORO_KEY_FILE")
    }
    outcome = installation.run("table", "list", environment=unknown)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "It may ask for a client's certificate" in outcome.stderr
    # On its own machine and state directory everything is as ever.
    assert [each["value"] for each in installation.ask("config", "show")["settings"] if each["key"] == "tls-key"] == [
        str(server.key)
    ]
