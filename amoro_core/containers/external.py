"""Optimizers that are started by hand, or by another system."""

from collections.abc import Mapping
from pathlib import Path

from amoro_core.errors import InvalidArgument
from amoro_core.model.containers import Launch, Liveness, Observation, Resource


class ExternalContainer:
    """Starts nothing: whoever starts an optimizer also stops it."""

    launches = False
    status_interval_s = 0.0

    def __init__(self, home: Path) -> None:
        pass

    def check(self, properties: Mapping[str, str]) -> None:
        """Accepts any properties."""

    def start(self, launch: Launch) -> str:
        """Raises InvalidArgument."""
        raise InvalidArgument(f"optimizers of group {launch.group!r} are started by hand")

    def status(self, resource: Resource) -> Observation:
        return Observation(Liveness.UNKNOWN)

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """Does nothing: like every optimizer, it is told to drain."""

    def logs(self, resource: Resource, lines: int) -> list[str]:
        return []
