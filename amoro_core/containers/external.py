"""Optimizers that are started by hand, or by something that we know nothing of."""

from collections.abc import Mapping
from pathlib import Path

from amoro_core.errors import InvalidArgument
from amoro_core.model.containers import Launch, Liveness, Observation, Resource


class ExternalContainer:
    """Starts nothing: who starts an optimizer ends it."""

    launches = False
    status_interval_s = 0.0

    def __init__(self, home: Path) -> None:
        pass

    def check(self, properties: Mapping[str, str]) -> None:
        """Any properties will do."""

    def start(self, launch: Launch) -> str:
        """Raises InvalidArgument."""
        raise InvalidArgument(f"optimizers of group {launch.group!r} are started by hand")

    def status(self, resource: Resource) -> Observation:
        return Observation(Liveness.UNKNOWN)

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """Nothing: it is told to drain, as every optimizer."""

    def logs(self, resource: Resource, lines: int) -> list[str]:
        return []
