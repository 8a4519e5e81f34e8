"""The context of a command: options that many have, the connection, and shell completion of names."""

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from amoro_cli.connection import Connection, CoordinatorAddress, Kind, Launcher, connect, resolve_place
from amoro_cli.output import Document, OutputFormat, tell, write
from amoro_core.errors import InvalidArgument
from amoro_core.model.principals import Trust, is_pattern, parse_pattern
from amoro_core.model.properties import parse_duration, parse_memory, parse_time
from amoro_core.model.tables import parse_table
from amoro_core.model.text_sanitizing import printable

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MOST_NAMES = 500
CONNECTION = "Connection options"  # their panel in help


def names_of(kind: Kind) -> Callable[[typer.Context, str], list[str]]:
    """A completion of names of that kind from the state directory.

    The shell waits for it at each Tab: no coordinator is called, and nothing heavy is imported.
    """

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        root = ctx.find_root()
        given = ctx.params.get("home") or root.params.get("home") or os.environ.get("AMORO_HOME") or "~/.amoro"
        names = root.obj.launcher.names(kind, Path(given).expanduser())
        return [name for name in names if name.startswith(incomplete) and name == printable(name)][:_MOST_NAMES]

    return complete


Value = TypeVar("Value")

MOST_THREADS = 1000  # of one optimizer
LOCK_WAIT = timedelta(seconds=10)  # of a command that does not wait for work


def option_parser(parse: Callable[[str], Value]) -> Callable[[str], Value]:
    """The parser for an option: its errors are reported as wrong usage."""

    def read(text: str) -> Value:
        try:
            return parse(text)
        except InvalidArgument as error:
            raise typer.BadParameter(f"{error.message}. {error.hint}") from error
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return read


def _table_name(text: str) -> str:
    parse_table(text, default_catalog="the-only-one")  # the coordinator resolves it
    return text


def _table_names(text: str) -> str:
    if is_pattern(text):
        parse_pattern(text)
        return text
    return _table_name(text)


def argument(*, metavar: str, help: str, **more: Any) -> Any:
    """An argument whose default is not shown: its help tells it."""
    return typer.Argument(metavar=metavar, help=help, show_default=False, **more)


def option(*names: str, help: str, **more: Any) -> Any:
    """An option whose default is not shown: its help tells it. Words to choose from may be in any case."""
    return typer.Option(*names, help=help, show_default=False, case_sensitive=False, **more)


_OUTPUT = typer.Option(
    "--output",
    "-o",
    help="The format: json and yaml are stable and exact; wide shows every column and figure.",
    case_sensitive=False,
)
#: The parameter of commands that print documents.
OUTPUT = Parameter(
    "output", Parameter.KEYWORD_ONLY, default=OutputFormat.TABLE, annotation=Annotated[OutputFormat, _OUTPUT]
)
_TABLES = argument(
    metavar="TABLE",
    parser=option_parser(_table_names),
    autocompletion=names_of(Kind.TABLE),
    help="catalog.namespace.table, several, or patterns such as 'shop.*'; the catalog may be left out where only one "
    "is known.",
)
TablesArgument = Annotated[list[str], _TABLES]
OptionalTablesArgument = Annotated[list[str] | None, _TABLES]
#: All tables without it.
AnyTableArgument = Annotated[str, argument(metavar="TABLE", help="catalog.namespace.table; all tables without it.")]


def table_option(help_: str) -> Any:
    """An option that takes the name of a table."""
    return option(metavar="TABLE", help=help_, autocompletion=names_of(Kind.TABLE))


def id_argument(metavar: str, noun: str = "Its id", kind: Kind | None = None) -> Any:
    """An argument that takes an id, or its beginning or end."""
    text = f"{noun}, or six or more characters of its beginning or end."
    return argument(metavar=metavar, help=text, autocompletion=names_of(kind) if kind else None)


ProcessArgument = Annotated[str, id_argument("PROCESS", "The process's id", Kind.PROCESS)]
TableArgument = Annotated[
    str,
    argument(
        metavar="TABLE",
        parser=option_parser(_table_name),
        autocompletion=names_of(Kind.TABLE),
        help="catalog.namespace.table; the catalog may be left out where only one is known.",
    ),
]


def with_parameters(function: Callable[..., None], parameters: Sequence[Parameter]) -> Callable[..., None]:
    """The function with these parameters, from which its options are made."""
    vars(function)["__signature__"] = Signature(parameters)
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def duration_option(*names: str, help_: str) -> Any:
    """An option that takes a duration, such as 30s or 1h."""
    return typer.Option(*names, metavar="DURATION", parser=option_parser(parse_duration), help=help_)


WaitOption = Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")]
TimeoutOption = Annotated[
    timedelta, duration_option(help_="How long to wait at most, for the lock, a busy table and the end together.")
]


def milliseconds(duration: timedelta | None) -> int:
    """The duration in a request; 0: none is given."""
    return 0 if duration is None else duration // timedelta(milliseconds=1)


