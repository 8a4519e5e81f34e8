"""A coordinator process that serves people: where it says it is, who holds its port, and how it ends."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection

from tests.acceptance.processes import Installation, free_port


def test_a_coordinator_serves_rest_tells_where_and_ends_with_connections_open(installation: Installation) -> None:
    port = free_port()
    served = {"AMORO_HTTP_PORT": str(port)}
    first = installation.start("up", "--port", "0", "--without-optimizer", environment=served)
    assert first.wait_for("REST: ") == f"REST: http://127.0.0.1:{port}/api/v1"
    token = (installation.home / "admin.token").read_text().strip()
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as kept:
        kept.request("GET", "/api/v1/status", headers={"Authorization": f"Bearer {token}"})
        answer = kept.getresponse()
        assert (answer.status, f'"http_address":"http://127.0.0.1:{port}"' in answer.read().decode()) == (200, True)

        second = installation.run(
            "up", "--port", "0", "--home", str(installation.directory / "other"), environment=served
        )
        assert second.status == 2
        assert second.said[0].startswith(f"Error: 127.0.0.1:{port} can't be listened on: process {first.popen.pid} (")
        assert second.said[1].startswith("Hint: Stop what listens there, or choose another http-port")

        assert first.terminate() == 0


def test_a_coordinator_whose_port_is_beyond_loopback_is_refused_without_tls(installation: Installation) -> None:
    refused = installation.run("up", "--port", "0", environment={"AMORO_HTTP_HOST": "0.0.0.0", "AMORO_HTTP_PORT": "1"})
    assert refused.status == 2
    assert refused.said[0].startswith("Error: http-host 0.0.0.0 is beyond loopback")
