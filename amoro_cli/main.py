"""The command line: all commands, and how errors end them."""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from amoro_cli.commands import (
    blockers,
    catalogs,
    config,
    groups,
    optimizers,
    optimizing,
    processes,
    running,
    state,
    tables,
    tasks,
    tokens,
    verifying,
)
from amoro_cli.launcher import Launcher
from amoro_cli.output import printable
from amoro_cli.session import (
    AddressOption,
    CaFileOption,
    CertificateFileOption,
    ConfigOption,
    DebugOption,
    Globals,
    HomeOption,
    KeyFileOption,
    Session,
    TokenFileOption,
    with_example,
)
from amoro_core.errors import AmoroError, InvalidArgument
from amoro_core.model.secrets import without_secrets

#: What typer raises for wrong arguments; it exports only this child of it.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130


def _register_table(app: typer.Typer) -> None:
    tables.register(app)
    blockers.register(app)


_GROUPS = (
    ("table", _register_table, "Tables: their health, and whether they are optimized."),
    ("process", processes.register, "Optimizing processes: what runs and what ran."),
    ("task", tasks.register, "Tasks of processes: one set of files each, rewritten together."),
    ("optimizer", optimizers.register, "Optimizers: what does the rewriting."),
    ("group", groups.register, "Optimizer groups: who works for which tables."),
    ("catalog", catalogs.register, "Catalogs: where tables come from."),
    ("config", config.register, "Settings of the coordinator."),
    ("token", tokens.register, "Tokens that let people and optimizers in."),
    ("state", state.register, "The state database: copies and checks."),
)
#: What the help of a group shows where a plain list is not possible.
_FIRST = {"task": "list 01997a", "config": "show --origin", "state": "check"}


def build(launcher: Launcher) -> typer.Typer:
    """The command line over the launcher."""
    session = Session(launcher)  # completion asks it before any option is known
    app = _typer(
        "amoro",
        "Keep Iceberg tables healthy: find small files and deletes, rewrite them, account for every row.",
        "amoro demo",
        session,
    )

    @app.callback()
    def globals_(
        ctx: typer.Context,
        home: HomeOption = None,
        config: ConfigOption = None,
        address: AddressOption = None,
        token_file: TokenFileOption = None,
        ca_file: CaFileOption = None,
        certificate_file: CertificateFileOption = None,
        key_file: KeyFileOption = None,
        debug: DebugOption = False,
        version_: Annotated[
            bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
        ] = False,
    ) -> None:
        ctx.obj = Session(
            launcher, Globals(home, config, address, token_file, ca_file, certificate_file, key_file, debug)
        )

    running.register(app)
    optimizing.register(app)
    verifying.register(app)
    for name, register, text in _GROUPS:
        example = f"amoro {name} {_FIRST.get(name, 'list')}"
        group = _typer(name, text, example, session)
        register(group)
        app.add_typer(group)
    return app


def run(launcher: Launcher, argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; errors are told on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without ✓ shows \u2713 and does not fail
    try:
        status = build(launcher)(args=arguments, prog_name="amoro", standalone_mode=False)
        if status == _INTERRUPTED:  # typer's own way of telling of Ctrl-C
            raise KeyboardInterrupt
        return status if isinstance(status, int) else 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except (KeyboardInterrupt, typer.Abort):
        sys.stderr.write("Interrupted.\n")
        return _INTERRUPTED
    except _UsageError as error:
        return _refuse_usage(error, arguments)
    except AmoroError as error:
        if "--debug" in arguments:
            _trace(error)
        _explain(error)
        return error.exit_status
    except Exception as error:
        if "--debug" in arguments:
            _trace(error)
        unexpected = AmoroError(
            f"This should not have happened: {type(error).__name__}: {error}",
            hint="Run it again with --debug for the traceback, and report it.",
        )
        _explain(unexpected)
        return unexpected.exit_status
    return 0


def _open_streams() -> None:
    """Who closes a stream does not want what is written there: the command runs on without it."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives


def _typer(name: str, text: str, example: str, session: Session) -> typer.Typer:
    return typer.Typer(
        name=name,
        help=with_example(text, example),
        rich_markup_mode=None,  # plain text: it is the same everywhere, and rich would double the time to --help
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"obj": session},
    )


def _refuse_usage(error: Any, arguments: Sequence[str]) -> int:
    """Tell what is wrong with the command's arguments; a group without command shows its help."""
    message = error.format_message().replace(": Value error, ", ": ")
    value = _value_of(getattr(getattr(error, "param", None), "opts", ()), arguments)
    if value and value not in message:
        message = message.replace("': ", f"': {value!r}: ", 1)
    if error.ctx is not None and message == error.ctx.get_help():
        sys.stderr.write(f"{message}\n")
    else:
        if error.ctx is not None:
            path = error.ctx.command_path
            sys.stderr.write(f"{error.ctx.get_usage()}\nTry '{path} --help' for help.\n\n")
        _explain(InvalidArgument(message))
    return InvalidArgument.exit_status


def _value_of(options: Sequence[str], arguments: Sequence[str]) -> str:
    """What was given for an option, "" for anything else."""
    for option, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, value = option.partition("=")
        if name.startswith("-") and name in options:
            return value or following
    return ""


def _trace(error: Exception) -> None:
    sys.stderr.write(without_secrets("".join(traceback.format_exception(error))))


def _explain(error: AmoroError) -> None:
    lines = [f"Error: {error.message} [{error.code}]", f"Hint: {error.hint or error.remedy}"]
    sys.stderr.write("".join(f"{printable(line)}\n" for text in lines for line in text.split("\n")))
    sys.stderr.flush()


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version  # slow to load, and only needed here

        typer.echo(f"amoro {version('amoro')}")
        raise typer.Exit
