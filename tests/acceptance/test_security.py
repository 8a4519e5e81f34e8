"""Secrets stand in no output, log or file but where they have to; beyond loopback everything goes by TLS."""

from __future__ import annotations

import json

import pytest

from tests.acceptance.processes import STEADY, Installation, Process, address_of
from tests.acceptance.tables import assert_optimized_once, look, name_of, small_table
from tests.engine import writer
from tests.rpc.certificates import Authority

CANARY = "kanarienvogel4711"
#: Files that must hold it, and are readable by their owner alone.
KEPT = {"amoro.db", "amoro.db-wal", "backup.db"}


@pytest.fixture(scope="module")
def coordinator(shared: Installation) -> Process:
    other = shared.directory / "other"
    writer.make_catalog(other, "vault").close()
    # The failpoint makes planning fail in the midst, with a traceback in the log.
    return shared.up("--threads", "1", failpoints="plan.before_store=fail")


def test_a_secret_is_seen_nowhere(shared: Installation, coordinator: Process) -> None:
    catalog = writer.make_catalog(shared.directory / "other", "vault")
    name = name_of(small_table(catalog)).replace("cat.", "vault.", 1)
    catalog.close()
    uri = f"sqlite:///{shared.directory / 'other' / 'catalog.db'}"
    warehouse = (shared.directory / "other" / "warehouse").as_uri()
    keys = ("token", "password", "client_secret", "s3.secret-access-key", "s3.access-key-id")
    secrets = [
        *(f"{key}={CANARY}" for key in keys),
        f"credential=id:{CANARY}",
        f"header.Authorization=Bearer {CANARY}",
        f"adls.connection-string=AccountKey={CANARY}",
        f"note=password={CANARY}",
        f"auth={json.dumps({'type': 'basic', 'basic': {'password': CANARY}})}",
    ]
    environment = {"CANARY_TOKEN": CANARY, "AMORO_UNUSED": CANARY}
    said = []

    def amoro(*arguments: str, ends: int = 0) -> None:
        for form in ("table", "json", "yaml"):
            done = shared.run(*arguments, "-o", form, "--debug", environment=environment)
            said.append((arguments, done.stdout + done.stderr))
            assert done.status == ends, done.stderr

    vault = ("catalog", "add", "vault", "type=sql", f"uri={uri}", f"warehouse={warehouse}")
    assert shared.run(*vault, *secrets).status == 0
    amoro("catalog", "show", "vault")
    amoro("catalog", "list")
    amoro("catalog", "update", "vault", f"token={CANARY}2")
    broken = [f"uri=http://user:{CANARY}@127.0.0.1:9", "type=rest", f"token={CANARY}"]
    amoro("catalog", "add", "down", *broken, ends=1)
    amoro("catalog", "add", "down", "type=sql", f"uri=postgresql+psycopg2://me:{CANARY}@127.0.0.1:9/db", ends=1)
    amoro("catalog", "add", "down", "type=rest", "uri=http://127.0.0.1:9", "token=env:CANARY_TOKEN", ends=1)
    amoro("catalog", "add", "vault", *secrets, ends=5)
    said.append((("table", "list"), shared.run("table", "list", environment={"AMORO_TOKEN": CANARY}).stderr))
    failed = shared.run("optimize", name, "--type", "full", "--wait", "--debug")  # the failpoint
    said.append((("optimize",), failed.stderr))
    assert (failed.status, "Traceback" in failed.stderr) == (1, True)
    assert shared.run("optimize", name, "--type", "full", "--wait").status == 0
    process = shared.ask("process", "list")["processes"][0]["process_id"]
    looks = [f"process show {process}", "process list", f"task list {process}", f"plan {name} --explain", "doctor"]
    looks += [f"table show {name}", f"table properties {name}", "table list", "optimizer list", "token list"]
    for words in (*looks, "config show --origin"):
        done = shared.run(*words.split(), "-o", "json", environment=environment)
        said.append((words, done.stdout + done.stderr))
    assert shared.run("state", "backup", str(shared.directory / "backup.db")).status == 0

    assert [arguments for arguments, text in said if CANARY in text] == []
    assert "Traceback" in coordinator.output or '"exception"' in coordinator.output
    assert [name for name, text in shared.logs() if CANARY in text] == []
    files = [path for path in shared.directory.rglob("*") if path.is_file()]
    holders = [path for path in files if CANARY.encode() in path.read_bytes()]
    assert {"backup.db"} <= {path.name for path in holders} <= KEPT
    for path in holders:
        assert path.stat().st_mode & 0o077 == 0 or path.parent.stat().st_mode & 0o077 == 0
    token = (shared.home / "admin.token").read_text().strip()
    assert [name for name, text in (*shared.logs(), *said) if token in text] == []
    # The filter of logs leaves what an operator needs.
    (started,) = [line for line in coordinator.output.splitlines() if '"event": "coordinator.started"' in line]
    assert json.loads(started)["address"] == address_of(coordinator)


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
    }
    known = {"AMORO_CERTIFICATE_FILE": str(user.certificate), "AMORO_KEY_FILE": str(user.key)}
    table = small_table(installation.catalog)
    before = look(table)
    optimize = ("optimize", name_of(table), "--type", "full", "--wait")
    done = installation.run(*optimize, environment={**elsewhere, **known})
    assert done.status == 0, done.stderr
    assert_optimized_once(table, before, files=1)

    outcome = installation.run("table", "list", environment=elsewhere)
    assert (outcome.status, outcome.stdout) == (1, "")
    assert "It may ask for a client's certificate" in outcome.stderr
    # On its own machine and state directory everything is as ever.
    settings = {each["key"]: each["value"] for each in installation.ask("config", "show")["settings"]}
    assert settings["tls-key"] == str(server.key)
