"""What a view is given and what it gives: a visit of a page, and the page or where to go on."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import field
from difflib import get_close_matches
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.requests import Request

from amoro_core.dashboard.asking import ask
from amoro_core.errors import InvalidArgument
from amoro_core.records import record
from amoro_core.revisions import Subject

Answer = TypeVar("Answer", bound=Message)
#: Fields whose blanks at the ends count: logging in takes a password as it is.
_AS_TYPED = frozenset({"password"})


@record
class Shown:
    """A page to show: a template, the page's title, and values for it."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    subjects: Sequence[Subject] = ()  # what the page shows, so that it is shown anew when one of them changes


@record
class Gone:
    """An action that is done: the path of the page to go on with, and what that says about it."""

    path: str
    notice: str = ""
    kind: str = "good"  # good, wait or bad: how the notice looks


@record
class Visit:
    """A request for a page, by a caller who is known."""

    request: Request

    async def ask(self, method: str, message: Message, answer: type[Answer]) -> Answer:
        """The answer of an operation to whoever visits. Raises the operation's errors."""
        return await ask(self.request, method, message, answer)

    def named(self, name: str) -> str:
        """A part of the page's path, decoded."""
        return str(self.request.path_params[name])

    def query(self, **known: Collection[str]) -> dict[str, str]:
        """The values of the known parameters of the query, "" where one is left out or empty.

        Each has the collection of its possible values; an empty one: any text. Raises InvalidArgument with the nearest
        for a parameter or a value that is not known.
        """
        given = {key: value.strip() for key, value in self.request.query_params.multi_items()}
        given.pop("notice", None)
        for key, value in given.items():
            if key not in known:
                raise _unknown(key, tuple(known), "a parameter of this page")
            if value and known[key] and value not in known[key]:
                raise _unknown(value, tuple(known[key]), f"a value of {key}")
        return {key: given.get(key, "") for key in known}

    async def form(self, *known: str) -> dict[str, str]:
        """The fields of the form that was sent, "" where one is left out. Raises InvalidArgument for an unknown one."""
        async with self.request.form(max_files=0, max_fields=100) as sent:
            given = {key: value for key, value in sent.multi_items() if isinstance(value, str)}
        for key in given:
            if key not in known:
                raise _unknown(key, known, "a field of this form")
        return {key: value if key in _AS_TYPED else value.strip() for key in known for value in (given.get(key, ""),)}


View = Callable[[Visit], Awaitable[Shown | Gone]]


def whole_number(text: str, name: str, most: int) -> int | None:
    """The number from 0 to `most` in a parameter of that name; None for "". Raises InvalidArgument."""
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= most):
        raise InvalidArgument(f"{text!r} is no {name}", hint=f"It is a whole number from 0 to {most}.")
    return int(text)


def _unknown(text: str, known: Collection[str], what: str) -> InvalidArgument:
    close = get_close_matches(text, list(known), n=1)
    told = f"Did you mean {close[0]}? " if close else ""
    return InvalidArgument(f"{text!r} is not {what}", hint=f"{told}Known: {', '.join(known) or 'none'}.")
