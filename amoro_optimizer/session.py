"""What an optimizer knows of itself: pure values, and the decisions that follow from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from amoro_core.model.processes import Attempt
from amoro_core.model.secrets import Secret


@dataclass(frozen=True, slots=True)
class Registration:
    """What the coordinator answered to a registration."""

    optimizer_id: str
    token: Secret = field(repr=False)
    heartbeat_interval_s: float
    heartbeat_timeout_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that a thread runs."""

    attempt: Attempt
    thread_id: int
    rows_done: int = 0
    rows_total: int = 0
    abandoned: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """The optimizer as a whole. `generation` grows with each registration, so that many threads
    that meet one dead token cause one registration and not many."""

    registration: Registration | None = None
    generation: int = 0
    running: Mapping[Attempt, Running] = field(default_factory=dict)
    draining: bool = False

    @property
    def polls(self) -> bool:
        """Whether threads may ask for work."""
        return self.registration is not None and not self.draining


def registered(session: Session, registration: Registration, adopted: Iterable[Attempt]) -> Session:
    """After a registration: attempts that were not adopted are to be abandoned."""
    kept = set(adopted)
    running = {
        attempt: item if attempt in kept else replace(item, abandoned=True) for attempt, item in session.running.items()
    }
    return replace(session, registration=registration, generation=session.generation + 1, running=running)


def token_lost(session: Session, generation: int) -> Session:
    """After the coordinator did not know the token of that generation; later generations are untouched."""
    if session.generation != generation:
        return session
    return replace(session, registration=None)


def started(session: Session, attempt: Attempt, thread_id: int) -> Session:
    """A thread took an attempt."""
    return replace(session, running={**session.running, attempt: Running(attempt, thread_id)})


def progressed(session: Session, attempt: Attempt, rows_done: int, rows_total: int) -> Session:
    """A running attempt came further; unknown attempts are ignored."""
    item = session.running.get(attempt)
    if item is None:
        return session
    return replace(
        session, running={**session.running, attempt: replace(item, rows_done=rows_done, rows_total=rows_total)}
    )


def finished(session: Session, attempt: Attempt) -> Session:
    """An attempt left its thread, whatever the result."""
    return replace(session, running={key: item for key, item in session.running.items() if key != attempt})


def told(session: Session, abandon: Iterable[Attempt], draining: bool) -> Session:
    """After a heartbeat: attempts to abandon are marked, draining never ends."""
    dropped = set(abandon)
    running = {
        attempt: replace(item, abandoned=True) if attempt in dropped else item
        for attempt, item in session.running.items()
    }
    return replace(session, running=running, draining=session.draining or draining)


def abandons(session: Session, attempt: Attempt) -> bool:
    """Whether work on the attempt is to stop."""
    item = session.running.get(attempt)
    return item is None or item.abandoned
