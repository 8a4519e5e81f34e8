"""What a container does: it starts optimizers, tells how they stand and what they said, and ends them.

What it starts pulls its work. A push launch, one job for one plan that ends with it, is for a job manager, which does
not exist yet: it will be another launch of the same kinds of containers, with the same status, end and logs.

A plugged-in one is an entry point of the group `amoro.containers`: its name is the container's, its value a function of
the coordinator's state directory that returns a `Container`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from amoro_core.model.containers import Launch, Observation, Resource


class Container(Protocol):
    """A kind of place where optimizers run. Threads may call it at the same time, for different resources.

    A resource whose handle is empty was begun by a coordinator that died before it could write the handle down: a
    container that can find it by its id does so, another says that it has ended.
    """

    #: Whether it starts anything; where it does not, optimizers are started by hand.
    launches: bool
    #: At least so many seconds lie between two questions for the status of a resource.
    status_interval_s: float

    def check(self, properties: Mapping[str, str]) -> None:
        """Raise InvalidArgument for properties of a group that it can't start optimizers with."""
        ...

    def start(self, launch: Launch) -> str:
        """Start an optimizer and return its handle, without waiting for its registration.

        It survives the end of the coordinator. Its enrolment token must be in no command line and in no log. Raises
        AmoroError.
        """
        ...

    def status(self, resource: Resource) -> Observation:
        """How it stands; UNKNOWN rather than an error."""
        ...

    def stop(self, resource: Resource, *, by_force: bool) -> None:
        """Ask it to finish what it runs and end, or end it at once; one that has ended is no error.

        Raises AmoroError.
        """
        ...

    def logs(self, resource: Resource, lines: int) -> list[str]:
        """The last lines that it said, as far as the container knows them."""
        ...


#: Makes a container for the coordinator of that state directory.
ContainerFactory = Callable[[Path], Container]
