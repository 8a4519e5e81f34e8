"""The contract of a container: it starts and stops optimizers, and reports their status and logs.

Optimizers that it starts pull their work. Those of a group with `max-instances` are started when tasks wait, and are
drained when they have been idle.

A container is plugged in by an entry point of the group `amoro.containers`: its name is the container's, its value a
function of the coordinator's state directory that returns a `Container`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from amoro_core.errors import InvalidArgument
from amoro_core.model.group_config import Launch, Liveness, Observation, Resource


class Container(Protocol):
    """A kind of environment where optimizers run. Threads may call it concurrently, for different resources.

    A resource with an empty handle was started by a coordinator that died before it stored the handle: a container that
    can find it by its id does so; any other reports that it has ended.
    """

    #: Whether it starts anything; if not, optimizers are started externally.
    launches: bool
    #: The minimum interval between two status requests for a resource, in seconds.
    status_interval_s: float

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise InvalidArgument for a group's properties with which it can't start optimizers."""

    def start(self, launch: Launch) -> str:
        """Start an optimizer and return its handle, without waiting for its registration.

        The optimizer outlives the coordinator. The enrolment token must not appear on a command line or in a log.
        Raises AmoroError.
        """

    def status(self, resource: Resource) -> Observation:
        """The resource's status; UNKNOWN rather than an error."""

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """Ask it to finish its tasks and end, or kill it; does nothing if it has ended.

        Raises AmoroError.
        """

    def logs(self, resource: Resource, lines: int) -> list[str]:
        """The last lines of its output, as far as the container has them."""


#: Makes a container for the coordinator of that state directory.
ContainerFactory = Callable[[Path], Container]


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
        """Does nothing: like every optimizer, it is asked to drain."""

    def logs(self, resource: Resource, lines: int) -> list[str]:
        return []
