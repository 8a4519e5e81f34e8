"""The state of an optimizer: pure values, and the decisions that follow from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from amoro_core.model.processes import Attempt
from amoro_core.model.text_sanitizing import Secret


@dataclass(frozen=True, slots=True)
class Registration:
    """The coordinator's answer to a registration."""

    optimizer_id: str
    token: Secret = field(repr=False)
    heartbeat_interval_s: float
    heartbeat_timeout_s: float


@dataclass(frozen=True, slots=True)
class Running:
    """An attempt that is running in a thread."""

    attempt: Attempt
    thread_id: int
    rows_done: int = 0
    rows_total: int = 0
    abandoned: bool = False
    stage: str = ""  # of several that the work has
    core_ms: int = 0  # CPU time of all cores so far; 0: not reported


@dataclass(frozen=True, slots=True)
class Session:
    """The optimizer as a whole. `generation` grows with each registration, so that many threads that meet an invalid
    token cause only one new registration."""

    registration: Registration | None = None
    generation: int = 0
    running: Mapping[Attempt, Running] = field(default_factory=dict)


def registered(session: Session, registration: Registration, adopted: Iterable[Attempt]) -> Session:
    """After a registration: attempts that were not adopted are abandoned."""
    same = set(adopted)
    running = {
        attempt: item if attempt in same else replace(item, abandoned=True) for attempt, item in session.running.items()
    }
    return replace(session, registration=registration, generation=session.generation + 1, running=running)


def token_lost(session: Session, generation: int) -> Session:
    """After the coordinator rejected the token of that generation; later generations are unaffected."""
    if session.generation != generation:
        return session
    return replace(session, registration=None)


def started(session: Session, attempt: Attempt, thread_id: int) -> Session:
    """After a thread took an attempt."""
    return replace(session, running={**session.running, attempt: Running(attempt, thread_id)})


def progressed(session: Session, attempt: Attempt, rows_done: int, rows_total: int) -> Session:
    """After a running attempt made progress; unknown attempts are ignored, and what would be a step back."""
    item = session.running.get(attempt)
    if item is None or rows_done * item.rows_total < item.rows_done * rows_total:
        return session
    changed = replace(item, rows_done=rows_done, rows_total=rows_total)
    return replace(session, running={**session.running, attempt: changed})


def staged(session: Session, attempt: Attempt, stage: str, core_ms: int) -> Session:
    """After a running attempt entered a stage, with its CPU time so far; unknown attempts are ignored."""
    item = session.running.get(attempt)
    if item is None:
        return session
    return replace(session, running={**session.running, attempt: replace(item, stage=stage, core_ms=core_ms)})


def finished(session: Session, attempt: Attempt) -> Session:
    """After an attempt left its thread, whatever the result."""
    return replace(session, running={key: item for key, item in session.running.items() if key != attempt})


def heartbeat_answered(session: Session, abandon: Iterable[Attempt]) -> Session:
    """After a heartbeat: attempts to abandon are marked."""
    dropped = set(abandon)
    running = {
        attempt: replace(item, abandoned=True) if attempt in dropped else item
        for attempt, item in session.running.items()
    }
    return replace(session, running=running)


def abandons(session: Session, attempt: Attempt) -> bool:
    """Whether work on the attempt must stop."""
    item = session.running.get(attempt)
    return item is None or item.abandoned
