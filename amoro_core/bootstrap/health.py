"""Health check of a coordinator, for container probes: `python -m amoro_core.bootstrap.health`."""

import os
import sys
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from amoro_cli.connection import recorded_address, resolve_place
from amoro_core.protocol.channels import short_details

TIMEOUT_S = 5.0


def coordinator_health(home: Path) -> tuple[bool, str] | None:
    """Whether it serves, with details; None if none is recorded as running."""
    address = recorded_address(home)
    if address is None:
        return None
    options = [("grpc.enable_http_proxy", 0)]
    with grpc.insecure_channel(address, options=options) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return False, f"{address} does not answer: {short_details(error.details() or error.code().name)}"
    name = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    return answer.status == health_pb2.HealthCheckResponse.SERVING, f"{address} says {name}"


def main() -> None:
    """Exit status 1 when a coordinator runs but does not serve; an optimizer can't be probed."""
    health = coordinator_health(resolve_place(None, None, None, None, os.environ).home)
    serves, detail = health or (True, "no coordinator runs here")
    sys.stdout.write(f"{detail}\n")
    sys.exit(0 if serves else 1)


if __name__ == "__main__":
    main()
