"""The command line: parses arguments, runs a command, and prints its errors with their codes."""

import sys
import traceback
from collections.abc import Sequence
from errno import errorcode
from inspect import Parameter
from typing import Annotated, Any

import typer

from amoro_cli.command_table import CONTEXT_SETTINGS, LazyGroup, with_example
from amoro_cli.connection import Launcher
from amoro_cli.context import REMOTE, Globals, Session, global_parameters, with_parameters
from amoro_cli.output import Streams, tell
from amoro_core.errors import AmoroError, InvalidArgument, OutputUnwritable, StorageFull, WorkFailed
from amoro_core.model.text_sanitizing import LONGEST_MESSAGE, cut, is_text, printable, without_secrets

_FULL = {"ENOSPC", "EDQUOT"}


def refuse_undecodable(arguments: Sequence[str]) -> None:
    """Raise InvalidArgument for an argument that is not UTF-8: no name here is."""
    for argument in arguments:
        if not is_text(argument):
            raise InvalidArgument(f"{argument!r} is not UTF-8", hint="Write names and paths in UTF-8.")


def refuse_empty(arguments: Sequence[str]) -> None:
    """Raise InvalidArgument for an empty argument, as an unset variable in quotes leaves it."""
    for before, argument in zip(("", *arguments), arguments, strict=False):
        name, equals, value = argument.partition("=")
        if not argument.strip():
            noun = f"the value of {before}" if before.startswith("-") and "=" not in before else "an argument"
            raise InvalidArgument(f"{noun} is empty", hint="Give it a value, or leave it out.")
        if name.startswith("--") and equals and not value.strip():
            raise InvalidArgument(f"the value of {name} is empty", hint="Give it a value, or leave it out.")


def to_amoro_error(error: Exception) -> AmoroError:
    """The exception as an AmoroError: an error of the file system is expected, anything else of others is a bug.

    A full disk is StorageFull, whatever it broke.
    """
    message = error.message if isinstance(error, AmoroError) else without_secrets(str(error))
    if isinstance(error, OSError) and error.strerror:
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if _is_full(error):
        return StorageFull(message)
    if isinstance(error, AmoroError):
        return error
    if isinstance(error, OSError) and error.strerror:
        return WorkFailed(message, hint="Check the file's permissions and its disk." if error.filename else "")
    return AmoroError(
        f"This should not have happened: {type(error).__name__}: {message}",
        hint="Run it again with --debug for the traceback, and report it.",
    )


def _is_full(error: BaseException | None) -> bool:
    """Whether the error, or what caused it, is a full disk or quota; SQLite has words for it."""
    while error is not None:
        if errorcode.get(getattr(error, "errno", None) or 0) in _FULL or str(error) == "database or disk is full":
            return True
        error = error.__cause__
    return False


#: What typer raises for wrong arguments; it exports only this subclass.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130


def build(launcher: Launcher) -> Any:
    """The command line on top of the launcher."""
    text = "Keep Iceberg tables healthy: find small files and deletes, rewrite them, account for every row."
    app = typer.Typer(
        name="amoro",
        help=with_example(text, "amoro demo"),
        rich_markup_mode=None,  # plain text: it is the same everywhere, and rich would double the time to --help
        pretty_exceptions_enable=False,
        cls=LazyGroup,
        no_args_is_help=True,
        # Used by completion before any option is known.
        context_settings={"obj": Session(launcher), **CONTEXT_SETTINGS},
    )

    def globals_(ctx: typer.Context, version: bool, **given: Any) -> None:
        options = {name: value for name, value in given.items() if value}
        ctx.obj = Session(launcher, Globals(**options))

    context = Parameter("ctx", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    option = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    version = Parameter("version", Parameter.KEYWORD_ONLY, default=False, annotation=Annotated[bool, option])
    app.callback()(with_parameters(globals_, [context, *global_parameters(REMOTE), version]))
    return typer.main.get_command(app)


def run(launcher: Launcher, argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; errors are printed on stderr."""
    streams = Streams()
    try:
        status = _run_command(launcher, list(sys.argv[1:] if argv is None else argv))
    except (OutputUnwritable, BrokenPipeError):
        status = OutputUnwritable.exit_status  # printed when the streams are settled
    return streams.settle(status)


def _run_command(launcher: Launcher, arguments: list[str]) -> int:
    """The exit status of the command, whose error has been printed. Raises what writing to stdout raises."""
    try:
        refuse_undecodable(arguments)
        refuse_empty(arguments)
        status = build(launcher)(args=arguments, prog_name="amoro", standalone_mode=False)
        if status == _INTERRUPTED:  # how typer reports Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (KeyboardInterrupt, typer.Abort):
        tell("Interrupted.")
        return _INTERRUPTED
    except _UsageError as error:
        return _refuse_usage(error, arguments)
    except (OutputUnwritable, BrokenPipeError):
        raise
    except Exception as error:
        if "--debug" in arguments:
            tell(without_secrets("".join(traceback.format_exception(error)).rstrip("\n")))
        ours = to_amoro_error(error)
        _explain(ours)
        return ours.exit_status


def _refuse_usage(error: Any, arguments: Sequence[str]) -> int:
    """Print what is wrong with the command's arguments; a group without a command shows its help."""
    message = error.format_message().replace(": Value error, ", ": ")
    if error.ctx is not None and message == error.ctx.get_help():
        sys.stdout.write(f"{message}\n")
        return 0
    value = _value_of(getattr(getattr(error, "param", None), "opts", ()), arguments)
    if value and value not in message:
        message = message.replace("': ", f"': {value!r}: ", 1)
    if error.ctx is not None:
        tell(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n")
    _explain(InvalidArgument(message))
    return InvalidArgument.exit_status


def _value_of(options: Sequence[str], arguments: Sequence[str]) -> str:
    """The value given for an option; "" without one."""
    for at, option in enumerate(arguments):
        name, equals, value = option.partition("=")
        if name.startswith("-") and name in options:
            return value if equals else next(iter(arguments[at + 1 :]), "")
    return ""


def _explain(error: AmoroError) -> None:
    message, hint = cut(error.message, LONGEST_MESSAGE), cut(error.hint or error.remedy, LONGEST_MESSAGE)
    lines = [f"Error: {message} [{error.code}]", f"Hint: {hint}"]
    tell("\n".join(map(printable, lines)))


def _print_version(is_set: bool) -> None:
    if is_set:
        from importlib.metadata import version  # slow to load, and only needed here

        typer.echo(f"amoro {version('amoro')}")
        raise typer.Exit
