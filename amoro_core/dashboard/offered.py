"""What the web side of a coordinator offers, as an application finds it in its state."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import field

from starlette.requests import Request

from amoro_core.admin.calling import Operations
from amoro_core.dashboard.doors import Doors
from amoro_core.dashboard.people import PeopleDoor
from amoro_core.meters import Meters
from amoro_core.model.metrics import Sample
from amoro_core.records import record
from amoro_core.revisions import Revisions
from amoro_core.services.repeating import RepeatingService


@record
class Offered:
    """The operations, and the parts around them. Blocking work runs in `pool`, never in the event loop."""

    operations: Operations
    metrics: Callable[[], Sequence[Sample]]
    may_scrape: Callable[[str], bool]  # whether a token may read the metrics
    pool: Executor
    repeats: RepeatingService
    doors: Doors
    revisions: Revisions = field(default_factory=Revisions)
    most_streams: int = 200  # of live updates
    mcp_writes: bool = False  # whether assistants may write, as far as their tokens may
    meters: Meters = field(default_factory=Meters)
    people: PeopleDoor | None = None  # of an OpenID provider


def offered(request: Request) -> Offered:
    """What the application of the request offers."""
    found: Offered = request.app.state.offered
    return found
