"""The outcome of a command for each of several tables, and the one exit status for all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
from amoro_core.records import record

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient

Answer = TypeVar("Answer")

#: Exit statuses, worst first: those that need a person, then those that a later run settles, then success.
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


@record
class Outcome(Generic[Answer]):
    """The outcome for one table, or for a catalog that could not be listed: an answer, an error, or both."""

    table: str
    word: str
    answer: Answer | None = None
    error: AmoroError | None = None

    @property
    def exit_status(self) -> int:
        """The error's exit status; 0 without an error."""
        return self.error.exit_status if self.error else 0


def is_one(names: Sequence[str]) -> bool:
    """Whether exactly one table is named, not by a pattern: the output is then about that table alone."""
    return len(names) == 1 and not is_pattern(names[0])


def select(client: "AdminClient", names: Sequence[str]) -> tuple[list[str], list[Outcome[Any]]]:
    """The selected tables, and an outcome for each catalog that could not be listed."""
    found = client.select_tables(names)
    unlisted: list[Outcome[Any]] = [
        failed(item.catalog, remote_error(item.code, item.exit_status, item.message, item.hint))
        for item in found.unlisted
    ]
    return list(found.tables), unlisted


def each(
    tables: Iterable[str], act: Callable[[str], Answer], word: Callable[[Answer], str]
) -> Iterator[Outcome[Answer]]:
    """Call `act` for one table after the other; an error ends only its own table."""
    for table in tables:
        yield tried(table, act, word)


def tried(table: str, act: Callable[[str], Answer], word: Callable[[Answer], str]) -> Outcome[Answer]:
    """The outcome of `act` for the table."""
    try:
        answer = act(table)
    except AmoroError as error:
        return failed(table, error)
    return Outcome(table, word(answer), answer)


def failed(table: str, error: AmoroError, answer: Answer | None = None) -> Outcome[Answer]:
    """The outcome of a table that failed with the error."""
    word = next((word for kind, word in _WORDS if isinstance(error, kind)), "failed")
    return Outcome(table, word, answer, error)


def worst(statuses: Iterable[int]) -> int:
    """The worst exit status; 0 for none. An unknown status is worse than any other."""
    known = {status: rank for rank, status in enumerate(WORST_FIRST)}
    return min(statuses, key=lambda status: known.get(status, -1), default=0)


def failure_of_all(outcomes: Sequence[Outcome[Answer]]) -> AmoroError | None:
    """The error that the command ends with: that of the first of the worst tables; None when all succeeded."""
    status = worst(outcome.exit_status for outcome in outcomes)
    if not status:
        return None
    chosen = next(outcome for outcome in outcomes if outcome.exit_status == status)
    bad = sum(bool(outcome.exit_status) for outcome in outcomes)
    error = chosen.error or AmoroError("")
    message = f"{bad} of {len(outcomes)} tables did not succeed; the worst is {chosen.table}: {error.message}"
    return remote_error(error.code, status, message, error.hint or error.remedy)