def _time_option(name: str, help_: str) -> Any:
    """An option that takes a time in milliseconds, as one such as 2026-11-29T22:00 in UTC, or as how long ago."""
    parser = option_parser(lambda text: parse_time(text, datetime.now(UTC)))
    return typer.Option(name, metavar="AGO|TIME", parser=parser, help=f"{help_} As 12h, or 2026-11-29T22:00 (UTC).")


since_option, until_option = partial(_time_option, "--since"), partial(_time_option, "--until")


def default(text: str) -> Any:
    """The default of an option with a parser, as a user would write it."""
    return text


def memory_option(*names: str, help_: str) -> Any:
    """An option that takes an amount of memory, such as 512MB."""
    return typer.Option(*names, metavar="SIZE", parser=option_parser(_memory), help=help_)


def _memory(text: str) -> int:
    """A thread's memory in bytes. Raises ValueError below 1 MB: a bare 512 was meant as megabytes."""
    size = parse_memory(text)
    if size < 1024 * 1024:
        raise ValueError(f"{text!r} is less than 1MB: write 512MB or 1GB")
    return size


def text_of(path: Path) -> str:
    """The content of a file, "-" is stdin. Raises InvalidArgument."""
    try:
        return sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidArgument(f"{path} can't be read: {error.strerror}", hint="Check its name and rights.") from error
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{path} is not UTF-8", hint="Name a file of text.") from error


MEMORY = default("512MB")  # of a thread
TIMEOUT = default("10m")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Globals:
    """Options that may stand before or after the command."""

    home: Path | None = None
    config: Path | None = None
    address: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    certificate_file: Path | None = None
    key_file: Path | None = None
    verbose: bool = False
    debug: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One run of one command."""

    launcher: Launcher
    options: Globals = Globals()
    output: OutputFormat = OutputFormat.TABLE

    @property
    def place(self) -> CoordinatorAddress:
        """Which coordinator to use. Raises InvalidArgument."""
        options = self.options
        trust = Trust(options.ca_file, options.certificate_file, options.key_file)
        return resolve_place(options.home, options.config, options.address, options.token_file, os.environ, trust)

    def connect(self, lock_wait: timedelta = LOCK_WAIT, *, lasting: bool = False) -> AbstractContextManager[Connection]:
        """The connection of a command that changes something."""
        return connect(self.launcher, self.place, lock_wait, _note, lasting=lasting)

    def reading(self, *, lasting: bool = False) -> AbstractContextManager[Connection]:
        """The connection of a command that only reads and waits for no lock."""
        note = _note if self.options.verbose else lambda _: None
        return connect(self.launcher, self.place, LOCK_WAIT, note, lasting=lasting, reading=True)

    def write(self, document: Document) -> None:
        """Print the document in the format that was asked for."""
        write(document, self.output)

    def change(self, request: "Message", view: Callable[[Any], Document]) -> None:
        """Print the view of the answer to a request that changes something."""
        with self.connect() as connection:
            self.write(view(connection.client.answer(request)))

    def show(self, request: "Message", view: Callable[[Any], Document], *, lasting: bool = False) -> None:
        """Print the view of the answer to a request that only reads."""
        with self.reading(lasting=lasting) as connection:
            self.write(view(connection.client.answer(request)))


def _note(text: str) -> None:
    tell(printable(text))


_CONNECTION_OPTIONS: tuple[tuple[str, Any, str, str], ...] = (
    ("home", Path, "DIR", "The state directory [default: $AMORO_HOME, else ~/.amoro]."),
    ("config", Path, "FILE", "The settings [default: amoro.yaml in the state directory]."),
    ("address", str, "HOST:PORT", "The coordinator to ask [default: $AMORO_ADDRESS, else the state directory's]."),
    ("token_file", Path, "FILE", "The admin token [default: $AMORO_TOKEN, else the state directory's]."),
    ("ca_file", Path, "FILE", "The certificate of the coordinator's authority; enables TLS [default: $AMORO_CA_FILE]."),
    ("certificate_file", Path, "FILE", "This client's certificate [default: $AMORO_CERTIFICATE_FILE]."),
    ("key_file", Path, "FILE", "The key of this client's certificate [default: $AMORO_KEY_FILE]."),
)


def global_parameters(names: Sequence[str]) -> list[Parameter]:
    """The global options of those names as parameters of a command."""
    options: dict[str, Any] = {
        "verbose": Annotated[bool, typer.Option("--verbose", "-v", help="Say so when no coordinator runs.")],
        "debug": Annotated[bool, typer.Option("--debug", help="Show tracebacks.")],
    }
    for name, kind, metavar, text in _CONNECTION_OPTIONS:
        option = f"--{name.replace('_', '-')}"
        connection = typer.Option(option, metavar=metavar, help=text, rich_help_panel=CONNECTION, show_default=False)
        options[name] = Annotated[kind | None, connection]
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=False if name in ("verbose", "debug") else None,
            annotation=options[name],
        )
        for name in names
    ]


TRUST = ("ca_file", "certificate_file", "key_file")
#: Of commands that talk to a coordinator.
REMOTE = (*(name for name, *_ in _CONNECTION_OPTIONS), "verbose", "debug")
LOCAL = ("home", "config", "debug")
