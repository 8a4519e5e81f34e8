"""What came of a command for each of several tables, and the one exit status that stands for all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from amoro_cli.remote import remote_error
from amoro_core.errors import (
    AmoroError,
    CommitUnknown,
    Conflict,
    InvalidArgument,
    NotAllowed,
    NotFound,
    TableRefused,
    WaitTimeout,
)
from amoro_core.model.patterns import is_pattern

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

Answer = TypeVar("Answer")

#: Exit statuses, the worst first: what a person must see to, then what a later run settles, then success.
WORST_FIRST = (1, 4, 2, 3, 6, 7, 5, 124, 0)
_WORDS: tuple[tuple[type[AmoroError], str], ...] = (
    (TableRefused, "refused"),
    (NotFound, "not_found"),
    (NotAllowed, "not_allowed"),
    (InvalidArgument, "wrong_usage"),
    (CommitUnknown, "commit_unknown"),
    (Conflict, "conflict"),
    (WaitTimeout, "not_ended"),
)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[Answer]):
    """What came of it for one table, or for a catalog that could not be listed: an answer, an error, or both."""

    table: str
    word: str
    answer: Answer | None = None
    error: AmoroError | None = None

    @property
    def exit_status(self) -> int:
        """That of the error, 0 without one."""
        return self.error.exit_status if self.error else 0


def is_one(names: Sequence[str]) -> bool:
    """Whether exactly one table is named, and not by a pattern: what is printed then is about that table alone."""
    return len(names) == 1 and not is_pattern(names[0])


def select(client: "AdminClient", names: Sequence[str]) -> tuple[list[str], list[Outcome[Any]]]:
    """The tables that are meant, and an outcome for each catalog that could not be listed."""
    found = client.select_tables(names)
    unlisted: list[Outcome[Any]] = [
        failed(item.catalog, remote_error(item.code, item.exit_status, item.message, item.hint))
        for item in found.unlisted
    ]
    return list(found.tables), unlisted


def each(
    tables: Iterable[str], act: Callable[[str], Answer], word: Callable[[Answer], str]
) -> Iterator[Outcome[Answer]]:
    """Do it for one table after the other; an error ends that of its table alone."""
    for table in tables:
        yield tried(table, act, word)


def tried(table: str, act: Callable[[str], Answer], word: Callable[[Answer], str]) -> Outcome[Answer]:
    """What comes of it for the table."""
    try:
        answer = act(table)
    except AmoroError as error:
        return failed(table, error)
    return Outcome(table, word(answer), answer)


def failed(table: str, error: AmoroError, answer: Answer | None = None) -> Outcome[Answer]:
    """The outcome that an error is."""
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "failed")
    return Outcome(table, word, answer, error)


def worst(statuses: Iterable[int]) -> int:
    """The exit status that stands for all; 0 for none. One that is not known is worse than any other."""
    known = {status: rank for rank, status in enumerate(WORST_FIRST)}
    return min(statuses, key=lambda status: known.get(status, -1), default=0)


def failure_of_all(outcomes: Sequence[Outcome[Answer]]) -> AmoroError | None:
    """The error that the command ends with: that of the worst table, the first of these; None when all went well."""
    status = worst(outcome.exit_status for outcome in outcomes)
    if not status:
        return None
    chosen = next(outcome for outcome in outcomes if outcome.exit_status == status)
    bad = sum(bool(outcome.exit_status) for outcome in outcomes)
    error = chosen.error or AmoroError("")
    message = f"{bad} of {len(outcomes)} tables did not succeed; the worst is {chosen.table}: {error.message}"
    return remote_error(error.code, status, message, error.hint or error.remedy)
